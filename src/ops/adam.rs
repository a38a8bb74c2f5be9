//! `m = b1 m + (1 - b1) g`, `v = b2 v + (1 - b2) g^2`,
//! `w -= lr / (1 - b1^t) m / (sqrt(v / (1 - b2^t)) + eps)`
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `lr` | `[1, 1]` f32 | learning rate; a stored value, so that it can change between steps |
//! | `step` | `[1, 1]` u32, state | t: incremented before the update |
//! | `w`, `g`, `m`, `v`, for every parameter | same shape, f32; `w`, `m`, `v` state | value, gradient, moments |
//!
//! One op handles all parameters, with one launch for every 64 of them. Deterministic. Source: Kingma and Ba
//! 2015; as PyTorch's Adam, with its defaults b1 0.9, b2 0.999, eps 1e-8.
use super::*;
use crate::runtime::{
    cuda::abi,
    simd::{self, vectorised},
    team::{self, InParallel},
};

const BETA1: f64 = 0.9;
const BETA2: f64 = 0.999;
const EPS: f64 = 1e-8;

/// Elements that one thread block updates.
const PIECE: usize = 4 * Grid::THREADS as usize;

/// Positions of the inputs: `lr`, `step`, then `w`, `g`, `m`, `v` of the first parameter, and so on.
const LR: usize = 0;
const STEP: usize = 1;
const FIRST_W: usize = 2;
/// Inputs per parameter, and the offsets of three of them from the first, `w`.
const INPUTS_EACH: usize = 4;
const G: usize = 1;
const M: usize = 2;
const V: usize = 3;

/// See the [module](self).
#[derive(Debug)]
pub struct Adam;

/// A parameter with its gradient and moments, all of one shape.
#[derive(Clone, Copy, Debug)]
pub struct AdamSlot {
    /// Parameter.
    pub w: Var,
    /// Gradient of the parameter.
    pub g: Var,
    /// First moment.
    pub m: Var,
    /// Second moment.
    pub v: Var,
}

impl Tape {
    /// Appends [`Adam`].
    ///
    /// # Errors
    /// `Shape` if a gradient or moment differs from its parameter in shape, or if state is not writable.
    pub fn adam(&mut self, lr: Var, step: Var, slots: &[AdamSlot]) -> Result<()> {
        let mut ins = vec![lr, step];
        ins.extend(slots.iter().flat_map(|s| [s.w, s.g, s.m, s.v]));
        self.push(Adam, &ins).map(drop)
    }
}

vectorised! {
    fn update(w: &mut [f32], m: &mut [f32], v: &mut [f32], g: &[f32], lr: f32, root: f32) {
        const B1: f32 = BETA1 as f32;
        const B2: f32 = BETA2 as f32;
        for (((w, m), v), &g) in w.iter_mut().zip(m).zip(v).zip(g) {
            *m = B1.mul_add(*m, (1.0 - B1) * g);
            *v = B2.mul_add(*v, (1.0 - B2) * g * g);
            *w -= lr * *m * simd::recip(simd::sqrt(*v).mul_add(root, EPS as f32));
        }
    }
}

/// Returns the bias-corrected factors of step `t`: `lr / (1 - b1^t)` and `1 / sqrt(1 - b2^t)`.
fn corrected(lr: f64, t: u32) -> (f64, f64) {
    let t = f64::from(t);
    (lr / (1.0 - BETA1.powf(t)), 1.0 / (1.0 - BETA2.powf(t)).sqrt())
}

/// Checks that `spec` is real with a fixed number of rows, and has no more elements than kernels can count.
///
/// # Errors
/// `Shape` otherwise.
pub(super) fn check_parameter(op: &'static str, what: &str, spec: &Spec) -> Result<()> {
    let want = Spec::real(Rows::fixed(spec.rows.capacity), spec.cols);
    ensure!(op, *spec == want, "{what} is {spec}, want {want}");
    countable(op, what, spec.len())
}

