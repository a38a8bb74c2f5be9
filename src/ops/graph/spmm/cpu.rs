//! The fast host path: the sum of a row stays in registers while the rows of its neighbours are read.
//!
//! A row of x is read once for every row that has it as a neighbour. If x is larger than a core's cache, its
//! columns are processed in stripes that fit: the rows of a stripe are scaled and copied next to each other,
//! then multiplied. If there are enough stripes for all threads, each thread processes whole stripes, so that
//! no row moves between cores.
//!
//! A task sums a range of rows, with about the same number of neighbours as other tasks, or a slice of a row
//! that is too long for one thread. These tasks depend on the adjacency alone, and the sums of a row's slices
//! are added in order, so the bits do not depend on the number of threads.
use super::{long_rows::SLICE, *};
use crate::runtime::{
    simd::{self, Block, LANES, vectorised},
    team::{self, InParallel},
};
use bytemuck::{TransparentWrapper, Zeroable};
use half::{bf16, f16};
use std::{array, marker::PhantomData, ops::Range, slice};

/// Load of a task: the number of its rows plus the number of their neighbours.
const TASK_LOAD: usize = 4096;
/// Prefetch distance of rows of x, in neighbours.
const AHEAD: usize = 8;
/// Maximum number of columns whose sums are in registers at a time.
const WIDE: usize = 8 * LANES;
/// Bytes that fit the second-level cache of a server's core. A constant, so that all machines compute the
/// same bits.
const CACHE_BYTES: usize = 2 << 20;
/// Row width from which on rows all over a table larger than the cache exceed the reach of the TLB. Such a
/// table is processed in stripes even if the stripes do not fit the cache.
const FAR_WIDTH: usize = 256;

/// Returns the columns of a stripe for a table of `rows` x `width` numbers in `bytes` bytes; `None` if the
/// table is better read as a whole.
fn stripe_columns(rows: usize, width: usize, bytes: usize) -> Option<usize> {
    let fits_cache = |columns: &usize| rows * columns * size_of::<f32>() <= CACHE_BYTES;
    let far = (width >= FAR_WIDTH).then_some(2 * LANES);
    let columns = [2 * LANES, LANES].into_iter().find(fits_cache).or(far)?;
    (bytes > CACHE_BYTES && columns < width).then_some(columns)
}

/// Returns the number of elements of all stripes of a table of `rows` x `width` numbers of `bytes` bytes
/// each.
pub(super) fn stripes_len(rows: usize, width: usize, bytes: usize) -> usize {
    stripe_columns(rows, width, rows * width * bytes).map_or(0, |_| rows * width)
}

/// Operands of a product; `begin`, `len` and `scale` are those of the step's vertices, `column_scale` those
/// of its columns, and empty if there is no step.
pub(super) struct Step<'a, T> {
    pub io: &'a Io<'a>,
    pub x: &'a [T],
    pub begin: &'a [u32],
    pub len: &'a [u32],
    pub col: &'a [u32],
    pub weight: Option<&'a [f32]>,
    pub scale: &'a [f32],
    pub column_scale: &'a [f32],
    pub bias: Option<&'a [f32]>,
    pub act: Activation,
}

impl<T> Step<'_, T> {
    /// Returns the range of row `i`'s neighbours in the pool, and the row's scale.
    #[inline(always)]
    fn row(&self, i: usize) -> (Range<usize>, f32) {
        let Some(&len) = self.len.get(i) else { return (0..0, 0.0) };
        (pool_range(self.begin[i], len, self.col.len()), self.scale[i])
    }
    /// Returns the operands of a product with the stripe `x`, which holds `columns` of the rows.
    fn with_stripe<'a>(&'a self, x: &'a [Scaled], columns: Range<usize>) -> Step<'a, Scaled> {
        let &Step { io, begin, len, col, weight, scale, column_scale, bias, act, .. } = self;
        Step { io, x, begin, len, col, weight, scale, column_scale, bias: bias.map(|b| &b[columns]), act }
    }
}

/// Exclusive access to some columns of some rows of y; other threads may access the other columns and rows.
pub(super) struct Columns<'a> {
    /// The first of these columns in the first row.
    first: *mut f32,
    rows: usize,
    columns: usize,
    /// Width of y.
    width: usize,
    lifetime: PhantomData<&'a mut [f32]>,
}
// SAFETY: access to the elements is exclusive, as with a mutable slice.
unsafe impl Send for Columns<'_> {}

