//! Vector code that is written once: a body over blocks of sixteen floats is compiled for AVX-512, AVX2 and
//! the baseline, and the widest version that the processor supports is chosen at run time.
//!
//! Sums have sixteen partial sums, always added in the same order, so results do not depend on the number of
//! threads. Their last bits do depend on the instruction set (a fused multiply-add rounds once).

mod block;
mod mix;
#[cfg(target_arch = "x86_64")]
pub use block::{Avx2, Avx512};
pub use block::{Block, Plain};
pub use mix::{Terms, mix};

/// Number of floats in a block: one AVX-512 register, or two AVX2 registers.
pub const LANES: usize = 16;
/// Size of a cache line, in bytes.
const LINE: usize = 64;

/// Instruction sets that a body is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// AVX-512 F, BW, DQ, VL.
    Avx512,
    /// AVX2 with FMA.
    Avx2,
    /// The instructions that every processor of the architecture has.
    Baseline,
}

/// Returns the widest level that this processor supports.
#[inline]
pub fn level() -> Level {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
        {
            return Level::Avx512;
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            return Level::Avx2;
        }
    }
    Level::Baseline
}

/// Defines functions whose bodies are compiled for every [`Level`]. Functions that the bodies call must be
/// `#[inline(always)]`. In a body, the type `V` is the level's [`Block`].
macro_rules! vectorised {
    ($($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block)+) => {$(
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            #[allow(clippy::extra_unused_type_parameters)]
            fn body<V: $crate::runtime::simd::Block>($($arg: $ty),*) $(-> $ret)? $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi2")]
                fn avx512($($arg: $ty),*) $(-> $ret)? { body::<$crate::runtime::simd::Avx512>($($arg),*) }
                #[target_feature(enable = "avx2,fma")]
                fn avx2($($arg: $ty),*) $(-> $ret)? { body::<$crate::runtime::simd::Avx2>($($arg),*) }
                match $crate::runtime::simd::level() {
                    // SAFETY: `level` found these features on this processor.
                    $crate::runtime::simd::Level::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    $crate::runtime::simd::Level::Avx2 => return unsafe { avx2($($arg),*) },
                    $crate::runtime::simd::Level::Baseline => {}
                }
            }
            body::<$crate::runtime::simd::Plain>($($arg),*)
        }
    )+};
}
pub(crate) use vectorised;

/// Returns `sum_i a_i b_i` over the shorter length.
#[inline(always)]
pub fn dot<V: Block>(a: &[f32], b: &[f32]) -> f32 {
    let (mut ca, mut cb) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let mut sum = V::splat(0.0);
    for (a, b) in (&mut ca).zip(&mut cb) {
        sum = V::load(a).mul_add(V::load(b), sum);
    }
    let tail: f32 = ca.remainder().iter().zip(cb.remainder()).map(|(a, b)| a * b).sum();
    sum.sum() + tail
}

/// Returns `sum_i a_i b_i c_i` for rows of the same length.
#[inline(always)]
pub fn dot3<V: Block>(a: &[f32], b: &[f32], c: &[f32]) -> f32 {
    let whole = a.len() / LANES * LANES;
    let mut sum = V::splat(0.0);
    for at in (0..whole).step_by(LANES) {
        let ab = V::load(&a[at..]).mul_add(V::load(&b[at..]), V::splat(0.0));
        sum = ab.mul_add(V::load(&c[at..]), sum);
    }
    sum.sum() + (whole..a.len()).map(|i| a[i] * b[i] * c[i]).sum::<f32>()
}

/// Returns `sum_i a_i`.
#[inline(always)]
pub fn sum<V: Block>(a: &[f32]) -> f32 {
    let mut blocks = a.chunks_exact(LANES);
    let mut sum = V::splat(0.0);
    for a in &mut blocks {
        sum = sum.add(V::load(a));
    }
    sum.sum() + blocks.remainder().iter().sum::<f32>()
}

