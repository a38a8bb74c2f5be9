//! cuSPARSE, NVIDIA's library of sparse products, if it is installed. No op uses it: our kernels are measured
//! against it.
use cudarc::cusparse::{
    result::CusparseError,
    sys::{
        self, cudaDataType::CUDA_R_32F as F32, cusparseIndexBase_t::CUSPARSE_INDEX_BASE_ZERO as FROM_ZERO,
        cusparseIndexType_t::CUSPARSE_INDEX_32I as I32,
        cusparseOperation_t::CUSPARSE_OPERATION_NON_TRANSPOSE as AS_IT_IS,
        cusparseOrder_t::CUSPARSE_ORDER_ROW as BY_ROWS,
    },
};
use std::{
    ffi::c_void,
    ptr::{from_ref, null_mut},
};
use tgnn::{
    error::{Error, ErrorKind, Result},
    runtime::cuda::{CudaStream, DeviceBuffer, Gpu},
};

fn checked(status: sys::cusparseStatus_t, what: &str) -> Result<()> {
    let failed = |CusparseError(e)| Error::new(ErrorKind::Device, format!("cuSPARSE: {what}: {e:?}"));
    status.result().map_err(failed)
}

/// The library, opened for a device.
pub struct Cusparse {
    gpu: Gpu,
    handle: sys::cusparseHandle_t,
}

impl Cusparse {
    /// Opens the library.
    ///
    /// # Errors
    /// `Device` if it is not installed, or does not work on `gpu`.
    pub fn open(gpu: &Gpu) -> Result<Self> {
        if gpu.is_emulated() {
            return Err(Error::new(ErrorKind::Device, "an emulated device has no cuSPARSE"));
        }
        // SAFETY: loads the library, if there is one. Without it every call below would panic.
        if !unsafe { sys::is_culib_present() } {
            return Err(Error::new(ErrorKind::Device, "libcusparse.so is not found")
                .remedy("pip install nvidia-cusparse, and add its folder to LD_LIBRARY_PATH"));
        }
        gpu.enter()?;
        let mut handle = null_mut();
        // SAFETY: the library writes the handle.
        checked(unsafe { sys::cusparseCreate(&raw mut handle) }, "cannot start")?;
        Ok(Cusparse { gpu: gpu.clone(), handle })
    }
}

impl Cusparse {
    /// Makes the following calls run on `stream`.
    fn go_to(&self, stream: &CudaStream) -> Result<()> {
        // SAFETY: both are alive.
        checked(
            unsafe { sys::cusparseSetStream(self.handle, stream.handle().cast()) },
            "cannot set the stream",
        )
    }
}

impl Drop for Cusparse {
    fn drop(&mut self) {
        if self.gpu.enter().is_ok() {
            // SAFETY: created by `open`, destroyed once.
            let _ = unsafe { sys::cusparseDestroy(self.handle) };
        }
    }
}

/// A square matrix in CSR format: the entries of row `i` are `starts[i]..starts[i + 1]`.
pub struct Csr<'a> {
    /// Start of each row, and the number of entries; one longer than the number of rows.
    pub starts: &'a [u32],
    /// Columns of the entries.
    pub cols: &'a [u32],
    /// Values of the entries.
    pub values: &'a [f32],
}

/// The library's algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// NVIDIA's recommendation for row-major dense matrices; the order of its additions varies.
    ByRows,
    /// Gives the same bits every time.
    Deterministic,
}

/// `y = A x` for a matrix on the device, analysed once, with the buffer that the library needs.
pub struct SparseProduct {
    /// Of this product alone: what the library keeps of a stream or of a captured launch meets no other
    /// product.
    cusparse: Cusparse,
    algorithm: sys::cusparseSpMMAlg_t,
    matrix: sys::cusparseSpMatDescr_t,
    /// Descriptors of x and y.
    dense: [sys::cusparseDnMatDescr_t; 2],
    buffer: DeviceBuffer,
    _arrays: [DeviceBuffer; 3],
}

// SAFETY: descriptors are plain host memory; every use of the handle makes the device current; `launch`
// borrows mutably.
unsafe impl Send for SparseProduct {}

/// Calls a library function on a product. The functions differ in their last argument.
macro_rules! call {
    ($function:ident, $product:expr, $last:expr) => {{
        let (product, [x, y]) = ($product, $product.dense);
        let (one, zero) = (from_ref(&1f32).cast(), from_ref(&0f32).cast());
        let (handle, how) = (product.cusparse.handle, product.algorithm);
        // SAFETY: the handle, the descriptors and the memory they describe are alive; the factors are read
        // before this returns; the last argument points to a size, or to a buffer of the size that the
        // library asked for.
        let status = unsafe {
            sys::$function(handle, AS_IT_IS, AS_IT_IS, one, product.matrix, x, zero, y, F32, how, $last)
        };
        checked(status, stringify!($function))
    }};
}

