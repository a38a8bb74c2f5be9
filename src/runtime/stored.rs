//! Storage types of the real numbers of a stored table: f32 or 16 bits. A step always computes in f32.
use super::spec::{DType, Element, Real};
use crate::error::{Error, ErrorKind, Result};
use half::{bf16, f16, slice::HalfBitsSliceExt};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// Storage type of the real numbers of a stored table.
///
/// | | bytes | significant bits | unit roundoff `u` | largest |
/// | --- | --- | --- | --- | --- |
/// | `f32` | 4 | 24 | 2^-24 | 3.4e38 |
/// | `bf16` | 2 | 8 | 2^-8 | 3.4e38 |
/// | `f16` | 2 | 11, fewer below 6.1e-5 | 2^-11 | 65,504 |
///
/// Writing rounds to nearest, ties to even; numbers beyond the largest become infinite. Reading is exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StoredAs {
    /// The type of the computation.
    #[default]
    F32,
    /// bfloat16: the range of f32.
    Bf16,
    /// IEEE 754 half precision: a smaller range, finer steps.
    F16,
}

impl StoredAs {
    /// All storage types.
    pub const ALL: [StoredAs; 3] = [Self::F32, Self::Bf16, Self::F16];
    /// Returns the name used in files and flags.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        }
    }
    /// Returns the element type.
    pub fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::Bf16 => DType::Bf16,
            Self::F16 => DType::F16,
        }
    }
    /// Returns the bytes per number.
    pub fn size(self) -> usize {
        if self == Self::F32 { 4 } else { 2 }
    }
    /// Returns `x` rounded to this type.
    pub fn nearest(self, x: f32) -> f32 {
        match self {
            Self::F32 => x,
            Self::Bf16 => bf16::from_f32(x).to_f32(),
            Self::F16 => f16::from_f32(x).to_f32(),
        }
    }
    /// Rounds `values` to 16 bits, into `to`.
    ///
    /// # Panics
    /// If `self` is `F32`, or the lengths differ.
    pub fn round(self, values: &[f32], to: &mut [u16]) {
        match self {
            Self::F32 => unreachable!("f32 is not a 16-bit type"),
            Self::Bf16 => bf16::keep(values, to.reinterpret_cast_mut()),
            Self::F16 => f16::keep(values, to.reinterpret_cast_mut()),
        }
    }
    /// Converts 16-bit numbers to f32, into `to`.
    ///
    /// # Panics
    /// If `self` is `F32`, or the lengths differ.
    pub fn widen(self, bits: &[u16], to: &mut [f32]) {
        match self {
            Self::F32 => unreachable!("f32 is not a 16-bit type"),
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
        let known = Self::ALL.into_iter().find(|a| a.name() == s);
        known.ok_or_else(|| Error::unknown(ErrorKind::Usage, "storage type", s, &Self::ALL.map(Self::name)))
    }
}

/// An element type in which a store holds numbers that ops see as `R`: `R` itself, or a 16-bit type.
pub trait Stored<R>: Element {
    /// Converts stored numbers to `R`; the slices have the same length.
    fn real(from: &[Self], to: &mut [R]);
    /// Rounds numbers to the stored type; the slices have the same length.
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

    /// Rounds by the definition: to the nearest neighbour of `x` with `bits` significant bits, ties to the
    /// one whose last bit is 0. `least` is the exponent of the smallest normal number.
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
    fn a_number_is_rounded_to_the_nearest_of_its_type_with_ties_to_even() {
        let random = philox::Key::new(1, 3, [0, 0]);
        for (stored_as, bits, least) in [(StoredAs::Bf16, 8, -126), (StoredAs::F16, 11, -14)] {
            let u = 0.5f32.powi(bits);
            let ties = [1.0 + u, 1.0 + 3.0 * u, -(1.0 + u), 2.0 + 2.0 * u, 0.5 - u / 8.0];
            let drawn = (0..3000u64).map(|i| {
                let [a, b, ..] = random.draw(i);
                (f64::from(a) / f64::from(1u32 << 31) - 1.0) as f32 * 2f32.powi((b % 24) as i32 - 20)
            });
            for x in ties.into_iter().chain(drawn) {
                let near = f64::from(stored_as.nearest(x));
                assert_eq!(near, by_definition(x, bits, least), "{stored_as}: {x}");
                let mut word = [0u16];
                stored_as.round(&[x], &mut word);
                let mut back = [0f32];
                stored_as.widen(&word, &mut back);
                assert_eq!(f64::from(back[0]), near, "{stored_as}: {x}");
            }
            assert!(stored_as.nearest(f32::NAN).is_nan() && stored_as.nearest(f32::MAX) == f32::INFINITY);
        }
        assert_eq!((StoredAs::F16.nearest(7e4), StoredAs::Bf16.nearest(7e4)), (f32::INFINITY, 70_144.0));
    }

    #[test]
    fn names_are_parsed_and_an_unknown_one_is_refused_with_the_choices() {
        assert!(StoredAs::ALL.iter().all(|a| a.name().parse::<StoredAs>().unwrap() == *a));
        let e = "f8".parse::<StoredAs>().unwrap_err().to_string();
        assert!(e.contains("f32, bf16 or f16"), "{e}");
    }
}
