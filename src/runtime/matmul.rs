//! Dense products on the CPU: strided views over the library `gemm-f32`, split over threads without changing
//! a bit.
//!
//! Each thread computes whole rows (or columns) of the result, or one half of every sum if the sums are long
//! ([`matmul_long`]). The order of the additions over the inner dimension is fixed, so the bits do not depend
//! on the number of threads. The library chooses its algorithm and its blocking by the shape of a product,
//! and the shapes of the threads' ranges differ from the whole. Therefore the inner dimension is blocked
//! here, and no range is so small that the library would choose another algorithm than for the whole product.
//!
//! For the same reason, a row of `x W` does not depend on the other rows, nor on how many there are: ranks
//! that compute different slices of a batch get the same bits.
use super::{
    parts,
    team::{self, InParallel},
};
use gemm_common::Parallelism;
use gemm_f32::gemm::f32::get_gemm_fn;
use std::{cell::Cell, ops::Range};

/// A read-only matrix with arbitrary strides.
#[derive(Clone, Copy, Debug)]
pub struct Mat<'a> {
    data: &'a [f32],
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
}

impl<'a> Mat<'a> {
    /// Creates a row-major `rows x cols` matrix without gaps.
    pub fn new(data: &'a [f32], rows: usize, cols: usize) -> Self {
        Self::strided(data, rows, cols, cols)
    }
    /// Creates a `rows x cols` matrix whose rows are `row_stride` elements apart.
    ///
    /// # Panics
    /// If the matrix extends past `data`.
    pub fn strided(data: &'a [f32], rows: usize, cols: usize, row_stride: usize) -> Self {
        assert!(fits(data.len(), rows, cols, row_stride), "matrix reaches past its data");
        Mat { data, rows, cols, row_stride, col_stride: 1 }
    }
    /// Creates a view of column block `at` of a `[rows, blocks * cols]` matrix, such as the columns of one
    /// head. `data` may be empty if there are no rows or no columns.
    ///
    /// # Panics
    /// If the matrix extends past `data`.
    pub fn block(data: &'a [f32], rows: usize, blocks: usize, cols: usize, at: usize) -> Self {
        Mat::strided(data.get(at * cols..).unwrap_or(&[]), rows, cols, blocks * cols)
    }
    /// Returns the transpose, without copying.
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
    /// Returns a view of the rows `rows`.
    ///
    /// # Panics
    /// If the matrix has fewer rows.
    #[must_use]
    pub fn rows(self, rows: &Range<usize>) -> Self {
        self.t().columns(rows.start, rows.end).t()
    }
    /// Returns a view of the columns `from..until`.
    fn columns(self, from: usize, until: usize) -> Self {
        assert!(from <= until && until <= self.cols, "columns {from}..{until} of {}", self.cols);
        let skipped = (from * self.col_stride).min(self.data.len());
        Mat { data: &self.data[skipped..], cols: until - from, ..self }
    }
}

/// A writable row-major matrix whose rows are `row_stride` elements apart.
#[derive(Debug)]
pub struct MatMut<'a> {
    data: &'a mut [f32],
    rows: usize,
    cols: usize,
    row_stride: usize,
}

impl<'a> MatMut<'a> {
    /// Creates a `rows x cols` matrix without gaps.
    pub fn new(data: &'a mut [f32], rows: usize, cols: usize) -> Self {
        Self::strided(data, rows, cols, cols)
    }
    /// Creates a `rows x cols` matrix whose rows are `row_stride` elements apart.
    ///
    /// # Panics
    /// If the matrix extends past `data`.
    pub fn strided(data: &'a mut [f32], rows: usize, cols: usize, row_stride: usize) -> Self {
        assert!(fits(data.len(), rows, cols, row_stride), "matrix reaches past its data");
        MatMut { data, rows, cols, row_stride }
    }
}

fn fits(len: usize, rows: usize, cols: usize, row_stride: usize) -> bool {
    let end = rows.saturating_sub(1).checked_mul(row_stride).and_then(|last| last.checked_add(cols));
    rows == 0 || cols == 0 || (cols <= row_stride && end.is_some_and(|end| end <= len))
}

/// Products with fewer multiply-adds than this run on one thread (about 20 us).
const SPLIT_FROM: usize = 1 << 20;
/// Ranges of rows and of columns are multiples of these: the tile of the widest micro-kernel has six rows;
/// columns are packed once per range.
const TILE: (usize, usize) = (6, 32);
/// Results with at least this many times more columns than rows are split by columns.
const WIDE: usize = 4;
/// The longest sum that the library never splits, whatever the other dimensions.
const DEPTH: usize = 512;
/// For results of at most this many elements the library uses another algorithm, with another order of
/// additions.
const TINY: usize = 16 * 16;
/// Bytes of a result that stay in a core's cache until its rows have been processed further.
pub const CACHED: usize = 1 << 20;
/// Sums of at least this length are split in halves.
const LONG: usize = 256;

