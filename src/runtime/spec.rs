//! Shapes and types of values, and the two precisions a definition runs in.
use crate::error::{Error, Result};
use half::slice::HalfFloatSliceExt;
use std::fmt;

/// A value of a tape: an input, or an output of a node. Other tapes refuse it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Var {
    tape: u32,
    at: u32,
}

impl Var {
    /// Value `at` of the tape that goes by the number `tape`.
    pub(crate) const fn of(tape: u32, at: usize) -> Self {
        Var { tape, at: at as u32 }
    }
    /// Which tape it is of.
    pub(crate) const fn tape(self) -> u32 {
        self.tape
    }
    /// Its place among the values of its tape.
    pub const fn at(self) -> usize {
        self.at as usize
    }
}

impl fmt::Display for Var {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.at)
    }
}

/// The id that names no node and no event: the content of unused neighbour slots.
pub const NONE: u32 = u32::MAX;

/// Type of a value's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// Real numbers: f32, or f64 where a [`Precision::F64`] reference runs.
    F32,
    /// Ids, row indices and counts.
    U32,
    /// Times in ticks, and offsets.
    I64,
    /// bfloat16: real numbers of stored tables and state, never of a step's values; see [`StoredAs`](super::StoredAs).
    Bf16,
    /// IEEE 754's half precision: likewise.
    F16,
}

/// The precision of a program's real numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Precision {
    /// The product.
    F32,
    /// The reference that tests compare with.
    F64,
}

/// The largest value: far below what an address can count, so that sums of such sizes do not wrap.
const MOST_BYTES: usize = 1 << 48;
const MOST_COLUMNS: usize = i32::MAX as usize;

impl DType {
    /// Whether elements of type `T` are what a value of this type holds where reals have `precision`.
    pub fn holds<T: Element>(self, precision: Precision) -> bool {
        T::DTYPE == self && size_of::<T>() == self.size(precision)
    }
    /// Bytes of one element.
    pub const fn size(self, precision: Precision) -> usize {
        match (self, precision) {
            (DType::U32, _) | (DType::F32, Precision::F32) => 4,
            (DType::I64, _) | (DType::F32, Precision::F64) => 8,
            (DType::Bf16 | DType::F16, _) => 2,
        }
    }
    /// Whether it is of real numbers kept in 16 bits.
    pub const fn is_half(self) -> bool {
        matches!(self, DType::Bf16 | DType::F16)
    }
    /// What a step sees of a table of this type: reals are widened.
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
    /// Rows for each unit of the count.
    pub times: usize,
}

/// The rows of a value: room for `capacity` of them, of which a device-resident count may declare fewer live.
///
/// Memory and launches are made for `capacity`; an op reads and writes the live rows only. So one program serves every
/// batch, the short last one included, and no count travels to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// Upper bound.
    pub capacity: usize,
    /// The true count, where it can be lower.
    pub live: Option<Live>,
}

impl Rows {
    /// Exactly `capacity` rows.
    pub const fn fixed(capacity: usize) -> Self {
        Rows { capacity, live: None }
    }
    /// At most `capacity` rows; `value(var)[0]` of them live.
    pub const fn live(capacity: usize, var: Var) -> Self {
        Rows { capacity, live: Some(Live { var, times: 1 }) }
    }
    /// `k` rows for each of these.
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
    /// Rows, and how many of them count.
    pub rows: Rows,
    /// Width of a row.
    pub cols: usize,
}

impl Spec {
    /// Real `[rows, cols]`.
    pub const fn real(rows: Rows, cols: usize) -> Self {
        Spec { dtype: DType::F32, rows, cols }
    }
    /// u32 `[rows, cols]`.
    pub const fn ids(rows: Rows, cols: usize) -> Self {
        Spec { dtype: DType::U32, rows, cols }
    }
    /// i64 `[rows]`.
    pub const fn times(rows: Rows) -> Self {
        Spec { dtype: DType::I64, rows, cols: 1 }
    }
    /// A u32 count on the device.
    pub const fn count() -> Self {
        Spec::ids(Rows::fixed(1), 1)
    }
    /// Elements there is room for.
    pub const fn len(&self) -> usize {
        self.rows.capacity * self.cols
    }
    /// Whether there is room for nothing.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Bytes there is room for.
    pub const fn bytes(&self, precision: Precision) -> usize {
        self.len() * self.dtype.size(precision)
    }
    /// Refuses a size that no memory has, of `what` in errors: sums and products of sizes are safe from there on.
    ///
    /// # Errors
    /// `Shape`.
    pub(crate) fn check_size(&self, what: &str) -> Result<()> {
        let bytes = self
            .rows
            .capacity
            .checked_mul(self.cols)
            .and_then(|n| n.checked_mul(DType::I64.size(Precision::F64)));
        match bytes {
            // Either may be zero, and kernels count columns in 32 bits.
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

/// A type that elements of a value can have in memory; nobody else can add one.
pub trait Element: bytemuck::Pod + Send + Sync + PartialEq + fmt::Debug + sealed::Sealed {
    /// What a spec calls it.
    const DTYPE: DType;
}
pub(super) mod sealed {
    /// What only this crate can implement.
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

/// The real numbers a definition is written in: f64 for the oracle of the tests, f32 for the plain host path.
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
    /// The precision whose programs hold this type.
    const PRECISION: Precision;
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// Nearest value to `x`.
    fn of(x: f64) -> Self;
    /// The value as f64.
    fn f64(self) -> f64;
    /// e^self.
    fn exp(self) -> Self;
    /// ln(1 + self), accurate near 0.
    fn ln_1p(self) -> Self;
    /// Hyperbolic tangent.
    fn tanh(self) -> Self;
    /// Cosine, accurate for large arguments.
    fn cos(self) -> Self;
    /// Sine, accurate for large arguments.
    fn sin(self) -> Self;
    /// Square root.
    fn sqrt(self) -> Self;
    /// The larger of two numbers.
    fn max(self, other: Self) -> Self;
    /// Magnitude.
    fn abs(self) -> Self;
    /// The numbers `from`, of 16 bits; both are as long.
    fn widen<H>(from: &[H], to: &mut [Self])
    where
        [H]: HalfFloatSliceExt;
    /// Rounds `from` to the nearest numbers of 16 bits; both are as long.
    fn round<H>(from: &[Self], to: &mut [H])
    where
        [H]: HalfFloatSliceExt;
    /// ln(1 + e^self), without overflow.
    fn softplus(self) -> Self {
        self.max(Self::ZERO) + (-self.abs()).exp().ln_1p()
    }
    /// 1 / (1 + e^-self).
    fn sigmoid(self) -> Self {
        Self::ONE / (Self::ONE + (-self).exp())
    }
}

macro_rules! real {
    ($t:ident, $precision:ident, $widen:ident, $round:ident) => {
        impl Real for $t {
            const PRECISION: Precision = Precision::$precision;
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            fn of(x: f64) -> Self {
                x as $t
            }
            fn f64(self) -> f64 {
                self as f64
            }
            fn exp(self) -> Self {
                $t::exp(self)
            }
            fn ln_1p(self) -> Self {
                $t::ln_1p(self)
            }
            fn tanh(self) -> Self {
                $t::tanh(self)
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
real!(f32, F32, convert_to_f32_slice, convert_from_f32_slice);
real!(f64, F64, convert_to_f64_slice, convert_from_f64_slice);
