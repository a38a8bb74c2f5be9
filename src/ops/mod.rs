//! The operations, a file each but for those of [`pointwise`], and the [`Op`] trait that they implement.
//!
//! There are four ways to use them:
//!
//! | you have | use |
//! | --- | --- |
//! | arrays, and one of the main kernels in mind | [`functions`] |
//! | arrays, and any op | [`Call`] |
//! | device memory and a CUDA stream, raw or by DLPack | [`DeviceCall`], [`runtime::cuda`](crate::runtime::cuda) |
//! | several ops, and gradients | a [`Tape`], run by a [`Program`](crate::autograd::Program) |
//!
//! **An op of your own** is a type that implements [`Op`], which has an example. Its kernels are compiled and
//! loaded by a [`CudaModule`](crate::runtime::cuda::CudaModule), whose documentation has a kernel. The module
//! [`testing`](crate::testing) checks its gradient, and its fast paths against its definition.
//!
//! An op of this crate is `src/ops/<folder>/<op>.rs`, `kernels/<op>.cu`, and a word in the `ops!` list of
//! this module; CONTRIBUTING.md walks through one.
//!
//! Dimension letters are fixed: `b` events, `n` rows, `v` nodes, `k` neighbours, `d` width, `h` heads.
//!
//! # What a tape records
//!
//! Each op has a method of [`Tape`]. A model of one's own finds, among others:
//!
//! | for | methods |
//! | --- | --- |
//! | arithmetic, element by element | [`add`](Tape::add), [`sub`](Tape::sub), [`mul`](Tape::mul), [`div`](Tape::div), [`scale`](Tape::scale), [`exp`](Tape::exp), [`log`](Tape::log), [`gelu`](Tape::gelu) |
//! | `act(x W^T + b + r)`; relu, leaky relu, tanh or sigmoid, and dropout | [`linear`](Tape::linear) |
//! | `x1 W1^T + x2 W2^T + b`, in place of joining columns | [`linear_sum`](Tape::linear_sum), or `linear` with a residual |
//! | normalisation | [`layer_norm`](Tape::layer_norm) |
//! | means: of all elements, of every k rows | [`mean`](Tape::mean), [`mean_rows`](Tape::mean_rows) |
//! | rows by index | [`gather_rows`](Tape::gather_rows), [`scatter_add_rows`](Tape::scatter_add_rows), [`write_rows`](Tape::write_rows) |
//! | sparse products | [`spmm_csr`](Tape::spmm_csr), [`spmm`](Tape::spmm) |
//! | recurrent cells | [`gru_gates`](Tape::gru_gates) and [`gru_state`](Tape::gru_state), [`lstm_cell`](Tape::lstm_cell) |
//! | losses | [`bce_loss`](Tape::bce_loss), [`squared_loss`](Tape::squared_loss), [`soft_label_loss`](Tape::soft_label_loss) (cross entropy), [`label_loss`](Tape::label_loss) |
//!
//! There is no broadcasting, no softmax or maximum by itself, and no joining of columns: what is missing is
//! an [op of one's own](Op).
//!
//! # What holds for every op
//!
//! The table at the top of an op's module lists its operands. Unless the module says otherwise:
//!
//! - **Shapes** are `[rows, cols]`, row by row. `[<= n, d]` has memory for n rows, of which a count says how
//!   many are live; an op reads and writes live rows only. Operands that are called *state* are stored
//!   values, changed in place.
//! - **Errors** of shapes, types and options are found when an op is recorded, which then fails with `Shape`.
//!   Errors of numbers are found in a run: what the tables call a *fault* makes the run fail with `Data` (an
//!   index outside of its table) or `Diverged` (a number that is not finite).
//! - **Precision**: f32. Dense products on a CUDA device multiply in the format of the device
//!   ([`MatmulPrecision`]) and add in f32. [`Backend::Definition`] also computes in f64.
//! - **Determinism**: on one backend, a result has the same bits in every run, for any number of threads and
//!   any order of thread blocks. Random draws are functions of a seed and a clock, and are the same on all
//!   backends.
//! - **Gradients**: there is one if the module describes a backward pass. Ids, counts and times have none,
//!   nor has state.
//! - **Sources** are given for what is taken from a paper or from other code.
mod call;
mod case;
mod device_call;
pub mod functions;
pub mod signature;
mod tape;

