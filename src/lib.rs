//! `tgnn` trains temporal graph neural networks (TGNNs), fast, on CPUs and on CUDA devices.
//!
//! It is used in three ways:
//!
//! - **As a program**: `tgnn-bench` trains, evaluates and measures models. See the README in the
//!   [repository](https://github.com/tgnn/tgnn), which also has the files `docs/*.md` that these pages name.
//! - **As a library**, for its models and tasks or for its kernels alone; the examples below show both.
//! - **As a profiling harness**: every op is a named range for Nsight Systems, and `tgnn-bench kernels` times
//!   each of them.
//!
//! # Layers
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
//! | [`data`] | event streams, snapshots, features; readers of the common formats |
//! | [`model`] | TGN, JODIE, DyRep, APAN, TGAT, GraphMixer; WD-GCN, T-GCN, EvolveGCN |
//! | [`plan`] | how the stages of training steps overlap, as data; timelines and a simulator; partitions of node memory |
//! | [`task`] | training, evaluation, checkpoints, online prediction |
//! | [`cli`] | the program `tgnn-bench` |
//!
//! # Where to start
//!
//! | you want to | see |
//! | --- | --- |
//! | train a model on your own events, then score new ones | [`data::Events::new`], [`task::train`], [`task::Predictor`] |
//! | write a model of event streams | [`model::EventModel`], [`task::CustomModel`], `examples/own_event_model.rs` |
//! | call kernels on your arrays, or on device memory | [`ops`], [`ops::functions`], [`ops::DeviceCall`] |
//! | record ops with gradients, and train your own parameters | [`ops::Tape`], [`autograd::Parameters`] |
//! | write an op with its own CUDA kernel | [`ops::Op`], [`runtime::cuda::CudaModule`], [`testing`] |
//!
//! # Cargo features
//!
//! Without any feature, the crate is its kernels: the first five modules of the table, and about a quarter of
//! the packages.
//!
//! | feature | adds |
//! | --- | --- |
//! | `cuda` (default) | kernels for GPUs, if the build finds nvcc; devices `cuda`, `cuda:1`, ... |
//! | `emu` | the emulated CUDA device `emu`, for tests; needs a C++ compiler, and not `cuda` |
//! | `training` | the modules [`data`], [`model`], [`plan`] and [`task`] |
//! | `formats` | `training`, and reading Parquet, Arrow, tar, gzip, zstd, PyTorch's `.pt`, TGL's YAML, and the bundled data set; needs a C compiler, for zstd |
//! | `metis` | `training`, and partitions of node memory by METIS; needs a C compiler |
//! | `cli` (default) | `formats`, and the program `tgnn-bench` |
//!
//! The crate is in no registry yet. An engineer who embeds the kernels writes, for example,
//!
//! ```toml
//! [dependencies]
//! tgnn = { git = "https://github.com/tgnn/tgnn", default-features = false, features = ["cuda"] }
//!
//! # Kernels that are not optimised are a hundred times slower: for `cargo run` and `cargo test`, too.
//! [profile.dev.package."*"]
//! opt-level = 3
//! ```
//!
//! # Train a model
//!
//! ```
//! use tgnn::{
//!     data::{SynthOptions, synth},
//!     runtime::Device,
//!     task::{Config, RunOptions, train},
//! };
//!
//! let events = synth(&SynthOptions { events: 2_000, ..SynthOptions::default() })?;
//! let config = Config { epochs: 1, ..Config::default() };
//! let summary = train(&config, &events, &Device::cpu(1)?, &RunOptions::default(), &mut ())?;
//! let test = summary.test.expect("the run evaluates");
//! assert!(test.transductive.ap.is_some_and(|ap| ap > 0.5));
//! # Ok::<(), tgnn::error::Error>(())
//! ```
//!
//! # Record ops on a tape
//!
//! ```
//! use tgnn::{autograd::Program, ops::{Backend, Tape}, runtime::*};
//!
//! let mut store = Store::new(Precision::F32);
//! let x = store.values("x", Spec::real(Rows::fixed(2), 3), &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
//! let mut tape = Tape::new();
//! let x = tape.stored(&store, x)?;
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
//! order in which lanes and thread blocks happen to execute. They do not depend on the [plan](plan::Plan)
//! either, unless it exchanges layers, lets steps read older state, or trains several batches at the same
//! time; plans that go by measured times in what they compute (`blad`, `mspipe`) may differ from run to run.
#![deny(missing_docs)]
// Without some features, links to their items have no target; the documentation is checked with all of them.
#![cfg_attr(not(feature = "cli"), allow(rustdoc::broken_intra_doc_links))]
pub mod autograd;
#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "training")]
pub mod data;
pub mod error;
#[cfg(feature = "training")]
pub mod model;
pub mod ops;
#[cfg(feature = "training")]
pub mod plan;
pub mod runtime;
#[cfg(feature = "training")]
pub mod task;
pub mod testing;
