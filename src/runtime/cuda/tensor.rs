//! Device memory of the caller, as an operand.
use super::DeviceBuffer;
use crate::{
    error::{Result, ensure},
    runtime::spec::{DType, Precision, Rows, Spec},
};

/// A matrix in device memory, rows contiguous: its address, type and shape. It does not own the memory; using
/// the address is unsafe, having it is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceTensor {
    /// Device address of row 0.
    pub address: u64,
    /// Type of the elements.
    pub dtype: DType,
    /// Rows and columns.
    pub shape: [usize; 2],
    /// Device address of the count of live rows, and rows per unit of the count; see
    /// [`counted_by`](Self::counted_by).
    pub live: Option<(u64, usize)>,
}

impl DeviceTensor {
    /// Returns the matrix at `address`; all rows are live.
    pub fn new(address: u64, dtype: DType, shape: [usize; 2]) -> Self {
        DeviceTensor { address, dtype, shape, live: None }
    }
    /// Returns the matrix at the start of `buffer`; all rows are live.
    ///
    /// # Errors
    /// `Shape` if the buffer is too small.
    pub fn from_buffer(buffer: &DeviceBuffer, dtype: DType, shape: [usize; 2]) -> Result<Self> {
        let tensor = Self::new(buffer.address(), dtype, shape);
        tensor.spec().check_size("tensor")?;
        let (has, wants) = (buffer.bytes(), tensor.spec().bytes(Precision::F32));
        ensure!("tensor", has >= wants, "{} needs {wants} bytes, the buffer has {has}", tensor.spec());
        Ok(tensor)
    }
    /// Returns the same matrix, of which only the first `count[0] * times` rows are live; `count` is the
    /// device address of a u32 that is read when the kernels run.
    #[must_use]
    pub fn counted_by(self, count: u64, times: usize) -> Self {
        DeviceTensor { live: Some((count, times)), ..self }
    }
    /// Returns type and shape, with all rows.
    pub fn spec(&self) -> Spec {
        let [rows, cols] = self.shape;
        Spec { dtype: self.dtype, rows: Rows::fixed(rows), cols }
    }
}