use crate::{
    error::{Error, ErrorKind, Result, ensure},
    runtime::{
        comm::TrafficKind,
        cuda::{Gpu, Grid, Kernels, Launch, WindowSize},
        *,
    },
};
use std::sync::Arc;

pub use call::Call;
pub(crate) use call::fault_error;
pub use case::{Built, Case, CaseBuilder};
pub use dense::epilogue;
pub use device_call::DeviceCall;
pub use memory::memory_update;
pub use ranks::link::Link;
pub use signature::Sizes;
pub use tape::{Home, Node, Section, Tag, Tape};

/// The resource that bounds an op. Cost models and timelines count `Nn` as arithmetic and every other kind as
/// memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpKind {
    /// Sampling, gathers and aggregation: bound by memory.
    Graph,
    /// Dense arithmetic.
    Nn,
    /// Moves rows without computing.
    Copy,
    /// Communicates between ranks.
    Comm,
}

/// Compulsory memory traffic and arithmetic of one run with all rows live.
///
/// # Examples
/// ```
/// use tgnn::{ops::Cost, runtime::{Rows, Spec}};
/// let x = Spec::real(Rows::fixed(10), 3);
/// assert_eq!(Cost::streaming(&[x], &[x], 30), Cost { bytes: 2 * 10 * 3 * 4, flops: 30 });
/// # Ok::<(), tgnn::error::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Bytes that must be read or written at least once; reals count as f32.
    pub bytes: usize,
    /// Floating-point operations; a multiply-add counts as two.
    pub flops: usize,
}

impl Cost {
    /// Returns the cost of moving every operand once and computing `flops` operations.
    pub fn streaming(ins: &[Spec], outs: &[Spec], flops: usize) -> Self {
        Cost { bytes: ins.iter().chain(outs).map(|s| s.bytes(Precision::F32)).sum(), flops }
    }
}

/// Shape of one output, as returned by [`Op::infer`].
#[derive(Clone, Copy, Debug)]
pub struct Out {
    /// Shape and type; the live row count may be that of an input.
    pub spec: Spec,
    /// Index of the output of the same op that holds this output's live row count, if the op computes the
    /// count.
    pub counted_by: Option<usize>,
}

impl Out {
    /// Returns an output whose live row count the same op writes to its output `count`.
    pub fn counted_by(spec: Spec, count: usize) -> Self {
        Out { spec, counted_by: Some(count) }
    }
}
impl From<Spec> for Out {
    fn from(spec: Spec) -> Self {
        Out { spec, counted_by: None }
    }
}

/// An op as two, which together launch what the whole op launches. Hosts run the whole op.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The op whose inputs are the first `reads` inputs of the whole op, and whose outputs are its outputs
    /// `makes`.
    pub ahead: Arc<dyn DynOp>,
    /// See `ahead`.
    pub reads: usize,
    /// See `ahead`.
    pub makes: &'static [usize],
    /// The op whose inputs are those of the whole op and then the outputs of `ahead`, and whose outputs are
    /// the other outputs of the whole op.
    pub rest: Arc<dyn DynOp>,
}

