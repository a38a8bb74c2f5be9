//! The op: `y = x / (1 + e^-x)`, and its gradient if `dy` is given.
use std::{ptr::null, sync::OnceLock};
use tgnn::{
    error::{Error, Result},
    ops::{Built, CaseBuilder, Node, Op, OpKind, Tape},
    runtime::{cuda::*, team::*, vector::sigmoid, *},
};

/// The op's kernel, on the one device of this program.
pub static KERNEL: OnceLock<CudaKernel> = OnceLock::new();

#[derive(Debug)]
pub struct Silu {
    pub grad: bool,
}

tgnn::vectorised! {
    fn forward(y: &mut [f32], x: &[f32]) {
        y.iter_mut().zip(x).for_each(|(y, &x)| *y = x * sigmoid(x));
    }
}

impl Op for Silu {
    const NAME: &'static str = "silu";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "x [n, d], dy? [n, d] -> out [n, d]";
    fn has(&self, _: &str) -> Option<bool> {
        Some(self.grad)
    }
    // What the op is, in f64 and f32.
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (x, dy) = (io.input::<R>(0), self.grad.then(|| io.input::<R>(1)));
        for (i, y) in io.out::<R>(0).iter_mut().enumerate() {
            let s = x[i].sigmoid();
            *y = dy.map_or(x[i] * s, |dy| dy[i] * (s + x[i] * s * (R::ONE - s)));
        }
    }
    // A faster path, where one is worth it.
    fn cpu(&self, io: &Io<'_>) {
        if self.grad {
            return self.define::<f32>(io);
        }
        let (y, x) = (io.out::<f32>(0), io.input::<f32>(0));
        let size = share(y.len());
        y.chunks_mut(size).zip(x.chunks(size)).in_parallel(1, |(y, x)| forward(y, x));
    }
    unsafe fn launch(&self, _: &Kernels, on: &Launch<'_>) -> Result<()> {
        let kernel = KERNEL.get().ok_or_else(|| Error::usage("the kernel is not compiled"))?;
        let (mut x, mut dy) = (on.input::<f32>(0), if self.grad { on.input::<f32>(1) } else { null() });
        let (mut y, mut rows, mut d) = (on.out::<f32>(0), on.rows(0), on.cols(0));
        let arguments = &mut [
            (&raw mut x).cast(),
            (&raw mut dy).cast(),
            (&raw mut y).cast(),
            (&raw mut rows).cast(),
            (&raw mut d).cast(),
        ];
        // SAFETY: `infer` checked the shapes, and the arguments are those of `silu.cu`.
        unsafe { kernel.launch(on, Grid::items(on.spec(0).len()), arguments) }
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let Some(dy) = douts[0] else { return Ok(vec![None]) };
        Ok(vec![Some(t.push1(Silu { grad: true }, &[node.ins[0], dy])?)])
    }
}

/// Builds a test case: `[n, d]`.
pub fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let x = c.real_in(dims[0], dims[1], |u| 4.0 * u);
    let y = c.tape.push1(Silu { grad: false }, &[x])?;
    Ok(Built::new(&[y], &[x]))
}