impl<'a> Columns<'a> {
    /// Splits rows of `width` columns into groups of `columns` adjacent columns; the last group may be
    /// narrower.
    fn split(y: &'a mut [f32], width: usize, columns: usize) -> impl Iterator<Item = Columns<'a>> {
        let (y, rows) = (y.as_mut_ptr(), y.len() / width);
        (0..width).step_by(columns).map(move |from| Columns {
            // SAFETY: `from` is less than `width`, so the address is within the first row.
            first: unsafe { y.add(from) },
            rows,
            columns: columns.min(width - from),
            width,
            lifetime: PhantomData,
        })
    }
    /// Reborrows the columns.
    fn reborrow(&mut self) -> Columns<'_> {
        Columns { lifetime: PhantomData, ..*self }
    }
    /// Removes the first `rows` rows and returns them.
    fn split_off(&mut self, rows: usize) -> Columns<'a> {
        assert!(rows <= self.rows, "{rows} of {} rows", self.rows);
        let head = Columns { rows, ..*self };
        self.rows -= rows;
        self.first = self.first.wrapping_add(rows * self.width);
        head
    }
    /// Returns the columns of row `i`.
    fn row(&mut self, i: usize) -> &mut [f32] {
        assert!(i < self.rows, "row {i} of {}", self.rows);
        // SAFETY: the row exists, and access to these columns of it is exclusive.
        unsafe { slice::from_raw_parts_mut(self.first.add(i * self.width), self.columns) }
    }
}