/// The interface that the author of an op implements.
///
/// # Examples
/// ```
/// use tgnn::{error::Result, ops::*, runtime::*};
///
/// /// `out = 2 x`
/// #[derive(Debug)]
/// struct Double;
/// impl Op for Double {
///     const NAME: &'static str = "double";
///     const KIND: OpKind = OpKind::Nn;
///     const SIGNATURE: &'static str = "x [n, d] -> out [n, d]";
///     fn define<R: Real>(&self, io: &Io<'_>) {
///         for (out, &x) in io.out::<R>(0).iter_mut().zip(io.input::<R>(0)) {
///             *out = x + x;
///         }
///     }
///     fn vjp(&self, t: &mut Tape, _: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
///         Ok(vec![douts[0].map(|d| t.push1(Double, &[d])).transpose()?])
///     }
/// }
///
/// let mut out = [0.0f32; 2];
/// Call::new(&Double).input(&[1.0f32, 2.0], [1, 2])?.output(&mut out)?.run()?;
/// assert_eq!(out, [2.0, 4.0]);
/// # Ok::<(), tgnn::error::Error>(())
/// ```
pub trait Op: Sized + std::fmt::Debug + Send + Sync + 'static {
    /// Name of the op: in profiler ranges, benchmarks and error messages, and usually of its file and kernel.
    const NAME: &'static str;
    /// Resource that bounds the op.
    const KIND: OpKind;
    /// What the op reads and writes, as a [signature]: names, shapes and types of its inputs and
    /// outputs. Without one, the op implements [`infer`](Self::infer) and [`writes`](Self::writes).
    const SIGNATURE: &'static str = "";
    /// What is at fault, as errors call it; `{}` is the row that the fault names.
    const ROW: &'static str = "row {}";
    /// Returns what letters of the signature stand for, if the op itself knows.
    fn sizes(&self) -> Sizes {
        Sizes::new()
    }
    /// Whether an optional operand is there; `None` if the number of inputs tells.
    fn has(&self, _operand: &str) -> Option<bool> {
        None
    }
    /// Checks what a signature cannot state, of inputs that are as the signature states.
    ///
    /// # Errors
    /// `Shape`, with what is found and what is expected.
    fn check(&self, _ins: &[Spec]) -> Result<()> {
        Ok(())
    }
    /// Checks the inputs' shapes and types, and returns those of the outputs, as the signature states them.
    ///
    /// # Errors
    /// `Shape`, with the shape found and the shape expected.
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        let outs = signature::infer(self, ins)?;
        self.check(ins)?;
        Ok(outs)
    }
    /// Returns the indices of the inputs that are state and are changed in place.
    fn writes(&self, inputs: usize) -> Vec<usize> {
        signature::of_op::<Self>().writes(&|operand| self.has(operand), inputs)
    }
    /// Returns what the op exchanges with other ranks; `None` if it does not communicate.
    fn traffic(&self) -> Option<TrafficKind> {
        None
    }
    /// Returns the input without whose rows all results are empty or zero and nothing changes, whatever the
    /// other inputs hold; `None` if there is no such input. A rank that has no batch leaves the op out then.
    fn empty_without(&self) -> Option<usize> {
        None
    }
    /// Returns what the op's kernels need to communicate with other ranks; `None` if they do not.
    fn window(&self, _ins: &[Spec], _outs: &[Spec]) -> Option<WindowSize<'_>> {
        None
    }
    /// Whether an output that is not finite is a fault, as that of a loss is.
    fn reports_infinite(&self) -> bool {
        false
    }
    /// Whether the op's only output consists of the first elements of its first input in the same order: the
    /// first rows, or the whole input in another shape. A program then lets the two share memory and runs
    /// nothing.
    fn is_view(&self) -> bool {
        false
    }
    /// Returns an op, with its inputs, that computes in one pass what this op and the nodes before it compute
    /// ([`Tape::maker`]); `None`, the default, if there is none. [`Tape::push`] appends that op instead. A
    /// program drops the nodes before it unless something else reads their outputs.
    fn fused(&self, _tape: &Tape, _ins: &[Var]) -> Option<(Arc<dyn DynOp>, Vec<Var>)> {
        None
    }
    /// Returns the op as two, the first of which a device can run ahead of the second; `None`, the default,
    /// if it is one.
    fn parts(&self) -> Option<Parts> {
        None
    }
    /// Returns the size of the scratch buffer in reals; an op never allocates.
    fn scratch(&self, _ins: &[Spec]) -> usize {
        0
    }
    /// Returns the number of u32 counters by which the blocks of a kernel find out which of them finishes
    /// last (`comes_last` in `kernels/common.cuh`). They live in device memory, are zero before the first
    /// launch, and every launch must leave them at zero.
    fn tickets(&self, _ins: &[Spec]) -> usize {
        0
    }
    /// Returns the compulsory bytes and operations of a run.
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 0)
    }
    /// Runs the definition: the plainest code that computes the op. In f64 it is the reference of every test.
    fn define<R: Real>(&self, io: &Io<'_>);
    /// Runs the fast host path, in f32. Defaults to the definition.
    fn cpu(&self, io: &Io<'_>) {
        self.define::<f32>(io);
    }
    /// Launches the op's kernels on a CUDA stream. They read only live rows, and write every live row of
    /// every output that is read later.
    ///
    /// # Errors
    /// `Device` if the op has no kernel (the default) or the driver refuses the launch.
    ///
    /// # Safety
    /// `on` must hold the operands of a node of this op whose shapes [`infer`](Self::infer) accepted.
    unsafe fn launch(&self, _k: &Kernels, _on: &Launch<'_>) -> Result<()> {
        Err(Error::new(ErrorKind::Device, format!("{} has no CUDA kernel", Self::NAME))
            .remedy("use --device cpu"))
    }
    /// Appends the backward nodes of `node` and returns the gradient of each input, `None` for inputs without
    /// one. `douts` holds the gradients of the node's outputs; at least one is `Some`.
    ///
    /// # Errors
    /// `Shape` if the op has no derivative (the default).
    fn vjp(&self, _t: &mut Tape, _node: &Node, _douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        Err(Error::shape(Self::NAME, "has no derivative"))
    }
}

