//! The rivals of each op, from the libraries that are installed.
use crate::{
    cublaslt::{Addresses, Beside, CublasLt, Exactness, Product, Shape},
    cusparse::{Algorithm, Csr, Cusparse, SparseProduct},
    rival::Rival,
};
use std::{
    fs,
    iter::{empty, once},
    ptr::null,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};
use tgnn::{
    ensure,
    error::{Error, Result},
    ops::{Case, spmm},
    runtime::{
        brief_debug,
        cuda::{CudaKernel, CudaModule, Gpu, Grid, Launch},
    },
};

/// The source of a kernel, which is compiled when it is wanted.
const ATOMIC: &str = include_str!("../kernels/scatter_add_rows_atomic.cu");

/// The libraries of rivals, opened once for a device.
pub struct Rivals {
    /// cuBLASLt, or why it cannot be used.
    cublaslt: Result<Arc<CublasLt>, String>,
    /// Why cuSPARSE cannot be used, if it cannot.
    cusparse: Result<(), String>,
    gpu: Gpu,
    /// The kernel by atomics, or why it cannot be compiled: it takes seconds, so only when it is wanted.
    atomic: OnceLock<Result<Arc<CudaKernel>, String>>,
}

brief_debug!(Rivals, r => { cublaslt: r.cublaslt.is_ok(), cusparse: r.cusparse.is_ok() });

/// A rival, or the name of a missing one and the reason.
pub type Found = Result<Rival, String>;