/// Work of one thread.
pub(super) enum Task<'a> {
    /// Computes the rows of y from `first` on, except those longer than a slice.
    Rows { first: usize, y: Columns<'a> },
    /// Computes the sum of some neighbours of a row.
    Slice { neighbors: Range<usize>, sum: &'a mut [f32] },
    /// Scales `columns` of the rows of x, `width` wide, from row `first` on, and copies them to `to`, next to
    /// each other.
    Stripe { first: usize, columns: Range<usize>, width: usize, to: &'a mut [f32] },
}

/// A number of x, as it is stored.
pub(super) trait StoredNumber: Copy + Zeroable + Sync {
    /// Whether the number is already multiplied by the scale of its row.
    const SCALED: bool = false;
    /// Returns the number in f32.
    fn widened(self) -> f32;
    /// Runs a task.
    fn run(step: &Step<'_, Self>, task: Task<'_>);
}

/// A number of a stripe: already multiplied by the scale of its row.
#[derive(Clone, Copy, Zeroable, TransparentWrapper)]
#[repr(transparent)]
pub(super) struct Scaled(f32);

macro_rules! stored_number {
    ($t:ident, $run:ident, $number:ident, $widened:expr $(, $scaled:expr)?) => {
        vectorised! {
            fn $run(step: &Step<'_, $t>, task: Task<'_>) {
                run_task::<V, $t>(step, task);
            }
        }
        impl StoredNumber for $t {
            $(const SCALED: bool = $scaled;)?
            #[inline(always)]
            fn widened(self) -> f32 {
                let $number = self;
                $widened
            }
            fn run(step: &Step<'_, Self>, task: Task<'_>) {
                $run(step, task);
            }
        }
    };
}
stored_number!(f32, run_f32, x, x);
stored_number!(Scaled, run_scaled, x, x.0, true);
stored_number!(bf16, run_bf16, x, f32::from_bits(u32::from(x.to_bits()) << 16));
stored_number!(f16, run_f16, x, {
    // Branch-free: multiplying by 2^112 corrects the exponent bias, for subnormal numbers too.
    let (bits, sign) = (u32::from(x.to_bits()) & 0x7fff, u32::from(x.to_bits() & 0x8000) << 16);
    let finite = f32::from_bits(bits << 13) * f32::from_bits((127 + 112) << 23);
    // Infinities and NaNs have the largest exponent in both formats.
    let exponent = if bits >= 0x7c00 { 0xff << 23 } else { 0 };
    f32::from_bits(finite.to_bits() | exponent | sign)
});

/// Loads the first block of `x`.
#[inline(always)]
fn load_block<V: Block, T: StoredNumber>(x: &[T]) -> V {
    let x = &x[..LANES];
    V::load(&array::from_fn::<f32, LANES, _>(|l| x[l].widened()))
}

#[inline(always)]
fn run_task<V: Block, T: StoredNumber>(s: &Step<'_, T>, task: Task<'_>) {
    match task {
        Task::Slice { neighbors, sum } => sum_rows::<V, T>(s, neighbors, sum),
        Task::Rows { first, mut y } => {
            for i in 0..y.rows {
                let (neighbors, scale) = s.row(first + i);
                if neighbors.len() <= SLICE {
                    let y = y.row(i);
                    sum_rows::<V, T>(s, neighbors, y);
                    finish(y, scale, s.bias, s.act);
                }
            }
        }
        Task::Stripe { first, columns, width, to } => {
            let rows = s.x.chunks_exact(width).zip(s.column_scale).skip(first);
            for (to, (x, &scale)) in to.chunks_exact_mut(columns.len()).zip(rows) {
                for (to, x) in to.iter_mut().zip(&x[columns.clone()]) {
                    *to = scale * x.widened();
                }
            }
        }
    }
}

/// A neighbour: its row index, the row index to prefetch meanwhile, and its weight.
type Entry = (usize, usize, f32);

/// Returns false: `column`, of one of `neighbors`, is not there. It is a fault unless it is [`NONE`].
#[cold]
#[inline(never)]
fn skip<T>(s: &Step<'_, T>, neighbors: &Range<usize>, column: usize) -> bool {
    if column != NONE as usize {
        let at = neighbors.clone().find(|&e| s.col[e] as usize == column);
        s.io.fault(at.unwrap_or(neighbors.start), Fault::out_of_range(column));
    }
    false
}

/// Computes `out = sum_e w_e r_e x[e]` over neighbours `e`.
#[inline(always)]
fn sum_rows<V: Block, T: StoredNumber>(s: &Step<'_, T>, neighbors: Range<usize>, out: &mut [f32]) {
    let col = &s.col[neighbors.clone()];
    let ahead = s.col.get(neighbors.start + AHEAD..neighbors.end + AHEAD).unwrap_or(col);
    let columns = s.column_scale.len();
    let known = |e: &Entry| e.0 < columns || skip(s, &neighbors, e.0);
    let entries = col.iter().zip(ahead).map(|(&j, &ahead)| (j as usize, ahead as usize));
    match s.weight {
        None => {
            let entries = entries.map(|(j, ahead)| (j, ahead, 1.0));
            sum_entries::<V, T>(s, entries.filter(known), out);
        }
        Some(w) => {
            let weighted = entries.zip(&w[neighbors.clone()]).map(|((j, ahead), &w)| (j, ahead, w));
            sum_entries::<V, T>(s, weighted.filter(known), out);
        }
    }
}

/// Sums rows in registers, [`WIDE`] columns at a time; common widths have a loop of their own.
#[inline(always)]
fn sum_entries<V: Block, T: StoredNumber>(
    s: &Step<'_, T>,
    entries: impl Iterator<Item = Entry> + Clone,
    out: &mut [f32],
) {
    let (d, mut from) = (out.len(), 0);
    match d {
        0..LANES => return sum_narrow_rows::<V, T>(s, entries, out),
        16 => return sum_whole_rows::<V, T, 1, 16>(s, entries, out),
        32 => return sum_whole_rows::<V, T, 2, 32>(s, entries, out),
        64 => return sum_whole_rows::<V, T, 4, 64>(s, entries, out),
        128 => return sum_whole_rows::<V, T, 8, 128>(s, entries, out),
        _ => {}
    }
    while from < d {
        // If less than a block is left, the columns before it are summed once more, to the same bits.
        let at = from.min(d - LANES);
        let out = &mut out[at..d.min(at + WIDE)];
        from = at + out.len();
        let entries = entries.clone();
        match out.len().div_ceil(LANES) {
            1 => sum_columns::<V, T, 1>(s, entries, out, at, d),
            2 => sum_columns::<V, T, 2>(s, entries, out, at, d),
            3 => sum_columns::<V, T, 3>(s, entries, out, at, d),
            4 => sum_columns::<V, T, 4>(s, entries, out, at, d),
            5..=6 => sum_columns::<V, T, 6>(s, entries, out, at, d),
            _ => sum_columns::<V, T, 8>(s, entries, out, at, d),
        }
    }
}

/// Sums rows of `N` blocks, `W` columns.
#[inline(always)]
fn sum_whole_rows<V: Block, T: StoredNumber, const N: usize, const W: usize>(
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
            sums[b] = load_block::<V, T>(&row[b * LANES..]).mul_add(factor, sums[b]);
        }
    }
    for b in 0..N {
        sums[b].store(&mut out[b * LANES..]);
    }
}

