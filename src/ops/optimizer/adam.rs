//! `m = b1 m + (1 - b1) g`, `v = b2 v + (1 - b2) g^2`,
//! `w -= lr / (1 - b1^t) m / (sqrt(v / (1 - b2^t)) + eps)`, `sum += w`
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `lr` | `[k, 1]` f32 | learning rate of each step; the last one holds for all later steps. A stored value, so that it can change between steps |
//! | `step` | `[1, 1]` u32, state | t: incremented before the update |
//! | `scale` | `[1, 1]` f32, optional | factor of all gradients, such as that of [`clip_norm`] |
//! | `w`, `g`, `m`, `v`, for every parameter | same shape, f32; `w`, `m`, `v` state | value, gradient, moments |
//! | `sum`, for every parameter or none | as its `w`, state | sum of the values after each step |
//!
//! Weight decay either adds `decay w` to the gradient, as in PyTorch's Adam, or is decoupled from it,
//! `w -= lr decay w` before the update, as in PyTorch's AdamW. Without decay and scale no bit depends on
//! them. One op handles all parameters, with one launch for every 64 of them. A new value or second moment
//! that is not finite is a fault of its parameter, by its number among those that are not empty; so is, in
//! effect, a gradient that is not. Deterministic. Source: Kingma and Ba 2015; Loshchilov and Hutter 2019;
//! with PyTorch's defaults b1 0.9, b2 0.999, eps 1e-8.
use super::{accumulate::add, *};
use crate::runtime::{
    changes::Change,
    cuda::abi,
    simd::{self, vectorised},
    team::{self, InParallel},
};
use std::ptr::null_mut;

const BETA1: f64 = 0.9;
const BETA2: f64 = 0.999;
const EPS: f64 = 1e-8;

/// Elements that one thread block updates.
pub(in crate::ops) const PIECE: usize = 4 * Grid::THREADS as usize;

/// Inputs per parameter without its sum, and the offsets from the first, `w`.
const INPUTS_EACH: usize = 4;
const G: usize = 1;
const M: usize = 2;
const V: usize = 3;
const SUM: usize = 4;

/// See the [module](self).
#[derive(Debug)]
pub struct Adam {
    decay: WeightDecay,
    scaled: bool,
    /// Whether parameters have sums.
    summed: bool,
}

/// How parameters decay to zero in each step.
///
/// # Examples
/// ```
/// use tgnn::{autograd::Program, ops::{adam::*, *}, runtime::*};
/// let mut store = Store::new(Precision::F32);
/// let mut tape = Tape::new(&store);
/// let lr = tape.input(&mut store, "lr", Spec::real(Rows::fixed(1), 1), &[0.5f32])?;
/// let w = tape.input(&mut store, "w", Spec::real(Rows::fixed(1), 1), &[4.0f32])?;
/// let g = store.zeros("g", Spec::real(Rows::fixed(1), 1))?;
/// let m = store.zeros("m", Spec::real(Rows::fixed(1), 1))?;
/// let v = store.zeros("v", Spec::real(Rows::fixed(1), 1))?;
/// let step = store.zeros("step", Spec::count())?;
/// let [g, m, v, step] = tape.stored_all([g, m, v, step])?;
/// let decay = WeightDecay { amount: 0.5, decoupled: true }; // as AdamW
/// let vars = UpdateVars { lr, step, scale: None };
/// tape.adam(vars, decay, &[AdamSlot { w, g, m, v, sum: None }])?; // the gradient is 0
/// let mut program = Program::new(&tape, &[], Precision::F32, Backend::Cpu)?;
/// program.run(&mut store)?;
/// assert_eq!(program.read::<f32>(w, &store)?, [3.0]); // 4 - 0.5 * 0.5 * 4
/// # Ok::<(), tgnn::error::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WeightDecay {
    /// Share of a parameter; 0: no decay.
    pub amount: f64,
    /// Whether the parameter itself decays, instead of its gradient having the decay as a summand.
    pub decoupled: bool,
}