/// Splits the rows of a result `[m, n]` with sums of length `k` into ranges; together they cover `0..m`. For
/// work that processes the rows of a product further on the thread that computed them.
///
/// Every thread gets the same number of ranges: few enough that the setup of the products is negligible, many
/// enough that a range is still in the cache afterwards. The product of a range of rows has the same bits as
/// within the whole product. For several products, `n` is the width of the narrowest.
pub fn row_parts(m: usize, n: usize, k: usize) -> Vec<Range<usize>> {
    let threads = if m * n * k < SPLIT_FROM { 1 } else { team::threads() };
    let ranges = (m * n * size_of::<f32>()).div_ceil(threads * CACHED).max(1);
    split(m, n, TILE.0, threads * ranges)
}

/// Splits `data`, rows of `width` elements, into one slice for each of `parts`.
///
/// # Panics
/// If `data` has fewer rows.
pub fn split_rows<'a, T>(mut data: &'a mut [T], parts: &[Range<usize>], width: usize) -> Vec<&'a mut [T]> {
    let split = |rows: &Range<usize>| data.split_off_mut(..rows.len() * width).expect("rows of every range");
    parts.iter().map(split).collect()
}

/// Splits `0..long` into one range per thread, of whole tiles, none of them tiny.
fn split(long: usize, short: usize, tile: usize, threads: usize) -> Vec<Range<usize>> {
    if threads == 1 || long * short == 0 {
        return std::iter::once(0..long).collect();
    }
    let size = long.div_ceil(threads).max(TINY / short + 1).next_multiple_of(tile);
    // A tiny remainder is added to the last range.
    let remainder = long % size;
    let ranges = (long / size + usize::from(remainder > 1 && remainder * short > TINY)).max(1);
    (0..ranges).map(|i| i * size..if i + 1 == ranges { long } else { (i + 1) * size }).collect()
}

/// Computes `out = a b`, or `out += a b` with `accumulate`.
///
/// # Panics
/// If the shapes do not match.
pub fn matmul(out: MatMut<'_>, a: Mat<'_>, b: Mat<'_>, accumulate: bool) {
    let threads = if out.rows * out.cols * a.cols < SPLIT_FROM { 1 } else { team::threads() };
    product(out, a, b, accumulate, threads);
}

/// Like [`matmul`], for sums over many rows, such as weight gradients: each sum is computed in two halves. Up
/// to two threads compute the halves in parallel, so that each loads only its own rows; more threads compute
/// them one after the other, all together. `scratch` holds a second result.
///
/// # Panics
/// If the shapes do not match, or the result has gaps between its rows.
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
    let chunk = team::share(m * n);
    sum.chunks_mut(chunk).zip(other.chunks(chunk)).in_parallel(1, |(sum, x)| parts::add_column_sums(sum, x));
}

fn product(out: MatMut<'_>, a: Mat<'_>, b: Mat<'_>, accumulate: bool, threads: usize) {
    assert_eq!((out.rows, out.cols, a.cols), (a.rows, b.cols, b.rows), "shapes of a product");
    let (m, n, k) = (out.rows, out.cols, a.cols);
    if m == 0 || n == 0 {
        return;
    }
    let few_rows = m == 1 || m * n <= TINY;
    if few_rows && n > 1 && k > 0 && a.col_stride == 1 {
        return padded(out, a, b, accumulate, threads);
    }
    let target = Target(out.data.as_mut_ptr());
    let depth = k.div_ceil(k.div_ceil(DEPTH).max(1)).max(1);
    let multiply_block = |r0: usize, r: usize, c0: usize, c: usize| {
        let target = &target;
        // An empty sum takes one round, which clears the result.
        for k0 in (0..k.max(1)).step_by(depth) {
            let l = depth.min(k - k0);
            let (from_a, from_b) = match k {
                0 => (0, 0),
                _ => (r0 * a.row_stride + k0 * a.col_stride, k0 * b.row_stride + c0 * b.col_stride),
            };
            // SAFETY: the views checked that all their indices are within their data; the ranges of the
            // result are disjoint.
            unsafe {
                let to = target.0.add(r0 * out.row_stride + c0);
                let a = (a.data.as_ptr().add(from_a), a.row_stride as isize, a.col_stride as isize);
                let b = (b.data.as_ptr().add(from_b), b.row_stride as isize, b.col_stride as isize);
                multiply((r, c, l), (to, out.row_stride as isize), a, b, accumulate || k0 > 0);
            }
        }
    };
    let by_rows = WIDE * m >= n;
    let ranges = if by_rows { split(m, n, TILE.0, threads) } else { split(n, m, TILE.1, threads) };
    team::run(ranges.len(), |i| {
        let Range { start, end } = ranges[i];
        if by_rows {
            multiply_block(start, end - start, 0, n)
        } else {
            multiply_block(0, m, start, end - start)
        }
    });
}

