//! `m = b1 m + (1 - b1) g`, `v = b2 v + (1 - b2) g^2`, `w -= lr / (1 - b1^t) m / (sqrt(v / (1 - b2^t)) + eps)`
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `lr` | `[1, 1]` f32 | step size; stored, so that it can change between steps |
//! | `step` | `[1, 1]` u32, state | t: counted up before the update |
//! | then, for every parameter, `w`, `g`, `m`, `v` | of one shape, f32; `w`, `m`, `v` state | |
//!
//! One op for all parameters: one launch. Deterministic. Source: Kingma and Ba 2015; as PyTorch's Adam, whose
//! defaults b1 0.9, b2 0.999, eps 1e-8 are used.
use super::*;
use crate::runtime::{
    cuda::abi,
    simd::{self, vectorised},
    team::{self, InParallel},
};

const BETA1: f64 = 0.9;
const BETA2: f64 = 0.999;
const EPS: f64 = 1e-8;

/// Elements that a block of threads updates.
const PIECE: usize = 4 * Grid::THREADS as usize;

/// See the [module](self).
#[derive(Debug)]
pub struct Adam;

/// A parameter and what updates it: value, gradient, first and second moment.
#[derive(Clone, Copy, Debug)]
pub struct AdamSlot {
    /// Parameter.
    pub w: Var,
    /// Its gradient.
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
    /// `Shape` when a gradient or moment differs from its parameter in shape, or state is not writable.
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

/// Step sizes of step `t`: lr / (1 - b1^t), and 1 / sqrt(1 - b2^t).
fn corrected(lr: f64, t: u32) -> (f64, f64) {
    let t = f64::from(t);
    (lr / (1.0 - BETA1.powf(t)), 1.0 / (1.0 - BETA2.powf(t)).sqrt())
}

/// Refuses what is no parameter, or one of more elements than a launch counts.
pub(super) fn check_parameter(op: &'static str, what: &str, spec: &Spec) -> Result<()> {
    let want = Spec::real(Rows::fixed(spec.rows.capacity), spec.cols);
    ensure!(op, *spec == want, "{what} is {spec}, want {want}");
    countable(op, what, spec.len())
}

impl Op for Adam {
    const NAME: &'static str = "adam";
    const KIND: OpKind = OpKind::Nn;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        ensure!(Self::NAME, ins.len() % 4 == 2, "{} inputs, want lr, step, and four a parameter", ins.len());
        let (rate, count) = (Spec::real(Rows::fixed(1), 1), Spec::count());
        ensure!(Self::NAME, ins[0] == rate, "lr is {}, want {rate}", ins[0]);
        ensure!(Self::NAME, ins[1] == count, "step is {}, want {count}", ins[1]);
        for (i, slot) in ins[2..].chunks_exact(4).enumerate() {
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
        // All but lr and the gradients.
        (1..inputs).filter(|i| i % 4 != 3).collect()
    }
    fn tickets(&self, _: &[Spec]) -> usize {
        1
    }
    fn cost(&self, ins: &[Spec], _: &[Spec]) -> Cost {
        let n: usize = ins[2..].iter().step_by(4).map(Spec::len).sum();
        Cost { bytes: 28 * n, flops: 12 * n }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let step = &mut io.state::<u32>(1)[0];
        *step = step.saturating_add(1);
        let (lr, root) = corrected(io.input::<R>(0)[0].f64(), *step);
        let (b1, b2, one) = (R::of(BETA1), R::of(BETA2), R::ONE);
        for at in (2..io.inputs()).step_by(4) {
            let (w, g, m, v) =
                (io.state::<R>(at), io.input::<R>(at + 1), io.state::<R>(at + 2), io.state::<R>(at + 3));
            for i in 0..w.len() {
                m[i] = b1 * m[i] + (one - b1) * g[i];
                v[i] = b2 * v[i] + (one - b2) * g[i] * g[i];
                w[i] = w[i] - R::of(lr) * m[i] / (v[i].sqrt() * R::of(root) + R::of(EPS));
            }
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let step = &mut io.state::<u32>(1)[0];
        *step = step.saturating_add(1);
        let (lr, root) = corrected(f64::from(io.input::<f32>(0)[0]), *step);
        // Every thread takes its share of every parameter, the same in each step and the one that it summed the
        // gradient of: what it reads is in its cache.
        let threads = team::threads();
        let mut shares: Vec<Vec<Share<'_>>> = (0..threads).map(|_| Vec::new()).collect();
        for at in (2..io.inputs()).step_by(4) {
            let (w, m, v) = (io.state::<f32>(at), io.state::<f32>(at + 2), io.state::<f32>(at + 3));
            let size = team::share(w.len());
            let each = w.chunks_mut(size).zip(m.chunks_mut(size)).zip(v.chunks_mut(size));
            let each = each.zip(io.input::<f32>(at + 1).chunks(size));
            shares.iter_mut().zip(each).for_each(|(share, (((w, m), v), g))| share.push((w, m, v, g)));
        }
        shares.into_iter().in_parallel(1, |share| {
            share.into_iter().for_each(|(w, m, v, g)| update(w, m, v, g, lr as f32, root as f32));
        });
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (rate, step) = (on.input(0), on.state(1));
        let of = |at: usize, end| {
            let (m, v) = (on.state(at + 2), on.state(at + 3));
            abi::Parameter { w: on.state(at), g: on.input(at + 1), m, v, n: on.spec(at).len() as u32, end }
        };
        let slots = (2..on.inputs()).step_by(4);
        parameters(on, slots, of, |grid, parameters, last| {
            let ticket = if last { on.tickets() } else { std::ptr::null_mut() };
            // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
            unsafe { k.adam(on, grid, parameters, rate, step, ticket) }
        })
    }
}

/// Launches a kernel that goes over parameters, whose first inputs are `slots`: as few times as its arguments allow. `of` makes one of a
/// slot and of the block that its blocks end before; `launch` is told which launch is the last.
pub(super) fn parameters(
    on: &Launch<'_>,
    slots: impl Iterator<Item = usize>,
    of: impl Fn(usize, u32) -> abi::Parameter,
    launch: impl Fn(Grid, abi::Parameters, bool) -> Result<()>,
) -> Result<()> {
    let slots: Vec<usize> = slots.filter(|&at| !on.spec(at).is_empty()).collect();
    let launches = slots.chunks(abi::Parameters::MOST);
    let last = launches.len();
    for (nth, slots) in launches.enumerate() {
        let mut blocks = 0;
        let of = std::array::from_fn(|i| {
            let at = slots[i.min(slots.len() - 1)];
            blocks += if i < slots.len() { on.spec(at).len().div_ceil(PIECE) } else { 0 };
            of(at, blocks as u32)
        });
        launch(Grid::new(blocks, Grid::THREADS), abi::Parameters { of }, nth + 1 == last)?;
    }
    Ok(())
}

/// Parameters, both moments, gradients.
type Share<'a> = (&'a mut [f32], &'a mut [f32], &'a mut [f32], &'a [f32]);

/// Sizes of parameters; more than a launch takes.
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