impl WeightDecay {
    /// Returns the factor of a parameter before its update, and its factor in the gradient.
    fn factors(self, lr: f64) -> (f64, f64) {
        if self.decoupled { (1.0 - lr * self.amount, 0.0) } else { (1.0, self.amount) }
    }
}

/// What an update reads besides the parameters.
///
/// Example: [`Tape::adam`].
#[derive(Clone, Copy, Debug)]
pub struct UpdateVars {
    /// Learning rates.
    pub lr: Var,
    /// Number of updates so far.
    pub step: Var,
    /// Factor of all gradients.
    pub scale: Option<Var>,
}

impl UpdateVars {
    /// Returns the first inputs of an update.
    pub(in crate::ops) fn inputs(self) -> Vec<Var> {
        [self.lr, self.step].into_iter().chain(self.scale).collect()
    }
}

/// A parameter with its gradient, moments and sum, all of one shape.
///
/// Example: [`Tape::adam`].
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
    /// Sum of the values after each step, to which the update adds the new value.
    pub sum: Option<Var>,
}

impl Tape {
    /// Appends [`Adam`], which updates the parameters and moments of all `slots` in place; `vars.lr` is f32
    /// `[k, 1]`, `vars.step` u32 `[1, 1]`, and the values of a slot have one shape.
    ///
    /// # Errors
    /// `Shape` if a gradient, moment or sum differs from its parameter in shape, if state is not writable, or
    /// if only some slots have a sum.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::{adam::*, *}, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let lr = tape.input(&mut store, "lr", Spec::real(Rows::fixed(1), 1), &[0.25f32])?;
    /// let w = tape.input(&mut store, "w", Spec::real(Rows::fixed(1), 2), &[1.0f32, 1.0])?;
    /// let g = tape.input(&mut store, "g", Spec::real(Rows::fixed(1), 2), &[0.5f32, -200.0])?;
    /// let m = store.zeros("m", Spec::real(Rows::fixed(1), 2))?;
    /// let v = store.zeros("v", Spec::real(Rows::fixed(1), 2))?;
    /// let step = store.zeros("step", Spec::count())?;
    /// let [m, v, step] = tape.stored_all([m, v, step])?;
    /// let vars = UpdateVars { lr, step, scale: None };
    /// tape.adam(vars, WeightDecay::default(), &[AdamSlot { w, g, m, v, sum: None }])?;
    /// let mut program = Program::new(&tape, &[], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// // The first update is about lr, whatever the size of a gradient.
    /// let w = program.read::<f32>(w, &store)?;
    /// assert!((w[0] - 0.75).abs() < 1e-5 && (w[1] - 1.25).abs() < 1e-5);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn adam(&mut self, vars: UpdateVars, decay: WeightDecay, slots: &[AdamSlot]) -> Result<()> {
        let sums = slots.iter().filter(|s| s.sum.is_some()).count();
        ensure!(Adam::NAME, sums == 0 || sums == slots.len(), "{sums} sums, want 0 or {}", slots.len());
        let mut ins = vars.inputs();
        ins.extend(slots.iter().flat_map(|s| [s.w, s.g, s.m, s.v].into_iter().chain(s.sum)));
        self.push(Adam { decay, scaled: vars.scale.is_some(), summed: sums > 0 }, &ins).map(drop)
    }
}

/// Factors of a step: of the update, of the root of the second moment, of the parameter before its update, of
/// the parameter in the gradient, and of the gradient.
#[derive(Clone, Copy)]
struct Factors {
    lr: f32,
    root: f32,
    keep: f32,
    coupled: f32,
    scale: f32,
}

impl Factors {
    /// Whether parameters and gradients are taken as they are.
    fn plain(self) -> bool {
        (self.keep, self.coupled, self.scale) == (1.0, 0.0, 1.0)
    }
}

