//! cuBLASLt, NVIDIA's library of matrix products, where it is installed. No op uses it: ours are measured against it.
//!
//! Matrices are row-major here. The library's are column-major, where a row-major matrix is its transpose: the product is
//! made as `d^T = b^T a^T`, so that our `b` is the library's A, and our `a` its B.
use super::{CudaStream, DeviceBuffer, Gpu};
use crate::error::{Error, ErrorKind, Result};
use cudarc::cublaslt::{
    result::{self as lt, CublasError},
    sys::{
        self, cublasComputeType_t as Computes, cublasLtEpilogue_t as Epilogue,
        cublasLtMatmulDescAttributes_t as OfProduct, cublasLtMatmulPreferenceAttributes_t as Preference,
        cudaDataType::CUDA_R_32F as F32,
    },
};
use std::{ffi::c_void, ptr::from_ref, sync::Arc};

/// Bytes that an algorithm may use for itself: what NVIDIA advises for its larger devices.
const WORKSPACE: usize = 32 << 20;
/// Bytes that every operand is aligned to.
const ALIGNED: u32 = 16;

fn checked<T>(result: Result<T, CublasError>, what: &str) -> Result<T> {
    result.map_err(|e| Error::new(ErrorKind::Device, format!("cuBLASLt: {what}: {e}")))
}

/// The library, opened for a device.
pub struct CublasLt {
    gpu: Gpu,
    handle: sys::cublasLtHandle_t,
}

// SAFETY: the library locks its handle; `Product::new` and `launch` make the device current in their thread.
unsafe impl Send for CublasLt {}
// SAFETY: as above.
unsafe impl Sync for CublasLt {}

impl CublasLt {
    /// Opens it.
    ///
    /// # Errors
    /// Device, where it is not installed, or cannot work on `gpu`.
    pub fn open(gpu: &Gpu) -> Result<Arc<Self>> {
        if gpu.is_emulated() {
            return Err(Error::new(ErrorKind::Device, "an emulated device has no cuBLASLt"));
        }
        // SAFETY: loads the library, if there is one. Everything below would panic without it.
        if !unsafe { sys::is_culib_present() } {
            return Err(Error::new(ErrorKind::Device, "libcublasLt.so is not found")
                .remedy("pip install nvidia-cublas, and add its folder to LD_LIBRARY_PATH"));
        }
        gpu.enter()?;
        Ok(Arc::new(CublasLt { handle: checked(lt::create_handle(), "cannot start")?, gpu: gpu.clone() }))
    }
}

impl Drop for CublasLt {
    fn drop(&mut self) {
        if self.gpu.enter().is_ok() {
            // SAFETY: made by `open`, destroyed once.
            let _ = unsafe { lt::destroy_handle(self.handle) };
        }
    }
}

/// A shape of `d = a b + c`: `a` is `[rows, depth]`, `b` `[depth, cols]`, `c` and `d` `[rows, cols]`.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Rows of d.
    pub rows: usize,
    /// Columns of d.
    pub cols: usize,
    /// Terms of each sum.
    pub depth: usize,
    /// Whether memory holds `a` transposed, and `b`.
    pub transposed: (bool, bool),
}

/// What is done beside the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Nothing.
    Nothing,
    /// d becomes max(d, 0).
    Relu,
    /// A row `[1, cols]` is added to every row of d.
    Bias,
    /// `Bias`, then `Relu`.
    BiasRelu,
    /// The sums over depth of `a`, `[1, rows]`, are made too.
    SumsOfA,
}

/// How exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exactness {
    /// Products and sums in f32.
    F32,
    /// Operands rounded to TF32, of eleven bits; sums in f32.
    Tf32,
}

/// Addresses of a product's operands.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// a
    pub a: *const f32,
    /// b
    pub b: *const f32,
    /// c; null where nothing is added.
    pub c: *const f32,
    /// d
    pub d: *mut f32,
    /// The bias, which is read, or the sums, which are written.
    pub beside: *const f32,
}

/// A product with the algorithm that the library found best for it. One launch must be over before the next begins.
pub struct Product {
    cublaslt: Arc<CublasLt>,
    workspace: DeviceBuffer,
    product: sys::cublasLtMatmulDesc_t,
    /// Of the library's A, B, and C and D.
    layouts: [sys::cublasLtMatrixLayout_t; 3],
    algorithm: sys::cublasLtMatmulAlgo_t,
    beside: Beside,
}

// SAFETY: descriptions are plain memory of the host; `launch` borrows mutably.
unsafe impl Send for Product {}

