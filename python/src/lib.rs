//! The native part of the Python package `tgnn`. It is private: the package in `python/tgnn` turns what users
//! give into what these functions take, and is documented in docs/python.md.
mod arrays;
mod device_ops;
mod error;
mod events;
mod keys;
mod ops;
mod predictor;
mod train;

/// The module `tgnn._tgnn`.
#[pyo3::pymodule]
mod _tgnn {
    #[pymodule_export]
    use crate::{
        arrays::Buffer,
        device_ops::{Gpu, Op},
        events::{Stream, load, of_columns, of_run},
        ops::{
            Csr, EventLists, Updated, gru_memory, gru_memory_grad, temporal_attention,
            temporal_attention_grad,
        },
        predictor::{Predictor, embed},
        train::train,
    };
}
