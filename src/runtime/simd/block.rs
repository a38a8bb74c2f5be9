//! Blocks of sixteen floats in registers, for loops that must keep several blocks in registers.
//!
//! The compiler vectorises long flat loops well by itself, but splits small loops of fixed length into
//! scalars.
use super::LANES;

/// Sixteen floats. In a `vectorised!` body, `V` is the block type of the level that the body is compiled for.
pub trait Block: Copy {
    /// Returns a block with `x` in every lane.
    fn splat(x: f32) -> Self;
    /// Loads the first sixteen numbers of `x`.
    ///
    /// # Panics
    /// If `x` is shorter.
    fn load(x: &[f32]) -> Self;
    /// Loads the first sixteen numbers of `x` one by one, for numbers that were just stored one by one. A
    /// processor cannot forward several stores to one load, so a load of the whole block would wait until
    /// they, and all stores before them, have left its store buffer.
    ///
    /// # Panics
    /// If `x` is shorter.
    fn load_each(x: &[f32]) -> Self;
    /// Stores the block in the first sixteen numbers of `out`.
    ///
    /// # Panics
    /// If `out` is shorter.
    fn store(self, out: &mut [f32]);
    /// Returns `self + x`, lane by lane.
    fn add(self, x: Self) -> Self;
    /// Returns `self * x + y`, fused, lane by lane.
    fn mul_add(self, x: Self, y: Self) -> Self;
    /// Returns the sum of all lanes, as a tree: halves are added until one number is left. The order is the
    /// same on every level.
    fn sum(self) -> f32;
}

/// A block for the baseline instruction set.
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
    fn load_each(x: &[f32]) -> Self {
        Self::load(x)
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

/// Blocks of AVX-512 and AVX2. Only the bodies that `vectorised!` compiles for a level name that level's
/// block, and they run only on processors that have the level; the intrinsics below are therefore safe to
/// call.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Block, LANES};
    use std::arch::x86_64::*;

    /// One AVX-512 register.
    #[derive(Clone, Copy)]
    pub struct Avx512(__m512);
    /// Two AVX2 registers.
    #[derive(Clone, Copy)]
    pub struct Avx2(__m256, __m256);

    /// Returns the sum of eight lanes, halves first.
    #[inline(always)]
    fn sum8(x: __m256) -> f32 {
        // SAFETY: see the module.
        unsafe {
            let x = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
            let x = _mm_add_ps(x, _mm_movehl_ps(x, x));
            _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)))
        }
    }

    /// Returns the halves of the first sixteen numbers of `x`, loaded one by one.
    #[inline(always)]
    fn load_halves_each(x: &[f32]) -> [__m256; 2] {
        let x = x[..LANES].as_ptr();
        // SAFETY: the slice has sixteen floats; see the module. Volatile, or the compiler joins the loads.
        unsafe {
            let one = |i: usize| x.add(i).read_volatile();
            let four = |i: usize| _mm_setr_ps(one(i), one(i + 1), one(i + 2), one(i + 3));
            [_mm256_set_m128(four(4), four(0)), _mm256_set_m128(four(12), four(8))]
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
            // SAFETY: the slice has sixteen floats; see the module.
            Avx512(unsafe { _mm512_loadu_ps(x[..LANES].as_ptr()) })
        }
        #[inline(always)]
        fn load_each(x: &[f32]) -> Self {
            let [low, high] = load_halves_each(x);
            // SAFETY: see the module.
            Avx512(unsafe { _mm512_insertf32x8::<1>(_mm512_castps256_ps512(low), high) })
        }
        #[inline(always)]
        fn store(self, out: &mut [f32]) {
            // SAFETY: the slice has sixteen floats; see the module.
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
            // SAFETY: the slice has sixteen floats; see the module.
            unsafe { Avx2(_mm256_loadu_ps(x.as_ptr()), _mm256_loadu_ps(x[LANES / 2..].as_ptr())) }
        }
        #[inline(always)]
        fn load_each(x: &[f32]) -> Self {
            let [low, high] = load_halves_each(x);
            Avx2(low, high)
        }
        #[inline(always)]
        fn store(self, out: &mut [f32]) {
            let (low, high) = out[..LANES].split_at_mut(LANES / 2);
            // SAFETY: the slice has sixteen floats; see the module.
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
        fn use_all_methods(x: &[f32], y: &mut [f32]) -> f32 {
            let x = V::load(x);
            x.mul_add(V::splat(2.0), V::splat(1.0)).add(x).store(y);
            x.sum()
        }
        fn load_one_by_one(x: &[f32], y: &mut [f32]) {
            V::load_each(x).store(y);
        }
    }

    #[test]
    fn every_level_loads_stores_multiplies_and_sums_alike() {
        let x: Vec<f32> = (0..LANES).map(|i| (i as f32 - 3.0) * 1.1).collect();
        let (mut y, mut plain) = ([0.0; LANES], [0.0; LANES]);
        let sum = use_all_methods(&x, &mut y);
        let p = Plain::load(&x);
        p.mul_add(Plain::splat(2.0), Plain::splat(1.0)).add(p).store(&mut plain);
        assert_eq!(sum.to_bits(), p.sum().to_bits());
        assert_eq!(y, plain);
        load_one_by_one(&x, &mut y);
        assert_eq!(y[..], x);
    }
}