/// A matrix for the library: where it starts, and the strides of its rows and columns.
type Strided = (*const f32, isize, isize);

/// Computes the product of `a`, `m x k`, and `b`, `k x n`, into `to`, whose rows are `row` numbers apart;
/// adds it if `add`.
///
/// # Safety
/// All indices must be within the data, and no other thread may use the result.
unsafe fn multiply(
    (m, n, k): (usize, usize, usize),
    (to, row): (*mut f32, isize),
    a: Strided,
    b: Strided,
    add: bool,
) {
    let transposed = |(start, row, column)| (start, column, row);
    // The columns of the library's results have no gaps, so the rows of ours are columns of the transpose.
    let (m, n, strides, x, y) = match row > 1 {
        true => (n, m, (row, 1), transposed(b), transposed(a)),
        false => (m, n, (1, row), a, b),
    };
    // The library names the stride of the columns first.
    let (product, one, conjugated) = (get_gemm_fn(), 1.0, false);
    // SAFETY: guaranteed by the caller.
    unsafe {
        product(
            m,
            n,
            k,
            to,
            strides.0,
            strides.1,
            add,
            x.0,
            x.2,
            x.1,
            y.0,
            y.2,
            y.1,
            one,
            one,
            conjugated,
            conjugated,
            conjugated,
            Parallelism::None,
        );
    }
}

thread_local! {
    /// The operands of a padded product.
    static PADDED: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// Computes a product of few rows, padded with rows of zeros so that the library uses the algorithm of larger
/// products.
fn padded(out: MatMut<'_>, a: Mat<'_>, b: Mat<'_>, accumulate: bool, threads: usize) {
    let (m, n, k) = (out.rows, out.cols, a.cols);
    let rows = (TINY / n + 1).max(2);
    let mut buffer = PADDED.take();
    buffer.clear();
    buffer.resize(rows * (k + n), 0.0);
    let (left, result) = buffer.split_at_mut(rows * k);
    for (i, row) in left.chunks_exact_mut(k).take(m).enumerate() {
        row.copy_from_slice(&a.data[i * a.row_stride..][..k]);
    }
    if accumulate {
        for (i, row) in result.chunks_exact_mut(n).take(m).enumerate() {
            row.copy_from_slice(&out.data[i * out.row_stride..][..n]);
        }
    }
    product(MatMut::new(result, rows, n), Mat::new(left, rows, k), b, accumulate, threads);
    for (i, row) in result.chunks_exact(n).take(m).enumerate() {
        out.data[i * out.row_stride..][..n].copy_from_slice(row);
    }
    PADDED.set(buffer);
}

struct Target(*mut f32);
// SAFETY: every task writes its own rows or columns.
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
    fn a_row_of_a_product_does_not_depend_on_how_many_rows_there_are() {
        for (n, k) in [(24, 19), (8, 300), (2, 7), (300, 472), (100, 1), (130, 600), (33, 2)] {
            let (a, b) = (numbers(400 * k), numbers(n * k));
            let product = |first: usize, rows: usize| {
                let mut out = vec![0.5; rows * n];
                let a = Mat::new(&a[first * k..], rows, k);
                matmul(MatMut::new(&mut out, rows, n), a, Mat::new(&b, n, k).t(), true);
                out.iter().map(|x| x.to_bits()).collect::<Vec<_>>()
            };
            let all = product(0, 400);
            for (first, rows) in [(0, 1), (7, 1), (3, 2), (5, 3), (11, 10), (100, 50), (0, 399)] {
                assert!(product(first, rows) == all[first * n..][..rows * n], "{n} {k}: {first} {rows}");
            }
        }
    }

    #[test]
    fn the_number_of_threads_does_not_change_a_bit() -> std::io::Result<()> {
        // Includes ranges that the library on its own would block differently (24 x 100), or compute with
        // another algorithm: one column, one row, few elements.
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