/// Implementation that runs the ops.
///
/// # Examples
/// ```
/// use tgnn::{autograd::Program, ops::*, runtime::*};
/// let mut store = Store::new(Precision::F64);
/// let mut tape = Tape::new(&store);
/// let a = tape.input(&mut store, "a", Spec::real(Rows::fixed(1), 1), &[0.5f64])?;
/// let y = tape.exp(a)?;
/// let mut program = Program::new(&tape, &[y], Precision::F64, Backend::Definition)?;
/// program.run(&mut store)?;
/// assert!((program.read::<f64>(y, &store)?[0] - 0.5f64.exp()).abs() < 1e-15);
/// assert!(matches!(Backend::for_device(&Device::cpu(1)?), Backend::Cpu)); // the fast one, in f32
/// # Ok::<(), tgnn::error::Error>(())
/// ```
#[derive(Clone, Debug)]
pub enum Backend {
    /// The definitions, in the store's precision: the test reference (f64) or the plain host path (f32).
    Definition,
    /// The fast host paths, in f32.
    Cpu,
    /// The kernels on a CUDA device.
    Cuda(Gpu),
}

impl Backend {
    /// Returns the fast backend for `device`.
    pub fn for_device(device: &Device) -> Self {
        device.gpu().map_or(Backend::Cpu, |gpu| Backend::Cuda(gpu.clone()))
    }
    /// Returns the format in which dense products multiply.
    pub fn precision(&self) -> MatmulPrecision {
        match self {
            Backend::Cuda(gpu) => gpu.precision(),
            _ => MatmulPrecision::F32,
        }
    }
    /// Whether every value needs an allocation of its own; see [`Gpu::values_apart`].
    pub(crate) fn keeps_values_apart(&self) -> bool {
        matches!(self, Backend::Cuda(gpu) if gpu.keeps_values_apart())
    }
}

