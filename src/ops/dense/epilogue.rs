//! Activation and dropout, applied in the same pass as a product or a sum: `y[i] = drop(act(z[i]))`
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | z | `[n, m]` f32 | the sums of the op that ends with the epilogue; never stored |
//! | `now` | `[1, 2]` u32, only with a dropout | epoch and batch: the clock of the draw; the op's last input |
//! | y | `[n, m]` f32 | |
//!
//! A dropout keeps each element with probability `1 - p` and multiplies it by `1 / (1 - p)`. Element `i`
//! (flat) is dropped if the 16-bit Philox number `i % 8` of draw `i / 8` is below `p 2^16`, so `p` is rounded
//! to a multiple of 2^-16. The mask is a function of the counter, so it is never stored.
//!
//! Backward: `dz = dy f act'(y / s)`, where `s = 1 / (1 - p)`, and `f` is 0 for dropped elements and `s` for
//! the others. Deterministic. Source: Srivastava et al. 2014; the draw is ours.
use super::*;
use crate::runtime::{cuda::abi, philox::Key, simd::vectorised, team::InParallel};

/// Probability and key of a dropout.
///
/// # Examples
/// ```
/// use tgnn::{autograd::Program, ops::{epilogue::*, *}, runtime::*};
/// let mut store = Store::new(Precision::F32);
/// let mut tape = Tape::new(&store);
/// let x = tape.input(&mut store, "x", Spec::real(Rows::fixed(4), 1), &[1.0f32, 1.0, 1.0, 1.0])?;
/// let w = tape.input(&mut store, "w", Spec::real(Rows::fixed(4), 1), &[1.0f32, 1.0, 1.0, 1.0])?;
/// let now = tape.input(&mut store, "now", Spec::ids(Rows::fixed(1), 2), &[0u32, 0])?;
/// let rate = DropRate { p: 0.5, seed: 42, salt: 0 };
/// let drop = Activation::Identity.then_drop(Some((rate, now)));
/// let y = tape.linear(x, w, None, None, drop)?;
/// let mut program = Program::new(&tape, &[y], Precision::F32, Backend::Cpu)?;
/// program.run(&mut store)?;
/// let first = program.read::<f32>(y, &store)?.to_vec();
/// assert!(first.contains(&0.0) && first.contains(&2.0)); // dropped, or times 1 / (1 - p)
/// assert!(first.iter().all(|y| [0.0, 2.0].contains(y)));
/// program.run(&mut store)?; // the same clock drops the same elements
/// assert_eq!(program.read::<f32>(y, &store)?, first);
/// # Ok::<(), tgnn::error::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DropRate {
    /// Probability of being dropped, in [0, 1).
    pub p: f32,
    /// Seed of the run.
    pub seed: u64,
    /// Number that distinguishes the dropouts of a model.
    pub salt: u32,
}

