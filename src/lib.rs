//! The kernels, the tape and the runtime of `tgnn`, which trains temporal graph neural networks (TGNNs),
//! fast, on CPUs and on CUDA devices.
//!
//! This package is the lowest of a workspace. What is built on it:
//!
//! | package | what it is |
//! | --- | --- |
//! | `tgnn` | this one: operations, programs, devices |
//! | `tgnn-data` | event streams, snapshots, features; readers of the common formats |
//! | `tgnn-training` | models, plans, and the tasks that train and test them |
//! | `tgnn-lab` | how fast the kernels are, and beside what |
//! | `tgnn-bench` | the program |
//!
//! See the README in the [repository](https://github.com/tgnn/tgnn), which also has the files `docs/*.md` that these
//! pages name.
//!
//! # Modules
//!
//! A module uses only modules above it in this table:
//!
//! | module | what it is |
//! | --- | --- |
//! | [`error`] | one error type: what went wrong, where, and what to do |
//! | [`runtime`] | devices, memory, threads, CUDA streams, vector instructions |
//! | [`ops`] | the operations, one file each: definition, CPU path, CUDA kernel, derivative; the [`Tape`](ops::Tape) |
//! | [`autograd`] | programs: a tape with its memory planned and its nodes on lanes; parameters and optimisers |
//! | [`testing`] | checks of an op: gradients, agreement of backends, determinism |
//!
//! # Where to start
//!
//! | you want to | see |
//! | --- | --- |
//! | train a model on your own events, then score new ones | `tgnn_training::task` |
//! | write a model of event streams | `tgnn_training::model::EventModel`, `crates/training/examples/own_event_model.rs` |
//! | call kernels on your arrays, or on device memory | [`ops`], [`ops::functions`], [`ops::DeviceCall`] |
//! | record ops with gradients, and train your own parameters | [`ops::Tape`], [`autograd::Parameters`] |
//! | write an op with its own CUDA kernel | [`ops::Op`], [`runtime::cuda::CudaModule`], [`testing`] |
//!
//! # Cargo features
//!
//! | feature | adds |
//! | --- | --- |
//! | `cuda` (default) | kernels for GPUs, if the build finds nvcc; devices `cuda`, `cuda:1`, ... |
//! | `emu` | the emulated CUDA device `emu`, for tests; needs a C++ compiler, and not `cuda` |
//!
//! No package is in a registry yet. An engineer who embeds the kernels writes, for example,
//!
//! ```toml
//! [dependencies]
//! tgnn = { git = "https://github.com/tgnn/tgnn" }
//!
//! # Kernels that are not optimised are a hundred times slower: for `cargo run` and `cargo test`, too.
//! [profile.dev.package."*"]
//! opt-level = 3
//! ```
//!
//! # Record ops on a tape
//!
//! ```
//! use tgnn::{autograd::Program, ops::{Backend, Tape}, runtime::*};
//!
//! let mut store = Store::new(Precision::F32);
//! let x = store.values("x", Spec::real(Rows::fixed(2), 3), &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
//! let mut tape = Tape::new(&store);
//! let x = tape.stored(x)?;
//! let y = tape.add(x, x)?;
//! let mut program = Program::new(&tape, &[y], Precision::F32, Backend::Cpu)?;
//! program.run(&mut store)?;
//! assert_eq!(program.read::<f32>(y, &store)?, [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
//! # Ok::<(), tgnn::error::Error>(())
//! ```
//!
//! # Determinism
//!
//! On one build and device, results have the same bits in every run, whatever the number of threads, and the
//! order in which lanes and thread blocks happen to execute. What training adds is in `tgnn_training`.
#![deny(missing_docs)]
pub mod autograd;
pub mod error;
pub mod ops;
pub mod runtime;
pub mod testing;
