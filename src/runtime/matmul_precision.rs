//! The format that dense products multiply in.
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// The format that dense products multiply in on a CUDA device. The CPU knows f32 alone.
///
/// | | significant bits | unit roundoff `u` | on the matrix units |
/// | --- | --- | --- | --- |
/// | `f32` | 24 | 2^-24 | four products of TF32, two of which make an f32 |
/// | `tf32` | 11 | 2^-11 | one product of TF32 |
/// | `bf16` | 8 | 2^-8 | one product of bfloat16, of twice the depth |
///
/// Their range is f32's. An operand is rounded to the nearest number of the format where a product reads it; what is
/// stored stays f32, and so do the sums. A product of two rounded operands is off by up to `2 u` of itself, a sum of
/// products by `2 u` of the sum of their magnitudes: by more than `2 u` of itself where they cancel. Where a derivative
/// jumps, a relu's at zero, no bound holds: a sum that is nearly zero may get the other sign.
///
/// In each of them the same bits come out under any order of threads and blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MatmulPrecision {
    /// As exact as f32.
    #[default]
    F32,
    /// Operands of eleven significant bits.
    Tf32,
    /// Operands of eight significant bits.
    Bf16,
}

impl MatmulPrecision {
    /// All of them.
    pub const ALL: [MatmulPrecision; 3] = [Self::F32, Self::Tf32, Self::Bf16];
    /// Its name in files and flags.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
        }
    }
    /// How kernels name it (`kernels/product.cuh`).
    pub(crate) fn code(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::Tf32 => 1,
            Self::Bf16 => 2,
        }
    }
    /// Significant bits of an operand.
    pub fn bits(self) -> u32 {
        match self {
            Self::F32 => 24,
            Self::Tf32 => 11,
            Self::Bf16 => 8,
        }
    }
    /// `u`: the most that rounding to nearest changes an operand by, relative to it.
    pub fn unit_roundoff(self) -> f64 {
        0.5f64.powi(self.bits() as i32)
    }
    /// The number of this format that is nearest to a finite `x`, as a device rounds: of two that are as near, the even
    /// one of bfloat16, the larger one of TF32.
    pub fn nearest(self, x: f32) -> f32 {
        let (bits, dropped) = (x.to_bits(), f32::MANTISSA_DIGITS - self.bits());
        let half = (1u32 << dropped) >> 1;
        let add = if self == Self::Bf16 { half - 1 + (bits >> dropped & 1) } else { half };
        f32::from_bits((bits + add) >> dropped << dropped)
    }
}

impl FromStr for MatmulPrecision {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|p| p.name() == s).ok_or_else(|| {
            Error::usage(format!("there is no precision `{s}`")).remedy("give f32, tf32 or bf16")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_number_has_the_formats_bits_and_is_no_further_than_its_unit_roundoff() {
        let random = crate::runtime::philox::Key::new(1, 2, [0, 0]);
        for p in MatmulPrecision::ALL {
            let mut worst = 0.0f64;
            for i in 0..2000u64 {
                let x = (f64::from(random.draw(i)[0]) / f64::from(1u32 << 31) - 1.0) as f32;
                let near = p.nearest(x);
                let scaled =
                    f64::from(near) * 2f64.powi(p.bits() as i32 - 1 - near.abs().log2().floor() as i32);
                assert_eq!(scaled.fract(), 0.0, "{near} has more than {} bits", p.bits());
                worst = worst.max(f64::from((near - x) / x).abs());
            }
            assert!(worst <= p.unit_roundoff(), "{p:?}: {worst}");
            assert!(p == MatmulPrecision::F32 || worst > 0.9 * p.unit_roundoff(), "{p:?}: {worst}");
        }
    }
}