/// Sums the columns from `from` on of rows of width `d`, in `N` blocks; blocks beyond the end overlap the
/// last one.
#[inline(always)]
fn sum_columns<V: Block, T: StoredNumber, const N: usize>(
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
            sums[b] = load_block::<V, T>(&row[at[b]..]).mul_add(factor, sums[b]);
        }
    }
    for b in 0..N {
        sums[b].store(&mut out[at[b]..]);
    }
}

/// Sums rows narrower than a block. A block also covers numbers that follow the row, whose sums are
/// discarded.
#[inline(always)]
fn sum_narrow_rows<V: Block, T: StoredNumber>(
    s: &Step<'_, T>,
    entries: impl Iterator<Item = Entry>,
    out: &mut [f32],
) {
    let (mut sum, mut last) = (V::splat(0.0), [T::zeroed(); LANES]);
    for (j, _, w) in entries {
        let mut row = &s.x[j * out.len()..];
        if row.len() < LANES {
            last[..row.len()].copy_from_slice(row);
            row = &last;
        }
        sum = load_block::<V, T>(row).mul_add(V::splat(factor(s, j, w)), sum);
    }
    let mut sums = [0.0; LANES];
    sum.store(&mut sums);
    out.copy_from_slice(&sums[..out.len()]);
}

/// Returns the factor of the row of neighbour `j`.
#[inline(always)]
fn factor<T: StoredNumber>(s: &Step<'_, T>, j: usize, weight: f32) -> f32 {
    if T::SCALED { weight } else { s.column_scale[j] * weight }
}

/// Computes `y = act(scale y + b)`.
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
                *y = act.apply(*y);
            }
        }
    }
}

vectorised! {
    /// Computes `y = act(scale sum_k sums[k] + b)` from the sums of a row's slices.
    fn combine_slices(y: &mut [f32], sums: &[f32], scale: f32, bias: Option<&[f32]>, act: Activation) {
        y.fill(0.0);
        for sum in sums.chunks_exact(y.len()) {
            simd::add_assign(y, sum);
        }
        finish(y, scale, bias, act);
    }
}

