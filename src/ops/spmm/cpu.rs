//! The fast host path: a row's sum stays in registers while its neighbours pass by.
//!
//! A row is read as often as it has neighbours, from wherever x is. Where x is larger than a core's cache, its columns are
//! taken in stripes that are not: a stripe's rows, scaled, are copied side by side and multiplied. Where the stripes are enough
//! for all threads each takes its own, so that no row goes from core to core.
//!
//! Pieces of work are runs of rows with about as many neighbours each, and slices of rows that are too long for one thread. They
//! depend on the adjacency alone, and the sums of a row's slices are added in order, so the bits do not depend on the number
//! of threads.
use super::{long_rows::SLICE, *};
use crate::runtime::{
    simd::{self, Block, LANES, vectorised},
    team::{self, InParallel},
};
use bytemuck::{TransparentWrapper, Zeroable};
use half::{bf16, f16};
use std::{array, marker::PhantomData, ops::Range, slice};

/// Rows and neighbours of a piece of work.
const PIECE: usize = 4096;
/// A row of x is asked for so many neighbours ahead.
const AHEAD: usize = 8;
/// Most columns whose sums are in registers at a time.
const WIDE: usize = 8 * LANES;
/// Bytes that stay in a core's second cache, on a server's cores; the same for all machines, so that all have the same bits.
const NEAR: usize = 2 << 20;
/// Rows of so many columns, all over a table that is not near, are more than the cache of addresses reaches.
const FAR_WIDTH: usize = 256;

/// Columns of a stripe, where `rows` of `width` columns in `bytes` are better taken in stripes.
fn stripe(rows: usize, width: usize, bytes: usize) -> Option<usize> {
    let near = |columns: &usize| rows * columns * size_of::<f32>() <= NEAR;
    let far = (width >= FAR_WIDTH).then_some(2 * LANES);
    let columns = [2 * LANES, LANES].into_iter().find(near).or(far)?;
    (bytes > NEAR && columns < width).then_some(columns)
}

/// Numbers of all stripes of `rows` of `width` columns that are kept in `bytes` each.
pub(super) fn stripes_len(rows: usize, width: usize, bytes: usize) -> usize {
    stripe(rows, width, rows * width * bytes).map_or(0, |_| rows * width)
}

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
        (within(self.begin[i], len, self.col.len()), self.scale[i])
    }
    /// The same, of rows of a stripe.
    fn on<'a>(&'a self, x: &'a [Scaled], columns: Range<usize>) -> Step<'a, Scaled> {
        let &Step { begin, len, col, weight, scale, bias, act, .. } = self;
        Step { x, begin, len, col, weight, scale, bias: bias.map(|b| &b[columns]), act }
    }
}

/// Some columns of rows of y; somebody else may have the others.
pub(super) struct Columns<'a> {
    first: *mut f32,
    rows: usize,
    columns: usize,
    width: usize,
    lives: PhantomData<&'a mut [f32]>,
}
// SAFETY: nobody else has its numbers, as with a slice.
unsafe impl Send for Columns<'_> {}

impl<'a> Columns<'a> {
    /// Of rows of `width` columns each `columns` in turn; the last may be fewer.
    fn cut(y: &'a mut [f32], width: usize, columns: usize) -> impl Iterator<Item = Columns<'a>> {
        let (y, rows) = (y.as_mut_ptr(), y.len() / width);
        (0..width).step_by(columns).map(move |from| Columns {
            // SAFETY: the first row has more columns than these.
            first: unsafe { y.add(from) },
            rows,
            columns: columns.min(width - from),
            width,
            lives: PhantomData,
        })
    }
    /// The same, for a while.
    fn again(&mut self) -> Columns<'_> {
        Columns { lives: PhantomData, ..*self }
    }
    /// Its first rows, which it has no longer.
    fn split_off(&mut self, rows: usize) -> Columns<'a> {
        assert!(rows <= self.rows, "rows of what is left");
        let head = Columns { rows, ..*self };
        self.rows -= rows;
        self.first = self.first.wrapping_add(rows * self.width);
        head
    }
    fn row(&mut self, i: usize) -> &mut [f32] {
        assert!(i < self.rows, "a row of these");
        // SAFETY: the row is there, and these columns of it are nobody else's.
        unsafe { slice::from_raw_parts_mut(self.first.add(i * self.width), self.columns) }
    }
}

