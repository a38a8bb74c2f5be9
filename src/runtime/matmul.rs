//! Dense products on the CPU: strided views over the `gemm` crate, split over threads without changing a bit.
//!
//! Each thread makes whole rows (or columns) of the result, or one half of its sums where these are long
//! ([`matmul_long`]); the sum over the inner dimension always runs in the same order, so the bits do not depend on the
//! number of threads. `gemm` picks its path and its blocks by the shape it is
//! given, which differs from part to part, so the inner blocks are made here, and no part is small enough for another
//! path than the whole product's.
use super::{
    parts,
    team::{self, InParallel},
};
use std::ops::Range;

/// A read-only matrix with arbitrary strides.
#[derive(Clone, Copy)]
pub struct Mat<'a> {
    data: &'a [f32],
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
}

impl<'a> Mat<'a> {
    /// `rows x cols`, row-major without gaps.
    pub fn new(data: &'a [f32], rows: usize, cols: usize) -> Self {
        Self::strided(data, rows, cols, cols)
    }
    /// `rows x cols`, rows `row_stride` elements apart.
    ///
    /// # Panics
    /// When the matrix reaches past `data`.
    pub fn strided(data: &'a [f32], rows: usize, cols: usize, row_stride: usize) -> Self {
        assert!(fits(data.len(), rows, cols, row_stride), "matrix reaches past its data");
        Mat { data, rows, cols, row_stride, col_stride: 1 }
    }
    /// Columns of block `at` of `[rows, blocks * cols]`, such as those of one head; `data` may be empty where rows or columns are.
    ///
    /// # Panics
    /// When the matrix reaches past `data`.
    pub fn block(data: &'a [f32], rows: usize, blocks: usize, cols: usize, at: usize) -> Self {
        Mat::strided(data.get(at * cols..).unwrap_or(&[]), rows, cols, blocks * cols)
    }
    /// The transpose, without copying.
    #[must_use]
    pub fn t(self) -> Self {
        Mat {
            rows: self.cols,
            cols: self.rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
            ..self
        }
    }
    /// Some of its rows.
    ///
    /// # Panics
    /// When it has fewer.
    #[must_use]
    pub fn rows(self, rows: &Range<usize>) -> Self {
        self.t().columns(rows.start, rows.end).t()
    }
    /// Columns `from..until`.
    fn columns(self, from: usize, until: usize) -> Self {
        assert!(from <= until && until <= self.cols, "columns {from}..{until} of {}", self.cols);
        let skipped = (from * self.col_stride).min(self.data.len());
        Mat { data: &self.data[skipped..], cols: until - from, ..self }
    }
}

/// A row-major matrix to be written, rows `row_stride` elements apart.
pub struct MatMut<'a> {
    data: &'a mut [f32],
    rows: usize,
    cols: usize,
    row_stride: usize,
}

impl<'a> MatMut<'a> {
    /// `rows x cols`, without gaps.
    pub fn new(data: &'a mut [f32], rows: usize, cols: usize) -> Self {
        Self::strided(data, rows, cols, cols)
    }
    /// `rows x cols`, rows `row_stride` elements apart.
    ///
    /// # Panics
    /// When the matrix reaches past `data`.
    pub fn strided(data: &'a mut [f32], rows: usize, cols: usize, row_stride: usize) -> Self {
        assert!(fits(data.len(), rows, cols, row_stride), "matrix reaches past its data");
        MatMut { data, rows, cols, row_stride }
    }
}

fn fits(len: usize, rows: usize, cols: usize, row_stride: usize) -> bool {
    let end = rows.saturating_sub(1).checked_mul(row_stride).and_then(|last| last.checked_add(cols));
    rows == 0 || cols == 0 || (cols <= row_stride && end.is_some_and(|end| end <= len))
}

/// Products below this many multiply-adds are not worth a second thread (about 20 us of one).
const SPLIT_FROM: usize = 1 << 20;
/// Parts are multiples of the widest micro-kernel's tile, which has six rows; columns are packed once a part.
const TILE: (usize, usize) = (6, 32);
/// Results with at least this many times as many columns as rows are split by columns.
const WIDE: usize = 4;
/// The longest sum that `gemm` never cuts, whatever the other sizes.
const DEPTH: usize = 512;
/// Results of at most this many elements go another path in `gemm`, which sums in another order.
const TINY: usize = 16 * 16;
/// Bytes of a result that stay in a core's cache while its rows are finished.
pub const CACHED: usize = 1 << 20;
/// Sums from this length on are split in halves.
const LONG: usize = 256;