impl DropRate {
    /// Returns the bound below which a 16-bit number means "dropped".
    fn threshold(&self) -> u32 {
        (self.p * 65536.0).round() as u32
    }
    /// Returns the factor of the elements that are not dropped.
    fn scale(&self) -> f64 {
        65536.0 / f64::from(65536 - self.threshold())
    }
    /// Returns the Philox key at the clock `now`, for `per_event` elements of each event.
    pub(in crate::ops) fn key(&self, now: &[u32], per_event: usize) -> Key {
        Key::at(self.seed, self.salt, now, per_event)
    }
    /// Returns the argument for kernels, which drop nothing without a `rate`; input `now` is the clock, and
    /// each event has `per_event` elements.
    pub(in crate::ops) fn on_device(
        rate: Option<Self>,
        on: &Launch<'_>,
        now: usize,
        per_event: usize,
    ) -> abi::Drop {
        let none = DropRate { p: 0.0, seed: 0, salt: 0 };
        let (rate, now, per_event) = match rate {
            Some(rate) => (rate, on.input(now), counted_per_event(on.spec(now), per_event)),
            None => (none, std::ptr::null(), 0),
        };
        let key = abi::Key::new(rate.seed, rate.salt);
        abi::Drop { now, key, threshold: rate.threshold(), scale: rate.scale() as f32, per_event }
    }
    /// Writes the [`factor`](Self::factor) of the elements from `first` on; each draw is computed once.
    pub(in crate::ops) fn factors(&self, key: Key, first: usize, out: &mut [f32]) {
        let (threshold, scale) = (self.threshold(), self.scale() as f32);
        let (mut i, mut rest) = (key.first() + first as u64, out);
        while !rest.is_empty() {
            let (words, from) = (key.draw_u16(i / 8), (i % 8) as usize);
            let (now, later) = rest.split_at_mut(rest.len().min(words.len() - from));
            for (out, &word) in now.iter_mut().zip(&words[from..]) {
                *out = if u32::from(word) >= threshold { scale } else { 0.0 };
            }
            (i, rest) = (i + now.len() as u64, later);
        }
    }
    /// Returns the factor of element `i`: 0 if it is dropped, otherwise the scale.
    pub(in crate::ops) fn factor(&self, key: Key, i: usize) -> f64 {
        let i = key.first() + i as u64;
        let kept = u32::from(key.draw_u16(i / 8)[(i % 8) as usize]) >= self.threshold();
        if kept { self.scale() } else { 0.0 }
    }
}

/// An elementwise function whose derivative is a function of its value: the backward pass needs only the
/// value.
///
/// # Examples
/// ```
/// use tgnn::{autograd::Program, ops::{epilogue::Activation, *}, runtime::*};
/// let mut store = Store::new(Precision::F32);
/// let mut tape = Tape::new(&store);
/// let x = tape.input(&mut store, "x", Spec::real(Rows::fixed(2), 1), &[-2.0f32, 2.0])?;
/// let w = tape.input(&mut store, "w", Spec::real(Rows::fixed(1), 1), &[1.0f32])?;
/// let y = tape.linear(x, w, None, None, Activation::LeakyRelu(0.25))?;
/// let mut program = Program::new(&tape, &[y], Precision::F32, Backend::Cpu)?;
/// program.run(&mut store)?;
/// assert_eq!(program.read::<f32>(y, &store)?, [-0.5, 2.0]);
/// # Ok::<(), tgnn::error::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    /// z
    Identity,
    /// max(z, 0)
    Relu,
    /// z, or z times the slope given here if z is negative; the slope is positive.
    LeakyRelu(f32),
    /// Hyperbolic tangent.
    Tanh,
    /// 1 / (1 + e^-z)
    Sigmoid,
}

/// Returns `max(z, 0)`, but NaN for NaN, so that a NaN reaches the loss and is noticed there.
#[inline(always)]
pub(in crate::ops) fn above_zero<R: Real>(z: R) -> R {
    if z < R::ZERO { R::ZERO } else { z }
}

impl Activation {
    /// Returns the epilogue of this activation, followed by the dropout of a rate and a clock if one is
    /// given. A dropout with `p = 0` counts as none.
    #[must_use]
    pub fn then_drop(self, drop: Option<(DropRate, Var)>) -> Epilogue {
        Epilogue { act: self, drop: drop.filter(|(rate, _)| rate.p != 0.0), per_event: 0 }
    }
    /// Returns the value at `z`.
    pub(in crate::ops) fn apply<R: Real>(self, z: R) -> R {
        match self {
            Activation::Identity => z,
            Activation::Relu => above_zero(z),
            Activation::LeakyRelu(s) => z.max(R::from_f64(f64::from(s)) * z),
            Activation::Tanh => z.tanh(),
            Activation::Sigmoid => z.sigmoid(),
        }
    }
    /// Returns the code by which kernels know the activation, and the slope of a leaky relu.
    fn code(self) -> (u32, f32) {
        match self {
            Activation::Identity => (0, 0.0),
            Activation::Relu => (1, 0.0),
            Activation::LeakyRelu(s) => (2, s),
            Activation::Tanh => (3, 0.0),
            Activation::Sigmoid => (4, 0.0),
        }
    }
    /// Returns the derivative where the value is `y`.
    fn slope<R: Real>(self, y: R) -> R {
        match self {
            Activation::Identity => R::ONE,
            Activation::Relu => R::from_f64(f64::from(u8::from(y > R::ZERO))),
            Activation::LeakyRelu(s) => R::from_f64(if y > R::ZERO { 1.0 } else { f64::from(s) }),
            Activation::Tanh => R::ONE - y * y,
            Activation::Sigmoid => y * (R::ONE - y),
        }
    }
}