impl Product {
    /// Finds an algorithm.
    ///
    /// # Errors
    /// Device, where the library has none.
    pub fn new(library: &Arc<CublasLt>, shape: Shape, beside: Beside, exactness: Exactness) -> Result<Self> {
        library.gpu.enter()?;
        let Shape { rows, cols, depth, transposed } = shape;
        let computes = match exactness {
            Exactness::F32 => Computes::CUBLAS_COMPUTE_32F,
            Exactness::Tf32 => Computes::CUBLAS_COMPUTE_32F_FAST_TF32,
        };
        let epilogue = match beside {
            Beside::Nothing => Epilogue::CUBLASLT_EPILOGUE_DEFAULT,
            Beside::Relu => Epilogue::CUBLASLT_EPILOGUE_RELU,
            Beside::Bias => Epilogue::CUBLASLT_EPILOGUE_BIAS,
            Beside::BiasRelu => Epilogue::CUBLASLT_EPILOGUE_RELU_BIAS,
            Beside::SumsOfA => Epilogue::CUBLASLT_EPILOGUE_BGRADB,
        };
        // Rows in memory, columns in memory of a row-major matrix: the columns and the rows of the library's.
        let layout = |rows: usize, cols: usize, transposed: bool| {
            let (lines, width) = if transposed { (cols, rows) } else { (rows, cols) };
            checked(lt::create_matrix_layout(F32, width as u64, lines as u64, width as i64), "a layout")
        };
        let workspace = DeviceBuffer::new(&library.gpu, WORKSPACE)?;
        let mut made = Product {
            layouts: [
                layout(depth, cols, transposed.1)?,
                layout(rows, depth, transposed.0)?,
                layout(rows, cols, false)?,
            ],
            product: checked(lt::create_matmul_desc(computes, F32), "a product")?,
            algorithm: sys::cublasLtMatmulAlgo_t { data: [0; 8] },
            cublaslt: library.clone(),
            workspace,
            beside,
        };
        // CUBLAS_OP_N is 0, CUBLAS_OP_T is 1.
        made.set(OfProduct::CUBLASLT_MATMUL_DESC_TRANSA, &i32::from(transposed.1))?;
        made.set(OfProduct::CUBLASLT_MATMUL_DESC_TRANSB, &i32::from(transposed.0))?;
        made.set(OfProduct::CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue)?;
        // Any address, aligned as the true one will be: without one, some versions find nothing.
        made.set_beside(made.workspace.address())?;
        made.algorithm = made.best()?;
        Ok(made)
    }
    fn set<T>(&self, attribute: OfProduct, value: &T) -> Result<()> {
        // SAFETY: the description is alive, and the value of the attribute's type.
        let set = unsafe {
            lt::set_matmul_desc_attribute(self.product, attribute, from_ref(value).cast(), size_of::<T>())
        };
        checked(set, "an attribute")
    }
    fn set_beside(&self, address: u64) -> Result<()> {
        match self.beside {
            Beside::Nothing | Beside::Relu => Ok(()),
            _ => self.set(OfProduct::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &address),
        }
    }
    /// The algorithm that the library's heuristic puts first.
    fn best(&self) -> Result<sys::cublasLtMatmulAlgo_t> {
        let preferences = checked(lt::create_matmul_pref(), "preferences")?;
        let prefer = |what: Preference, value: *const c_void, bytes: usize| {
            // SAFETY: the preferences are alive, and the value has the attribute's type.
            unsafe { lt::set_matmul_pref_attribute(preferences, what, value, bytes) }
        };
        let [a, b, d] = self.layouts;
        let mut set =
            prefer(Preference::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, from_ref(&WORKSPACE).cast(), 8);
        for operand in [
            Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
            Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
            Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
            Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
        ] {
            set = set.and_then(|()| prefer(operand, from_ref(&ALIGNED).cast(), 4));
        }
        // SAFETY: everything is alive.
        let found = set.and_then(|()| unsafe {
            lt::get_matmul_algo_heuristic(self.cublaslt.handle, self.product, a, b, d, d, preferences)
        });
        // SAFETY: made above, destroyed once.
        let _ = unsafe { lt::destroy_matmul_pref(preferences) };
        checked(found, "there is no algorithm for this product").map(|f| f.algo)
    }
    /// Gives it to `stream`; it may be captured once it has been launched outside of a capture, which loads its code.
    ///
    /// # Errors
    /// Device, when the library refuses.
    ///
    /// # Safety
    /// The addresses are of device memory of the product's shapes, which stays until the stream has run.
    pub unsafe fn launch(&mut self, stream: &CudaStream, on: Addresses) -> Result<()> {
        self.cublaslt.gpu.enter()?;
        self.set_beside(on.beside as u64)?;
        let (alpha, beta) = (1f32, if on.c.is_null() { 0f32 } else { 1f32 });
        let c = if on.c.is_null() { on.d.cast_const() } else { on.c };
        let [a, b, d] = self.layouts;
        // SAFETY: descriptions and handle are alive; the operands are those of an op that the stream runs, of the
        // shapes and the alignment that the algorithm was chosen for; the factors are read before this returns.
        let given = unsafe {
            lt::matmul(
                self.cublaslt.handle,
                self.product,
                from_ref(&alpha).cast(),
                from_ref(&beta).cast(),
                on.b.cast(),
                a,
                on.a.cast(),
                b,
                c.cast(),
                d,
                on.d.cast(),
                d,
                &self.algorithm,
                self.workspace.address() as *mut c_void,
                WORKSPACE,
                stream.raw().cast(),
            )
        };
        checked(given, "cannot launch")
    }
}

impl Drop for Product {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once.
        unsafe {
            let _ = lt::destroy_matmul_desc(self.product);
            for layout in self.layouts {
                let _ = lt::destroy_matrix_layout(layout);
            }
        }
    }
}
