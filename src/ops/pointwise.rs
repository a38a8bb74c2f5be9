//! Ops on every element by itself. All operands are f32 `[n, d]`, of one shape.
//!
//! | op | out | backward |
//! | --- | --- | --- |
//! | [`Add`] | `a + b` | `da = dout`, `db = dout` |
//! | [`Sub`] | `a - b` | `da = dout`, `db = -dout` |
//! | [`Mul`] | `a b` | `da = dout b`, `db = dout a` |
//! | [`Div`] | `a / b` | `da = dout / b`, `db = -dout out / b` |
//! | [`Scale`] | `s a`, for a constant `s` | `da = s dout` |
//! | [`Exp`] | `e^a` | `da = dout out` |
//! | [`Log`] | `ln a` | `da = dout / a` |
//!
//! Results that are not finite are those of IEEE 754, and no fault: the logarithm of 0 is minus infinity,
//! that of a negative number is NaN, and `e^a` is infinite above 88.7. An op that reads them may report them.
//! `e^a` is within 2 ulp; below -87.3, where it is smaller than the smallest normal number, the CPU returns
//! 0.
use super::*;
use crate::runtime::{
    simd::{self, vectorised},
    team::{self, InParallel},
};

/// Implements ops, each from a row: its operands, and a constant if it has one; its formula, for exact reals
/// and, where another is faster, for f32; its kernel in `kernels/pointwise.cu`; its operations per element;
/// its gradients; and its test case.
macro_rules! pointwise {
    ($(
        $(#[$doc:meta])*
        $op:ident $name:ident($($x:ident),+) $([$s:ident])? = $exact:expr $(; fast $fast:expr)?;
        kernel $kernel:ident; flops $flops:literal;
        backward |$t:ident, $node:ident, $dout:ident| $grads:expr;
        case |$tape:ident, $a:ident, $b:ident, $above_0:ident| $case:expr;
    )+) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $op $((pointwise!(@f32 $s)))?;

        impl Op for $op {
            const NAME: &'static str = stringify!($name);
            const KIND: OpKind = OpKind::Nn;
            const SIGNATURE: &'static str = concat!($(stringify!($x), " [n, d], ",)+ "-> out [n, d]");
            fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
                Cost::streaming(ins, outs, $flops * outs[0].len())
            }
            fn define<R: Real>(&self, io: &Io<'_>) {
                $(let $s = R::from_f64(pointwise!(@constant self $s).into());)?
                let [$($x),+] = inputs::<R, { [$(stringify!($x)),+].len() }>(io);
                for (i, out) in io.out::<R>(0).iter_mut().enumerate() {
                    $(let $x = $x[i];)+
                    *out = $exact;
                }
            }
            fn cpu(&self, io: &Io<'_>) {
                vectorised! {
                    fn each(out: &mut [f32], $($x: &[f32],)+ $($s: f32)?) {
                        $(let $x = &$x[..out.len()];)+
                        for (i, out) in out.iter_mut().enumerate() {
                            $(let $x = $x[i];)+
                            *out = pointwise!(@first $($fast,)? $exact);
                        }
                    }
                }
                let out = io.out::<f32>(0);
                let share = team::share(out.len());
                let [$($x),+] = inputs::<f32, { [$(stringify!($x)),+].len() }>(io);
                out.chunks_mut(share).enumerate().in_parallel(1, |(i, out)| {
                    let range = i * share..i * share + out.len();
                    each(out, $(&$x[range.clone()],)+ $(pointwise!(@constant self $s))?);
                });
            }
            unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
                let mut at = 0..;
                $(let $x = on.input(at.next().unwrap_or_default());)+
                let (out, rows, d) = (on.out(0), on.rows(0), on.cols(0));
                launch!(k, on, $kernel[Grid::items(on.spec(0).len())]; $($x,)+ $(pointwise!(@constant self $s),)? out, rows, d)
            }
            fn vjp(&self, $t: &mut Tape, $node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
                $(let $s = pointwise!(@constant self $s);)?
                let Some($dout) = douts[0] else { return Ok(vec![None; $node.ins.len()]) };
                Ok($grads.map(Some).to_vec())
            }
        }

        pub(super) fn $name(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
            case(c, dims, |$tape, [$a, $b, $above_0]| $case)
        }
    )+};
    (@f32 $s:ident) => { f32 };
    (@constant $op:ident $s:ident) => { $op.0 };
    (@first $first:expr $(, $other:expr)?) => { $first };
}

/// Returns the inputs of an op.
fn inputs<'a, R: Real, const N: usize>(io: &Io<'a>) -> [&'a [R]; N] {
    std::array::from_fn(|i| io.input::<R>(i))
}

