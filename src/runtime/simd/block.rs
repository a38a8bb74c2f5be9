//! Sixteen floats in registers, for loops that must keep several of them there.
//!
//! The compiler makes good vector code of a long flat loop by itself, but tears small fixed ones into scalars.
use super::LANES;

/// Sixteen floats. Inside a `vectorised!` body, `V` is the block of the level it is compiled for.
pub trait Block: Copy {
    /// The same number in every lane.
    fn splat(x: f32) -> Self;
    /// The first sixteen of `x`.
    ///
    /// # Panics
    /// When there are fewer.
    fn load(x: &[f32]) -> Self;
    /// Into the first sixteen of `out`.
    ///
    /// # Panics
    /// When there are fewer.
    fn store(self, out: &mut [f32]);
    /// Lane by lane.
    fn add(self, x: Self) -> Self;
    /// `self * x + y`, lane by lane.
    fn mul_add(self, x: Self, y: Self) -> Self;
    /// Sum of all lanes as a tree: halves are added until one number is left, the same for every level.
    fn sum(self) -> f32;
}

/// What every machine has.
#[derive(Clone, Copy)]
pub struct Plain([f32; LANES]);

impl Block for Plain {
    #[inline(always)]
    fn splat(x: f32) -> Self {
        Plain([x; LANES])
    }
    #[inline(always)]
    fn load(x: &[f32]) -> Self {
        let mut lanes = [0.0; LANES];
        lanes.copy_from_slice(&x[..LANES]);
        Plain(lanes)
    }
    #[inline(always)]
    fn store(self, out: &mut [f32]) {
        out[..LANES].copy_from_slice(&self.0);
    }
    #[inline(always)]
    fn add(mut self, x: Self) -> Self {
        for l in 0..LANES {
            self.0[l] += x.0[l];
        }
        self
    }
    #[inline(always)]
    fn mul_add(mut self, x: Self, y: Self) -> Self {
        for l in 0..LANES {
            self.0[l] = self.0[l].mul_add(x.0[l], y.0[l]);
        }
        self
    }
    #[inline(always)]
    fn sum(mut self) -> f32 {
        let mut half = LANES / 2;
        while half > 0 {
            for l in 0..half {
                self.0[l] += self.0[l + half];
            }
            half /= 2;
        }
        self.0[0]
    }
}

#[cfg(target_arch = "x86_64")]
pub use x86::{Avx2, Avx512};

/// Only bodies that `vectorised!` compiled for a level, and runs where the processor has it, name that level's block:
/// that is what makes the intrinsics below safe to call.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Block, LANES};
    use std::arch::x86_64::*;

    /// One register of AVX-512.
    #[derive(Clone, Copy)]
    pub struct Avx512(__m512);
    /// Two registers of AVX2.
    #[derive(Clone, Copy)]
    pub struct Avx2(__m256, __m256);

    /// Sum of eight lanes, halves first.
    #[inline(always)]
    fn sum8(x: __m256) -> f32 {
        // SAFETY: see the module.
        unsafe {
            let x = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
            let x = _mm_add_ps(x, _mm_movehl_ps(x, x));
            _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)))
        }
    }

    impl Block for Avx512 {
        #[inline(always)]
        fn splat(x: f32) -> Self {
            // SAFETY: see the module.
            Avx512(unsafe { _mm512_set1_ps(x) })
        }
        #[inline(always)]
        fn load(x: &[f32]) -> Self {
            // SAFETY: sixteen floats are there; see the module.
            Avx512(unsafe { _mm512_loadu_ps(x[..LANES].as_ptr()) })
        }
        #[inline(always)]
        fn store(self, out: &mut [f32]) {
            // SAFETY: room for sixteen floats is there; see the module.
            unsafe { _mm512_storeu_ps(out[..LANES].as_mut_ptr(), self.0) }
        }
        #[inline(always)]
        fn add(self, x: Self) -> Self {
            // SAFETY: see the module.
            Avx512(unsafe { _mm512_add_ps(self.0, x.0) })
        }
        #[inline(always)]
        fn mul_add(self, x: Self, y: Self) -> Self {
            // SAFETY: see the module.
            Avx512(unsafe { _mm512_fmadd_ps(self.0, x.0, y.0) })
        }
        #[inline(always)]
        fn sum(self) -> f32 {
            // SAFETY: see the module.
            sum8(unsafe {
                _mm256_add_ps(_mm512_castps512_ps256(self.0), _mm512_extractf32x8_ps::<1>(self.0))
            })
        }
    }

    impl Block for Avx2 {
        #[inline(always)]
        fn splat(x: f32) -> Self {
            // SAFETY: see the module.
            unsafe { Avx2(_mm256_set1_ps(x), _mm256_set1_ps(x)) }
        }
        #[inline(always)]
        fn load(x: &[f32]) -> Self {
            let x = &x[..LANES];
            // SAFETY: sixteen floats are there; see the module.
            unsafe { Avx2(_mm256_loadu_ps(x.as_ptr()), _mm256_loadu_ps(x[LANES / 2..].as_ptr())) }
        }
        #[inline(always)]
        fn store(self, out: &mut [f32]) {
            let (low, high) = out[..LANES].split_at_mut(LANES / 2);
            // SAFETY: room for sixteen floats is there; see the module.
            unsafe {
                _mm256_storeu_ps(low.as_mut_ptr(), self.0);
                _mm256_storeu_ps(high.as_mut_ptr(), self.1);
            }
        }
        #[inline(always)]
        fn add(self, x: Self) -> Self {
            // SAFETY: see the module.
            unsafe { Avx2(_mm256_add_ps(self.0, x.0), _mm256_add_ps(self.1, x.1)) }
        }
        #[inline(always)]
        fn mul_add(self, x: Self, y: Self) -> Self {
            // SAFETY: see the module.
            unsafe { Avx2(_mm256_fmadd_ps(self.0, x.0, y.0), _mm256_fmadd_ps(self.1, x.1, y.1)) }
        }
        #[inline(always)]
        fn sum(self) -> f32 {
            // SAFETY: see the module.
            sum8(unsafe { _mm256_add_ps(self.0, self.1) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::vectorised, *};

    vectorised! {
        fn all(x: &[f32], y: &mut [f32]) -> f32 {
            let x = V::load(x);
            x.mul_add(V::splat(2.0), V::splat(1.0)).add(x).store(y);
            x.sum()
        }
    }

    #[test]
    fn every_level_loads_stores_multiplies_and_sums_alike() {
        let x: Vec<f32> = (0..LANES).map(|i| (i as f32 - 3.0) * 1.1).collect();
        let (mut y, mut plain) = ([0.0; LANES], [0.0; LANES]);
        let sum = all(&x, &mut y);
        let p = Plain::load(&x);
        p.mul_add(Plain::splat(2.0), Plain::splat(1.0)).add(p).store(&mut plain);
        assert_eq!(sum.to_bits(), p.sum().to_bits());
        assert_eq!(y, plain);
    }
}
