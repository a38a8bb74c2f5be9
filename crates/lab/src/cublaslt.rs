//! cuBLASLt, NVIDIA's library of dense products, if it is installed. No op uses it: our kernels are measured
//! against it.
//!
//! Matrices are row-major here. The library's are column-major, where a row-major matrix is its transpose:
//! the product is computed as `d^T = b^T a^T`, so our `b` is the library's A, and our `a` its B.
use cudarc::cublaslt::{
    result::{self as lt, CublasError},
    sys::{
        self, cublasComputeType_t as Computes, cublasLtEpilogue_t as Epilogue,
        cublasLtMatmulDescAttributes_t as OfProduct, cublasLtMatmulPreferenceAttributes_t as Preference,
        cudaDataType::CUDA_R_32F as F32,
    },
};
use std::{ffi::c_void, ptr::from_ref, sync::Arc};
use tgnn::{
    error::{Error, ErrorKind, Result},
    runtime::cuda::{CudaStream, DeviceBuffer, Gpu},
};

/// Workspace of an algorithm, in bytes: NVIDIA's recommendation for its larger devices.
const WORKSPACE: usize = 32 << 20;
/// Alignment of every operand, in bytes.
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
    /// Opens the library.
    ///
    /// # Errors
    /// `Device` if it is not installed, or does not work on `gpu`.
    pub fn open(gpu: &Gpu) -> Result<Arc<Self>> {
        if gpu.is_emulated() {
            return Err(Error::new(ErrorKind::Device, "an emulated device has no cuBLASLt"));
        }
        // SAFETY: loads the library, if there is one. Without it every call below would panic.
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
            // SAFETY: created by `open`, destroyed once.
            let _ = unsafe { lt::destroy_handle(self.handle) };
        }
    }
}

/// The shape of `d = a b + c`: `a` is `[rows, depth]`, `b` is `[depth, cols]`, `c` and `d` are `[rows,
/// cols]`.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Rows of d.
    pub rows: usize,
    /// Columns of d.
    pub cols: usize,
    /// Terms of each sum.
    pub depth: usize,
    /// Whether `a`, and whether `b`, is stored transposed.
    pub transposed: (bool, bool),
}

/// The operation fused with the product.
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
    /// The sums of `a` over the depth, `[1, rows]`, are computed too.
    SumsOfA,
}

/// The accuracy of the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exactness {
    /// Products and sums in f32.
    F32,
    /// Operands rounded to TF32 (11 significant bits); sums in f32.
    Tf32,
}

/// Device addresses of a product's operands.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// a
    pub a: *const f32,
    /// b
    pub b: *const f32,
    /// c; null if nothing is added.
    pub c: *const f32,
    /// d
    pub d: *mut f32,
    /// The bias, which is read, or the sums of `a`, which are written.
    pub beside: *const f32,
}

/// A product with the algorithm that the library prefers for it. Launches must not overlap, as they share a
/// workspace.
pub struct Product {
    cublaslt: Arc<CublasLt>,
    workspace: DeviceBuffer,
    product: sys::cublasLtMatmulDesc_t,
    /// Layouts of the library's A, B, and of C and D.
    layouts: [sys::cublasLtMatrixLayout_t; 3],
    algorithm: sys::cublasLtMatmulAlgo_t,
    beside: Beside,
}

// SAFETY: descriptors are plain host memory; `launch` borrows mutably.
unsafe impl Send for Product {}

impl Product {
    /// Selects an algorithm.
    ///
    /// # Errors
    /// `Device` if the library has none.
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
        // `lines` and `width` are the rows and columns of the row-major matrix as stored: the columns and
        // rows of the library's.
        let layout = |rows: usize, cols: usize, transposed: bool| {
            let (lines, width) = if transposed { (cols, rows) } else { (rows, cols) };
            checked(
                lt::create_matrix_layout(F32, width as u64, lines as u64, width as i64),
                "cannot create a layout",
            )
        };
        let workspace = DeviceBuffer::new(&library.gpu, WORKSPACE)?;
        let mut made = Product {
            layouts: [
                layout(depth, cols, transposed.1)?,
                layout(rows, depth, transposed.0)?,
                layout(rows, cols, false)?,
            ],
            product: checked(lt::create_matmul_desc(computes, F32), "cannot create a product")?,
            algorithm: sys::cublasLtMatmulAlgo_t { data: [0; 8] },
            cublaslt: library.clone(),
            workspace,
            beside,
        };
        // CUBLAS_OP_N is 0, CUBLAS_OP_T is 1.
        made.set(OfProduct::CUBLASLT_MATMUL_DESC_TRANSA, &i32::from(transposed.1))?;
        made.set(OfProduct::CUBLASLT_MATMUL_DESC_TRANSB, &i32::from(transposed.0))?;
        made.set(OfProduct::CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue)?;
        // Any address with the alignment of the real one: some versions find no algorithm without an address.
        made.set_beside(made.workspace.address())?;
        made.algorithm = made.best()?;
        Ok(made)
    }
    fn set<T>(&self, attribute: OfProduct, value: &T) -> Result<()> {
        // SAFETY: the descriptor is alive, and the value has the attribute's type.
        let set = unsafe {
            lt::set_matmul_desc_attribute(self.product, attribute, from_ref(value).cast(), size_of::<T>())
        };
        checked(set, "cannot set an attribute")
    }
    fn set_beside(&self, address: u64) -> Result<()> {
        match self.beside {
            Beside::Nothing | Beside::Relu => Ok(()),
            _ => self.set(OfProduct::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &address),
        }
    }
    /// Returns the algorithm that the library's heuristic ranks first.
    fn best(&self) -> Result<sys::cublasLtMatmulAlgo_t> {
        let preferences = checked(lt::create_matmul_pref(), "cannot create preferences")?;
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
        // SAFETY: the handle, the descriptors and the preferences are alive.
        let found = set.and_then(|()| unsafe {
            lt::get_matmul_algo_heuristic(self.cublaslt.handle, self.product, a, b, d, d, preferences)
        });
        // SAFETY: created above, destroyed once.
        let _ = unsafe { lt::destroy_matmul_pref(preferences) };
        checked(found, "there is no algorithm for this product").map(|f| f.algo)
    }
    /// Launches the product on `stream`. It can be captured after a first launch outside of a capture, which
    /// loads its code.
    ///
    /// # Errors
    /// `Device` if the library refuses.
    ///
    /// # Safety
    /// The addresses must point to device memory of the product's shapes that stays allocated until the work
    /// is done.
    pub unsafe fn launch(&mut self, stream: &CudaStream, on: Addresses) -> Result<()> {
        self.cublaslt.gpu.enter()?;
        self.set_beside(on.beside as u64)?;
        let (alpha, beta) = (1f32, if on.c.is_null() { 0f32 } else { 1f32 });
        let c = if on.c.is_null() { on.d.cast_const() } else { on.c };
        let [a, b, d] = self.layouts;
        // SAFETY: descriptors and handle are alive; the operands belong to an op that the stream runs, and
        // have the shapes and the alignment that the algorithm was chosen for; the factors are read before
        // this returns.
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
                stream.handle().cast(),
            )
        };
        checked(given, "cannot launch")
    }
}

impl Drop for Product {
    fn drop(&mut self) {
        // SAFETY: created by `new`, destroyed once.
        unsafe {
            let _ = lt::destroy_matmul_desc(self.product);
            for layout in self.layouts {
                let _ = lt::destroy_matrix_layout(layout);
            }
        }
    }
}
