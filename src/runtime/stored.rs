//! What real numbers of a stored table are kept in: f32, or 16 bits. A step computes in f32 all the same.
use super::spec::{DType, Element, Real};
use crate::error::{Error, Result};
use half::{bf16, f16, slice::HalfBitsSliceExt};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// What real numbers of a stored table are kept in.
///
/// | | bytes | significant bits | unit roundoff `u` | largest |
/// | --- | --- | --- | --- | --- |
/// | `f32` | 4 | 24 | 2^-24 | 3.4e38 |
/// | `bf16` | 2 | 8 | 2^-8 | 3.4e38 |
/// | `f16` | 2 | 11, fewer below 6.1e-5 | 2^-11 | 65,504 |
///
/// A number is rounded to the nearest, of two that are as near to the even one, where it is written; what is read is
/// exactly what is kept. Beyond the largest it becomes infinite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StoredAs {
    /// As it is computed.
    #[default]
    F32,
    /// bfloat16: f32's range.
    Bf16,
    /// IEEE 754's half precision: a smaller range, finer steps.
    F16,
}

impl StoredAs {
    /// All of them.
    pub const ALL: [StoredAs; 3] = [Self::F32, Self::Bf16, Self::F16];
    /// Its name in files and flags.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        }
    }
    /// Type of the elements.
    pub fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::Bf16 => DType::Bf16,
            Self::F16 => DType::F16,
        }
    }
    /// Bytes of a number.
    pub fn size(self) -> usize {
        if self == Self::F32 { 4 } else { 2 }
    }
    /// `x` as it would be kept.
    pub fn nearest(self, x: f32) -> f32 {
        match self {
            Self::F32 => x,
            Self::Bf16 => bf16::from_f32(x).to_f32(),
            Self::F16 => f16::from_f32(x).to_f32(),
        }
    }
    /// Bits of `values` in 16 bits; `to` is as long.
    ///
    /// # Panics
    /// When it is `F32`, or the lengths differ.
    pub fn round(self, values: &[f32], to: &mut [u16]) {
        match self {
            Self::F32 => unreachable!("f32 is no type of 16 bits"),
            Self::Bf16 => bf16::keep(values, to.reinterpret_cast_mut()),
            Self::F16 => f16::keep(values, to.reinterpret_cast_mut()),
        }
    }
    /// The numbers that `bits` are; `to` is as long.
    ///
    /// # Panics
    /// As [`round`](Self::round).
    pub fn widen(self, bits: &[u16], to: &mut [f32]) {
        match self {
            Self::F32 => unreachable!("f32 is no type of 16 bits"),
            Self::Bf16 => bf16::real(bits.reinterpret_cast(), to),
            Self::F16 => f16::real(bits.reinterpret_cast(), to),
        }
    }
}

impl fmt::Display for StoredAs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for StoredAs {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|a| a.name() == s).ok_or_else(|| {
            Error::usage(format!("numbers are not stored as `{s}`")).remedy("give f32, bf16 or f16")
        })
    }
}

/// A type that a store keeps numbers in, which an op sees as `R`: `R` itself, or one of 16 bits.
pub trait Stored<R>: Element {
    /// Reads numbers as they are kept; both are as long.
    fn real(from: &[Self], to: &mut [R]);
    /// Rounds numbers to what is kept; both are as long.
    fn keep(from: &[R], to: &mut [Self]);
}

impl<E: Element> Stored<E> for E {
    fn real(from: &[E], to: &mut [E]) {
        to.copy_from_slice(from);
    }
    fn keep(from: &[E], to: &mut [E]) {
        to.copy_from_slice(from);
    }
}

macro_rules! stored {
    ($t:ident, $dtype:ident) => {
        impl Element for $t {
            const DTYPE: DType = DType::$dtype;
        }
        impl<R: Real> Stored<R> for $t {
            fn real(from: &[$t], to: &mut [R]) {
                R::widen(from, to);
            }
            fn keep(from: &[R], to: &mut [$t]) {
                R::round(from, to);
            }
        }
    };
}
stored!(bf16, Bf16);
stored!(f16, F16);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::philox;

    /// Rounding by its definition: of the neighbours of `x` among numbers of `bits` significant bits the nearest, of two
    /// that are as near the one whose last bit is 0.
    fn by_definition(x: f32, bits: i32, least: i32) -> f64 {
        let x = f64::from(x);
        let exponent = (x.abs().log2().floor() as i32).max(least);
        let unit = 2f64.powi(exponent - (bits - 1));
        let steps = x / unit;
        let (low, rest) = (steps.floor(), steps - steps.floor());
        let up = rest > 0.5 || (rest == 0.5 && low % 2.0 != 0.0);
        (low + f64::from(u8::from(up))) * unit
    }

    #[test]
    fn a_number_is_kept_as_the_nearest_of_its_type_and_the_even_one_of_two() {
        let random = philox::Key::new(1, 3, [0, 0]);
        for (kept, bits, least) in [(StoredAs::Bf16, 8, -126), (StoredAs::F16, 11, -14)] {
            let u = 0.5f32.powi(bits);
            let ties = [1.0 + u, 1.0 + 3.0 * u, -(1.0 + u), 2.0 + 2.0 * u, 0.5 - u / 8.0];
            let drawn = (0..3000u64).map(|i| {
                let [a, b, ..] = random.draw(i);
                (f64::from(a) / f64::from(1u32 << 31) - 1.0) as f32 * 2f32.powi((b % 24) as i32 - 20)
            });
            for x in ties.into_iter().chain(drawn) {
                let near = f64::from(kept.nearest(x));
                assert_eq!(near, by_definition(x, bits, least), "{kept}: {x}");
                let mut word = [0u16];
                kept.round(&[x], &mut word);
                let mut back = [0f32];
                kept.widen(&word, &mut back);
                assert_eq!(f64::from(back[0]), near, "{kept}: {x}");
            }
            assert!(kept.nearest(f32::NAN).is_nan() && kept.nearest(f32::MAX) == f32::INFINITY);
        }
        assert_eq!((StoredAs::F16.nearest(7e4), StoredAs::Bf16.nearest(7e4)), (f32::INFINITY, 70_144.0));
    }

    #[test]
    fn a_name_is_read_and_another_is_refused_with_the_choices() {
        assert!(StoredAs::ALL.iter().all(|a| a.name().parse::<StoredAs>().unwrap() == *a));
        let e = "f8".parse::<StoredAs>().unwrap_err().to_string();
        assert!(e.contains("f32, bf16 or f16"), "{e}");
    }
}