/// Returns the dot products of each of `Q` rows with each of four rows, `[q][r] = a_q . b_r`. Rows are
/// `stride` numbers apart; the products cover `width` columns, a multiple of [`LANES`], that begin at column
/// `from`.
#[inline(always)]
pub fn dot_tile<V: Block, const Q: usize>(
    a: &[f32],
    b: &[f32],
    stride: usize,
    from: usize,
    width: usize,
) -> [[f32; 4]; Q] {
    let mut sum = [[V::splat(0.0); 4]; Q];
    let (b0, b1) = (&b[from..][..width], &b[stride + from..][..width]);
    let (b2, b3) = (&b[2 * stride + from..][..width], &b[3 * stride + from..][..width]);
    for at in (0..width).step_by(LANES) {
        let b = [V::load(&b0[at..]), V::load(&b1[at..]), V::load(&b2[at..]), V::load(&b3[at..])];
        for q in 0..Q {
            let a = V::load(&a[q * stride + from + at..]);
            for r in 0..4 {
                sum[q][r] = a.mul_add(b[r], sum[q][r]);
            }
        }
    }
    let mut out = [[0.0; 4]; Q];
    for q in 0..Q {
        for r in 0..4 {
            out[q][r] = sum[q][r].sum();
        }
    }
    out
}

/// Copies a short row of the same length block by block, in less time than a call of `memcpy` takes.
#[inline(always)]
pub fn copy<V: Block>(to: &mut [f32], from: &[f32]) {
    let Some(end) = to.len().checked_sub(LANES) else {
        return to.copy_from_slice(from);
    };
    let copy = |to: &mut [f32], at: usize| V::load(&from[at..]).store(&mut to[at..]);
    // Both ends overlap the blocks between them, whose stores do not cross cache lines.
    copy(to, 0);
    let mut at = to.as_ptr().align_offset(LINE).min(end);
    // Two blocks at a time: of a loop that copies one, the compiler would make the call.
    while at + LANES <= end {
        copy(to, at);
        copy(to, at + LANES);
        at += 2 * LANES;
    }
    if at < end {
        copy(to, at);
    }
    copy(to, end);
}

/// Computes `y += a x` over the shorter length.
#[inline(always)]
pub fn axpy(y: &mut [f32], a: f32, x: &[f32]) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y = a.mul_add(x, *y);
    }
}

/// Computes `y += x` over the shorter length.
#[inline(always)]
pub fn add_assign(y: &mut [f32], x: &[f32]) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y += x;
    }
}

/// Returns `(q, k)` with e^x = 2^k (1 + q), for |x| <= 89.
#[inline(always)]
fn exp_parts(x: f32) -> (f32, i32) {
    // x = k ln 2 + r, |r| <= ln 2 / 2; ln 2 is split into two constants so that k ln 2 is exact enough.
    const SHIFT: f32 = 12_582_912.0; // 1.5 * 2^23: adding it rounds to an integer held in the low bits
    let shifted = x.mul_add(std::f32::consts::LOG2_E, SHIFT);
    let k = shifted - SHIFT;
    let r = k.mul_add(-0.693_359_4, x);
    let r = k.mul_add(2.121_944_4e-4, r);
    let p = 1.987_569_1e-4f32
        .mul_add(r, 1.398_199_9e-3)
        .mul_add(r, 8.333_452e-3)
        .mul_add(r, 4.166_579_6e-2)
        .mul_add(r, 1.666_666_5e-1)
        .mul_add(r, 0.5);
    (p.mul_add(r * r, r), shifted.to_bits() as i32 - SHIFT.to_bits() as i32)
}

/// Returns 2^e, for exponents of normal numbers.
#[inline(always)]
fn pow2(e: i32) -> f32 {
    f32::from_bits(((e + 127) << 23) as u32)
}

