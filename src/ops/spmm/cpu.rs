//! The fast host path: a row's sum stays in registers while its neighbours pass by.
//!
//! Pieces of work are runs of rows with about as many neighbours each, and slices of rows that are too long for one thread. They
//! depend on the adjacency alone, and the sums of a row's slices are added in order, so the bits do not depend on the number
//! of threads.
use super::{long_rows::SLICE, *};
use crate::runtime::{
    simd::{self, Block, LANES, vectorised},
    team::InParallel,
};
use half::{bf16, f16};
use std::{array, ops::Range};

/// Rows and neighbours of a piece of work.
const PIECE: usize = 4096;
/// A row of x is asked for so many neighbours ahead.
const AHEAD: usize = 8;
/// Most columns whose sums are in registers at a time.
const WIDE: usize = 16 * LANES;

/// What every row reads; `begin`, `len` and `scale` are of the step's vertices, and empty where there is no step.
pub(super) struct Step<'a, T> {
    pub x: &'a [T],
    pub begin: &'a [u32],
    pub len: &'a [u32],
    pub col: &'a [u32],
    pub weight: Option<&'a [f32]>,
    pub scale: &'a [f32],
    pub bias: Option<&'a [f32]>,
    pub act: Activation,
}

impl<T> Step<'_, T> {
    /// Neighbours of row `i` as places in the pool, and its scale.
    #[inline(always)]
    fn row(&self, i: usize) -> (Range<usize>, f32) {
        let Some(&len) = self.len.get(i) else { return (0..0, 0.0) };
        let begin = self.begin[i] as usize;
        (begin..begin + len as usize, self.scale[i])
    }
}