/// See the [module](self). An [`Activation`] converts to an epilogue without dropout;
/// [`Activation::then_drop`] returns one with dropout.
///
/// # Examples
/// ```
/// use tgnn::{ops::{epilogue::*, Tape}, runtime::*};
/// let mut store = Store::new(Precision::F32);
/// let mut tape = Tape::new(&store);
/// let now = store.zeros("now", Spec::ids(Rows::fixed(1), 2))?;
/// let now = tape.stored(now)?;
/// let plain: Epilogue = Activation::Relu.into();
/// let rate = |p| DropRate { p, seed: 42, salt: 0 };
/// assert_eq!(Activation::Relu.then_drop(Some((rate(0.0), now))), plain); // nothing is dropped
/// assert_ne!(Activation::Relu.then_drop(Some((rate(0.1), now))), plain);
/// # Ok::<(), tgnn::error::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Epilogue {
    pub(in crate::ops) act: Activation,
    drop: Option<(DropRate, Var)>,
    /// Number of elements of each event, if the rows are those of events.
    per_event: usize,
}

impl From<Activation> for Epilogue {
    fn from(act: Activation) -> Self {
        act.then_drop(None)
    }
}

impl Epilogue {
    /// Returns the epilogue of an op with `rows` rows of `cols` columns.
    pub(in crate::ops) fn over(self, rows: Rows, cols: usize) -> Self {
        Epilogue { per_event: per_event(rows, cols), ..self }
    }
    /// Returns the clock of the dropout, which an op with this epilogue takes as its last input.
    pub(in crate::ops) fn clock(&self) -> Option<Var> {
        self.drop.map(|(_, now)| now)
    }
    /// Checks the probability and the clock of the dropout, if there is one, in the inputs `ins` of `op`.
    ///
    /// # Errors
    /// `Shape` if the probability is not in [0, 1), or the clock is not `[1, 2]` or `[1, 3]` u32.
    pub(in crate::ops) fn check(&self, op: &'static str, ins: &[Spec]) -> Result<()> {
        let (Some((rate, _)), Some(now)) = (self.drop, ins.last()) else { return Ok(()) };
        ensure!(op, (0.0..1.0).contains(&rate.p), "p is {}, want 0 <= p < 1", rate.p);
        clock(op, now)
    }
    /// Returns the factor of the elements that are not dropped.
    fn scale(&self) -> f64 {
        self.drop.map_or(1.0, |(rate, _)| rate.scale())
    }
    /// Returns the dropout's factor of element `i` for an op that runs on `io`; 1 without dropout.
    fn factor<R: Real>(&self, io: &Io<'_>, i: usize) -> R {
        R::from_f64(self.drop.map_or(1.0, |(rate, _)| rate.factor(self.key(io, rate), i)))
    }
    /// Returns the key of the dropout for an op that runs on `io`.
    fn key(&self, io: &Io<'_>, rate: DropRate) -> Key {
        rate.key(io.input(io.inputs() - 1), self.per_event)
    }
    /// Returns y of `z`, element `i`, by the definition.
    pub(in crate::ops) fn apply<R: Real>(&self, io: &Io<'_>, z: R, i: usize) -> R {
        self.act.apply(z) * self.factor(io, i)
    }
    /// Applies the dropout alone, in place, to the elements from `first` on; fast paths call it while these
    /// are in cache.
    pub(in crate::ops) fn drop(&self, io: &Io<'_>, first: usize, y: &mut [f32]) {
        if let Some((rate, _)) = self.drop {
            drop_out(y, first, self.key(io, rate), rate.threshold(), rate.scale() as f32);
        }
    }
    /// Returns dz of `y` and `dy`, element `i`, by the definition.
    pub(in crate::ops) fn grad_of<R: Real>(&self, io: &Io<'_>, y: R, dy: R, i: usize) -> R {
        dy * self.factor(io, i) * self.act.slope(y / R::from_f64(self.scale()))
    }
    /// Computes dz in place for the elements from `first` on: `dz` holds dy before, and `y` holds the values.
    pub(in crate::ops) fn grad_in_place(&self, io: &Io<'_>, first: usize, dz: &mut [f32], y: &[f32]) {
        let scale = self.scale() as f32;
        match self.act {
            // Dropped elements have y = 0, so nothing has to be drawn.
            Activation::Relu => return relu_grad(dz, y, scale),
            Activation::Identity => {}
            act => dz.iter_mut().zip(y).for_each(|(dz, y)| *dz *= act.slope(y / scale)),
        }
        self.drop(io, first, dz);
    }
    /// Returns the argument for kernels.
    pub(in crate::ops) fn on_device(&self, on: &Launch<'_>) -> abi::Epilogue {
        let rate = self.drop.map(|(rate, _)| rate);
        let drop = DropRate::on_device(rate, on, on.inputs() - 1, self.per_event);
        let (activation, slope) = self.act.code();
        abi::Epilogue { activation, slope, drop }
    }
    /// Appends the backward pass and returns dz; an identity without dropout returns `dy`.
    pub(in crate::ops) fn grad(self, t: &mut Tape, y: Var, dy: Var) -> Result<Var> {
        if self.act == Activation::Identity && self.drop.is_none() {
            return Ok(dy);
        }
        let ins: Vec<Var> = [Some(y), Some(dy), self.clock()].into_iter().flatten().collect();
        t.push1(ActivationGrad(self), &ins)
    }
}