/// Returns e^x within 2 ulp; 0 below -87.3, infinity above 88.7.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let (q, k) = exp_parts(x.clamp(-88.0, 88.8));
    // 2^k in two factors: k reaches 128, one past the largest exponent of a normal number.
    let half = k >> 1;
    let y = (1.0 + q) * pow2(half) * pow2(k - half);
    if x < -87.3 { 0.0 } else { y }
}

/// Returns 1 / x within 2 ulp, for |x| from 1e-37 to 8e37. A division would take as long as eight independent
/// multiply-adds.
#[inline(always)]
pub fn recip(x: f32) -> f32 {
    // First guess: the exponent negated, with an error of at most 12 %. Every step squares the error.
    let mut r = f32::from_bits(0x7EF3_11C7u32.wrapping_sub(x.to_bits()));
    for _ in 0..3 {
        r = (-x).mul_add(r, 1.0).mul_add(r, r);
    }
    r
}

/// Returns sqrt(x) within 2 ulp, for x = 0 and x >= 1e-37.
#[inline(always)]
pub fn sqrt(x: f32) -> f32 {
    // First guess of 1 / sqrt(x): the exponent halved and negated, with an error of at most 3.5 %.
    let mut r = f32::from_bits(0x5F37_59DFu32.wrapping_sub(x.to_bits() >> 1));
    for _ in 0..3 {
        r *= (-0.5 * x * r).mul_add(r, 1.5);
    }
    let root = x * r;
    (0.5 * r).mul_add((-root).mul_add(root, x), root)
}

/// Returns 1 / (1 + e^-x).
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    let (q, k) = exp_parts(-x.clamp(-86.0, 86.0));
    recip(pow2(k).mul_add(1.0 + q, 1.0))
}

/// Returns ln(1 + e^x) within 4 ulp, without overflow.
#[inline(always)]
pub fn softplus(x: f32) -> f32 {
    // ln(1 + u) = 2 atanh(s), s = u / (2 + u) <= 1 / 3, by its series to s^15; the next term is below 1e-9 of
    // the sum.
    let u = exp(-x.abs());
    let s = u * recip(2.0 + u);
    let s2 = s * s;
    let series = (1.0f32 / 15.0)
        .mul_add(s2, 1.0 / 13.0)
        .mul_add(s2, 1.0 / 11.0)
        .mul_add(s2, 1.0 / 9.0)
        .mul_add(s2, 1.0 / 7.0)
        .mul_add(s2, 1.0 / 5.0)
        .mul_add(s2, 1.0 / 3.0)
        .mul_add(s2, 1.0);
    (2.0 * s).mul_add(series, x.max(0.0))
}

/// Returns tanh x within 3 ulp: (e^2x - 1) / (e^2x + 1), with a numerator that does not cancel.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let (q, k) = exp_parts(2.0 * x.clamp(-10.0, 10.0));
    let less_one = pow2(k).mul_add(q, pow2(k) - 1.0);
    less_one * recip(less_one + 2.0)
}

/// Returns the error function within 5e-7: x times a quotient of polynomials in x^2, with Eigen's
/// coefficients.
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    let x = x.clamp(-4.0, 4.0);
    let s = x * x;
    let over = (-2.726_142_3e-10f32)
        .mul_add(s, 2.770_681_4e-8)
        .mul_add(s, -2.101_024e-6)
        .mul_add(s, -5.692_506_4e-5)
        .mul_add(s, -7.349_906e-4)
        .mul_add(s, -2.954_6e-3)
        .mul_add(s, -1.609_603_3e-2);
    let under = (-1.456_607_2e-5f32)
        .mul_add(s, -2.133_740_6e-4)
        .mul_add(s, -1.682_827e-3)
        .mul_add(s, -7.373_329_3e-3)
        .mul_add(s, -1.426_473_9e-2);
    (x * over / under).clamp(-1.0, 1.0)
}

/// [`cos`] and [`sin_cos`] take arguments of smaller magnitude; [`far_sin_cos`] takes the others.
pub const FAR: f32 = 4_194_304.0;