/// A piece of work.
pub(super) enum Piece<'a> {
    /// Rows of y from `first` on; those with slices are left out.
    Rows { first: usize, y: &'a mut [f32] },
    /// The sum of some neighbours of a row.
    Slice { neighbors: Range<usize>, sum: &'a mut [f32] },
}

/// A number as a table keeps it.
pub(super) trait Kept: Element {
    /// As an f32.
    fn wide(self) -> f32;
    /// Does a piece of work on rows of `width` columns.
    fn work(step: &Step<'_, Self>, piece: Piece<'_>, width: usize);
}

macro_rules! kept {
    ($t:ident, $work:ident, $number:ident, $wide:expr) => {
        vectorised! {
            fn $work(step: &Step<'_, $t>, piece: Piece<'_>, width: usize) {
                work::<V, $t>(step, piece, width);
            }
        }
        impl Kept for $t {
            #[inline(always)]
            fn wide(self) -> f32 {
                let $number = self;
                $wide
            }
            fn work(step: &Step<'_, Self>, piece: Piece<'_>, width: usize) {
                $work(step, piece, width);
            }
        }
    };
}
kept!(f32, work_f32, x, x);
kept!(bf16, work_bf16, x, f32::from_bits(u32::from(x.to_bits()) << 16));
kept!(f16, work_f16, x, {
    // Without branches: 2^112 brings the exponents together, those of the smallest numbers too.
    let (bits, sign) = (u32::from(x.to_bits()) & 0x7fff, u32::from(x.to_bits() & 0x8000) << 16);
    let finite = f32::from_bits(bits << 13) * f32::from_bits((127 + 112) << 23);
    // Infinity, and what is no number, have the greatest exponent in both.
    let least = if bits >= 0x7c00 { 0xff << 23 } else { 0 };
    f32::from_bits(finite.to_bits() | least | sign)
});

/// The first sixteen of `x`.
#[inline(always)]
fn block<V: Block, T: Kept>(x: &[T]) -> V {
    let x = &x[..LANES];
    V::load(&array::from_fn::<f32, LANES, _>(|l| x[l].wide()))
}

#[inline(always)]
fn work<V: Block, T: Kept>(s: &Step<'_, T>, piece: Piece<'_>, width: usize) {
    match piece {
        Piece::Slice { neighbors, sum } => sum_rows::<V, T>(s, neighbors, sum),
        Piece::Rows { first, y } => {
            for (i, y) in (first..).zip(y.chunks_exact_mut(width)) {
                let (neighbors, scale) = s.row(i);
                if neighbors.len() <= SLICE {
                    sum_rows::<V, T>(s, neighbors, y);
                    finish(y, scale, s.bias, s.act);
                }
            }
        }
    }
}

/// `out = sum_e w_e s_e x[e]` over neighbours `e`.
#[inline(always)]
fn sum_rows<V: Block, T: Kept>(s: &Step<'_, T>, neighbors: Range<usize>, out: &mut [f32]) {
    let (d, mut from) = (out.len(), 0);
    if d < LANES {
        return narrow::<V, T>(s, neighbors, out);
    }
    while from < d {
        // What is left may be less than a block: columns before it are summed once more, to the same bits.
        let at = from.min(d - LANES);
        let part = &mut out[at..d.min(at + WIDE)];
        from = at + part.len();
        let neighbors = neighbors.clone();
        match part.len().div_ceil(LANES) {
            1 => columns::<V, T, 1>(s, neighbors, part, at, d),
            2 => columns::<V, T, 2>(s, neighbors, part, at, d),
            3 => columns::<V, T, 3>(s, neighbors, part, at, d),
            4 => columns::<V, T, 4>(s, neighbors, part, at, d),
            5..=6 => columns::<V, T, 6>(s, neighbors, part, at, d),
            7..=8 => columns::<V, T, 8>(s, neighbors, part, at, d),
            9..=12 => columns::<V, T, 12>(s, neighbors, part, at, d),
            _ => columns::<V, T, 16>(s, neighbors, part, at, d),
        }
    }
}

/// The columns from `from` on of rows of `d`, in `N` blocks; the last ones lie on one another where fewer are needed.
#[inline(always)]
fn columns<V: Block, T: Kept, const N: usize>(
    s: &Step<'_, T>,
    neighbors: Range<usize>,
    out: &mut [f32],
    from: usize,
    d: usize,
) {
    let at: [usize; N] = array::from_fn(|b| (b * LANES).min(out.len() - LANES));
    let mut sums = [V::splat(0.0); N];
    for e in neighbors {
        if let Some(&ahead) = s.col.get(e + AHEAD) {
            simd::prefetch(&s.x[ahead as usize * d + from..][..out.len()]);
        }
        let j = s.col[e] as usize;
        let (factor, row) = (V::splat(factor(s, e, j)), &s.x[j * d + from..][..out.len()]);
        for b in 0..N {
            sums[b] = block::<V, T>(&row[at[b]..]).mul_add(factor, sums[b]);
        }
    }
    for b in 0..N {
        sums[b].store(&mut out[at[b]..]);
    }
}

/// Rows narrower than a block: what follows a row is summed too, and left.
#[inline(always)]
fn narrow<V: Block, T: Kept>(s: &Step<'_, T>, neighbors: Range<usize>, out: &mut [f32]) {
    let (mut sum, mut last) = (V::splat(0.0), [T::zeroed(); LANES]);
    for e in neighbors {
        let j = s.col[e] as usize;
        let mut row = &s.x[j * out.len()..];
        if row.len() < LANES {
            last[..row.len()].copy_from_slice(row);
            row = &last;
        }
        sum = block::<V, T>(row).mul_add(V::splat(factor(s, e, j)), sum);
    }
    let mut sums = [0.0; LANES];
    sum.store(&mut sums);
    out.copy_from_slice(&sums[..out.len()]);
}

/// What neighbour `j`, at place `e` of the pool, is multiplied with.
#[inline(always)]
fn factor<T>(s: &Step<'_, T>, e: usize, j: usize) -> f32 {
    s.scale[j] * s.weight.map_or(1.0, |w| w[e])
}

/// `y = act(scale y + b)`
#[inline(always)]
fn finish(y: &mut [f32], scale: f32, bias: Option<&[f32]>, act: Activation) {
    match bias {
        Some(bias) => {
            for (y, &b) in y.iter_mut().zip(bias) {
                *y = scale.mul_add(*y, b);
            }
        }
        None => {
            for y in &mut *y {
                *y *= scale;
            }
        }
    }
    match act {
        Activation::Identity => {}
        Activation::Tanh => {
            for y in y {
                *y = simd::tanh(*y);
            }
        }
        Activation::Sigmoid => {
            for y in y {
                *y = simd::sigmoid(*y);
            }
        }
        Activation::Relu | Activation::LeakyRelu(_) => {
            for y in y {
                *y = act.of(*y);
            }
        }
    }
}

vectorised! {
    /// `y = act(scale sum_k sums[k] + b)`, the sums of a row's slices.
    fn unite(y: &mut [f32], sums: &[f32], scale: f32, bias: Option<&[f32]>, act: Activation) {
        y.fill(0.0);
        for sum in sums.chunks_exact(y.len()) {
            simd::add_assign(y, sum);
        }
        finish(y, scale, bias, act);
    }
}

/// Rows of y, `width` wide: all of those of a step, whose long rows' slices are `slices`, `[n, 4]`; `sums` has a row for each.
pub(super) fn multiply<T: Kept>(
    s: &Step<'_, T>,
    slices: &[u32],
    sums: &mut [f32],
    y: &mut [f32],
    width: usize,
) {
    let slices = || slices.chunks_exact(4).filter(|slice| slice[2] > 1);
    let mut pieces = Vec::new();
    for (slice, sum) in slices().zip(sums.chunks_exact_mut(width)) {
        let (row, _) = s.row(slice[0] as usize);
        let begin = row.start + slice[1] as usize * SLICE;
        pieces.push(Piece::Slice { neighbors: begin..row.end.min(begin + SLICE), sum });
    }
    let (rows, mut rest, mut first, mut load) = (y.len() / width, &mut *y, 0, 0);
    for i in 0..rows {
        let (neighbors, _) = s.row(i);
        load += 1 + if neighbors.len() <= SLICE { neighbors.len() } else { 0 };
        if load >= PIECE || i + 1 == rows {
            pieces.push(Piece::Rows { first, y: split_off(&mut rest, (i + 1 - first) * width) });
            (first, load) = (i + 1, 0);
        }
    }
    pieces.into_iter().in_parallel(1, |piece| T::work(s, piece, width));
    let mut rest = &sums[..];
    for slice in slices().filter(|slice| slice[1] == 0) {
        let (row, (of_row, later)) = (slice[0] as usize, rest.split_at(slice[2] as usize * width));
        unite(&mut y[row * width..][..width], of_row, s.row(row).1, s.bias, s.act);
        rest = later;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_sixteen_bits_is_widened_to_itself() {
        for bits in 0..=u16::MAX {
            let (brain, half) = (bf16::from_bits(bits), f16::from_bits(bits));
            for (found, want) in [(brain.wide(), brain.to_f32()), (half.wide(), half.to_f32())] {
                assert!(found.to_bits() == want.to_bits() || found.is_nan() && want.is_nan(), "{bits:x}");
            }
        }
    }
}
