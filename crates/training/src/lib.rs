#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! | module | what it is |
//! | --- | --- |
//! | [`model`] | TGN, JODIE, DyRep, APAN, TGAT, GraphMixer; WD-GCN, T-GCN, EvolveGCN |
//! | [`plan`] | how the stages of training steps overlap, as data; timelines and a simulator; partitions of node memory |
//! | [`task`] | training, evaluation, checkpoints, online prediction |
//!
//! A module uses only modules above it in this table. The data is that of [`tgnn_data`]; kernels, devices and
//! programs are those of [`tgnn`].
//!
//! | you want to | see |
//! | --- | --- |
//! | train a model on your own events, then score new ones | [`tgnn_data::Events::new`], [`task::train`], [`task::Predictor`] |
//! | write a model of event streams | [`model::EventModel`], [`task::CustomModel`], `crates/training/examples/own_event_model.rs` |
//!
//! # Determinism
//!
//! On one build and device, results have the same bits in every run and with any number of threads, as those
//! of the kernels. They do not depend on the [plan](plan::Plan) either, unless it exchanges layers, lets
//! steps read older state, or trains several batches at the same time; plans that go by measured times in
//! what they compute (`blad`, `mspipe`) may differ from run to run.
#![forbid(unsafe_code)]
pub mod model;
pub mod plan;
pub mod task;
