//! Shapes and types of values, and the two precisions that an op's definition runs in.
use crate::error::{Error, Result};
use half::slice::HalfFloatSliceExt;
use std::fmt;

/// A value of a tape: an input, or an output of a node. Other tapes reject it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Var {
    tape: u32,
    at: u32,
}

impl Var {
    /// Returns value `at` of the tape with number `tape`.
    pub(crate) const fn new(tape: u32, at: usize) -> Self {
        Var { tape, at: at as u32 }
    }
    /// Returns the number of the value's tape.
    pub(crate) const fn tape(self) -> u32 {
        self.tape
    }
    /// Returns the index of the value on its tape.
    pub const fn at(self) -> usize {
        self.at as usize
    }
}

impl fmt::Display for Var {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.at)
    }
}

/// The id of no node and no event; unused neighbour slots hold it.
pub const NONE: u32 = u32::MAX;

/// Type of a value's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// Real numbers: f32, or f64 in a program of [`Precision::F64`].
    F32,
    /// Ids, row indices and counts.
    U32,
    /// Times in ticks, and offsets.
    I64,
    /// bfloat16, for real numbers of stored tables and state, never for the values of a step; see
    /// [`StoredAs`](super::StoredAs).
    Bf16,
    /// IEEE 754 half precision, for stored tables and state as `Bf16` is.
    F16,
}

/// The precision of a program's real numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Precision {
    /// Single precision: training, evaluation and prediction.
    F32,
    /// Double precision: the reference that tests compare with.
    F64,
}

/// Maximum size of a value, far below the range of an address, so that sums of such sizes do not overflow.
const MOST_BYTES: usize = 1 << 48;
/// Maximum width: kernels count columns in 32 bits.
const MOST_COLUMNS: usize = i32::MAX as usize;

impl DType {
    /// Returns whether a value of this type has elements of type `T` in a program of `precision`.
    pub fn holds<T: Element>(self, precision: Precision) -> bool {
        T::DTYPE == self && size_of::<T>() == self.size(precision)
    }
    /// Returns the bytes of one element.
    pub const fn size(self, precision: Precision) -> usize {
        match (self, precision) {
            (DType::U32, _) | (DType::F32, Precision::F32) => 4,
            (DType::I64, _) | (DType::F32, Precision::F64) => 8,
            (DType::Bf16 | DType::F16, _) => 2,
        }
    }
    /// Returns whether this is a type of real numbers stored in 16 bits.
    pub const fn is_half(self) -> bool {
        matches!(self, DType::Bf16 | DType::F16)
    }
    /// Returns the type that a step reads from a table of this type: real numbers of 16 bits become f32.
    #[must_use]
    pub const fn widened(self) -> DType {
        if self.is_half() { DType::F32 } else { self }
    }
}

/// A row count that is known only while a step runs: `value(var)[0] * times`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live {
    /// A `[1]` u32 value.
    pub var: Var,
    /// Rows per unit of the count.
    pub times: usize,
}

/// The rows of a value: memory for `capacity` rows, of which the first `n` are live. `n` may be lower than
/// `capacity`, and is then a count on the device.
///
/// Memory and launches are sized for `capacity`; ops read and write the live rows only. One program therefore
/// serves every batch, including the short last one, and no count is copied to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// Maximum number of rows.
    pub capacity: usize,
    /// The actual count, if it can be lower.
    pub live: Option<Live>,
}

impl Rows {
    /// Returns exactly `capacity` rows.
    pub const fn fixed(capacity: usize) -> Self {
        Rows { capacity, live: None }
    }
    /// Returns at most `capacity` rows, of which `value(var)[0]` are live.
    pub const fn live(capacity: usize, var: Var) -> Self {
        Rows { capacity, live: Some(Live { var, times: 1 }) }
    }
    /// Returns `k` rows for each of these.
    #[must_use]
    pub const fn times(self, k: usize) -> Self {
        let live = match self.live {
            Some(Live { var, times }) => Some(Live { var, times: times.saturating_mul(k) }),
            None => None,
        };
        Rows { capacity: self.capacity.saturating_mul(k), live }
    }
}

/// Shape and type of a value: `rows x cols`, row-major, rows contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Type of the elements.
    pub dtype: DType,
    /// Capacity and number of live rows.
    pub rows: Rows,
    /// Width of a row.
    pub cols: usize,
}

impl Spec {
    /// Returns the spec of real numbers `[rows, cols]`.
    pub const fn real(rows: Rows, cols: usize) -> Self {
        Spec { dtype: DType::F32, rows, cols }
    }
    /// Returns the spec of u32 `[rows, cols]`.
    pub const fn ids(rows: Rows, cols: usize) -> Self {
        Spec { dtype: DType::U32, rows, cols }
    }
    /// Returns the spec of i64 `[rows]`.
    pub const fn times(rows: Rows) -> Self {
        Spec { dtype: DType::I64, rows, cols: 1 }
    }
    /// Returns the spec of a count on the device: u32 `[1]`.
    pub const fn count() -> Self {
        Spec::ids(Rows::fixed(1), 1)
    }
    /// Returns the number of elements at full capacity.
    pub const fn len(&self) -> usize {
        self.rows.capacity * self.cols
    }
    /// Returns whether the capacity is zero elements.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Returns the number of bytes at full capacity.
    pub const fn bytes(&self, precision: Precision) -> usize {
        self.len() * self.dtype.size(precision)
    }
    /// Rejects a size that exceeds any memory, so that later sums and products of sizes cannot overflow.
    pub(crate) fn check_size(&self, what: &str) -> Result<()> {
        let bytes = self
            .rows
            .capacity
            .checked_mul(self.cols)
            .and_then(|n| n.checked_mul(DType::I64.size(Precision::F64)));
        match bytes {
            // The product alone does not bound its factors: one of them may be zero.
            Some(bytes)
                if bytes <= MOST_BYTES && self.rows.capacity <= MOST_BYTES && self.cols <= MOST_COLUMNS =>
            {
                Ok(())
            }
            _ => Err(Error::shape(what, format_args!("{self} is more than any memory holds"))),
        }
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bound = if self.rows.live.is_some() { "<=" } else { "" };
        write!(f, "{:?} [{bound}{}, {}]", self.dtype, self.rows.capacity, self.cols)
    }
}

