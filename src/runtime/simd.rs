//! Vector code, written once: a body over blocks of sixteen floats is compiled for AVX-512, for AVX2 and for the
//! baseline, and the widest one the processor has is chosen at run time.
//!
//! Sums run over sixteen partial sums, always in the same order, so results do not depend on the number of threads.
//! They do depend on the instruction set in the last bits (a fused multiply-add rounds once).

/// Floats in a block: one AVX-512 register, two of AVX2.
pub const LANES: usize = 16;

/// Instruction sets a body is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// AVX-512 F, BW, DQ, VL.
    Avx512,
    /// AVX2 with FMA.
    Avx2,
    /// What every machine of the architecture has.
    Baseline,
}

/// The widest level this processor has.
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

/// Defines functions whose bodies are compiled for every [`Level`]. What they call must be `#[inline(always)]`.
macro_rules! vectorised {
    ($($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block)+) => {$(
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn body($($arg: $ty),*) $(-> $ret)? $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi2")]
                fn avx512($($arg: $ty),*) $(-> $ret)? { body($($arg),*) }
                #[target_feature(enable = "avx2,fma")]
                fn avx2($($arg: $ty),*) $(-> $ret)? { body($($arg),*) }
                match $crate::runtime::simd::level() {
                    // SAFETY: `level` saw the features.
                    $crate::runtime::simd::Level::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    $crate::runtime::simd::Level::Avx2 => return unsafe { avx2($($arg),*) },
                    $crate::runtime::simd::Level::Baseline => {}
                }
            }
            body($($arg),*)
        }
    )+};
}
pub(crate) use vectorised;

/// `sum_i a_i b_i` over the shorter length.
#[inline(always)]
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    let n = a.len().min(b.len());
    let (a, b) = (&a[..n], &b[..n]);
    let mut part = [0.0f32; LANES];
    let (mut ca, mut cb) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    for (x, y) in (&mut ca).zip(&mut cb) {
        for l in 0..LANES {
            part[l] = x[l].mul_add(y[l], part[l]);
        }
    }
    let tail: f32 = ca.remainder().iter().zip(cb.remainder()).map(|(x, y)| x * y).sum();
    sum16(part) + tail
}

/// Sum of a block as a tree.
#[inline(always)]
pub fn sum16(p: [f32; LANES]) -> f32 {
    // Through memory: otherwise the compiler tears the accumulators of the caller's loop into the pairs of this tree.
    let mut p = std::hint::black_box(p);
    let mut half = LANES / 2;
    while half > 0 {
        for l in 0..half {
            p[l] += p[l + half];
        }
        half /= 2;
    }
    p[0]
}

/// `y += a x` over the shorter length.
#[inline(always)]
pub fn axpy(y: &mut [f32], a: f32, x: &[f32]) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y = a.mul_add(x, *y);
    }
}

/// `y += x` over the shorter length.
#[inline(always)]
pub fn add_assign(y: &mut [f32], x: &[f32]) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y += x;
    }
}

/// `(q, k)` with e^x = 2^k (1 + q), |x| <= 89.
#[inline(always)]
fn exp_parts(x: f32) -> (f32, i32) {
    // x = k ln 2 + r, |r| <= ln 2 / 2; ln 2 in two parts so that k ln 2 is exact enough.
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

/// 2^e for exponents of normal numbers.
#[inline(always)]
fn pow2(e: i32) -> f32 {
    f32::from_bits(((e + 127) << 23) as u32)
}

/// e^x within 2 ulp; 0 below -87.3, infinity above 88.7.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let (q, k) = exp_parts(x.clamp(-88.0, 88.8));
    // 2^k in two factors: k reaches 128, one past the largest exponent of a normal number.
    let half = k >> 1;
    let y = (1.0 + q) * pow2(half) * pow2(k - half);
    if x < -87.3 { 0.0 } else { y }
}

/// 1 / (1 + e^-x).
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// tanh x within 3 ulp: (e^2x - 1) / (e^2x + 1), the numerator without cancellation.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let (q, k) = exp_parts(2.0 * x.clamp(-10.0, 10.0));
    let less_one = pow2(k).mul_add(q, pow2(k) - 1.0);
    less_one / (less_one + 2.0)
}

/// sin and cos of the angle whose distance to the nearest multiple `k` of pi/2 is `r`.
#[inline(always)]
fn quadrant(r: f32, k: i32) -> (f32, f32) {
    let r2 = r * r;
    let s = (-1.951_529_6e-4f32).mul_add(r2, 8.332_161e-3).mul_add(r2, -1.666_665_5e-1).mul_add(r2 * r, r);
    let c = 2.443_315_7e-5f32.mul_add(r2, -1.388_731_6e-3).mul_add(r2, 4.166_664_6e-2);
    let c = c.mul_add(r2 * r2, 0.5f32.mul_add(-r2, 1.0));
    let (sin, cos) = if k & 1 == 0 { (s, c) } else { (c, s) };
    let flip = |v: f32, by: i32| f32::from_bits(v.to_bits() ^ ((by & 2) as u32) << 30);
    (flip(sin, k), flip(cos, k + 1))
}

/// Sine and cosine of each of a block, absolute error below 2e-7 for every finite argument.
///
/// Up to 2^20 radians the reduction modulo pi/2 is done in f32 (three parts of pi/2 and fused multiply-adds lose
/// nothing there), beyond it in f64.
#[inline(always)]
pub fn sin_cos(x: &[f32; LANES], sin: &mut [f32; LANES], cos: &mut [f32; LANES]) {
    const SHIFT: f32 = 12_582_912.0;
    let mut large = false;
    for &x in x {
        large |= x.abs() >= 1_048_576.0;
    }
    if !large {
        for l in 0..LANES {
            let shifted = x[l].mul_add(std::f32::consts::FRAC_2_PI, SHIFT);
            let k = shifted - SHIFT;
            let r = k.mul_add(-1.570_796_4, x[l]);
            let r = k.mul_add(4.371_139e-8, r);
            let r = k.mul_add(1.715_124_5e-15, r);
            (sin[l], cos[l]) = quadrant(r, shifted.to_bits() as i32);
        }
    } else {
        for l in 0..LANES {
            let wide = f64::from(x[l]);
            let k = (wide * std::f64::consts::FRAC_2_PI).round_ties_even();
            let r = k.mul_add(-std::f64::consts::FRAC_PI_2, wide);
            let r = k.mul_add(-6.123_233_995_736_766e-17, r);
            let turn = (k - 4.0 * (k * 0.25).floor()) as i32;
            (sin[l], cos[l]) = quadrant(r as f32, turn);
        }
    }
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
        let block = |x: f32| {
            let (mut s, mut c) = ([0.0; LANES], [0.0; LANES]);
            sin_cos(&[x; LANES], &mut s, &mut c);
            (s[0], c[0])
        };
        assert!(worst(|x| block(x).0, f64::sin, xs()) < 2e-7);
        assert!(worst(|x| block(x).1, f64::cos, xs()) < 2e-7);
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
        assert!(worst(sigmoid, |x| 1.0 / (1.0 + (-x).exp()), xs()) < 2e-7);
        assert!(exp(f32::NAN).is_nan() && tanh(f32::NAN).is_nan());
    }

    #[test]
    fn dot_takes_any_length() {
        for n in [0, 1, 15, 16, 17, 100] {
            let a: Vec<f32> = (0..n).map(|i| i as f32).collect();
            assert_eq!(dot(&a, &a), (0..n).map(|i| (i * i) as f32).sum::<f32>());
        }
    }
}
