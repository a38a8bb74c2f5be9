//! `y[i] = x[i] keep[i] / (1 - p)`, each kept with probability `1 - p`
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `x` | `[n, d]` f32 | |
//! | `now` | `[1, 2]` u32 | epoch and batch: the clock of the draw |
//! | y | `[n, d]` f32 | |
//!
//! Element `i` (flat) is dropped when the 16-bit Philox number `i % 8` of draw `i / 8` is below `p 2^16`, so `p` is
//! rounded to a multiple of 2^-16. Backward: the same op on `dy`, for the mask is a function of the counter.
//! Source: Srivastava et al. 2014; the draw is ours.
use super::*;
use crate::runtime::{cuda::abi, philox::Key, simd::vectorised, team::InParallel};

/// See the [module](self).
#[derive(Clone, Copy, Debug)]
pub struct Dropout {
    /// Who drops, and how often.
    pub rate: DropRate,
}

/// Probability and key of a drop-out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DropRate {
    /// Probability of being dropped, in [0, 1).
    pub p: f32,
    /// Seed of the run.
    pub seed: u64,
    /// Distinguishes the drop-outs of a model.
    pub salt: u32,
}

impl DropRate {
    /// 16-bit numbers below this are dropped.
    pub(super) fn threshold(&self) -> u32 {
        (self.p * 65536.0).round() as u32
    }
    /// What a kept element is multiplied with.
    pub(super) fn scale(&self) -> f64 {
        65536.0 / f64::from(65536 - self.threshold())
    }
    /// The key at `now`.
    pub(super) fn key(&self, now: &[u32]) -> Key {
        Key::new(self.seed, self.salt, [now[0], now[1]])
    }
    /// As kernels take it; `now` is on the device.
    pub(super) fn on_device(&self, now: *const u32) -> abi::Drop {
        let key = abi::Key::new(self.seed, self.salt);
        abi::Drop { now, key, threshold: self.threshold(), scale: self.scale() as f32 }
    }
    /// [`factor`](Self::factor) of the elements from `first` on, each draw made once.
    pub(super) fn factors(&self, key: Key, first: usize, out: &mut [f32]) {
        let (threshold, scale) = (self.threshold(), self.scale() as f32);
        let (mut draw, mut words) = (u64::MAX, [0; 8]);
        for (i, out) in (first..).zip(out) {
            if i as u64 / 8 != draw {
                draw = i as u64 / 8;
                words = key.draw_u16(draw);
            }
            *out = if u32::from(words[i % 8]) >= threshold { scale } else { 0.0 };
        }
    }
    /// 0 or the scale, for element `i`.
    pub(super) fn factor(&self, key: Key, i: usize) -> f64 {
        let kept = u32::from(key.draw_u16(i as u64 / 8)[i % 8]) >= self.threshold();
        if kept { self.scale() } else { 0.0 }
    }
}

impl Tape {
    /// Appends [`Dropout`]; nothing at rate 0.
    ///
    /// # Errors
    /// `Shape` when `p` is not in [0, 1).
    pub fn dropout(&mut self, x: Var, now: Var, rate: DropRate) -> Result<Var> {
        if rate.p == 0.0 { Ok(x) } else { self.push1(Dropout { rate }, &[x, now]) }
    }
}

/// Elements a thread drops at a time: a multiple of sixteen draws.
const BLOCK: usize = 4096;

vectorised! {
    /// `y = x keep scale` for elements from `first`, a multiple of [`BLOCK`].
    fn drop(y: &mut [f32], x: &[f32], first: usize, key: Key, threshold: u32, scale: f32) {
        const GROUP: usize = 16;
        for (g, (y, x)) in y.chunks_mut(8 * GROUP).zip(x.chunks(8 * GROUP)).enumerate() {
            let draw = (first / 8 + g * GROUP) as u64;
            // Sixteen draws side by side: the rounds become vector instructions.
            let mut words = [[0u32; 4]; GROUP];
            for (l, w) in words.iter_mut().enumerate() {
                *w = key.draw(draw + l as u64);
            }
            for (i, (y, &x)) in y.iter_mut().zip(x).enumerate() {
                let bits = words[i / 8][i % 8 / 2] >> (16 * (i % 2)) & 0xffff;
                *y = if bits >= threshold { x * scale } else { 0.0 };
            }
        }
    }
}

impl Op for Dropout {
    const NAME: &'static str = "dropout";
    const KIND: Kind = Kind::Nn;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, 2)?;
        typed(Self::NAME, "x", &ins[0], DType::F32)?;
        shaped(Self::NAME, "now", &ins[1], 1, 2)?;
        ensure!(Self::NAME, (0.0..1.0).contains(&self.rate.p), "p is {}, want 0 <= p < 1", self.rate.p);
        Ok(vec![ins[0].into()])
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, outs[0].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (x, key) = (io.input::<R>(0), self.rate.key(io.input(1)));
        for (i, y) in io.out::<R>(0).iter_mut().enumerate() {
            *y = x[i] * R::of(self.rate.factor(key, i));
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (x, key) = (io.input::<f32>(0), self.rate.key(io.input(1)));
        let (threshold, scale) = (self.rate.threshold(), self.rate.scale() as f32);
        io.out::<f32>(0)
            .chunks_mut(BLOCK)
            .zip(x.chunks(BLOCK))
            .enumerate()
            .in_parallel(1, |(i, (y, x))| drop(y, x, i * BLOCK, key, threshold, scale));
    }
    fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (drop, draws) = (self.rate.on_device(on.input(1)), on.spec(0).len().div_ceil(8));
        k.dropout(on, Grid::items(draws), on.input(0), on.out(0), on.rows(0), on.cols(0), drop)
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        Ok(vec![douts[0].map(|d| t.push1(*self, &[d, node.ins[1]])).transpose()?, None])
    }
}

/// `[n, d, p in percent]`
pub(super) const CASES: &[&[usize]] = &[&[1, 1, 50], &[0, 3, 20], &[7, 33, 20], &[90, 100, 10], &[3, 8, 20]];
pub(super) const BENCH: &[&[usize]] = &[&[1_800, 100, 10]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let (x, now) = (c.real(dims[0], dims[1]), c.ids(&[3, 5], 2));
    let y = c.tape.dropout(x, now, DropRate { p: dims[2] as f32 / 100.0, seed: 11, salt: 2 })?;
    Ok(Built::new(&[y], &[x]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_dropped_is_p_and_another_batch_drops_others() {
        let rate = DropRate { p: 0.2, seed: 1, salt: 1 };
        let mask =
            |batch| -> Vec<f64> { (0..20_000).map(|i| rate.factor(rate.key(&[0, batch]), i)).collect() };
        let (a, b) = (mask(0), mask(1));
        let dropped = a.iter().filter(|&&f| f == 0.0).count() as f64 / 20_000.0;
        assert!((dropped - 0.2).abs() < 0.01, "{dropped}");
        assert!(a != b && a == mask(0));
    }
}
