//! Tensors of other frameworks, by [DLPack](https://dmlc.github.io/dlpack/latest/): PyTorch, JAX, CuPy and
//! others hand out a [`DLManagedTensor`], which is borrowed here as a [`DLView`] without copying.
//!
//! ```
//! use tgnn::{ops::{Call, pointwise::Add}, runtime::cuda::dlpack::*};
//! let (mut data, mut shape) = ([1.0f32, 2.0, 3.0, 4.0], [2i64, 2]);
//! let tensor = DLTensor {
//!     data: data.as_mut_ptr().cast(),
//!     device: DLDevice { device_type: DLDevice::CPU, device_id: 0 },
//!     ndim: 2,
//!     dtype: DLDataType { code: DLDataType::FLOAT, bits: 32, lanes: 1 },
//!     shape: shape.as_mut_ptr(),
//!     strides: std::ptr::null_mut(),
//!     byte_offset: 0,
//! };
//! // SAFETY: the tensor describes `data`, which nobody changes meanwhile.
//! let x = unsafe { DLView::new(&tensor) }?;
//! let (a, mut sum) = (x.values::<f32>()?, [0.0f32; 4]);
//! Call::new(&Add).input(a, x.shape())?.input(a, x.shape())?.output(&mut sum)?.run()?;
//! assert_eq!(sum, [2.0, 4.0, 6.0, 8.0]);
//! # Ok::<(), tgnn::error::Error>(())
//! ```
use super::DeviceTensor;
use crate::{
    error::{Error, Result, ensure},
    runtime::spec::{DType, Element, Precision},
};
use std::{ffi::c_void, marker::PhantomData, ptr::NonNull};

/// Device of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DLDevice {
    /// Kind of device.
    pub device_type: i32,
    /// Number of the device among those of its kind.
    pub device_id: i32,
}

impl DLDevice {
    /// Host memory.
    pub const CPU: i32 = 1;
    /// Memory of a CUDA device.
    pub const CUDA: i32 = 2;
    /// Page-locked host memory.
    pub const CUDA_HOST: i32 = 3;
    /// Managed CUDA memory, which both sides access.
    pub const CUDA_MANAGED: i32 = 13;
}

/// Type of the elements of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DLDataType {
    /// Kind of number.
    pub code: u8,
    /// Bits of a number.
    pub bits: u8,
    /// Numbers of an element.
    pub lanes: u16,
}

impl DLDataType {
    /// Signed integers.
    pub const INT: u8 = 0;
    /// Unsigned integers.
    pub const UINT: u8 = 1;
    /// IEEE 754 numbers.
    pub const FLOAT: u8 = 2;
    /// bfloat16.
    pub const BFLOAT: u8 = 4;
}

/// A tensor: memory, type and shape.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DLTensor {
    /// Address of the memory.
    pub data: *mut c_void,
    /// Device of the memory.
    pub device: DLDevice,
    /// Number of dimensions.
    pub ndim: i32,
    /// Type of the elements.
    pub dtype: DLDataType,
    /// `ndim` sizes.
    pub shape: *mut i64,
    /// `ndim` strides in elements, or null if the tensor is contiguous.
    pub strides: *mut i64,
    /// Bytes from `data` to the first element.
    pub byte_offset: u64,
}

/// A tensor with its owner.
#[derive(Debug)]
#[repr(C)]
pub struct DLManagedTensor {
    /// The tensor.
    pub dl_tensor: DLTensor,
    /// The owner's own data.
    pub manager_ctx: *mut c_void,
    /// Gives the tensor back to its owner.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>,
}

/// A tensor taken over from its owner, given back when it is dropped.
#[derive(Debug)]
pub struct OwnedTensor(NonNull<DLManagedTensor>);

impl OwnedTensor {
    /// Takes over the tensor at `tensor`, such as the pointer in a Python capsule named `dltensor`.
    ///
    /// # Errors
    /// `Shape` if the pointer is null.
    ///
    /// # Safety
    /// The pointer must be null or of a valid tensor whose memory lives until its deleter is called, and
    /// nobody else may call the deleter.
    pub unsafe fn take(tensor: *mut DLManagedTensor) -> Result<Self> {
        NonNull::new(tensor).map(Self).ok_or_else(|| Error::shape("dlpack", "the tensor is null"))
    }
    /// Returns the tensor.
    pub fn tensor(&self) -> &DLTensor {
        // SAFETY: valid until the deleter is called, as `take` demands.
        unsafe { &self.0.as_ref().dl_tensor }
    }
}

impl Drop for OwnedTensor {
    fn drop(&mut self) {
        // SAFETY: valid, as `take` demands; called once.
        unsafe {
            if let Some(deleter) = self.0.as_ref().deleter {
                deleter(self.0.as_ptr());
            }
        }
    }
}

/// A borrowed tensor whose type, shape and layout ops accept: contiguous, of at most two dimensions. A vector
/// is a matrix of one column, a number one of one row.
#[derive(Clone, Copy, Debug)]
pub struct DLView<'a> {
    address: u64,
    dtype: DType,
    shape: [usize; 2],
    device: DLDevice,
    of: PhantomData<&'a DLTensor>,
}