/// Updates one element.
#[inline(always)]
fn update_element(w: &mut f32, m: &mut f32, v: &mut f32, g: f32, f: Factors) {
    const B1: f32 = BETA1 as f32;
    const B2: f32 = BETA2 as f32;
    // The differences are rounded once: in f32, 1 - 0.999 is off by a relative 1e-5.
    const NEW1: f32 = (1.0 - BETA1) as f32;
    const NEW2: f32 = (1.0 - BETA2) as f32;
    *m = B1.mul_add(*m, NEW1 * g);
    *v = B2.mul_add(*v, NEW2 * g * g);
    *w -= f.lr * *m * simd::recip(simd::sqrt(*v).mul_add(f.root, EPS as f32));
}

vectorised! {
    /// Updates elements; returns the largest [`magnitude`] of a value or second moment.
    fn update(w: &mut [f32], m: &mut [f32], v: &mut [f32], g: &[f32], f: Factors) -> u32 {
        let mut most = 0;
        for (((w, m), v), &g) in w.iter_mut().zip(m).zip(v).zip(g) {
            update_element(w, m, v, g, f);
            most = most.max(magnitude(*w)).max(magnitude(*v));
        }
        most
    }
    fn update_with_decay(w: &mut [f32], m: &mut [f32], v: &mut [f32], g: &[f32], f: Factors) -> u32 {
        let mut most = 0;
        for (((w, m), v), &g) in w.iter_mut().zip(m).zip(v).zip(g) {
            let g = f.coupled.mul_add(*w, f.scale * g);
            *w *= f.keep;
            update_element(w, m, v, g, f);
            most = most.max(magnitude(*w)).max(magnitude(*v));
        }
        most
    }
}

/// Returns an integer that grows with the size of `x`, and is that of infinity or more if `x` is not finite.
/// Maxima of integers are vectorised.
#[inline(always)]
pub(in crate::ops) fn magnitude(x: f32) -> u32 {
    x.to_bits() & (u32::MAX >> 1)
}

/// Reports the number `parameter` if `most`, the largest [`magnitude`] of `values`, is not that of a finite
/// number.
pub(in crate::ops) fn check_finite(io: &Io<'_>, parameter: usize, most: u32, values: [&[f32]; 2]) {
    if most >= magnitude(f32::INFINITY) {
        values.into_iter().for_each(|of| of.iter().for_each(|&x| check_number(io, parameter, x)));
    }
}

/// Reports the number `parameter` if its element `x` is not finite.
pub(in crate::ops) fn check_number<R: Real>(io: &Io<'_>, parameter: usize, x: R) {
    if !x.f64().is_finite() {
        io.fault(parameter, Fault::NotFinite(x.f64() as f32));
    }
}

/// Returns the number and the position of each parameter that is not empty, of those at positions `slots`.
pub(in crate::ops) fn numbered(
    io: &Io<'_>,
    slots: impl Iterator<Item = usize>,
) -> impl Iterator<Item = (usize, usize)> {
    slots.filter(|&at| !io.spec(at).is_empty()).enumerate()
}

/// Returns the bias-corrected factors of step `t`: `lr / (1 - b1^t)` and `1 / sqrt(1 - b2^t)`.
fn corrected(lr: f64, t: u32) -> (f64, f64) {
    let t = f64::from(t);
    (lr / (1.0 - BETA1.powf(t)), 1.0 / (1.0 - BETA2.powf(t)).sqrt())
}

/// Returns the learning rate of step `t`, which is 1 or more.
pub(in crate::ops) fn rate_of<R: Real>(rates: &[R], t: u32) -> f64 {
    rates[(t as usize).min(rates.len()).saturating_sub(1)].f64()
}

/// Returns the factor of all gradients: 1 unless there is one among the inputs.
pub(in crate::ops) fn scale_of<R: Real>(io: &Io<'_>, scaled: bool) -> R {
    if scaled { io.input::<R>(at!(Adam, scale))[0] } else { R::ONE }
}