impl SparseProduct {
    /// Uploads the matrix and analyses it for x with `width` columns.
    ///
    /// # Errors
    /// `Device` if the device or the library refuses.
    pub fn new(gpu: &Gpu, a: &Csr<'_>, width: usize, algorithm: Algorithm) -> Result<Self> {
        let cusparse = Cusparse::open(gpu)?;
        let stream = CudaStream::new(gpu)?;
        cusparse.go_to(&stream)?;
        let upload = |bytes: &[u8]| {
            let buffer = DeviceBuffer::new(gpu, bytes.len().max(4))?;
            buffer.upload(bytes, &stream).map(|()| buffer)
        };
        let arrays = [
            upload(bytemuck::cast_slice(a.starts))?,
            upload(bytemuck::cast_slice(a.cols))?,
            upload(bytemuck::cast_slice(a.values))?,
        ];
        // A placeholder for x and y; a launch sets the real addresses.
        let placeholder = DeviceBuffer::new(gpu, 4 * a.starts.len() * width)?;
        let (n, d, entries) = ((a.starts.len() - 1) as i64, width as i64, a.cols.len() as i64);
        let [starts, cols, values] = [0, 1, 2].map(|i: usize| arrays[i].address() as *mut c_void);
        let mut made = SparseProduct {
            cusparse,
            algorithm: match algorithm {
                Algorithm::ByRows => sys::cusparseSpMMAlg_t::CUSPARSE_SPMM_CSR_ALG2,
                Algorithm::Deterministic => sys::cusparseSpMMAlg_t::CUSPARSE_SPMM_CSR_ALG3,
            },
            matrix: null_mut(),
            dense: [null_mut(); 2],
            buffer: DeviceBuffer::new(gpu, 4)?,
            _arrays: arrays,
        };
        // SAFETY: the library writes the descriptor; the arrays live as long as the descriptor.
        let matrix = unsafe {
            let place = &raw mut made.matrix;
            sys::cusparseCreateCsr(place, n, n, entries, starts, cols, values, I32, I32, FROM_ZERO, F32)
        };
        checked(matrix, "cannot create the matrix")?;
        for dense in &mut made.dense {
            let address = placeholder.address() as *mut c_void;
            // SAFETY: the library writes the descriptor.
            let created = unsafe { sys::cusparseCreateDnMat(dense, n, d, d, address, F32, BY_ROWS) };
            checked(created, "cannot create x or y")?;
        }
        let mut bytes = 0usize;
        call!(cusparseSpMM_bufferSize, &made, &raw mut bytes)?;
        made.buffer = DeviceBuffer::new(gpu, bytes.max(4))?;
        call!(cusparseSpMM_preprocess, &made, made.buffer.address() as *mut c_void)?;
        stream.synchronize()?;
        Ok(made)
    }
    /// Launches the product on `stream`: y from x, both of the shape given to `new`.
    ///
    /// # Errors
    /// `Device` if the library refuses.
    ///
    /// # Safety
    /// The addresses must point to device memory of the product's shapes that stays allocated until the work
    /// is done.
    pub unsafe fn launch(&mut self, stream: &CudaStream, x: *const f32, y: *mut f32) -> Result<()> {
        self.cusparse.gpu.enter()?;
        self.cusparse.go_to(stream)?;
        for (dense, address) in self.dense.into_iter().zip([x.cast_mut(), y]) {
            // SAFETY: the descriptor is alive; the address belongs to an operand of an op that the stream
            // runs.
            let set = unsafe { sys::cusparseDnMatSetValues(dense, address.cast()) };
            checked(set, "cannot set the address of x or y")?;
        }
        call!(cusparseSpMM, &*self, self.buffer.address() as *mut c_void)
    }
}

impl Drop for SparseProduct {
    fn drop(&mut self) {
        // SAFETY: created by `new` if not null, and destroyed once.
        unsafe {
            for dense in self.dense.into_iter().filter(|d| !d.is_null()) {
                let _ = sys::cusparseDestroyDnMat(dense);
            }
            if !self.matrix.is_null() {
                let _ = sys::cusparseDestroySpMat(self.matrix);
            }
        }
    }
}