impl<'a> DLView<'a> {
    /// Borrows `tensor`. 32-bit integers, signed or not, are ids: -1 is [`NONE`](crate::runtime::NONE).
    ///
    /// # Errors
    /// `Shape` if the tensor is of another type, has more than two dimensions, is not contiguous, or is on a
    /// device of another kind than the CPU and CUDA.
    ///
    /// # Safety
    /// Shape and strides must have `ndim` elements (or be null, the strides only), and the memory must be
    /// that of the shape, for as long as `'a`. As long as [`values`](Self::values) are in use, nobody may
    /// change the memory of a tensor on the host.
    pub unsafe fn new(tensor: &'a DLTensor) -> Result<Self> {
        let DLTensor { device, dtype: DLDataType { code, bits, lanes }, ndim, .. } = *tensor;
        let refused = |what: String| Error::shape("dlpack", what);
        let dtype = match (code, bits, lanes) {
            (DLDataType::FLOAT, 32, 1) => DType::F32,
            (DLDataType::FLOAT, 16, 1) => DType::F16,
            (DLDataType::BFLOAT, 16, 1) => DType::Bf16,
            (DLDataType::INT | DLDataType::UINT, 32, 1) => DType::U32,
            (DLDataType::INT, 64, 1) => DType::I64,
            (code, bits, lanes) => {
                let kind = match code {
                    DLDataType::INT => "i",
                    DLDataType::UINT => "u",
                    DLDataType::FLOAT => "f",
                    DLDataType::BFLOAT => "bf",
                    _ => "another one, of bits ",
                };
                let vector = if lanes == 1 { String::new() } else { format!(" in vectors of {lanes}") };
                let what = format!("the type is {kind}{bits}{vector}, want f32, f16, bf16, i32, u32 or i64");
                return Err(refused(what));
            }
        };
        let known = [DLDevice::CPU, DLDevice::CUDA, DLDevice::CUDA_HOST, DLDevice::CUDA_MANAGED];
        ensure!("dlpack", known.contains(&device.device_type), "device is {device:?}, want CPU or CUDA");
        ensure!("dlpack", (0..=2).contains(&ndim), "{ndim} dimensions, want at most 2");
        let n = ndim as usize;
        ensure!("dlpack", n == 0 || !tensor.shape.is_null(), "the shape is null");
        let numbers = |p: *mut i64| match n {
            0 => &[][..],
            // SAFETY: the caller guarantees `ndim` elements.
            _ => unsafe { std::slice::from_raw_parts(p.cast_const(), n) },
        };
        let sizes = numbers(tensor.shape);
        let size = |i: usize| sizes.get(i).map_or(Ok(1), |&s| usize::try_from(s));
        let (Ok(rows), Ok(cols)) = (size(0), size(1)) else {
            return Err(refused(format!("shape is {sizes:?}")));
        };
        let shape = [rows, cols];
        if !tensor.strides.is_null() && rows > 0 && cols > 0 {
            let strides = numbers(tensor.strides);
            // The stride of a dimension of size 1 may be anything.
            let contiguous = |i: usize, want: usize| {
                sizes.get(i).is_none_or(|&s| s == 1) || usize::try_from(strides[i]) == Ok(want)
            };
            let fits = contiguous(0, cols) && contiguous(1, 1);
            ensure!("dlpack", fits, "strides are {strides:?} for {sizes:?}, want a contiguous tensor");
        }
        let address = (tensor.data as u64).wrapping_add(tensor.byte_offset);
        let view = DLView { address, dtype, shape, device, of: PhantomData };
        view.on_device_unchecked().spec().check_size("dlpack")?;
        let has = rows == 0 || cols == 0 || !tensor.data.is_null();
        ensure!("dlpack", has, "the data of a tensor of {rows} x {cols} is null");
        Ok(view)
    }
    /// Returns the type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }
    /// Returns rows and columns.
    pub fn shape(&self) -> [usize; 2] {
        self.shape
    }
    /// Returns the address of the first element.
    pub fn address(&self) -> u64 {
        self.address
    }
    /// Returns the device.
    pub fn device(&self) -> DLDevice {
        self.device
    }
    fn on_device_unchecked(&self) -> DeviceTensor {
        DeviceTensor::new(self.address, self.dtype, self.shape)
    }
    /// Returns the tensor as an operand on CUDA device `ordinal`.
    ///
    /// # Errors
    /// `Shape` if the tensor is in the host's memory or on another device.
    pub fn on_cuda(&self, ordinal: usize) -> Result<DeviceTensor> {
        let own = usize::try_from(self.device.device_id) == Ok(ordinal);
        let there = match self.device.device_type {
            DLDevice::CUDA => own,
            DLDevice::CUDA_MANAGED | DLDevice::CUDA_HOST => true,
            _ => false,
        };
        ensure!("dlpack", there, "device is {:?}, want cuda:{ordinal}", self.device);
        Ok(self.on_device_unchecked())
    }
    /// Returns the elements of a tensor in the host's memory.
    ///
    /// # Errors
    /// `Shape` if the tensor is on a device, is not of type `T`, or is not aligned for it.
    pub fn values<T: Element>(&self) -> Result<&'a [T]> {
        let (dtype, on_host) =
            (self.dtype, matches!(self.device.device_type, DLDevice::CPU | DLDevice::CUDA_HOST));
        ensure!("dlpack", on_host, "device is {:?}, want CPU", self.device);
        let name = std::any::type_name::<T>();
        ensure!("dlpack", dtype.holds::<T>(Precision::F32), "elements are {dtype:?}, not {name}");
        let n = self.shape[0] * self.shape[1];
        if n == 0 {
            return Ok(&[]);
        }
        ensure!(
            "dlpack",
            self.address.is_multiple_of(align_of::<T>() as u64),
            "the data is not aligned for {name}"
        );
        // SAFETY: `of` demands memory of this shape that nobody changes meanwhile; every bit pattern is a
        // `T`.
        Ok(unsafe { std::slice::from_raw_parts(self.address as *const T, n) })
    }
}
