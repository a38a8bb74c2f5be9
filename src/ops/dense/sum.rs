//! `out = x_1 + x_2 + ..`, two to eight terms, added in order
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `x_i`, out | `[n, d]` f32 | the same shape |
//!
//! The backward pass uses it where a value is read more than once. It appends terms one by one: a sum of a
//! sum and another term becomes one op with all terms ([`Op::fused`]), which adds them in the same order. The
//! weights of a model of snapshots have a term for each snapshot. Deterministic.
use super::*;
use crate::runtime::{
    cuda::abi,
    simd::{self, vectorised},
    team::{self, InParallel},
};

/// See the [module](self).
#[derive(Debug)]
pub struct Sum;

vectorised! {
    fn add_to(out: &mut [f32], x: &[f32]) {
        simd::add_assign(out, x);
    }
}

/// Elements that stay in a core's cache while all terms are added.
const PIECE: usize = 2048;

impl Op for Sum {
    const NAME: &'static str = "sum";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "{x} -> out";
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        let most = abi::Terms::MOST;
        ensure!(Self::NAME, (2..=most).contains(&ins.len()), "{} inputs, want 2 to {most}", ins.len());
        typed(Self::NAME, "x", &ins[0], DType::F32)?;
        for x in &ins[1..] {
            ensure!(Self::NAME, ins[0] == *x, "terms are {} and {x}", ins[0]);
        }
        Ok(vec![ins[0].into()])
    }
    fn fused(&self, t: &Tape, ins: &[Var]) -> Option<(Arc<dyn DynOp>, Vec<Var>)> {
        let &[sum, term] = ins else { return None };
        let is_sum = |n: &&Node| n.op.name() == Self::NAME && n.ins.len() < abi::Terms::MOST;
        let terms = &t.maker(sum).filter(is_sum)?.ins;
        Some((Arc::new(Sum), [&terms[..], &[term]].concat()))
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, (ins.len() - 1) * outs[0].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        for (i, o) in io.out::<R>(0).iter_mut().enumerate() {
            *o = (1..io.inputs()).fold(io.input::<R>(0)[i], |sum, at| sum + io.input::<R>(at)[i]);
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let out = io.out::<f32>(0);
        let share = team::share(out.len());
        out.chunks_mut(share).enumerate().in_parallel(1, |(of_thread, out)| {
            for (piece, out) in out.chunks_mut(PIECE).enumerate() {
                let first = of_thread * share + piece * PIECE;
                let here = first..first + out.len();
                out.copy_from_slice(&io.input(0)[here.clone()]);
                (1..io.inputs()).for_each(|at| add_to(out, &io.input::<f32>(at)[here.clone()]));
            }
        });
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let mut of = [std::ptr::null(); abi::Terms::MOST];
        (0..on.inputs()).for_each(|at| of[at] = on.input(at));
        let terms = abi::Terms { of, count: on.inputs() as u64 };
        let (out, d) = (on.out(0), on.cols(0));
        launch!(k, on, sum[Grid::items(on.spec(0).len())]; terms, out, on.rows(0), d)
    }
    fn vjp(&self, _: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        Ok(vec![douts[0]; node.ins.len()])
    }
}

/// `[n, d, terms]`: a value is added to itself, so that its gradient has as many terms. More than eight are
/// added by two ops.
pub(in crate::ops) const CASES: &[&[usize]] =
    &[&[0, 3, 2], &[1, 1, 2], &[10, 100, 2], &[7, 3, 10], &[0, 1, 4], &[1, 2, 6], &[90, 300, 4]];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[100, 100, 8]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let x = c.real(dims[0], dims[1]);
    let outs = (0..dims[2] / 2).map(|_| c.tape.add(x, x)).collect::<Result<Vec<_>>>()?;
    Ok(Built::new(&outs, &[x]))
}
