//! Rows in a fixed number of parts, so that sums over rows have the same bits for any number of threads.
use super::{
    simd::{self, LANES, vectorised},
    team::InParallel,
};
use std::cell::RefCell;

/// Parts that rows are split into, whatever the number of threads.
pub const PARTS: usize = 16;

/// Rows of one part of `rows`; the last part is shorter.
pub fn part_rows(rows: usize) -> usize {
    rows.div_ceil(PARTS).max(1)
}

/// Runs `f(part, first_row, partial)` for each part of `rows`, side by side, and sums the partials, `width` numbers
/// each, into `out` in the order of the parts. `scratch` holds `PARTS * width` numbers.
///
/// What `f` writes besides its partial must belong to its part.
pub fn sum_parts(
    rows: usize,
    out: &mut [f32],
    scratch: &mut [f32],
    f: impl Fn(std::ops::Range<usize>, &mut [f32]) + Sync,
) {
    let (size, width) = (part_rows(rows), out.len());
    out.fill(0.0);
    if rows == 0 || width == 0 {
        return;
    }
    let partials = &mut scratch[..rows.div_ceil(size) * width];
    partials.fill(0.0);
    partials.chunks_exact_mut(width).enumerate().in_parallel(1, |(i, partial)| {
        f(i * size..((i + 1) * size).min(rows), partial);
    });
    partials.chunks_exact(width).for_each(|p| add(out, p));
}

/// Runs `f` on `n` zeros that belong to this thread and stay in its cache from call to call. `f` must not fork:
/// a thread that waits for its team may help others, and come here again.
///
/// # Panics
/// When called from within `f`.
pub fn with_thread_buffer<T>(n: usize, f: impl FnOnce(&mut [f32]) -> T) -> T {
    thread_local!(static BUFFER: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) });
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.len() < n + LANES {
            buffer.resize(n + LANES, 0.0);
        }
        let start = buffer.as_ptr().align_offset(size_of::<[f32; LANES]>()).min(LANES);
        let zeros = &mut buffer[start..start + n];
        zeros.fill(0.0);
        f(zeros)
    })
}

vectorised! {
    fn add(out: &mut [f32], x: &[f32]) {
        simd::add_assign(out, x);
    }
    /// `out[j] += sum_i x[i, j]` for rows of `out.len()` numbers.
    pub fn add_column_sums(out: &mut [f32], x: &[f32]) {
        if !out.is_empty() {
            for row in x.chunks_exact(out.len()) {
                simd::add_assign(out, row);
            }
        }
    }
}

/// `out[j] = sum_i x[i, j]`; `scratch` holds `PARTS * out.len()` numbers.
pub fn column_sums(out: &mut [f32], x: &[f32], scratch: &mut [f32]) {
    let d = out.len().max(1);
    sum_parts(x.len() / d, out, scratch, |rows, partial| {
        add_column_sums(partial, &x[rows.start * d..rows.end * d]);
    });
}
