//! The number format in which dense products multiply.
use crate::error::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// The number format in which dense products multiply on a CUDA device. The CPU supports f32 only.
///
/// | | significant bits | unit roundoff `u` | on the matrix units |
/// | --- | --- | --- | --- |
/// | `f32` | 24 | 2^-24 | three TF32 products; each operand is the sum of two TF32 numbers |
/// | `tf32` | 11 | 2^-11 | one TF32 product |
///
/// Both formats have the range of f32. An operand is rounded to nearest when a product reads it; stored
/// values and sums are f32. The relative error of a product of two rounded operands is at most `2 u`. The
/// error of a sum of products is at most `2 u` times the sum of their magnitudes, so its relative error
/// exceeds `2 u` if the terms cancel. Where a derivative is discontinuous (relu at zero) there is no bound: a
/// sum close to zero may change its sign.
///
/// In every format the result has the same bits under any order of threads and blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum MatmulPrecision {
    /// As accurate as f32.
    #[default]
    F32,
    /// Operands with 11 significant bits.
    Tf32,
}

impl MatmulPrecision {
    /// All formats.
    pub const ALL: [MatmulPrecision; 2] = [Self::F32, Self::Tf32];
    /// Returns the name used in files and flags.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
        }
    }
    /// Returns the code used by kernels (`kernels/product.cuh`).
    pub(crate) fn code(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::Tf32 => 1,
        }
    }
    /// Returns the number of significant bits of an operand.
    pub fn bits(self) -> u32 {
        match self {
            Self::F32 => 24,
            Self::Tf32 => 11,
        }
    }
    /// Returns `u`, the maximum relative change of an operand by rounding to nearest.
    pub fn unit_roundoff(self) -> f64 {
        0.5f64.powi(self.bits() as i32)
    }
    /// Returns the number of this format nearest to a finite `x`, rounding like a device: ties away from
    /// zero.
    pub fn nearest(self, x: f32) -> f32 {
        let (bits, dropped) = (x.to_bits(), f32::MANTISSA_DIGITS - self.bits());
        let half = (1u32 << dropped) >> 1;
        f32::from_bits((bits + half) >> dropped << dropped)
    }
}

impl FromStr for MatmulPrecision {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        let known = Self::ALL.into_iter().find(|p| p.name() == s);
        known.ok_or_else(|| Error::unknown(ErrorKind::Usage, "precision", s, &Self::ALL.map(Self::name)))
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