/// Returns the address of the factor of all gradients; null if there is none.
pub(in crate::ops) fn scale_on(on: &Launch<'_>, scaled: bool) -> *const f32 {
    if scaled { on.input(at!(Adam, scale)) } else { std::ptr::null() }
}

impl Adam {
    /// Returns the position of the first parameter.
    fn first(&self) -> usize {
        at!(scale) + usize::from(self.scaled)
    }
    /// Returns the number of inputs per parameter.
    fn inputs_each(&self) -> usize {
        INPUTS_EACH + usize::from(self.summed)
    }
    /// Returns the positions of the parameters among `inputs`.
    fn slots(&self, inputs: usize) -> impl Iterator<Item = usize> + use<> {
        (self.first()..inputs).step_by(self.inputs_each())
    }
    /// Adds the parameters to their sums by a kernel of its own.
    ///
    /// # Safety
    /// As [`Op::launch`].
    unsafe fn add_to_sums(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (m, v, sum) = (null_mut(), null_mut(), null_mut());
        let parameter_at = |at: usize, end| {
            let (w, g, n) = (on.state(at + SUM), on.input(at), on.spec(at).len() as u32);
            abi::Parameter { w, g, m, v, sum, n, end }
        };
        parameters(
            on,
            self.slots(on.inputs()),
            parameter_at,
            |grid, sums, _| launch!(k, on, accumulate[grid]; sums),
        )
    }
}