/// `dz = dy f act'(y / s)`; see the [module](self).
#[derive(Debug)]
pub struct ActivationGrad(Epilogue);

vectorised! {
    /// `y *= factor` for elements from `first` on.
    fn drop_out(y: &mut [f32], first: usize, key: Key, threshold: u32, scale: f32) {
        const GROUP: usize = 16;
        let first = key.first() + first as u64;
        let (mut rest, mut draw, mut skip) = (y, first / 8, (first % 8) as usize);
        while !rest.is_empty() {
            // Computing sixteen draws side by side lets the compiler vectorise Philox's rounds.
            let mut numbers = [[0u16; 8]; GROUP];
            for (l, numbers) in numbers.iter_mut().enumerate() {
                *numbers = key.draw_u16(draw + l as u64);
            }
            let (y, later) = rest.split_at_mut((8 * GROUP - skip).min(rest.len()));
            for (y, &number) in y.iter_mut().zip(&numbers.as_flattened()[skip..]) {
                *y = if u32::from(number) >= threshold { *y * scale } else { 0.0 };
            }
            (rest, draw, skip) = (later, draw + GROUP as u64, 0);
        }
    }
    fn relu_grad(dz: &mut [f32], y: &[f32], scale: f32) {
        for (dz, &y) in dz.iter_mut().zip(y) {
            *dz = if y > 0.0 { *dz * scale } else { 0.0 };
        }
    }
}

