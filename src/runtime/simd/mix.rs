//! Sums of rows, each times a factor.
use super::{Block, LANES};

/// Rows, and the distance between the factors of a sum of them.
#[derive(Clone, Copy)]
pub struct Terms<'a> {
    /// Numbers of the first row, from the first column of the sums on.
    pub rows: &'a [f32],
    /// Distance between two rows.
    pub stride: usize,
    /// Distance between two factors.
    pub step: usize,
    /// Number of rows.
    pub n: usize,
}

/// Computes `out_q = sum_j a_q[j * step] rows[j * stride ..]`, or `out_q += ...` if `add`, for `Q` sums of
/// one width. Every column is added up in the order of the rows.
#[inline(always)]
pub fn mix<V: Block, const Q: usize>(mut out: [&mut [f32]; Q], add: bool, a: [&[f32]; Q], of: Terms<'_>) {
    let width = out[0].len();
    let Some(end) = width.checked_sub(LANES) else {
        for (out, a) in out.iter_mut().zip(a) {
            for (l, out) in out.iter_mut().enumerate() {
                let start = if add { *out } else { 0.0 };
                *out =
                    (0..of.n).fold(start, |sum, j| a[j * of.step].mul_add(of.rows[j * of.stride + l], sum));
            }
        }
        return;
    };
    // A ragged end is a block that overlaps the one before it, with the same sums. It begins with what `out`
    // was before.
    let ragged = (!width.is_multiple_of(LANES)).then(|| blocks::<V, Q, 1>(&out, end, add, a, of));
    let mut at = 0;
    while at + 4 * LANES <= width {
        let sum = blocks::<V, Q, 4>(&out, at, add, a, of);
        store(&mut out, at, sum);
        at += 4 * LANES;
    }
    while at <= end {
        let sum = blocks::<V, Q, 1>(&out, at, add, a, of);
        store(&mut out, at, sum);
        at += LANES;
    }
    if let Some(sum) = ragged {
        store(&mut out, end, sum);
    }
}

/// Returns `N` blocks of the sums from column `at` on. They stay in registers during the loop over the rows.
#[inline(always)]
fn blocks<V: Block, const Q: usize, const N: usize>(
    out: &[&mut [f32]; Q],
    at: usize,
    add: bool,
    a: [&[f32]; Q],
    of: Terms<'_>,
) -> [[V; N]; Q] {
    let mut sum = [[V::splat(0.0); N]; Q];
    if add {
        for q in 0..Q {
            for l in 0..N {
                sum[q][l] = V::load(&out[q][at + l * LANES..]);
            }
        }
    }
    for j in 0..of.n {
        let x = &of.rows[j * of.stride + at..][..N * LANES];
        for q in 0..Q {
            let a = V::splat(a[q][j * of.step]);
            for l in 0..N {
                sum[q][l] = a.mul_add(V::load(&x[l * LANES..]), sum[q][l]);
            }
        }
    }
    sum
}

/// Stores blocks of the sums from column `at` on.
#[inline(always)]
fn store<V: Block, const Q: usize, const N: usize>(out: &mut [&mut [f32]; Q], at: usize, sum: [[V; N]; Q]) {
    for q in 0..Q {
        for l in 0..N {
            sum[q][l].store(&mut out[q][at + l * LANES..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{copy, vectorised},
        *,
    };

    vectorised! {
        fn copied(to: &mut [f32], from: &[f32]) {
            copy::<V>(to, from);
        }
        fn mixed(out: &mut [f32], second: &mut [f32], add: bool, a: &[f32], rows: &[f32], n: usize) {
            let of = Terms { rows, stride: rows.len() / n.max(1), step: 2, n };
            mix::<V, 2>([out, second], add, [a, &a[1..]], of);
        }
    }

    #[test]
    fn sums_of_every_width_are_added_up_in_the_order_of_the_rows() {
        let number = |i: usize| (i as f32 * 0.37).sin();
        for width in [0, 1, 15, 16, 17, 31, 32, 63, 64, 65, 100, 127, 128, 150] {
            for (n, add) in [(0, false), (0, true), (1, false), (1, true), (5, false), (5, true)] {
                let rows: Vec<f32> = (0..n * width).map(number).collect();
                let a: Vec<f32> = (0..2 * n + 2).map(|i| number(i + 7)).collect();
                let before: Vec<f32> = (0..2 * width).map(|i| number(i + 3)).collect();
                let mut out = before.clone();
                let (first, second) = out.split_at_mut(width);
                mixed(first, second, add, &a, &rows, n);
                for (i, (&out, &before)) in out.iter().zip(&before).enumerate() {
                    let (q, l) = (i / width, i % width);
                    let start = if add { before } else { 0.0 };
                    let want = (0..n).fold(start, |sum, j| a[2 * j + q].mul_add(rows[j * width + l], sum));
                    assert_eq!(
                        out.to_bits(),
                        want.to_bits(),
                        "width {width}, {n} rows, add {add}, column {i}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_copy_of_every_width_from_every_address_is_the_row_and_touches_nothing_else() {
        let from: Vec<f32> = (0..200).map(|i| i as f32 + 1.0).collect();
        for width in 0..150 {
            for start in [0, 1, 4, 15, 16] {
                let mut to = vec![0.0; 200];
                copied(&mut to[start..start + width], &from[3..3 + width]);
                assert_eq!(to[start..start + width], from[3..3 + width], "width {width} at {start}");
                assert!(to[..start].iter().chain(&to[start + width..]).all(|&x| x == 0.0));
            }
        }
    }
}