/// Splits `x = k pi + r` with |r| at most slightly above pi / 2. Returns r and, for odd k, the sign bit that
/// flips sine and cosine.
///
/// Below 2^22 radians, pi as the sum of three constants and fused multiply-adds lose no accuracy. `x / pi`
/// may be off by a twelfth before it is rounded to k; the series tolerate the larger |r|.
#[inline(always)]
fn half_turns(x: f32) -> (f32, u32) {
    const SHIFT: f32 = 12_582_912.0;
    let shifted = x.mul_add(std::f32::consts::FRAC_1_PI, SHIFT);
    let k = shifted - SHIFT;
    let r = k.mul_add(3.430_249e-15, k.mul_add(8.742_278e-8, k.mul_add(-std::f32::consts::PI, x)));
    (r, shifted.to_bits() << 31)
}

/// Returns cos r for |r| <= pi / 2, by its series to r^12; the next term is below 7e-9.
#[inline(always)]
fn cos_series(r: f32) -> f32 {
    let r2 = r * r;
    2.087_675_7e-9f32
        .mul_add(r2, -2.755_732e-7)
        .mul_add(r2, 2.480_158_7e-5)
        .mul_add(r2, -1.388_888_9e-3)
        .mul_add(r2, 4.166_666_8e-2)
        .mul_add(r2, -0.5)
        .mul_add(r2, 1.0)
}

/// Returns sin r for |r| <= pi / 2, by its series to r^13; the next term is below 7e-10.
#[inline(always)]
fn sin_series(r: f32) -> f32 {
    let r2 = r * r;
    let s = 1.605_904_4e-10f32
        .mul_add(r2, -2.505_210_8e-8)
        .mul_add(r2, 2.755_731_9e-6)
        .mul_add(r2, -1.984_127e-4)
        .mul_add(r2, 8.333_334e-3)
        .mul_add(r2, -1.666_666_7e-1);
    s.mul_add(r2 * r, r)
}

/// Returns `x` with the bits of `sign` flipped.
#[inline(always)]
fn flipped(x: f32, sign: u32) -> f32 {
    f32::from_bits(x.to_bits() ^ sign)
}

/// Returns cos x for |x| < `FAR`, with an absolute error below 2.5e-7.
#[inline(always)]
pub fn cos(x: f32) -> f32 {
    let (r, flip) = half_turns(x);
    flipped(cos_series(r), flip)
}

/// Returns sin x and cos x for |x| < `FAR`, with absolute errors below 2.5e-7.
#[inline(always)]
pub fn sin_cos(x: f32) -> (f32, f32) {
    let (r, flip) = half_turns(x);
    (flipped(sin_series(r), flip), flipped(cos_series(r), flip))
}

/// Returns sin x and cos x for every finite x, as [`sin_cos`]; multiples of pi are subtracted in f64. Beyond
/// 2^52, nothing is left of the angle, and both are some number between -1 and 1.
#[inline(always)]
pub fn far_sin_cos(x: f32) -> (f32, f32) {
    let wide = f64::from(x);
    let k = (wide * std::f64::consts::FRAC_1_PI).round_ties_even();
    let r = k.mul_add(-1.224_646_799_147_353_2e-16, k.mul_add(-std::f64::consts::PI, wide)).clamp(-2.0, 2.0)
        as f32;
    let flip = u32::from((k - 2.0 * (k * 0.5).floor()) != 0.0) << 31;
    (flipped(sin_series(r), flip), flipped(cos_series(r), flip))
}