/// Rows of a result `[m, n]` of sums of length `k`, all together: for work that goes on with the rows of a product where it
/// was made. For each thread the same number of parts, few enough that a product is not all preparations, and so many
/// that a part is still in the cache afterwards. A product of such rows has the bits that it has within the whole. Of several products
/// `n` is the width of the narrowest.
pub fn row_parts(m: usize, n: usize, k: usize) -> Vec<Range<usize>> {
    let threads = if m * n * k < SPLIT_FROM { 1 } else { team::threads() };
    let parts = (m * n * size_of::<f32>()).div_ceil(threads * CACHED).max(1);
    cut(m, n, TILE.0, threads * parts)
}

/// `data` for each of `parts` of its rows, `width` elements each.
///
/// # Panics
/// When there are fewer rows.
pub fn split_rows<'a, T>(mut data: &'a mut [T], parts: &[Range<usize>], width: usize) -> Vec<&'a mut [T]> {
    let part = |rows: &Range<usize>| data.split_off_mut(..rows.len() * width).expect("rows of every part");
    parts.iter().map(part).collect()
}

/// `0..long` in a part for each thread, of whole tiles, none of them tiny.
fn cut(long: usize, short: usize, tile: usize, threads: usize) -> Vec<Range<usize>> {
    if threads == 1 || long * short == 0 {
        return std::iter::once(0..long).collect();
    }
    let size = long.div_ceil(threads).max(TINY / short + 1).next_multiple_of(tile);
    // A rest that is tiny joins the part before it.
    let rest = long % size;
    let parts = (long / size + usize::from(rest > 1 && rest * short > TINY)).max(1);
    (0..parts).map(|i| i * size..if i + 1 == parts { long } else { (i + 1) * size }).collect()
}

/// `out = a b`, or `out += a b` with `accumulate`.
///
/// # Panics
/// When the shapes do not fit.
pub fn matmul(out: MatMut<'_>, a: Mat<'_>, b: Mat<'_>, accumulate: bool) {
    let threads = if out.rows * out.cols * a.cols < SPLIT_FROM { 1 } else { team::threads() };
    product(out, a, b, accumulate, threads);
}

/// [`matmul`] for sums over many rows, such as gradients of weights: the sums' halves are made side by side, each from
/// rows that one thread alone has to bring in. `scratch` holds a second result.
///
/// # Panics
/// When the shapes do not fit, or the result has gaps between its rows.
pub fn matmul_long(out: MatMut<'_>, a: Mat<'_>, b: Mat<'_>, accumulate: bool, scratch: &mut [f32]) {
    let (m, n, k) = (out.rows, out.cols, a.cols);
    if k < LONG || m * n == 0 {
        return matmul(out, a, b, accumulate);
    }
    assert_eq!(out.row_stride, n, "a result without gaps");
    let (half, bt) = ((k / 2).next_multiple_of(8), b.t());
    let (sum, other) = (&mut out.data[..m * n], &mut scratch[..m * n]);
    let halves = [
        (&mut *sum, a.columns(0, half), bt.columns(0, half).t(), accumulate),
        (&mut *other, a.columns(half, k), bt.columns(half, k).t(), false),
    ];
    if team::threads() > 2 {
        halves.into_iter().for_each(|(out, a, b, add)| matmul(MatMut::new(out, m, n), a, b, add));
    } else {
        halves.into_iter().in_parallel(1, |(out, a, b, add)| matmul(MatMut::new(out, m, n), a, b, add));
    }
    let share = team::share(m * n);
    sum.chunks_mut(share).zip(other.chunks(share)).in_parallel(1, |(sum, x)| parts::add_column_sums(sum, x));
}