impl Op for Adam {
    const NAME: &'static str = "adam";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "lr [s + 1], step [1] ids state, scale? [1], {w [P, q] state, g [P, q], \
        m [P, q] state, v [P, q] state, sum? [P, q] state} ->";
    const ROW: &'static str = "parameter {}";
    fn has(&self, operand: &str) -> Option<bool> {
        Some(if operand == "sum" { self.summed } else { self.scaled })
    }
    fn check(&self, ins: &[Spec]) -> Result<()> {
        all_countable(self, ins)
    }
    fn tickets(&self, _: &[Spec]) -> usize {
        1
    }
    fn cost(&self, ins: &[Spec], _: &[Spec]) -> Cost {
        let n: usize = ins[self.first()..].iter().step_by(self.inputs_each()).map(Spec::len).sum();
        let summed = usize::from(self.summed);
        Cost { bytes: (28 + 8 * summed) * n, flops: (12 + summed) * n }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let step = &mut io.state::<u32>(at!(step))[0];
        *step = step.saturating_add(1);
        let rate = rate_of(io.input::<R>(at!(lr)), *step);
        let (lr, root) = corrected(rate, *step);
        let (keep, coupled) = self.decay.factors(rate);
        let (keep, coupled, scale) =
            (R::from_f64(keep), R::from_f64(coupled), scale_of::<R>(io, self.scaled));
        let (b1, b2, new1, new2) =
            (R::from_f64(BETA1), R::from_f64(BETA2), R::from_f64(1.0 - BETA1), R::from_f64(1.0 - BETA2));
        for (number, at) in numbered(io, self.slots(io.inputs())) {
            let (w, g, m, v) =
                (io.state::<R>(at), io.input::<R>(at + G), io.state::<R>(at + M), io.state::<R>(at + V));
            for i in 0..w.len() {
                let g = scale * g[i] + coupled * w[i];
                m[i] = b1 * m[i] + new1 * g;
                v[i] = b2 * v[i] + new2 * g * g;
                w[i] = keep * w[i]
                    - R::from_f64(lr) * m[i] / (v[i].sqrt() * R::from_f64(root) + R::from_f64(EPS));
                [w[i], v[i]].into_iter().for_each(|x| check_number(io, number, x));
            }
            if self.summed {
                io.state::<R>(at + SUM).iter_mut().zip(&*w).for_each(|(sum, &w)| *sum += w);
            }
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let step = &mut io.state::<u32>(at!(step))[0];
        *step = step.saturating_add(1);
        let rate = rate_of(io.input::<f32>(at!(lr)), *step);
        let (lr, root) = corrected(rate, *step);
        let (keep, coupled) = self.decay.factors(rate);
        let (lr, root, keep, coupled) = (lr as f32, root as f32, keep as f32, coupled as f32);
        let factors = Factors { lr, root, keep, coupled, scale: scale_of(io, self.scaled) };
        // Each thread updates one chunk of every parameter: the same chunk in every step, and the one whose
        // gradient it summed, so that its operands are in its cache.
        let mut chunks_of_threads: Vec<Vec<Chunk<'_>>> = (0..team::threads()).map(|_| Vec::new()).collect();
        for (number, at) in numbered(io, self.slots(io.inputs())) {
            let (w, m, v) = (io.state::<f32>(at), io.state::<f32>(at + M), io.state::<f32>(at + V));
            let size = team::share(w.len());
            let chunks = w.chunks_mut(size).zip(m.chunks_mut(size)).zip(v.chunks_mut(size));
            let chunks = chunks.zip(io.input::<f32>(at + G).chunks(size));
            let mut sums = self.summed.then(|| io.state::<f32>(at + SUM).chunks_mut(size));
            for (of_thread, (((w, m), v), g)) in chunks_of_threads.iter_mut().zip(chunks) {
                of_thread.push((number, w, m, v, g, sums.as_mut().and_then(Iterator::next)));
            }
        }
        let update = if factors.plain() { update } else { update_with_decay };
        chunks_of_threads.into_iter().in_parallel(1, |chunks| {
            for (number, w, m, v, g, sum) in chunks {
                let most = update(w, m, v, g, factors);
                check_finite(io, number, most, [w, v]);
                if let Some(sum) = sum {
                    add(sum, w);
                }
            }
        });
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (rate, rates, step) = (on.input(at!(lr)), on.spec(at!(lr)).len() as u32, on.state(at!(step)));
        let scale = scale_on(on, self.scaled);
        let WeightDecay { amount, decoupled } = self.decay;
        let summed = self.summed && on.stream().gpu().has(Change::Small);
        let parameter_at = |at: usize, end| {
            let (w, g, m, v) = (on.state(at), on.input(at + G), on.state(at + M), on.state(at + V));
            let sum = if summed { on.state(at + SUM) } else { null_mut() };
            abi::Parameter { w, g, m, v, sum, n: on.spec(at).len() as u32, end }
        };
        parameters(on, self.slots(on.inputs()), parameter_at, |grid, parameters, Part { first, last }| {
            let (ticket, status) = (if last { on.tickets() } else { std::ptr::null_mut() }, on.status());
            let decoupled = u32::from(decoupled);
            launch!(
                k, on, adam[grid];
                parameters, rate, rates, step, scale, amount, decoupled, ticket, first, status
            )
        })?;
        if summed || !self.summed {
            return Ok(());
        }
        // SAFETY: as for this function.
        unsafe { self.add_to_sums(k, on) }
    }
}

/// The part of all parameters that one launch takes.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Part {
    /// Number of its first parameter among those that are not empty.
    pub first: u32,
    /// Whether it is the last one.
    pub last: bool,
}

/// Launches a kernel over parameters, whose first inputs are at positions `slots`, as few times as possible.
///
/// `parameter_at(slot, end)` returns the kernel argument of a parameter; `end` is one past the last block
/// that processes it. `launch(grid, parameters, part)` launches the kernel. Empty parameters are skipped.
///
/// # Errors
/// Those of `launch`.
pub(in crate::ops) fn parameters(
    on: &Launch<'_>,
    slots: impl Iterator<Item = usize>,
    parameter_at: impl Fn(usize, u32) -> abi::Parameter,
    launch: impl Fn(Grid, abi::Parameters, Part) -> Result<()>,
) -> Result<()> {
    let slots: Vec<usize> = slots.filter(|&at| !on.spec(at).is_empty()).collect();
    let launches = slots.len().div_ceil(abi::Parameters::MOST);
    for (nth, slots) in slots.chunks(abi::Parameters::MOST).enumerate() {
        let mut blocks = 0;
        // Unused entries repeat the last parameter and have no blocks.
        let of = std::array::from_fn(|i| {
            let at = slots[i.min(slots.len() - 1)];
            blocks += if i < slots.len() { on.spec(at).len().div_ceil(PIECE) } else { 0 };
            parameter_at(at, blocks as u32)
        });
        let part = Part { first: (nth * abi::Parameters::MOST) as u32, last: nth + 1 == launches };
        launch(Grid::new(blocks, Grid::THREADS), abi::Parameters { of }, part)?;
    }
    Ok(())
}