impl Op for ActivationGrad {
    const NAME: &'static str = "activation_grad";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "y [n, d], dy [n, d], now? [1, c] ids -> dz [n, d]";
    fn has(&self, _: &str) -> Option<bool> {
        Some(self.0.drop.is_some())
    }
    fn check(&self, ins: &[Spec]) -> Result<()> {
        self.0.check(Self::NAME, ins)
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 2 * outs[0].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (y, dy) = (io.input::<R>(0), io.input::<R>(1));
        for (i, dz) in io.out::<R>(0).iter_mut().enumerate() {
            *dz = self.0.grad_of(io, y[i], dy[i], i);
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        const BLOCK: usize = 16 * 1024;
        let (y, dy) = (io.input::<f32>(0), io.input::<f32>(1));
        let blocks = io.out::<f32>(0).chunks_mut(BLOCK).zip(y.chunks(BLOCK).zip(dy.chunks(BLOCK)));
        blocks.enumerate().in_parallel(1, |(at, (dz, (y, dy)))| {
            dz.copy_from_slice(dy);
            self.0.grad_in_place(io, at * BLOCK, dz, y);
        });
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (grid, epilogue) = (Grid::items(on.spec(0).len().div_ceil(4)), self.0.on_device(on));
        launch!(
            k, on, activation_grad[grid];
            on.input(0), on.input(1), on.out(0), on.rows(0), on.cols(0), epilogue
        )
    }
}

/// Clock of the dropouts of test cases.
const CASE_CLOCK: [u32; 2] = [3, 5];
/// Returns the dropout of test cases with a probability in percent.
fn case_rate(percent: usize) -> DropRate {
    DropRate { p: percent as f32 / 100.0, seed: 11, salt: 2 }
}
/// Returns the dropout of a test case, and its clock as a value of the case.
pub(in crate::ops) fn case_drop(c: &mut CaseBuilder, percent: usize) -> Option<(DropRate, Var)> {
    Some((case_rate(percent), c.ids(&CASE_CLOCK, 2)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::run;

    #[test]
    fn a_drop_out_multiplies_the_results_of_an_op_by_its_factors_bit_for_bit() {
        // Not `cases()`: with it, the unit tests would compile every op a second time.
        for case in cases_of("linear", linear::CASES, linear::build) {
            let (&percent, sizes) = case.dims.split_last().unwrap();
            let plain = Case { dims: [sizes, &[0]].concat().leak(), ..case };
            let [found, plain] = [case, plain].map(|c| run(&c, Precision::F32, Backend::Cpu).unwrap());
            let (rate, key) = (case_rate(percent), case_rate(percent).key(&CASE_CLOCK, 0));
            let check_output = |at: usize| {
                let (what, _, plain) = &plain[at];
                for (i, (&found, &x)) in found[at].2.iter().zip(plain).enumerate() {
                    let want = if rate.factor(key, i) > 0.0 { x as f32 * rate.scale() as f32 } else { 0.0 };
                    assert_eq!(found.to_bits(), f64::from(want).to_bits(), "{case}, {what}, element {i}");
                }
            };
            check_output(0);
            // Output 4, the gradient of the residual, is dz. It is exact for slopes of 0 and 1.
            if let [_, _, _, 0 | 1, 1] = sizes {
                check_output(4);
            }
        }
    }

    #[test]
    fn an_invalid_drop_rate_or_clock_is_refused() {
        let mut c = CaseBuilder::new(Precision::F32, MatmulPrecision::F32);
        let (x, now, wide) = (c.real(2, 3), c.ids(&CASE_CLOCK, 2), c.ids(&[1, 2, 3, 4], 4));
        for (percent, now, expected) in [(100, now, "p is 1"), (10, wide, "now is"), (10, x, "now is")] {
            let epilogue = Activation::Tanh.then_drop(Some((case_rate(percent), now)));
            let e = c.tape.linear(x, x, None, None, epilogue).unwrap_err().to_string();
            assert!(e.contains(expected), "{e}");
        }
    }

    #[test]
    fn the_fraction_dropped_is_p_and_batches_drop_different_elements() {
        let rate = DropRate { p: 0.2, seed: 1, salt: 1 };
        let mask =
            |batch| -> Vec<f64> { (0..20_000).map(|i| rate.factor(rate.key(&[0, batch], 0), i)).collect() };
        let (a, b) = (mask(0), mask(1));
        let dropped = a.iter().filter(|&&f| f == 0.0).count() as f64 / 20_000.0;
        assert!((dropped - 0.2).abs() < 0.01, "{dropped}");
        assert!(a != b && a == mask(0));
    }
}