/// Returns the addresses of the operands of an op's product.
type Find = fn(&Launch<'_>) -> Addresses;

impl Rivals {
    /// Opens the libraries that are installed.
    pub fn new(gpu: &Gpu) -> Self {
        Rivals {
            cublaslt: CublasLt::open(gpu).map_err(|e| format!("cublasLt f32 and tf32: {e}")),
            cusparse: Cusparse::open(gpu).map(drop).map_err(|e| format!("cusparse: {e}")),
            gpu: gpu.clone(),
            atomic: OnceLock::new(),
        }
    }
    /// Returns the rivals of the ops that `case` runs, forward and backward. Each is prepared when it is its
    /// turn.
    pub fn on<'a>(&'a self, case: &'a Case) -> Box<dyn Iterator<Item = Found> + 'a> {
        let missing = |why: &String| -> Box<dyn Iterator<Item = Found>> { Box::new(once(Err(why.clone()))) };
        match (case.op, case.dims) {
            ("scatter_add_rows", _) => match self.atomic() {
                Ok(kernel) => Box::new(once(Ok(atomic(kernel.clone())))),
                Err(why) => missing(why),
            },
            ("linear", &[n, k, m, activation, bias_and_residual, 0]) if n * k * m > 0 => match &self.cublaslt
            {
                Ok(library) => Box::new(products(library, [n, k, m], activation, bias_and_residual == 1)),
                Err(why) => missing(why),
            },
            // cuSPARSE adds no bias, has no activation and reads f32 only. The backward pass has no rival,
            // because its matrix is another one, the transpose.
            ("spmm", &[v, d, _, 0, 0, ..]) if v * d > 0 => match &self.cusparse {
                Ok(()) => Box::new(sparse_products(&self.gpu, case)),
                Err(why) => missing(why),
            },
            _ => Box::new(empty()),
        }
    }
    fn atomic(&self) -> &Result<Arc<CudaKernel>, String> {
        let compiled = || atomic_kernel(&self.gpu).map(Arc::new).map_err(|e| format!("atomics: {e}"));
        self.atomic.get_or_init(compiled)
    }
}

/// Compiles the kernel by atomics for a device.
fn atomic_kernel(gpu: &Gpu) -> Result<CudaKernel> {
    let failed = |e| Error::io(std::env::temp_dir(), "cannot write", e);
    let folder = tempfile::tempdir().map_err(failed)?;
    let file = folder.path().join("scatter_add_rows_atomic.cu");
    fs::write(&file, ATOMIC).map_err(failed)?;
    // SAFETY: the file is our own, and has this kernel.
    unsafe { CudaModule::compile(gpu, &file, &["scatter_add_rows_atomic"]) }?
        .kernel("scatter_add_rows_atomic")
}

/// Returns the rival of `scatter_add_rows` that adds rows by atomics, onto zeros.
fn atomic(kernel: Arc<CudaKernel>) -> Rival {
    Rival::new("scatter_add_rows", "atomics", move |on| {
        on.clear(0)?;
        let (mut src, mut index, mut out) = (on.input::<f32>(0), on.input::<u32>(1), on.out::<f32>(0));
        let (mut from, mut rows, mut d, mut status) = (on.rows(0), on.out_rows(0), on.cols(0), on.status());
        let arguments = &mut [
            (&raw mut src).cast(),
            (&raw mut index).cast(),
            (&raw mut out).cast(),
            (&raw mut from).cast(),
            (&raw mut rows).cast(),
            (&raw mut d).cast(),
            (&raw mut status).cast(),
        ];
        // SAFETY: `infer` checked the shapes; the arguments are those of the kernel, of the operands.
        unsafe { kernel.launch(on, Grid::warps(on.capacity(0)), arguments) }
    })
}

/// Inputs of `linear` by position.
const X: usize = 0;
const WEIGHT: usize = 1;
const BIAS: usize = 2;
const RESIDUAL: usize = 3;

/// One of the products of `linear` and its backward pass.
struct Wanted {
    op: &'static str,
    shape: Shape,
    beside: Beside,
    find: Find,
}

/// Returns the rivals of `linear` and its backward pass by cuBLASLt, on the live rows, in f32 and in TF32.
fn products(
    library: &Arc<CublasLt>,
    sizes: [usize; 3],
    activation: usize,
    bias_and_residual: bool,
) -> impl Iterator<Item = Found> {
    const EXACT: [(&str, Exactness); 2] =
        [("cublasLt f32", Exactness::F32), ("cublasLt tf32", Exactness::Tf32)];
    let wanted = wanted_products(sizes, activation, bias_and_residual).into_iter();
    wanted.flat_map(move |wanted| {
        EXACT.into_iter().map(move |(name, exactness)| product(library, &wanted, name, exactness))
    })
}

/// Returns the products `y = x W^T`, `dx = dz W` and `dW = dz^T x` of a case with `x [n, k]` and `W [m, k]`.
/// The forward product is left out if cuBLASLt does not have its activation.
fn wanted_products([n, k, m]: [usize; 3], activation: usize, bias_and_residual: bool) -> Vec<Wanted> {
    let shape = |rows, cols, depth, transposed| Shape { rows, cols, depth, transposed };
    let (relu, sums) = (activation == 1, if bias_and_residual { Beside::SumsOfA } else { Beside::Nothing });
    let forward = match (bias_and_residual, relu) {
        (true, true) => Beside::BiasRelu,
        (true, false) => Beside::Bias,
        (false, true) => Beside::Relu,
        (false, false) => Beside::Nothing,
    };
    let mut wanted = vec![
        Wanted {
            op: "linear_input_grad",
            shape: shape(n, k, m, (false, false)),
            beside: Beside::Nothing,
            find: |on| Addresses { a: on.input(0), b: on.input(1), c: null(), d: on.out(0), beside: null() },
        },
        Wanted {
            op: "linear_weight_grad",
            shape: shape(m, k, n, (true, false)),
            beside: sums,
            find: |on| Addresses {
                a: on.input(0),
                b: on.input(1),
                c: null(),
                d: on.out(0),
                beside: on.out(1),
            },
        },
    ];
    // cuBLASLt has the identity and relu only.
    if activation < 2 {
        wanted.push(Wanted {
            op: "linear",
            shape: shape(n, m, k, (false, true)),
            beside: forward,
            find: |on| Addresses {
                a: on.input(X),
                b: on.input(WEIGHT),
                c: if on.inputs() > RESIDUAL { on.input(RESIDUAL) } else { null() },
                d: on.out(0),
                beside: if on.inputs() > BIAS { on.input(BIAS) } else { null() },
            },
        });
    }
    wanted
}

/// Returns the rival called `name` for one product.
fn product(library: &Arc<CublasLt>, wanted: &Wanted, name: &'static str, exactness: Exactness) -> Found {
    let &Wanted { op, shape, beside, find } = wanted;
    let product = Product::new(library, shape, beside, exactness);
    let product = Mutex::new(product.map_err(|e| format!("{name} for {op}: {e}"))?);
    Ok(Rival::new(op, name, move |on| {
        let Shape { rows, cols, depth, .. } = shape;
        // Operands may have room for more rows than are live.
        let fits = on.out_cap(0) >= rows
            && on.out_cols(0) as usize == cols
            && on.spec(0).len() >= rows * depth
            && on.spec(1).len() >= cols * depth;
        ensure!(op, fits, "{name} was made for another shape");
        let mut product = product.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the operands have the shape that the product was made for.
        unsafe { product.launch(on.stream(), find(on)) }
    }))
}

/// Returns the rivals of `spmm` by cuSPARSE, with sums in any order and in a fixed one. The matrix is
/// analysed and the buffer allocated beforehand.
fn sparse_products<'a>(gpu: &'a Gpu, case: &'a Case) -> impl Iterator<Item = Found> + 'a {
    [("cusparse", Algorithm::ByRows), ("cusparse deterministic", Algorithm::Deterministic)]
        .into_iter()
        .map(|(name, algorithm)| sparse_product(gpu, case, name, algorithm))
}

/// Returns the rival of `spmm` called `name`.
fn sparse_product(gpu: &Gpu, case: &Case, name: &'static str, algorithm: Algorithm) -> Found {
    let failed = |e| format!("{name} for spmm: {e}");
    let (vertices, width) = (case.dims[0], case.dims[1]);
    let (starts, cols, values) = spmm::matrix_of(case).map_err(failed)?;
    // On an H200, preparing a row of 100,000 entries in 10,000 columns made the device refuse all later work.
    let repeats = starts.windows(2).any(|row| (row[1] - row[0]) as usize > vertices);
    if repeats && algorithm == Algorithm::Deterministic {
        return Err(format!("{name} for {case}: a row has more entries than there are columns"));
    }
    let matrix = Csr { starts: &starts, cols: &cols, values: &values };
    let product = Mutex::new(SparseProduct::new(gpu, &matrix, width, algorithm).map_err(failed)?);
    Ok(Rival::new("spmm", name, move |on| {
        ensure!(
            "spmm",
            (on.out_cap(0), on.cols(0) as usize) == (vertices, width),
            "{name} was made for another matrix"
        );
        let mut product = product.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the operands have the shape that the product was made for.
        unsafe { product.launch(on.stream(), on.input(0), on.out(0)) }
    }))
}