fn product(out: MatMut<'_>, a: Mat<'_>, b: Mat<'_>, accumulate: bool, threads: usize) {
    assert_eq!((out.rows, out.cols, a.cols), (a.rows, b.cols, b.rows), "shapes of a product");
    let (m, n, k) = (out.rows, out.cols, a.cols);
    if m == 0 || n == 0 {
        return;
    }
    let target = Target(out.data.as_mut_ptr());
    let depth = k.div_ceil(k.div_ceil(DEPTH).max(1)).max(1);
    let part = |r0: usize, r: usize, c0: usize, c: usize| {
        let target = &target;
        // Once for an empty sum, which clears the result.
        for k0 in (0..k.max(1)).step_by(depth) {
            let l = depth.min(k - k0);
            // SAFETY: the views checked that every index they reach lies in their data; parts of the result are
            // disjoint.
            unsafe {
                gemm::gemm(
                    r,
                    c,
                    l,
                    target.0.add(r0 * out.row_stride + c0),
                    1,
                    out.row_stride as isize,
                    accumulate || k0 > 0,
                    a.data.as_ptr().add(if k == 0 { 0 } else { r0 * a.row_stride + k0 * a.col_stride }),
                    a.col_stride as isize,
                    a.row_stride as isize,
                    b.data.as_ptr().add(if k == 0 { 0 } else { k0 * b.row_stride + c0 * b.col_stride }),
                    b.col_stride as isize,
                    b.row_stride as isize,
                    1.0f32,
                    1.0f32,
                    false,
                    false,
                    false,
                    gemm::Parallelism::None,
                );
            }
        }
    };
    let by_rows = WIDE * m >= n;
    let parts = if by_rows { cut(m, n, TILE.0, threads) } else { cut(n, m, TILE.1, threads) };
    team::run(parts.len(), |i| {
        let Range { start, end } = parts[i];
        if by_rows { part(start, end - start, 0, n) } else { part(0, m, start, end - start) }
    });
}

struct Target(*mut f32);
// SAFETY: every part writes its own rows or columns.
unsafe impl Sync for Target {}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(n: usize) -> Vec<f32> {
        (0..n).map(|i| ((i * 7919) % 1000) as f32 / 1000.0 - 0.5).collect()
    }

    #[test]
    fn products_of_any_shape_and_stride_equal_the_definition() {
        for (m, n, k, gap) in [(1, 1, 1, 0), (3, 5, 7, 2), (70, 33, 129, 5), (0, 4, 3, 0), (4, 3, 0, 1)] {
            let (a, b) = (numbers(m * (k + gap)), numbers(n * k));
            let mut out = vec![1.0; m * (n + gap)];
            let av = if m == 0 || k == 0 { Mat::new(&[], m, k) } else { Mat::strided(&a, m, k, k + gap) };
            matmul(MatMut::strided(&mut out, m, n, n + gap), av, Mat::new(&b, n, k).t(), true);
            for i in 0..m {
                for j in 0..n {
                    let want: f64 =
                        (0..k).map(|l| f64::from(a[i * (k + gap) + l]) * f64::from(b[j * k + l])).sum();
                    assert!(
                        (f64::from(out[i * (n + gap) + j]) - 1.0 - want).abs() < 1e-5,
                        "{m} {n} {k}: {i} {j}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_number_of_threads_does_not_change_a_bit() -> std::io::Result<()> {
        // Among them parts that `gemm` on its own would block otherwise (24 x 100), or send another way: one column,
        // one row, few elements.
        for (m, n, k) in [
            (300, 472, 1165),
            (1165, 300, 472),
            (1800, 50, 372),
            (900, 372, 50),
            (24, 100, 1200),
            (48, 65, 1025),
            (8, 65, 4096),
            (2, 97, 9001),
            (1, 130, 9001),
            (2000, 1, 1200),
            (70, 129, 513),
        ] {
            let (a, b) = (numbers(m * k), numbers(n * k));
            let run = |threads: usize, dots: bool, long: bool| {
                let team = team::Team::new(threads)?;
                let (mut out, mut scratch) = (vec![0.0f32; m * n], vec![0.0f32; m * n]);
                let (a, b) = match dots {
                    false => (Mat::new(&a, k, m).t(), Mat::new(&b, k, n)),
                    true => (Mat::new(&a, m, k), Mat::new(&b, n, k).t()),
                };
                team.install(|| match long {
                    false => matmul(MatMut::new(&mut out, m, n), a, b, false),
                    true => matmul_long(MatMut::new(&mut out, m, n), a, b, false, &mut scratch),
                });
                Ok::<_, std::io::Error>(out.iter().map(|x| x.to_bits()).collect::<Vec<_>>())
            };
            for (dots, long) in [(false, false), (true, false), (false, true), (true, true)] {
                let one = run(1, dots, long)?;
                for threads in [2, 3, 4, 7] {
                    assert!(one == run(threads, dots, long)?, "{m} {n} {k}, {threads} threads, long {long}");
                }
            }
        }
        Ok(())
    }
}