impl Op for Adam {
    const NAME: &'static str = "adam";
    const KIND: OpKind = OpKind::Nn;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        ensure!(
            Self::NAME,
            ins.len() % INPUTS_EACH == FIRST_W,
            "{} inputs, want lr, step, and w, g, m, v of each parameter",
            ins.len()
        );
        let (rate, count) = (Spec::real(Rows::fixed(1), 1), Spec::count());
        ensure!(Self::NAME, ins[LR] == rate, "lr is {}, want {rate}", ins[LR]);
        ensure!(Self::NAME, ins[STEP] == count, "step is {}, want {count}", ins[STEP]);
        for (i, slot) in ins[FIRST_W..].chunks_exact(INPUTS_EACH).enumerate() {
            check_parameter(Self::NAME, "w", &slot[0])?;
            ensure!(
                Self::NAME,
                slot.iter().all(|s| *s == slot[0]),
                "shapes of parameter {i} differ: {slot:?}"
            );
        }
        Ok(vec![])
    }
    fn writes(&self, inputs: usize) -> Vec<usize> {
        let of_parameters = (FIRST_W..inputs).filter(|i| (i - FIRST_W) % INPUTS_EACH != G);
        std::iter::once(STEP).chain(of_parameters).collect()
    }
    fn tickets(&self, _: &[Spec]) -> usize {
        1
    }
    fn cost(&self, ins: &[Spec], _: &[Spec]) -> Cost {
        let n: usize = ins[FIRST_W..].iter().step_by(INPUTS_EACH).map(Spec::len).sum();
        Cost { bytes: 28 * n, flops: 12 * n }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let step = &mut io.state::<u32>(STEP)[0];
        *step = step.saturating_add(1);
        let (lr, root) = corrected(io.input::<R>(LR)[0].f64(), *step);
        let (b1, b2, one) = (R::of(BETA1), R::of(BETA2), R::ONE);
        for at in (FIRST_W..io.inputs()).step_by(INPUTS_EACH) {
            let (w, g, m, v) =
                (io.state::<R>(at), io.input::<R>(at + G), io.state::<R>(at + M), io.state::<R>(at + V));
            for i in 0..w.len() {
                m[i] = b1 * m[i] + (one - b1) * g[i];
                v[i] = b2 * v[i] + (one - b2) * g[i] * g[i];
                w[i] = w[i] - R::of(lr) * m[i] / (v[i].sqrt() * R::of(root) + R::of(EPS));
            }
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let step = &mut io.state::<u32>(STEP)[0];
        *step = step.saturating_add(1);
        let (lr, root) = corrected(f64::from(io.input::<f32>(LR)[0]), *step);
        // Each thread updates one chunk of every parameter: the same chunk in every step, and the one whose
        // gradient it summed, so that its operands are in its cache.
        let mut chunks_of_threads: Vec<Vec<Chunk<'_>>> = (0..team::threads()).map(|_| Vec::new()).collect();
        for at in (FIRST_W..io.inputs()).step_by(INPUTS_EACH) {
            let (w, m, v) = (io.state::<f32>(at), io.state::<f32>(at + M), io.state::<f32>(at + V));
            let size = team::share(w.len());
            let chunks = w.chunks_mut(size).zip(m.chunks_mut(size)).zip(v.chunks_mut(size));
            let chunks = chunks.zip(io.input::<f32>(at + G).chunks(size));
            for (of_thread, (((w, m), v), g)) in chunks_of_threads.iter_mut().zip(chunks) {
                of_thread.push((w, m, v, g));
            }
        }
        chunks_of_threads.into_iter().in_parallel(1, |chunks| {
            chunks.into_iter().for_each(|(w, m, v, g)| update(w, m, v, g, lr as f32, root as f32));
        });
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (rate, step) = (on.input(LR), on.state(STEP));
        let parameter_at = |at: usize, end| {
            let (m, v) = (on.state(at + M), on.state(at + V));
            abi::Parameter { w: on.state(at), g: on.input(at + G), m, v, n: on.spec(at).len() as u32, end }
        };
        let slots = (FIRST_W..on.inputs()).step_by(INPUTS_EACH);
        parameters(on, slots, parameter_at, |grid, parameters, last| {
            let ticket = if last { on.tickets() } else { std::ptr::null_mut() };
            // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
            unsafe { k.adam(on, grid, parameters, rate, step, ticket) }
        })
    }
}

/// Launches a kernel over parameters, whose first inputs are at positions `slots`, as few times as possible.
///
/// `parameter_at(slot, end)` returns the kernel argument of a parameter; `end` is one past the last block
/// that processes it. `launch(grid, parameters, last)` launches the kernel; `last` is true in the last
/// launch. Empty parameters are skipped.
///
/// # Errors
/// Those of `launch`.
pub(super) fn parameters(
    on: &Launch<'_>,
    slots: impl Iterator<Item = usize>,
    parameter_at: impl Fn(usize, u32) -> abi::Parameter,
    launch: impl Fn(Grid, abi::Parameters, bool) -> Result<()>,
) -> Result<()> {
    let slots: Vec<usize> = slots.filter(|&at| !on.spec(at).is_empty()).collect();
    let launches = slots.chunks(abi::Parameters::MOST);
    let last = launches.len();
    for (nth, slots) in launches.enumerate() {
        let mut blocks = 0;
        // Unused entries repeat the last parameter and have no blocks.
        let of = std::array::from_fn(|i| {
            let at = slots[i.min(slots.len() - 1)];
            blocks += if i < slots.len() { on.spec(at).len().div_ceil(PIECE) } else { 0 };
            parameter_at(at, blocks as u32)
        });
        launch(Grid::new(blocks, Grid::THREADS), abi::Parameters { of }, nth + 1 == last)?;
    }
    Ok(())
}

/// A chunk of a parameter: values, first moments, second moments, gradients.
type Chunk<'a> = (&'a mut [f32], &'a mut [f32], &'a mut [f32], &'a [f32]);

/// Sizes of the parameters; the last case has more parameters than one launch takes.
pub(super) const CASES: &[&[usize]] = &[&[1, 1], &[0, 7], &[33, 20_000], &[3; 70]];
pub(super) const BENCH: &[&[usize]] =
    &[&[141_600, 30_000, 37_200, 37_200, 10_000, 10_000, 10_000, 10_000, 10_000, 10_000]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let lr = c.values(Spec::real(Rows::fixed(1), 1), &[1e-2f32]);
    let step = c.count(3);
    let mut slots = Vec::new();
    for &n in dims {
        let (w, g, m) = (c.real(1, n), c.real(1, n), c.real(1, n));
        slots.push(AdamSlot { w, g, m, v: c.real_in(1, n, |u| u * u + 0.1) });
    }
    c.tape.adam(lr, step, &slots)?;
    let states = slots.iter().flat_map(|s| [s.w, s.m, s.v]).chain([step]).collect();
    Ok(Built { states, ..Built::default() })
}