/// Object-safe counterpart of [`Op`], of which a tape holds trait objects. Implemented for every [`Op`].
#[allow(missing_docs)] // the methods are documented at `Op`
pub trait DynOp: std::fmt::Debug + Send + Sync {
    fn name(&self) -> &'static str;
    fn kind(&self) -> OpKind;
    /// Returns the name of input `i` in errors.
    fn input_name(&self, i: usize) -> String;
    /// Returns the name of output `k` in errors.
    fn output_name(&self, k: usize) -> String;
    /// Returns what a fault counts by its row.
    fn row(&self) -> &'static str;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>>;
    fn writes(&self, inputs: usize) -> Vec<usize>;
    fn traffic(&self) -> Option<TrafficKind>;
    fn empty_without(&self) -> Option<usize>;
    fn window(&self, ins: &[Spec], outs: &[Spec]) -> Option<WindowSize<'_>>;
    fn reports_infinite(&self) -> bool;
    fn is_view(&self) -> bool;
    fn fused(&self, tape: &Tape, ins: &[Var]) -> Option<(Arc<dyn DynOp>, Vec<Var>)>;
    fn parts(&self) -> Option<Parts>;
    fn scratch(&self, ins: &[Spec]) -> usize;
    fn tickets(&self, ins: &[Spec]) -> usize;
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost;
    fn run(&self, backend: &Backend, precision: Precision, io: &Io<'_>);
    /// # Safety
    /// As [`Op::launch`].
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()>;
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>>;
}

impl<T: Op> DynOp for T {
    fn name(&self) -> &'static str {
        T::NAME
    }
    fn kind(&self) -> OpKind {
        T::KIND
    }
    fn input_name(&self, i: usize) -> String {
        let name = signature::of_op::<T>().input_name(&|operand| self.has(operand), i);
        name.unwrap_or_else(|| format!("input {i}"))
    }
    fn output_name(&self, k: usize) -> String {
        let name = signature::of_op::<T>().output_name(&|operand| self.has(operand), k);
        format!("output {}", name.map_or_else(|| k.to_string(), str::to_owned))
    }
    fn row(&self) -> &'static str {
        T::ROW
    }
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        Op::infer(self, ins)
    }
    fn writes(&self, inputs: usize) -> Vec<usize> {
        Op::writes(self, inputs)
    }
    fn traffic(&self) -> Option<TrafficKind> {
        Op::traffic(self)
    }
    fn empty_without(&self) -> Option<usize> {
        Op::empty_without(self)
    }
    fn window(&self, ins: &[Spec], outs: &[Spec]) -> Option<WindowSize<'_>> {
        Op::window(self, ins, outs)
    }
    fn reports_infinite(&self) -> bool {
        Op::reports_infinite(self)
    }
    fn is_view(&self) -> bool {
        Op::is_view(self)
    }
    fn fused(&self, tape: &Tape, ins: &[Var]) -> Option<(Arc<dyn DynOp>, Vec<Var>)> {
        Op::fused(self, tape, ins)
    }
    fn parts(&self) -> Option<Parts> {
        Op::parts(self)
    }
    fn scratch(&self, ins: &[Spec]) -> usize {
        Op::scratch(self, ins)
    }
    fn tickets(&self, ins: &[Spec]) -> usize {
        Op::tickets(self, ins)
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Op::cost(self, ins, outs)
    }
    fn run(&self, backend: &Backend, precision: Precision, io: &Io<'_>) {
        match (backend, precision) {
            (_, Precision::F64) => self.define::<f64>(io),
            (Backend::Cpu, Precision::F32) => self.cpu(io),
            (_, Precision::F32) => self.define::<f32>(io),
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        // SAFETY: the contract is that of this function.
        unsafe { Op::launch(self, k, on) }
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        Op::vjp(self, t, node, douts)
    }
}

/// Launches a kernel: `launch!(k, on, kernel[grid]; arguments)`. To be used only where the caller of
/// [`Op::launch`] has promised what it asks for.
macro_rules! launch {
    ($k:expr, $on:expr, $kernel:ident[$grid:expr]; $($argument:expr),*) => {
        // SAFETY: `infer` checked the shapes, and the caller of `Op::launch` that the addresses are those of
        // operands, scratch and windows of these shapes.
        unsafe { $k.$kernel($on, $grid, $($argument),*) }
    };
}

/// Returns the position of an input by its name in the signature: `at!(x)` in an op's own code, `at!(Add, x)`
/// elsewhere. Optional inputs before it count as if they were there. A wrong name does not compile.
macro_rules! at {
    ($name:ident) => {
        at!(Self, $name)
    };
    ($op:ty, $name:ident) => {
        const { signature::of_op::<$op>().position(stringify!($name)) }
    };
}

