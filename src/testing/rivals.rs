//! Rivals: other code for an op's work, on the same operands, against which `tgnn-bench kernels` holds the op.
use crate::{
    error::ensure,
    ops::{Case, spmm},
    runtime::cuda::{
        Gpu, Grid, Launch, Rival,
        cublaslt::{Addresses, Beside, CublasLt, Exactness, Product, Shape},
        cusparse::{Algorithm, Csr, Cusparse, SparseProduct},
    },
};
use std::{
    ptr::null,
    sync::{Arc, Mutex, PoisonError},
};

/// What rivals need of a device, made once.
pub struct Rivals {
    cublaslt: Result<Arc<CublasLt>, String>,
    cusparse: Result<Arc<Cusparse>, String>,
}

/// A rival, or which one is not there and why.
pub type Found = Result<Rival, String>;

/// Where the operands of an op's product are.
type Find = fn(&Launch<'_>) -> Addresses;

impl Rivals {
    /// Opens the libraries that there are.
    pub fn of(gpu: &Gpu) -> Self {
        Rivals {
            cublaslt: CublasLt::open(gpu).map_err(|e| format!("cublasLt f32 and tf32: {e}")),
            cusparse: Cusparse::open(gpu).map_err(|e| format!("cusparse: {e}")),
        }
    }
    /// The rivals of the ops that `case` runs, forward and backward.
    pub fn on(&self, case: &Case) -> Vec<Found> {
        match (case.op, case.dims) {
            ("scatter_add_rows", _) => vec![Ok(atomic())],
            ("linear", &[n, k, m, activation, both, 0]) if n * k * m > 0 => match &self.cublaslt {
                Ok(library) => products(library, [n, k, m], activation, both == 1),
                Err(why) => vec![Err(why.clone())],
            },
            // It adds no bias, knows no activation and reads f32; the product of the transpose would be another matrix.
            ("spmm", &[v, d, _, 0, 0, ..]) if v * d > 0 => match &self.cusparse {
                Ok(library) => sparse_products(library, case),
                Err(why) => vec![Err(why.clone())],
            },
            _ => Vec::new(),
        }
    }
}

/// Adds rows by atomics, onto zeros.
fn atomic() -> Rival {
    Rival::new("scatter_add_rows", "atomics", |k, on| {
        let (d, rows) = (on.cols(0), on.out_rows(0));
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe { k.scatter_add_rows_zero(on, Grid::items(on.out_cap(0) * d as usize), on.out(0), rows, d) }?;
        let grid = Grid::warps(on.capacity(0));
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe {
            k.scatter_add_rows_atomic(
                on,
                grid,
                on.input(0),
                on.input(1),
                on.out(0),
                on.rows(0),
                rows,
                d,
                on.status(),
            )
        }
    })
}

/// The three products of `linear` and its backward by cuBLASLt, on as many rows as are live: exact, and in TF32.
fn products(library: &Arc<CublasLt>, [n, k, m]: [usize; 3], activation: usize, both: bool) -> Vec<Found> {
    let shape = |rows, cols, depth, transposed| Shape { rows, cols, depth, transposed };
    let (relu, sums) = (activation == 1, if both { Beside::SumsOfA } else { Beside::Nothing });
    let forward = match (both, relu) {
        (true, true) => Beside::BiasRelu,
        (true, false) => Beside::Bias,
        (false, true) => Beside::Relu,
        (false, false) => Beside::Nothing,
    };
    let mut wanted: Vec<(&'static str, Shape, Beside, Find)> = vec![
        ("linear_input_grad", shape(n, k, m, (false, false)), Beside::Nothing, |on| Addresses {
            a: on.input(0),
            b: on.input(1),
            c: null(),
            d: on.out(0),
            beside: null(),
        }),
        ("linear_weight_grad", shape(m, k, n, (true, false)), sums, |on| Addresses {
            a: on.input(0),
            b: on.input(1),
            c: null(),
            d: on.out(0),
            beside: on.out(1),
        }),
    ];
    // It knows no other activation.
    if activation < 2 {
        wanted.push(("linear", shape(n, m, k, (false, true)), forward, |on| Addresses {
            a: on.input(0),
            b: on.input(1),
            c: if on.inputs() > 3 { on.input(3) } else { null() },
            d: on.out(0),
            beside: if on.inputs() > 2 { on.input(2) } else { null() },
        }));
    }
    let by = |(op, shape, beside, find): (&'static str, Shape, Beside, Find), name, exactness| {
        let product = Product::new(library, shape, beside, exactness);
        let product = Mutex::new(product.map_err(|e| format!("{name} for {op}: {e}"))?);
        Ok(Rival::new(op, name, move |_, on| {
            let Shape { rows, cols, depth, .. } = shape;
            let fits = (on.out_cap(0), on.out_cols(0) as usize) == (rows, cols)
                && [on.spec(0).len(), on.spec(1).len()] == [rows * depth, cols * depth];
            ensure!(op, fits, "{name} was made for another shape");
            let mut product = product.lock().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: the operands have the shape that the product was made for.
            unsafe { product.launch(on.stream, find(on)) }
        }))
    };
    wanted
        .into_iter()
        .flat_map(|p| [by(p, "cublasLt f32", Exactness::F32), by(p, "cublasLt tf32", Exactness::Tf32)])
        .collect()
}

/// The product of `spmm` by cuSPARSE, its matrix analysed and its buffer allocated before: in any order, and in a fixed one.
fn sparse_products(library: &Arc<Cusparse>, case: &Case) -> Vec<Found> {
    let fits = (case.dims[0], case.dims[1]);
    let by = |name, algorithm| {
        let product = spmm::matrix_of(case).and_then(|(starts, cols, values)| {
            SparseProduct::new(
                library,
                &Csr { starts: &starts, cols: &cols, values: &values },
                case.dims[1],
                algorithm,
            )
        });
        let product = Mutex::new(product.map_err(|e| format!("{name} for spmm: {e}"))?);
        Ok(Rival::new("spmm", name, move |_, on| {
            ensure!(
                "spmm",
                (on.out_cap(0), on.cols(0) as usize) == fits,
                "{name} was made for another matrix"
            );
            let mut product = product.lock().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: as above.
            unsafe { product.launch(on.stream, on.input(0), on.out(0)) }
        }))
    };
    vec![by("cusparse", Algorithm::ByRows), by("cusparse deterministic", Algorithm::Deterministic)]
}