pointwise! {
    /// `a + b`; see the [module](self).
    Add add(a, b) = a + b; kernel add; flops 1;
        backward |_t, node, dout| [dout, dout];
        // The gradients of one value are added.
        case |t, a, _b, _above_0| t.add(a, a);
    /// `a - b`; see the [module](self).
    Sub sub(a, b) = a - b; kernel sub; flops 1;
        backward |t, node, dout| [dout, t.scale(dout, -1.0)?];
        case |t, a, b, _above_0| t.sub(a, b);
    /// `a b`; see the [module](self).
    Mul mul(a, b) = a * b; kernel mul; flops 1;
        backward |t, node, dout| [t.mul(dout, node.ins[1])?, t.mul(dout, node.ins[0])?];
        case |t, a, b, _above_0| t.mul(a, b);
    /// `a / b`; see the [module](self).
    Div div(a, b) = a / b; kernel quotient; flops 1;
        backward |t, node, dout| {
            let (da, scaled) = (t.div(dout, node.ins[1])?, t.mul(dout, node.outs[0])?);
            let db = t.div(scaled, node.ins[1])?;
            [da, t.scale(db, -1.0)?]
        };
        case |t, a, _b, above_0| t.div(a, above_0);
    /// `s a`; see the [module](self).
    Scale scale(a) [s] = s * a; kernel scaled; flops 1;
        backward |t, node, dout| [t.scale(dout, s)?];
        case |t, a, _b, _above_0| t.scale(a, -0.3);
    /// `e^a`; see the [module](self).
    Exp exp(a) = a.exp(); fast simd::exp(a); kernel exponential; flops 10;
        backward |t, node, dout| [t.mul(dout, node.outs[0])?];
        case |t, a, _b, _above_0| t.exp(a);
    /// `ln a`; see the [module](self).
    Log log(a) = a.ln(); kernel logarithm; flops 10;
        backward |t, node, dout| [t.div(dout, node.ins[0])?];
        case |t, _a, _b, above_0| t.log(above_0);
}

/// Ops on every element by itself: their operands are f32 `[n, d]`, of one shape. The error is `Shape` if
/// they are not.
///
/// ```
/// use tgnn::{autograd::Program, ops::*, runtime::*};
/// let mut store = Store::new(Precision::F32);
/// let mut tape = Tape::new(&store);
/// let spec = Spec::real(Rows::fixed(1), 2);
/// let a = tape.input(&mut store, "a", spec, &[1.0f32, 6.0])?;
/// let b = tape.input(&mut store, "b", spec, &[2.0f32, 4.0])?;
/// let sum = tape.add(a, b)?;
/// let mean = tape.scale(sum, 0.5)?;
/// let mut program = Program::new(&tape, &[mean], Precision::F32, Backend::Cpu)?;
/// program.run(&mut store)?;
/// assert_eq!(program.read::<f32>(mean, &store)?, [1.5, 5.0]);
/// # Ok::<(), tgnn::error::Error>(())
/// ```
impl Tape {
    /// Returns `a + b`.
    pub fn add(&mut self, a: Var, b: Var) -> Result<Var> {
        self.push1(Add, &[a, b])
    }
    /// Returns `a - b`.
    pub fn sub(&mut self, a: Var, b: Var) -> Result<Var> {
        self.push1(Sub, &[a, b])
    }
    /// Returns `a b`.
    pub fn mul(&mut self, a: Var, b: Var) -> Result<Var> {
        self.push1(Mul, &[a, b])
    }
    /// Returns `a / b`.
    pub fn div(&mut self, a: Var, b: Var) -> Result<Var> {
        self.push1(Div, &[a, b])
    }
    /// Returns `s a` for the constant `s`.
    pub fn scale(&mut self, a: Var, s: f32) -> Result<Var> {
        self.push1(Scale(s), &[a])
    }
    /// Returns `e^a`.
    pub fn exp(&mut self, a: Var) -> Result<Var> {
        self.push1(Exp, &[a])
    }
    /// Returns `ln a`, the natural logarithm.
    pub fn log(&mut self, a: Var) -> Result<Var> {
        self.push1(Log, &[a])
    }
}

/// `[n, live, d]`
pub(super) const CASES: &[&[usize]] =
    &[&[0, 0, 3], &[1, 1, 1], &[12, 10, 7], &[5, 0, 2], &[4, 4, 0], &[700, 699, 3]];
pub(super) const BENCH: &[&[usize]] = &[&[1_487, 1_487, 100]];

/// Builds the case of the op that `append` appends: on two values from -1 to 1, and one from 0.5 to 2.5.
/// Closer to 0 the finite differences of the gradients of a logarithm and a quotient are not exact enough.
fn case(
    c: &mut CaseBuilder,
    dims: &[usize],
    append: impl FnOnce(&mut Tape, [Var; 3]) -> Result<Var>,
) -> Result<Built> {
    let &[n, live, d] = dims else { return Err(Error::shape("pointwise", "three sizes")) };
    let count = c.count(live);
    let (a, b) = (c.live_real(n, count, d), c.live_real(n, count, d));
    let above_0: Vec<f32> = (0..n * d).map(|_| 1.5 + c.uniform()).collect();
    let above_0 = c.values(Spec::real(Rows::live(n, count), d), &above_0);
    let out = append(&mut c.tape, [a, b, above_0])?;
    let node = c.tape.nodes().last();
    let read = node.map_or(&[][..], |node| &node.ins);
    let wrt: Vec<Var> = [a, b, above_0].into_iter().filter(|x| read.contains(x)).collect();
    Ok(Built::new(&[out], &wrt))
}