/// Declares the ops by the folders in which their files are, and what the files of a folder share. Those of
/// `pointwise.rs` have no file of their own.
macro_rules! ops {
    ($($folder:ident $(with $($shared:ident),+)?: $($op:ident),*;)* | pointwise: $($each:ident),*;) => {
        $(
            mod $folder {
                use super::*;
                $($(pub mod $shared;)+)?
                $(pub mod $op;)*
            }
            #[doc(inline)]
            pub use $folder::{$($op),*};
        )*
        pub mod pointwise;
        /// Returns the test cases of every op, by their names; an op without cases does not compile.
        pub fn cases() -> Vec<Case> {
            let mut cases = Vec::new();
            $($(cases.extend(cases_of(stringify!($op), $op::CASES, $op::build));)*)*
            $(cases.extend(cases_of(stringify!($each), pointwise::CASES, pointwise::$each));)*
            cases.sort_by_key(|case| case.op);
            cases
        }
        /// Returns the benchmark cases: every op at the sizes of one training step, of TGN on the Wikipedia
        /// events with batch 600, or of a snapshot model on 10,000 vertices. All rows are live and all slots
        /// in use, so that a run does exactly the declared work.
        pub fn bench_cases() -> Vec<Case> {
            let mut cases = Vec::new();
            $($(cases.extend(cases_of(stringify!($op), $op::BENCH, $op::build));)*)*
            $(cases.extend(cases_of(stringify!($each), pointwise::BENCH, pointwise::$each));)*
            cases.sort_by_key(|case| case.op);
            cases
        }
    };
}

ops! {
    sampling: append_history, draw_negatives, draw_non_edges, expand_targets, next_batch, next_group,
        root_rows, roots, sample_neighbors, step_items, step_rows;
    memory with memory_update: append_mails, deliver_mails, gru_memory, mail_sources, project_time,
        read_mails, rnn_memory, unique, write_memory;
    attention: group_roots, group_slots, head_linear, slot_features, temporal_attention, time_encode,
        ungroup_norm;
    graph: spmm, top_rows;
    dense with epilogue: gelu, gru_gates, gru_state, layer_norm, linear, linear_pair, linear_sum, lstm_cell,
        mean, mix_tokens, sum;
    rows: fold_rows, gather_rows, mean_rows, prefix_rows, scatter_add_rows, write_rows;
    loss: bce_loss, guard, label_loss, link_decoder, pair_logits, soft_label_loss, squared_loss;
    optimizer: accumulate, adam, clip_norm, sgd;
    ranks with link, window: all_reduce, batch_roots, exchange_ids, exchange_rows, expire_copies,
        hold_rows, join_rows, keep_marked, latest, least, next_turn, repeated_roots, route, slice_rows,
        split_rows, stale_copies;
    staleness: count_common, count_missed, mix_similar, pick_similar, row_errors;
    | pointwise: add, div, exp, log, mul, scale, sub;
}

/// Returns a case of `op` for each of `sizes`.
fn cases_of(
    op: &'static str,
    sizes: &'static [&'static [usize]],
    build: fn(&mut CaseBuilder, &[usize]) -> Result<Built>,
) -> impl Iterator<Item = Case> {
    let inputs = MatmulPrecision::F32;
    sizes.iter().map(move |&dims| Case { op, dims, build, inputs })
}

/// Calls a method for the storage type of a table of reals: `R` itself, `bf16` or `f16`.
macro_rules! by_storage {
    ($dtype:expr, $real:ident, $op:ident.$method:ident($($argument:expr),*)) => {
        match $dtype {
            DType::Bf16 => $op.$method::<$real, half::bf16>($($argument),*),
            DType::F16 => $op.$method::<$real, half::f16>($($argument),*),
            _ => $op.$method::<$real, $real>($($argument),*),
        }
    };
}
use by_storage;

/// Checks that there are `want` inputs.
///
/// # Errors
/// `Shape` otherwise, as do all checks below.
pub(crate) fn arity(op: &'static str, ins: &[Spec], want: usize) -> Result<()> {
    ensure!(op, ins.len() == want, "{} inputs, want {want}", ins.len());
    Ok(())
}