/// Prefetches the cache lines of a row that will be read soon.
#[inline(always)]
pub fn prefetch<T>(row: &[T]) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..size_of_val(row) + row.as_ptr().addr() % LINE).step_by(LINE) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch of any address is harmless.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(row.as_ptr().wrapping_byte_add(line).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = row;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worst(f: impl Fn(f32) -> f32, exact: impl Fn(f64) -> f64, xs: impl Iterator<Item = f32>) -> f64 {
        xs.map(|x| (f64::from(f(x)) - exact(f64::from(x))).abs()).fold(0.0, f64::max)
    }

    #[test]
    fn sine_and_cosine_are_accurate_from_tiny_to_huge_arguments() {
        let xs = || {
            (0..200_000)
                .map(|i| (i as f32 - 100_000.0) * 1.37e-3 * 1.00017f32.powi(i / 2))
                .chain([1e9, -3e15])
        };
        let near_or_far = |near: fn(f32) -> f32, far: fn(f32) -> f32| {
            move |x: f32| if x.abs() < FAR { near(x) } else { far(x) }
        };
        assert!(worst(near_or_far(|x| sin_cos(x).0, |x| far_sin_cos(x).0), f64::sin, xs()) < 2.5e-7);
        assert!(worst(near_or_far(|x| sin_cos(x).1, |x| far_sin_cos(x).1), f64::cos, xs()) < 2.5e-7);
        assert!(worst(near_or_far(cos, |x| far_sin_cos(x).1), f64::cos, xs()) < 2.5e-7);
        assert!(worst(|x| far_sin_cos(x).0, f64::sin, xs()) < 2.5e-7);
    }

    #[test]
    fn exponential_and_its_relatives_are_accurate_and_saturate() {
        let xs = || (-1990..=2000).map(|i| i as f32 * 0.04375);
        for x in xs() {
            let e = f64::from(x).exp();
            assert!((f64::from(exp(x)) - e).abs() <= 2.5e-7 * e, "{x}: {} against {e}", exp(x));
        }
        assert_eq!((exp(-200.0), exp(200.0)), (0.0, f32::INFINITY));
        assert!(worst(tanh, f64::tanh, xs()) < 2e-7);
        assert!(worst(erf, libm::erf, xs().map(|x| x / 10.0)) < 5e-7);
        assert!(erf(f32::INFINITY) > 1.0 - 5e-7 && erf(f32::NAN).is_nan());
        assert!(worst(sigmoid, |x| 1.0 / (1.0 + (-x).exp()), xs()) < 2e-7);
        for x in xs() {
            let want = f64::from(x).max(0.0) + (-f64::from(x).abs()).exp().ln_1p();
            assert!((f64::from(softplus(x)) - want).abs() <= 4.8e-7 * want, "{x}: {}", softplus(x));
        }
        assert_eq!((softplus(-200.0), softplus(f32::INFINITY)), (0.0, f32::INFINITY));
        assert!(softplus(f32::NAN).is_nan());
        assert!(exp(f32::NAN).is_nan() && tanh(f32::NAN).is_nan() && sigmoid(f32::NAN).is_nan());
    }

    #[test]
    fn reciprocals_and_roots_are_accurate_over_the_exponents() {
        for i in 0..100_000 {
            let x = 1e-37f32 * 1.0017f32.powi(i) * (1.0 + i as f32 * 1e-6);
            if x > 8e37 {
                break;
            }
            let (r, s) = (1.0 / f64::from(x), f64::from(x).sqrt());
            assert!((f64::from(recip(x)) - r).abs() <= 2.4e-7 * r, "1 / {x}: {}", recip(x));
            assert!((f64::from(recip(-x)) + r).abs() <= 2.4e-7 * r, "1 / -{x}: {}", recip(-x));
            assert!((f64::from(sqrt(x)) - s).abs() <= 2.4e-7 * s, "sqrt {x}: {}", sqrt(x));
        }
        assert_eq!(sqrt(0.0), 0.0);
    }

    #[test]
    fn dot_takes_any_length() {
        for n in [0, 1, 15, 16, 17, 100] {
            let a: Vec<f32> = (0..n).map(|i| i as f32).collect();
            assert_eq!(dot::<Plain>(&a, &a), (0..n).map(|i| (i * i) as f32).sum::<f32>());
        }
    }
}