/// A chunk of a parameter: its number, values, first moments, second moments, gradients, sums if there are
/// any.
type Chunk<'a> = (usize, &'a mut [f32], &'a mut [f32], &'a mut [f32], &'a [f32], Option<&'a mut [f32]>);

/// `[rates, with, decay, sizes of the parameters...]`: `with` is 1 if the gradients have a factor, 2 if the
/// parameters have sums, 3 for both; `decay` is 0 for none, 1 for a decay of the gradients, 2 for one of the
/// parameters.
pub(in crate::ops) const CASES: &[&[usize]] = &[
    &[1, 0, 0, 1, 1],
    &[1, 0, 0, 0, 7],
    &[2, 0, 1, 5, 9],
    &[9, 1, 2, 6, 0],
    &[1, 0, 0, 33, 20_000],
    &[4, 1, 1, 33, 20_000],
    &[5, 0, 2, 1_027],
    &[1, 2, 0, 1, 0, 33, 20_000],
    &[3, 3, 2, 1_027, 4_096],
    &MANY,
];
/// More parameters than one launch takes.
const MANY: [usize; 73] = {
    let mut dims = [3; 73];
    (dims[0], dims[1], dims[2]) = (1, 0, 0);
    dims
};
pub(in crate::ops) const BENCH: &[&[usize]] = &[
    &[1, 0, 0, 141_600, 30_000, 37_200, 37_200, 10_000, 10_000, 10_000, 10_000, 10_000, 10_000],
    &[1, 2, 0, 141_600, 30_000, 37_200, 37_200, 10_000, 10_000, 10_000, 10_000, 10_000, 10_000],
];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let &[rates, with, decay, ref sizes @ ..] = dims else {
        return Err(Error::shape("adam", "three sizes, and those of the parameters"));
    };
    let vars = update_vars(c, rates, with % 2 == 1);
    let mut slots = Vec::new();
    for &n in sizes {
        let (w, g, m) = (c.real(1, n), c.real(1, n), c.real(1, n));
        let (v, sum) = (c.real_in(1, n, |u| u * u + 0.1), (with >= 2).then(|| c.real(1, n)));
        slots.push(AdamSlot { w, g, m, v, sum });
    }
    let decay = WeightDecay { amount: if decay == 0 { 0.0 } else { 0.3 }, decoupled: decay == 2 };
    c.tape.adam(vars, decay, &slots)?;
    let states =
        slots.iter().flat_map(|s| [s.w, s.m, s.v].into_iter().chain(s.sum)).chain([vars.step]).collect();
    Ok(Built { states, ..Built::default() })
}

/// Returns what an update reads at its fourth step, with so many rates.
pub(in crate::ops) fn update_vars(c: &mut CaseBuilder, rates: usize, scaled: bool) -> UpdateVars {
    let values: Vec<f32> = (0..rates).map(|i| 1e-2 * (1 + i) as f32).collect();
    let lr = c.values(Spec::real(Rows::fixed(rates), 1), &values);
    let step = c.count(3);
    let scale = scaled.then(|| c.values(Spec::real(Rows::fixed(1), 1), &[0.625f32]));
    UpdateVars { lr, step, scale }
}