/// A type of elements in memory. The trait is sealed: other crates cannot implement it.
pub trait Element: bytemuck::Pod + Send + Sync + PartialEq + fmt::Debug + sealed::Sealed {
    /// The element type in a [`Spec`].
    const DTYPE: DType;
}
pub(super) mod sealed {
    /// A trait that other crates cannot implement.
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
    impl Sealed for u32 {}
    impl Sealed for i64 {}
    impl Sealed for half::bf16 {}
    impl Sealed for half::f16 {}
}
impl Element for f32 {
    const DTYPE: DType = DType::F32;
}
impl Element for f64 {
    const DTYPE: DType = DType::F32;
}
impl Element for u32 {
    const DTYPE: DType = DType::U32;
}
impl Element for i64 {
    const DTYPE: DType = DType::I64;
}

/// The type of real numbers in an op's definition: f64 for the reference of the tests, f32 for the plain host
/// path.
pub trait Real:
    Element
    + std::ops::Add<Output = Self>
    + std::ops::Sub<Output = Self>
    + std::ops::Mul<Output = Self>
    + std::ops::Div<Output = Self>
    + std::ops::Neg<Output = Self>
    + std::ops::AddAssign
    + std::ops::MulAssign
    + std::iter::Sum
    + PartialOrd
{
    /// The precision of the programs that use this type.
    const PRECISION: Precision;
    /// The number 0.
    const ZERO: Self;
    /// The number 1.
    const ONE: Self;
    /// Returns the value nearest to `x`.
    fn from_f64(x: f64) -> Self;
    /// Returns the value as f64.
    fn f64(self) -> f64;
    /// Returns e^self.
    fn exp(self) -> Self;
    /// Returns the natural logarithm.
    fn ln(self) -> Self;
    /// Returns ln(1 + self), accurate near 0.
    fn ln_1p(self) -> Self;
    /// Returns the hyperbolic tangent.
    fn tanh(self) -> Self;
    /// Returns the error function, `2 / sqrt(pi)` times the integral of e^-t^2 from 0 to self.
    fn erf(self) -> Self;
    /// Returns the cosine, accurate for large arguments.
    fn cos(self) -> Self;
    /// Returns the sine, accurate for large arguments.
    fn sin(self) -> Self;
    /// Returns the square root.
    fn sqrt(self) -> Self;
    /// Returns the larger of two numbers.
    fn max(self, other: Self) -> Self;
    /// Returns the magnitude.
    fn abs(self) -> Self;
    /// Converts the 16-bit numbers `from` exactly into `to`, a slice of the same length.
    fn widen<H>(from: &[H], to: &mut [Self])
    where
        [H]: HalfFloatSliceExt;
    /// Rounds `from` to the nearest 16-bit numbers in `to`, a slice of the same length.
    fn round<H>(from: &[Self], to: &mut [H])
    where
        [H]: HalfFloatSliceExt;
    /// Returns ln(1 + e^self), without overflow.
    fn softplus(self) -> Self {
        self.max(Self::ZERO) + (-self.abs()).exp().ln_1p()
    }
    /// Returns 1 / (1 + e^-self).
    fn sigmoid(self) -> Self {
        Self::ONE / (Self::ONE + (-self).exp())
    }
}

macro_rules! real {
    ($t:ident, $precision:ident, $erf:ident, $widen:ident, $round:ident) => {
        impl Real for $t {
            const PRECISION: Precision = Precision::$precision;
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            fn from_f64(x: f64) -> Self {
                x as $t
            }
            fn f64(self) -> f64 {
                self as f64
            }
            fn exp(self) -> Self {
                $t::exp(self)
            }
            fn ln(self) -> Self {
                $t::ln(self)
            }
            fn ln_1p(self) -> Self {
                $t::ln_1p(self)
            }
            fn tanh(self) -> Self {
                $t::tanh(self)
            }
            fn erf(self) -> Self {
                libm::$erf(self)
            }
            fn cos(self) -> Self {
                $t::cos(self)
            }
            fn sin(self) -> Self {
                $t::sin(self)
            }
            fn sqrt(self) -> Self {
                $t::sqrt(self)
            }
            fn max(self, other: Self) -> Self {
                $t::max(self, other)
            }
            fn abs(self) -> Self {
                $t::abs(self)
            }
            fn widen<H>(from: &[H], to: &mut [Self])
            where
                [H]: HalfFloatSliceExt,
            {
                from.$widen(to);
            }
            fn round<H>(from: &[Self], to: &mut [H])
            where
                [H]: HalfFloatSliceExt,
            {
                to.$round(from);
            }
        }
    };
}
real!(f32, F32, erff, convert_to_f32_slice, convert_from_f32_slice);
real!(f64, F64, erf, convert_to_f64_slice, convert_from_f64_slice);
