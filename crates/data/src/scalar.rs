//! Number types of arrays: a kind, a size and a byte order.
use half::{bf16, f16};
use tgnn::runtime::StoredAs;

/// One value of an array, in the widest type of its kind.
#[derive(Clone, Copy, Debug, PartialEq)]
#[doc(hidden)]
pub enum Scalar {
    Int(i64),
    Uint(u64),
    Float(f64),
    /// A float of 32 bits in a table. As an id, a time or text it stands for its shortest decimal: 0.1f32 is
    /// 0.1.
    Single(f32),
}

impl Scalar {
    /// Returns the value if it is a float: of a [`Single`](Self::Single), the f64 nearest to its shortest
    /// decimal.
    #[doc(hidden)]
    pub fn float(self) -> Option<f64> {
        match self {
            Scalar::Float(v) => Some(v),
            Scalar::Single(v) => Some(v.to_string().parse().unwrap_or(f64::from(v))),
            Scalar::Int(_) | Scalar::Uint(_) => None,
        }
    }

    /// Whether the value is NaN.
    #[inline]
    pub(crate) fn is_nan(self) -> bool {
        match self {
            Scalar::Float(v) => v.is_nan(),
            Scalar::Single(v) => v.is_nan(),
            Scalar::Int(_) | Scalar::Uint(_) => false,
        }
    }

    /// Returns the shortest decimal that identifies the value.
    #[doc(hidden)]
    pub fn text(self) -> String {
        match self {
            Scalar::Int(v) => v.to_string(),
            Scalar::Uint(v) => v.to_string(),
            Scalar::Float(v) => v.to_string(),
            Scalar::Single(v) => v.to_string(),
        }
    }

    /// Returns the nearest f32; infinite outside its range.
    #[inline]
    pub(crate) fn to_f32(self) -> f32 {
        match self {
            Scalar::Int(v) => v as f32,
            Scalar::Uint(v) => v as f32,
            Scalar::Float(v) => v as f32,
            Scalar::Single(v) => v,
        }
    }

    /// Returns the value as an integer, or `None` if it is not one. Floats beyond 2^53 do not count, because
    /// they no longer distinguish neighbouring integers.
    #[doc(hidden)]
    pub fn whole(self) -> Option<i128> {
        match self {
            Scalar::Int(v) => Some(v.into()),
            Scalar::Uint(v) => Some(v.into()),
            float => {
                let v = float.float()?;
                (v.fract() == 0.0 && v.abs() <= 9_007_199_254_740_992.0).then_some(v as i128)
            }
        }
    }
}

/// The kind of a number type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScalarKind {
    Bool,
    Int,
    Uint,
    Float,
    /// bfloat16: the upper half of an f32.
    Brain,
}

/// The number type of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScalarType {
    kind: ScalarKind,
    /// Size of a number in bytes, at most 8.
    pub size: usize,
    pub big_endian: bool,
}

impl ScalarType {
    /// Returns a little-endian type; `size` must be valid for `kind`.
    pub(crate) const fn new(kind: ScalarKind, size: usize) -> Self {
        ScalarType { kind, size, big_endian: false }
    }

    /// Parses NumPy's name of a type, such as `<f4`; `None` if it is not a supported number type.
    pub(crate) fn parse(descr: &str) -> Option<Self> {
        let big_endian = descr.starts_with('>') || (descr.starts_with('=') && cfg!(target_endian = "big"));
        let (kind, size) = match descr.trim_start_matches(['<', '>', '=', '|']) {
            "b1" => (ScalarKind::Bool, 1),
            "i1" => (ScalarKind::Int, 1),
            "i2" => (ScalarKind::Int, 2),
            "i4" => (ScalarKind::Int, 4),
            "i8" => (ScalarKind::Int, 8),
            "u1" => (ScalarKind::Uint, 1),
            "u2" => (ScalarKind::Uint, 2),
            "u4" => (ScalarKind::Uint, 4),
            "u8" => (ScalarKind::Uint, 8),
            "f2" => (ScalarKind::Float, 2),
            "f4" => (ScalarKind::Float, 4),
            "f8" => (ScalarKind::Float, 8),
            // NumPy has no bfloat16; `ml_dtypes` saves it as two untyped bytes.
            "V2" => (ScalarKind::Brain, 2),
            _ => return None,
        };
        Some(ScalarType { kind, size, big_endian })
    }

    /// Decodes a number from exactly [`size`](Self::size) `bytes`.
    pub(crate) fn read(self, bytes: &[u8]) -> Scalar {
        let mut word = [0u8; 8];
        word[..self.size].copy_from_slice(bytes);
        if self.big_endian {
            word[..self.size].reverse();
        }
        let word = u64::from_le_bytes(word);
        match (self.kind, self.size) {
            (ScalarKind::Bool | ScalarKind::Uint, _) => Scalar::Uint(word),
            (ScalarKind::Int, size) => {
                let unused = 64 - 8 * size as u32;
                Scalar::Int((word << unused) as i64 >> unused)
            }
            (ScalarKind::Brain, _) => Scalar::Float(bf16::from_bits(word as u16).into()),
            (ScalarKind::Float, 2) => Scalar::Float(f16::from_bits(word as u16).into()),
            (ScalarKind::Float, 4) => Scalar::Float(f32::from_bits(word as u32).into()),
            (ScalarKind::Float, _) => Scalar::Float(f64::from_bits(word)),
        }
    }

    /// Whether this is NumPy's type `name` in this machine's byte order.
    pub(crate) fn is_native(self, name: &str) -> bool {
        let native = if cfg!(target_endian = "big") { '>' } else { '<' };
        ScalarType::parse(&format!("{native}{name}")) == Some(self)
    }

    /// Returns the storage type with the same layout, if there is one.
    pub(crate) fn stored(self) -> Option<StoredAs> {
        let names = [("f4", StoredAs::F32), ("V2", StoredAs::Bf16), ("f2", StoredAs::F16)];
        names.into_iter().find(|(name, _)| self.is_native(name)).map(|(_, kept)| kept)
    }

    /// Whether timestamps of this type lose whole seconds.
    pub(crate) fn is_short_float(self) -> bool {
        matches!(self.kind, ScalarKind::Float | ScalarKind::Brain) && self.size <= 4
    }
}