/// Computes all rows of y, `width` wide, of a step. `slices` are those of the step's long rows; `scratch` has
/// space for a row for each slice, and for all stripes.
pub(super) fn multiply<T: StoredNumber>(
    s: &Step<'_, T>,
    slices: &[[u32; 4]],
    scratch: &mut [f32],
    y: &mut [f32],
    width: usize,
) {
    let (rows, slice_count) = (s.x.len() / width, slices.len());
    let Some(columns) = stripe_columns(rows, width, size_of_val(s.x)) else {
        return Columns::split(y, width, width).for_each(|y| multiply_columns(s, slices, scratch, y));
    };
    let scratch = scratch.chunks_mut((rows + slice_count) * columns);
    let stripes = Columns::split(y, width, columns).zip(scratch);
    let stripes: Vec<_> = (0..width).step_by(columns).zip(stripes).collect();
    let multiply_stripe = |(from, (y, scratch)): (usize, (Columns<'_>, &mut [f32]))| {
        let columns = from..from + y.columns;
        let (sums, stripe) = scratch.split_at_mut(slice_count * columns.len());
        let size = team::piece(rows, TASK_LOAD / columns.len());
        stripe.chunks_mut(size * columns.len()).enumerate().in_parallel(1, |(chunk, to)| {
            T::run(s, Task::Stripe { first: chunk * size, columns: columns.clone(), width, to });
        });
        multiply_columns(&s.with_stripe(Scaled::wrap_slice(stripe), columns), slices, sums, y);
    };
    // Each thread processes whole stripes if that balances the load; otherwise the threads share every
    // stripe.
    let (threads, n) = (team::threads(), stripes.len());
    match n.is_multiple_of(threads) || n >= 4 * threads {
        true => stripes.into_iter().in_parallel(1, multiply_stripe),
        false => stripes.into_iter().for_each(multiply_stripe),
    }
}

/// Computes some columns of all rows of y; `sums` has space for these columns of each slice.
fn multiply_columns<T: StoredNumber>(
    s: &Step<'_, T>,
    slices: &[[u32; 4]],
    sums: &mut [f32],
    mut y: Columns<'_>,
) {
    let (rows, columns) = (y.rows, y.columns);
    // A row of one slice is handled like a short row.
    let slices = || slices.iter().filter(|&&[vertex, _, count, _]| count > 1 && (vertex as usize) < rows);
    let (mut rest_of_y, mut tasks) = (y.reborrow(), Vec::new());
    for (&[vertex, index, ..], sum) in slices().zip(sums.chunks_exact_mut(columns)) {
        let (row, _) = s.row(vertex as usize);
        let begin = row.end.min(row.start + index as usize * SLICE);
        tasks.push(Task::Slice { neighbors: begin..row.end.min(begin + SLICE), sum });
    }
    let (mut first, mut load) = (0, 0);
    for i in 0..rows {
        let (neighbors, _) = s.row(i);
        load += 1 + if neighbors.len() <= SLICE { neighbors.len() } else { 0 };
        if load >= TASK_LOAD || i + 1 == rows {
            tasks.push(Task::Rows { first, y: rest_of_y.split_off(i + 1 - first) });
            (first, load) = (i + 1, 0);
        }
    }
    tasks.into_iter().in_parallel(1, |task| T::run(s, task));
    let mut rest = &sums[..];
    for &[vertex, _, count, _] in slices().filter(|&&[_, index, ..]| index == 0) {
        // Fewer sums than `count` are left only if the tables contradict themselves.
        let (row_sums, later) = rest.split_at(rest.len().min(count as usize * columns));
        let row = vertex as usize;
        combine_slices(y.row(row), row_sums, s.row(row).1, s.bias, s.act);
        rest = later;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::philox::Key;

    #[test]
    fn widening_any_16_bit_number_keeps_its_value() {
        for bits in 0..=u16::MAX {
            let (brain, half) = (bf16::from_bits(bits), f16::from_bits(bits));
            for (found, want) in [(brain.widened(), brain.to_f32()), (half.widened(), half.to_f32())] {
                assert!(found.to_bits() == want.to_bits() || found.is_nan() && want.is_nan(), "{bits:x}");
            }
        }
    }

    /// The tables are larger than the cache, have fewer stripes than threads or more, and some long rows.
    #[test]
    fn stripes_match_the_definition_and_have_the_same_bits_on_any_number_of_threads() -> std::io::Result<()> {
        for (v, d) in [(8200, 70), (17_000, 37), (40_000, 16), (2100, 260)] {
            let key = Key::new(1, 2, [3, 4]);
            let len: Vec<u32> = (0..v).map(|i| if i % 1000 == 7 { 1100 } else { i as u32 % 4 }).collect();
            let begin: Vec<u32> =
                len.iter().scan(0, |end, n| Some(std::mem::replace(end, *end + n))).collect();
            let entries = len.iter().sum::<u32>() as usize;
            let col: Vec<u32> = (0..entries as u64).map(|e| key.draw(e)[0] % v as u32).collect();
            let draw_real = |e: usize| f32::from(key.draw(e as u64)[1] as u16) / 65536.0 - 0.4;
            let [x, weight, scale, bias] =
                [v * d, entries, v, d].map(|n| (0..n).map(draw_real).collect::<Vec<f32>>());
            let status = Status::default();
            // SAFETY: there are no operands.
            let io = unsafe { Io::new(&[], &[], (std::ptr::null_mut(), 0), Precision::F32, &[], &status) };
            let step = Step {
                io: &io,
                x: &x,
                begin: &begin,
                len: &len,
                col: &col,
                weight: Some(&weight),
                scale: &scale,
                column_scale: &scale,
                bias: Some(&bias),
                act: Activation::Relu,
            };
            let long = LongRows::new(&len, v);
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
                let neighbors = begin[i] as usize..(begin[i] + len[i]) as usize;
                let term = |e: usize| {
                    let j = col[e] as usize;
                    f64::from(weight[e]) * f64::from(scale[j]) * f64::from(x[j * d + c])
                };
                let z = f64::from(scale[i]) * neighbors.map(term).sum::<f64>() + f64::from(bias[c]);
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
