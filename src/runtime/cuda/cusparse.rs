//! cuSPARSE, NVIDIA's library of sparse products, where it is installed. No op uses it: ours are measured against it.
use super::{CudaStream, DeviceBuffer, Gpu};
use crate::error::{Error, ErrorKind, Result};
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
    sync::Arc,
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

// SAFETY: every use of the handle makes the device current, and `SparseProduct::launch` borrows mutably.
unsafe impl Send for Cusparse {}
// SAFETY: products of one library are made and launched by one thread at a time (`testing::rivals`).
unsafe impl Sync for Cusparse {}

impl Cusparse {
    /// Opens it.
    ///
    /// # Errors
    /// Device, where it is not installed, or cannot work on `gpu`.
    pub fn open(gpu: &Gpu) -> Result<Arc<Self>> {
        if gpu.is_emulated() {
            return Err(Error::new(ErrorKind::Device, "an emulated device has no cuSPARSE"));
        }
        // SAFETY: loads the library, if there is one. Everything below would panic without it.
        if !unsafe { sys::is_culib_present() } {
            return Err(Error::new(ErrorKind::Device, "libcusparse.so is not found")
                .remedy("pip install nvidia-cusparse, and add its folder to LD_LIBRARY_PATH"));
        }
        gpu.enter()?;
        let mut handle = null_mut();
        // SAFETY: the library writes the handle.
        checked(unsafe { sys::cusparseCreate(&raw mut handle) }, "cannot start")?;
        Ok(Arc::new(Cusparse { gpu: gpu.clone(), handle }))
    }
}

impl Cusparse {
    /// What is called from here on runs on `stream`.
    fn go_to(&self, stream: &CudaStream) -> Result<()> {
        // SAFETY: both are alive.
        checked(unsafe { sys::cusparseSetStream(self.handle, stream.raw().cast()) }, "a stream")
    }
}

impl Drop for Cusparse {
    fn drop(&mut self) {
        if self.gpu.enter().is_ok() {
            // SAFETY: made by `open`, destroyed once.
            let _ = unsafe { sys::cusparseDestroy(self.handle) };
        }
    }
}

/// A square matrix by rows: entries of row `i` are those from `starts[i]` to `starts[i + 1]`.
pub struct Csr<'a> {
    /// One more than there are rows.
    pub starts: &'a [u32],
    /// Columns of the entries.
    pub cols: &'a [u32],
    /// Their values.
    pub values: &'a [f32],
}

/// How the library multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// What NVIDIA advises where dense rows are contiguous; its sums may come in any order.
    ByRows,
    /// The one that gives the same bits every time.
    Deterministic,
}

/// `y = A x` for a matrix that lies on the device, analysed once, with the buffer that the library wants.
pub struct SparseProduct {
    cusparse: Arc<Cusparse>,
    algorithm: sys::cusparseSpMMAlg_t,
    matrix: sys::cusparseSpMatDescr_t,
    /// Of x and of y.
    dense: [sys::cusparseDnMatDescr_t; 2],
    buffer: DeviceBuffer,
    _parts: [DeviceBuffer; 3],
}

// SAFETY: descriptions are plain memory of the host; `launch` borrows mutably.
unsafe impl Send for SparseProduct {}

/// A function of the library on a product; they differ in their last argument.
macro_rules! call {
    ($function:ident, $product:expr, $last:expr) => {{
        let (product, [x, y]) = ($product, $product.dense);
        let (one, zero) = (from_ref(&1f32).cast(), from_ref(&0f32).cast());
        let (handle, how) = (product.cusparse.handle, product.algorithm);
        // SAFETY: handle, descriptions and what they describe are alive; the factors are read before this returns; the last
        // argument is a place for a size, or the buffer of the size that the library asked for.
        let status = unsafe {
            sys::$function(handle, AS_IT_IS, AS_IT_IS, one, product.matrix, x, zero, y, F32, how, $last)
        };
        checked(status, stringify!($function))
    }};
}

impl SparseProduct {
    /// Puts the matrix on the device and analyses it for x of `width` columns.
    ///
    /// # Errors
    /// Device, when it or the library refuses.
    pub fn new(library: &Arc<Cusparse>, a: &Csr<'_>, width: usize, algorithm: Algorithm) -> Result<Self> {
        let gpu = &library.gpu;
        gpu.enter()?;
        let stream = CudaStream::new(gpu)?;
        let upload = |bytes: &[u8]| {
            let buffer = DeviceBuffer::new(gpu, bytes.len().max(4))?;
            buffer.upload(bytes, &stream).map(|()| buffer)
        };
        let parts = [
            upload(bytemuck::cast_slice(a.starts))?,
            upload(bytemuck::cast_slice(a.cols))?,
            upload(bytemuck::cast_slice(a.values))?,
        ];
        // x and y until a launch gives the true ones.
        let any = DeviceBuffer::new(gpu, 4 * a.starts.len() * width)?;
        let (n, d, entries) = ((a.starts.len() - 1) as i64, width as i64, a.cols.len() as i64);
        let [starts, cols, values] = [0, 1, 2].map(|i: usize| parts[i].address() as *mut c_void);
        let mut made = SparseProduct {
            cusparse: library.clone(),
            algorithm: match algorithm {
                Algorithm::ByRows => sys::cusparseSpMMAlg_t::CUSPARSE_SPMM_CSR_ALG2,
                Algorithm::Deterministic => sys::cusparseSpMMAlg_t::CUSPARSE_SPMM_CSR_ALG3,
            },
            matrix: null_mut(),
            dense: [null_mut(); 2],
            buffer: DeviceBuffer::new(gpu, 4)?,
            _parts: parts,
        };
        // SAFETY: the library writes the description; the arrays live as long as it.
        let matrix = unsafe {
            let place = &raw mut made.matrix;
            sys::cusparseCreateCsr(place, n, n, entries, starts, cols, values, I32, I32, FROM_ZERO, F32)
        };
        checked(matrix, "a matrix")?;
        for dense in &mut made.dense {
            let address = any.address() as *mut c_void;
            // SAFETY: the library writes the description.
            checked(unsafe { sys::cusparseCreateDnMat(dense, n, d, d, address, F32, BY_ROWS) }, "x and y")?;
        }
        let mut bytes = 0usize;
        call!(cusparseSpMM_bufferSize, &made, &raw mut bytes)?;
        made.buffer = DeviceBuffer::new(gpu, bytes.max(4))?;
        made.cusparse.go_to(&stream)?;
        call!(cusparseSpMM_preprocess, &made, made.buffer.address() as *mut c_void)?;
        stream.synchronize()?;
        Ok(made)
    }
    /// Gives it to `stream`: y from x, both of the shape that it was made for.
    ///
    /// # Errors
    /// Device, when the library refuses.
    ///
    /// # Safety
    /// The addresses are of device memory of the product's shapes, which stays until the stream has run.
    pub unsafe fn launch(&mut self, stream: &CudaStream, x: *const f32, y: *mut f32) -> Result<()> {
        self.cusparse.gpu.enter()?;
        self.cusparse.go_to(stream)?;
        for (dense, address) in self.dense.into_iter().zip([x.cast_mut(), y]) {
            // SAFETY: the description is alive; the address is that of an operand of an op that the stream runs.
            checked(unsafe { sys::cusparseDnMatSetValues(dense, address.cast()) }, "an address")?;
        }
        call!(cusparseSpMM, &*self, self.buffer.address() as *mut c_void)
    }
}

impl Drop for SparseProduct {
    fn drop(&mut self) {
        // SAFETY: made by `new`, where they are not null, and destroyed once.
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