/// Checks that the element type is `want`; `what` names the value in the error.
///
/// # Errors
/// `Shape` otherwise.
pub(crate) fn typed(op: &'static str, what: &str, spec: &Spec, want: DType) -> Result<()> {
    ensure!(op, spec.dtype == want, "{what} is {spec}, want {want:?}");
    Ok(())
}

/// Checks that the shape is `[rows, cols]` with a fixed row count.
///
/// # Errors
/// `Shape` otherwise.
pub(crate) fn shaped(op: &'static str, what: &str, spec: &Spec, rows: usize, cols: usize) -> Result<()> {
    let want = Spec { dtype: spec.dtype, rows: Rows::fixed(rows), cols };
    ensure!(op, *spec == want, "{what} is {spec}, want {want}");
    Ok(())
}

/// Checks a clock of random draws: epoch, batch, and optionally the number of events of the batch that come
/// before those of this rank, u32 `[1, 2]` or `[1, 3]`.
///
/// # Errors
/// `Shape` otherwise.
pub(crate) fn clock(op: &'static str, now: &Spec) -> Result<()> {
    typed(op, "now", now, DType::U32)?;
    shaped(op, "now", now, 1, now.cols.clamp(2, 3))
}

/// Returns the number of elements of each event, in rows that are counted in events; 0 if they are not
/// counted. Times the number of events before a rank's own, it is the number of the rank's first draw.
fn per_event(rows: Rows, cols: usize) -> usize {
    rows.live.map_or(0, |live| live.times.saturating_mul(cols))
}

/// Returns `per_event` for kernels: 0 if the clock does not say how many events come before.
fn counted_per_event(now: Spec, per_event: usize) -> u32 {
    if now.cols > 2 { per_event as u32 } else { 0 }
}

/// Returns the chunks of `size` elements of an optional output, each in `Some`, followed by endless `None`s.
fn optional_pieces(out: Option<&mut [f32]>, size: usize) -> impl Iterator<Item = Option<&mut [f32]>> {
    let pieces = out.into_iter().flat_map(move |out| out.chunks_mut(size.max(1)));
    pieces.map(Some).chain(std::iter::repeat_with(|| None))
}

/// Removes the first `n` elements from `rest` and returns them.
fn split_off<'a, T>(rest: &mut &'a mut [T], n: usize) -> &'a mut [T] {
    let (head, tail) = std::mem::take(rest).split_at_mut(n);
    *rest = tail;
    head
}

/// Maximum number of items that kernels count in 32 bits: one grid stride beyond it does not wrap around.
pub const MOST_ITEMS: usize = i32::MAX as usize;

/// Checks that `n` is at most [`MOST_ITEMS`]; `what` names the items in the error.
///
/// # Errors
/// `Shape` otherwise.
pub(crate) fn countable(op: &'static str, what: &str, n: usize) -> Result<()> {
    ensure!(op, n <= MOST_ITEMS, "{what}: {n}, want at most {MOST_ITEMS}");
    Ok(())
}

/// Checks that the elements of each input are [`countable`].
///
/// # Errors
/// `Shape` otherwise.
fn all_countable<T: Op>(op: &T, ins: &[Spec]) -> Result<()> {
    match ins.iter().position(|x| x.len() > MOST_ITEMS) {
        Some(i) => countable(T::NAME, &DynOp::input_name(op, i), ins[i].len()),
        None => Ok(()),
    }
}

/// Checks that kernels can hold `n` in 32 bits; `what` names the items in the error.
///
/// # Errors
/// `Shape` otherwise.
fn at_most_u32(op: &'static str, what: &str, n: usize) -> Result<()> {
    ensure!(op, u32::try_from(n).is_ok(), "{n} {what}, want at most {}", u32::MAX);
    Ok(())
}

/// Checks that `x`, which the error calls `what`, has a column.
///
/// # Errors
/// `Shape` otherwise.
fn some_columns(op: &'static str, what: &str, x: &Spec) -> Result<()> {
    ensure!(op, x.cols > 0, "{what} is {x}, want at least one column");
    Ok(())
}