/// A piece of work.
pub(super) enum Piece<'a> {
    /// Rows of y from `first` on; those with slices are left out.
    Rows { first: usize, y: Columns<'a> },
    /// The sum of some neighbours of a row.
    Slice { neighbors: Range<usize>, sum: &'a mut [f32] },
    /// Columns of rows of x, `width` wide, from row `first` on: times their scales, side by side.
    Stripe { first: usize, columns: Range<usize>, width: usize, to: &'a mut [f32] },
}

/// A number as a table keeps it.
pub(super) trait Kept: Copy + Zeroable + Sync {
    /// Whether the scale of its row is in it.
    const SCALED: bool = false;
    /// As an f32.
    fn wide(self) -> f32;
    /// Does a piece of work.
    fn work(step: &Step<'_, Self>, piece: Piece<'_>);
}

/// A number of a stripe: times the scale of its row.
#[derive(Clone, Copy, Zeroable, TransparentWrapper)]
#[repr(transparent)]
pub(super) struct Scaled(f32);

macro_rules! kept {
    ($t:ident, $work:ident, $number:ident, $wide:expr $(, $scaled:expr)?) => {
        vectorised! {
            fn $work(step: &Step<'_, $t>, piece: Piece<'_>) {
                work::<V, $t>(step, piece);
            }
        }
        impl Kept for $t {
            $(const SCALED: bool = $scaled;)?
            #[inline(always)]
            fn wide(self) -> f32 {
                let $number = self;
                $wide
            }
            fn work(step: &Step<'_, Self>, piece: Piece<'_>) {
                $work(step, piece);
            }
        }
    };
}
kept!(f32, work_f32, x, x);
kept!(Scaled, work_scaled, x, x.0, true);
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
fn work<V: Block, T: Kept>(s: &Step<'_, T>, piece: Piece<'_>) {
    match piece {
        Piece::Slice { neighbors, sum } => sum_rows::<V, T>(s, neighbors, sum),
        Piece::Rows { first, mut y } => {
            for i in 0..y.rows {
                let (neighbors, scale) = s.row(first + i);
                if neighbors.len() <= SLICE {
                    let y = y.row(i);
                    sum_rows::<V, T>(s, neighbors, y);
                    finish(y, scale, s.bias, s.act);
                }
            }
        }
        Piece::Stripe { first, columns, width, to } => {
            let rows = s.x.chunks_exact(width).zip(s.scale).skip(first);
            for (to, (x, &scale)) in to.chunks_exact_mut(columns.len()).zip(rows) {
                for (to, x) in to.iter_mut().zip(&x[columns.clone()]) {
                    *to = scale * x.wide();
                }
            }
        }
    }
}

/// A neighbour: its row, the row that is asked for meanwhile, and its weight.
type Entry = (usize, usize, f32);

/// `out = sum_e w_e s_e x[e]` over neighbours `e`.
#[inline(always)]
fn sum_rows<V: Block, T: Kept>(s: &Step<'_, T>, neighbors: Range<usize>, out: &mut [f32]) {
    let col = &s.col[neighbors.clone()];
    let ahead = s.col.get(neighbors.start + AHEAD..neighbors.end + AHEAD).unwrap_or(col);
    // What is no vertex is no neighbour.
    let vertices = s.scale.len();
    let entries = col.iter().zip(ahead).map(|(&j, &ahead)| (j as usize, ahead as usize));
    match s.weight {
        None => {
            let entries = entries.map(|(j, ahead)| (j, ahead, 1.0));
            add_rows::<V, T>(s, entries.filter(move |e| e.0 < vertices), out);
        }
        Some(w) => {
            let weighted = entries.zip(&w[neighbors]).map(|((j, ahead), &w)| (j, ahead, w));
            add_rows::<V, T>(s, weighted.filter(move |e| e.0 < vertices), out);
        }
    }
}

#[inline(always)]
fn add_rows<V: Block, T: Kept>(
    s: &Step<'_, T>,
    entries: impl Iterator<Item = Entry> + Clone,
    out: &mut [f32],
) {
    let (d, mut from) = (out.len(), 0);
    match d {
        0..LANES => return narrow::<V, T>(s, entries, out),
        16 => return whole::<V, T, 1, 16>(s, entries, out),
        32 => return whole::<V, T, 2, 32>(s, entries, out),
        64 => return whole::<V, T, 4, 64>(s, entries, out),
        128 => return whole::<V, T, 8, 128>(s, entries, out),
        _ => {}
    }
    while from < d {
        // What is left may be less than a block: columns before it are summed once more, to the same bits.
        let at = from.min(d - LANES);
        let part = &mut out[at..d.min(at + WIDE)];
        from = at + part.len();
        let entries = entries.clone();
        match part.len().div_ceil(LANES) {
            1 => columns::<V, T, 1>(s, entries, part, at, d),
            2 => columns::<V, T, 2>(s, entries, part, at, d),
            3 => columns::<V, T, 3>(s, entries, part, at, d),
            4 => columns::<V, T, 4>(s, entries, part, at, d),
            5..=6 => columns::<V, T, 6>(s, entries, part, at, d),
            _ => columns::<V, T, 8>(s, entries, part, at, d),
        }
    }
}

/// Rows of `N` blocks, `W` columns.
#[inline(always)]
fn whole<V: Block, T: Kept, const N: usize, const W: usize>(
    s: &Step<'_, T>,
    entries: impl Iterator<Item = Entry>,
    out: &mut [f32],
) {
    let rows = s.x.as_chunks::<W>().0;
    let mut sums = [V::splat(0.0); N];
    for (j, ahead, w) in entries {
        if let (false, Some(row)) = (T::SCALED, rows.get(ahead)) {
            simd::prefetch(row);
        }
        let (row, factor) = (&rows[j], V::splat(factor(s, j, w)));
        for b in 0..N {
            sums[b] = block::<V, T>(&row[b * LANES..]).mul_add(factor, sums[b]);
        }
    }
    for b in 0..N {
        sums[b].store(&mut out[b * LANES..]);
    }
}

/// The columns from `from` on of rows of `d`, in `N` blocks; the last ones lie on one another where fewer are needed.
#[inline(always)]
fn columns<V: Block, T: Kept, const N: usize>(
    s: &Step<'_, T>,
    entries: impl Iterator<Item = Entry>,
    out: &mut [f32],
    from: usize,
    d: usize,
) {
    let at: [usize; N] = array::from_fn(|b| (b * LANES).min(out.len() - LANES));
    let mut sums = [V::splat(0.0); N];
    for (j, ahead, w) in entries {
        if let (false, Some(row)) = (T::SCALED, s.x.get(ahead * d + from..)) {
            simd::prefetch(&row[..out.len()]);
        }
        let (factor, row) = (V::splat(factor(s, j, w)), &s.x[j * d + from..][..out.len()]);
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
fn narrow<V: Block, T: Kept>(s: &Step<'_, T>, entries: impl Iterator<Item = Entry>, out: &mut [f32]) {
    let (mut sum, mut last) = (V::splat(0.0), [T::zeroed(); LANES]);
    for (j, _, w) in entries {
        let mut row = &s.x[j * out.len()..];
        if row.len() < LANES {
            last[..row.len()].copy_from_slice(row);
            row = &last;
        }
        sum = block::<V, T>(row).mul_add(V::splat(factor(s, j, w)), sum);
    }
    let mut sums = [0.0; LANES];
    sum.store(&mut sums);
    out.copy_from_slice(&sums[..out.len()]);
}

/// What the row of neighbour `j` is multiplied with.
#[inline(always)]
fn factor<T: Kept>(s: &Step<'_, T>, j: usize, weight: f32) -> f32 {
    if T::SCALED { weight } else { s.scale[j] * weight }
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

/// Rows of y, `width` wide: all of those of a step, whose long rows' slices are `slices`; `scratch` has a row for
/// each, and room for the stripes.
pub(super) fn multiply<T: Kept>(
    s: &Step<'_, T>,
    slices: &[[u32; 4]],
    scratch: &mut [f32],
    y: &mut [f32],
    width: usize,
) {
    let (rows, long) = (y.len() / width, slices.len());
    let Some(columns) = stripe(rows, width, size_of_val(s.x)) else {
        return Columns::cut(y, width, width).for_each(|y| all_rows(s, slices, scratch, y));
    };
    let stripes = Columns::cut(y, width, columns).zip(scratch.chunks_mut((rows + long) * columns));
    let stripes: Vec<_> = (0..width).step_by(columns).zip(stripes).collect();
    let one = |(from, (y, scratch)): (usize, (Columns<'_>, &mut [f32]))| {
        let columns = from..from + y.columns;
        let (sums, stripe) = scratch.split_at_mut(long * columns.len());
        let size = team::piece(rows, PIECE / columns.len());
        stripe.chunks_mut(size * columns.len()).enumerate().in_parallel(1, |(piece, to)| {
            T::work(s, Piece::Stripe { first: piece * size, columns: columns.clone(), width, to });
        });
        all_rows(&s.on(Scaled::wrap_slice(stripe), columns), slices, sums, y);
    };
    let (threads, n) = (team::threads(), stripes.len());
    match n.is_multiple_of(threads) || n >= 4 * threads {
        true => stripes.into_iter().in_parallel(1, one),
        false => stripes.into_iter().for_each(one),
    }
}

/// Some columns of all rows; `sums` has room for as many of each slice.
fn all_rows<T: Kept>(s: &Step<'_, T>, slices: &[[u32; 4]], sums: &mut [f32], mut y: Columns<'_>) {
    let (rows, columns) = (y.rows, y.columns);
    let slices = || slices.iter().filter(|slice| slice[2] > 1 && (slice[0] as usize) < rows);
    let (mut left, mut pieces) = (y.again(), Vec::new());
    for (slice, sum) in slices().zip(sums.chunks_exact_mut(columns)) {
        let (row, _) = s.row(slice[0] as usize);
        let begin = row.end.min(row.start + slice[1] as usize * SLICE);
        pieces.push(Piece::Slice { neighbors: begin..row.end.min(begin + SLICE), sum });
    }
    let (mut first, mut load) = (0, 0);
    for i in 0..rows {
        let (neighbors, _) = s.row(i);
        load += 1 + if neighbors.len() <= SLICE { neighbors.len() } else { 0 };
        if load >= PIECE || i + 1 == rows {
            pieces.push(Piece::Rows { first, y: left.split_off(i + 1 - first) });
            (first, load) = (i + 1, 0);
        }
    }
    pieces.into_iter().in_parallel(1, |piece| T::work(s, piece));
    let mut rest = &sums[..];
    for slice in slices().filter(|slice| slice[1] == 0) {
        // Fewer than they say only where tables contradict themselves.
        let of_row = rest.len().min(slice[2] as usize * columns);
        let (row, (of_row, later)) = (slice[0] as usize, rest.split_at(of_row));
        unite(y.row(row), of_row, s.row(row).1, s.bias, s.act);
        rest = later;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::philox::Key;

    #[test]
    fn every_number_of_sixteen_bits_is_widened_to_itself() {
        for bits in 0..=u16::MAX {
            let (brain, half) = (bf16::from_bits(bits), f16::from_bits(bits));
            for (found, want) in [(brain.wide(), brain.to_f32()), (half.wide(), half.to_f32())] {
                assert!(found.to_bits() == want.to_bits() || found.is_nan() && want.is_nan(), "{bits:x}");
            }
        }
    }

    /// Tables larger than a cache, whose stripes are as many as the threads or fewer, and of which some rows are long.
    #[test]
    fn stripes_give_the_definition_and_the_same_bits_on_any_number_of_threads() -> std::io::Result<()> {
        for (v, d) in [(8200, 70), (17_000, 37), (40_000, 16), (2100, 260)] {
            let key = Key::new(1, 2, [3, 4]);
            let len: Vec<u32> = (0..v).map(|i| if i % 1000 == 7 { 1100 } else { i as u32 % 4 }).collect();
            let begin: Vec<u32> =
                len.iter().scan(0, |end, n| Some(std::mem::replace(end, *end + n))).collect();
            let entries = len.iter().sum::<u32>() as usize;
            let col: Vec<u32> = (0..entries as u64).map(|e| key.draw(e)[0] % v as u32).collect();
            let real = |e: usize| f32::from(key.draw(e as u64)[1] as u16) / 65536.0 - 0.4;
            let [x, weight, scale, bias] =
                [v * d, entries, v, d].map(|n| (0..n).map(real).collect::<Vec<f32>>());
            let step = Step {
                x: &x,
                begin: &begin,
                len: &len,
                col: &col,
                weight: Some(&weight),
                scale: &scale,
                bias: Some(&bias),
                act: Activation::Relu,
            };
            let long = LongRows::of(&len, v);
            let run = |threads: usize| {
                let team = team::Team::new(threads)?;
                let mut scratch = vec![0.0; long.most.slices * d + stripes_len(v, d, 4)];
                let mut y = vec![1.0; v * d];
                team.install(|| multiply(&step, long.slices.as_chunks().0, &mut scratch, &mut y, d));
                Ok::<_, std::io::Error>(y)
            };
            let one = run(1)?;
            for (at, &y) in one.iter().enumerate().filter(|(at, _)| at % 97 < 2 || at / d % 1000 == 7) {
                let (i, c) = (at / d, at % d);
                let of = begin[i] as usize..(begin[i] + len[i]) as usize;
                let term = |e: usize| {
                    let j = col[e] as usize;
                    f64::from(weight[e]) * f64::from(scale[j]) * f64::from(x[j * d + c])
                };
                let z = f64::from(scale[i]) * of.map(term).sum::<f64>() + f64::from(bias[c]);
                assert!((f64::from(y) - z.max(0.0)).abs() < 1e-5, "{v} {d}: {i} {c}: {y}, want {z}");
            }
            for threads in [2, 3, 5] {
                let same = one.iter().zip(&run(threads)?).all(|(a, b)| a.to_bits() == b.to_bits());
                assert!(same, "{v} rows of {d}, {threads} threads");
            }
        }
        Ok(())
    }
}
