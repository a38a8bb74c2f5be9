//! Splits rows into a fixed number of chunks, so that sums over rows are bit-identical for any number of
//! threads.
use super::{
    simd::{self, LANES, vectorised},
    team::InParallel,
};
use std::cell::RefCell;

/// Number of chunks that rows are split into, independent of the number of threads.
pub const PARTS: usize = 16;

/// Returns the number of rows in each chunk of `rows` rows; the last chunk may be shorter.
pub fn part_rows(rows: usize) -> usize {
    rows.div_ceil(PARTS).max(1)
}

/// Runs `add_rows(range, partial)` on each chunk of `rows`, in parallel, and sums the partials, `out.len()`
/// numbers each and zero at first, into `out` in the order of the chunks. `scratch` holds `PARTS * out.len()`
/// numbers.
///
/// Anything that `add_rows` writes besides `partial` must belong to the rows of its own range.
pub fn sum_parts(
    rows: usize,
    out: &mut [f32],
    scratch: &mut [f32],
    add_rows: impl Fn(std::ops::Range<usize>, &mut [f32]) + Sync,
) {
    let (size, width) = (part_rows(rows), out.len());
    out.fill(0.0);
    if rows == 0 || width == 0 {
        return;
    }
    let partials = &mut scratch[..rows.div_ceil(size) * width];
    partials.fill(0.0);
    partials.chunks_exact_mut(width).enumerate().in_parallel(1, |(i, partial)| {
        add_rows(i * size..((i + 1) * size).min(rows), partial);
    });
    partials.chunks_exact(width).for_each(|partial| add(out, partial));
}

/// Runs `work` on a buffer of `n` zeros that belongs to this thread and stays in its cache from call to call.
/// `work` must not fork: a thread that waits for its team may help others and call this function again.
///
/// # Panics
/// If called from within `work`.
pub fn with_thread_buffer<T>(n: usize, work: impl FnOnce(&mut [f32]) -> T) -> T {
    thread_local!(static BUFFER: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) });
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.len() < n + LANES {
            buffer.resize(n + LANES, 0.0);
        }
        let start = buffer.as_ptr().align_offset(size_of::<[f32; LANES]>()).min(LANES);
        let zeros = &mut buffer[start..start + n];
        zeros.fill(0.0);
        work(zeros)
    })
}

vectorised! {
    fn add(out: &mut [f32], x: &[f32]) {
        simd::add_assign(out, x);
    }
    /// Computes `out[j] += sum_i x[i, j]` for rows of `out.len()` numbers.
    pub fn add_column_sums(out: &mut [f32], x: &[f32]) {
        if !out.is_empty() {
            for row in x.chunks_exact(out.len()) {
                simd::add_assign(out, row);
            }
        }
    }
}

/// Computes `out[j] = sum_i x[i, j]`; `scratch` holds `PARTS * out.len()` numbers.
pub fn column_sums(out: &mut [f32], x: &[f32], scratch: &mut [f32]) {
    let d = out.len().max(1);
    sum_parts(x.len() / d, out, scratch, |rows, partial| {
        add_column_sums(partial, &x[rows.start * d..rows.end * d]);
    });
}
