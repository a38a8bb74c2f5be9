//! The operations, one file each, and what an operation is.
//!
//! **Adding an op is two files and one word**: `src/ops/<op>.rs` with a type that implements [`Op`], its test and bench
//! cases, and a method on [`Tape`] that appends it; `kernels/<op>.cu` with its kernels; and its name in the `ops!` list
//! below. Checks, gradient checks and benches are loops over [`cases`]; nothing else in the crate lists the ops.
//!
//! Dimension letters are fixed: `b` events, `n` rows, `v` nodes, `k` neighbours, `d` width, `h` heads.
mod case;
pub mod epilogue;
pub mod memory_update;
mod tape;

use crate::{
    error::{Error, ErrorKind, Result, ensure},
    runtime::{
        cuda::{Gpu, Grid, Kernels, Launch},
        *,
    },
};
pub use case::{Built, Case, CaseBuilder};
pub use tape::{Home, Node, Section, Tag, Tape};

/// What an op is made of: decides which of two lanes it competes for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpKind {
    /// Sampling, gathers, aggregation: bound by memory.
    Graph,
    /// Dense arithmetic.
    Nn,
    /// Moves rows without computing.
    Copy,
    /// Travels between ranks.
    Comm,
}

/// Compulsory traffic and arithmetic of one run at full row counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Bytes that must be read or written at least once, at f32.
    pub bytes: usize,
    /// Floating-point operations; a multiply-add is two.
    pub flops: usize,
}

impl Cost {
    /// Every operand moved once, and `flops` operations.
    pub fn streaming(ins: &[Spec], outs: &[Spec], flops: usize) -> Self {
        Cost { bytes: ins.iter().chain(outs).map(|s| s.bytes(Precision::F32)).sum(), flops }
    }
}

/// Shape of one output, as [`Op::infer`] gives it.
#[derive(Clone, Copy, Debug)]
pub struct Out {
    /// Shape and type; its live count may be one of an input's.
    pub spec: Spec,
    /// The output of the same op that will hold this one's live count.
    pub counted_by: Option<usize>,
}

impl Out {
    /// An output whose live rows the same op writes to its output `count`.
    pub fn counted_by(spec: Spec, count: usize) -> Self {
        Out { spec, counted_by: Some(count) }
    }
}
impl From<Spec> for Out {
    fn from(spec: Spec) -> Self {
        Out { spec, counted_by: None }
    }
}

/// What the author of an op writes.
pub trait Op: std::fmt::Debug + Send + Sync + 'static {
    /// File, kernel, profiler range, bench id, and the name in error texts.
    const NAME: &'static str;
    /// What it competes for.
    const KIND: OpKind;
    /// Shapes of the outputs. The only place that checks the inputs' shapes and types.
    ///
    /// # Errors
    /// `Shape`, with what was found and what was wanted.
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>>;
    /// Which inputs are state that is changed in place.
    fn writes(&self, _inputs: usize) -> Vec<usize> {
        Vec::new()
    }
    /// Whether its one output is the first elements of its first input, as they lie: its first rows, or all of it in another
    /// shape. A program then lets both lie in one place, and nothing runs.
    fn is_view(&self) -> bool {
        false
    }
    /// Real numbers of scratch it needs; an op never allocates.
    fn scratch(&self, _ins: &[Spec]) -> usize {
        0
    }
    /// Words on a device by which blocks of its kernels find out who is last (`comes_last` in `kernels/common.cuh`): zero
    /// before its first launch, and to be left at zero by each.
    fn tickets(&self, _ins: &[Spec]) -> usize {
        0
    }
    /// Compulsory bytes and operations.
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 0)
    }
    /// The definition, as plain as it can be said. In f64 it is what every test trusts.
    fn define<R: Real>(&self, io: &Io<'_>);
    /// The fast host path; the definition in f32 until someone needs better.
    fn cpu(&self, io: &Io<'_>) {
        self.define::<f32>(io);
    }
    /// Gives its kernels to a device's stream. They read the live rows only, and write every live row of what is wanted.
    ///
    /// # Errors
    /// Device, where the op has no kernel, which is the default, or the driver refuses.
    ///
    /// # Safety
    /// `on` has the operands of a node of this very op, which its [`infer`](Self::infer) accepted.
    unsafe fn launch(&self, _k: &Kernels, _on: &Launch<'_>) -> Result<()> {
        Err(Error::new(ErrorKind::Device, format!("{} has no CUDA kernel", Self::NAME))
            .remedy("use --device cpu"))
    }
    /// Appends the backward of `node` and returns the gradient of each input, `None` where there is none;
    /// `douts` are the gradients of its outputs, at least one of which is there.
    ///
    /// # Errors
    /// `Shape` where the op has no derivative, which is the default.
    fn vjp(&self, _t: &mut Tape, _node: &Node, _douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        Err(Error::shape(Self::NAME, "has no derivative"))
    }
}

/// Who runs an op.
#[derive(Clone, Debug)]
pub enum Backend {
    /// The definitions, in the store's precision: the oracle (f64) and the plain host path (f32).
    Definition,
    /// The fast host path, f32.
    Cpu,
    /// The kernels, on a CUDA device.
    Cuda(Gpu),
}

impl Backend {
    /// Who runs ops fast on `device`.
    pub fn of(device: &Device) -> Self {
        device.gpu().map_or(Backend::Cpu, |gpu| Backend::Cuda(gpu.clone()))
    }
    /// What dense products multiply in.
    pub fn precision(&self) -> MatmulPrecision {
        match self {
            Backend::Cuda(gpu) => gpu.precision(),
            _ => MatmulPrecision::F32,
        }
    }
    /// Whether values must not share memory; see [`Gpu::values_apart`].
    pub(crate) fn keeps_values_apart(&self) -> bool {
        matches!(self, Backend::Cuda(gpu) if gpu.keeps_values_apart())
    }
}

/// What a tape holds. Implemented once, for every [`Op`].
#[allow(missing_docs)] // every method is documented at `Op`
pub trait DynOp: std::fmt::Debug + Send + Sync {
    fn name(&self) -> &'static str;
    fn kind(&self) -> OpKind;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>>;
    fn writes(&self, inputs: usize) -> Vec<usize>;
    fn is_view(&self) -> bool;
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
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        Op::infer(self, ins)
    }
    fn writes(&self, inputs: usize) -> Vec<usize> {
        Op::writes(self, inputs)
    }
    fn is_view(&self) -> bool {
        Op::is_view(self)
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
        // SAFETY: the caller's.
        unsafe { Op::launch(self, k, on) }
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        Op::vjp(self, t, node, douts)
    }
}

macro_rules! ops {
    ($($op:ident),* $(,)?) => {
        $(pub mod $op;)*
        /// The cases of every op; an op without cases does not compile.
        pub fn cases() -> Vec<Case> {
            let mut all = Vec::new();
            $(all.extend($op::CASES.iter().map(|&dims| Case { op: stringify!($op), dims, build: $op::build, inputs: MatmulPrecision::F32 }));)*
            all
        }
        /// What benches run: every op at the sizes of one training step of TGN on the Wikipedia events, batch 600.
        /// Every row is live and every slot in use, so that the declared cost is what a run does.
        pub fn bench_cases() -> Vec<Case> {
            let mut all = Vec::new();
            $(all.extend($op::BENCH.iter().map(|&dims| Case { op: stringify!($op), dims, build: $op::build, inputs: MatmulPrecision::F32 }));)*
            all
        }
    };
}
ops! {
    accumulate, adam, add, append_history, bce_loss, deliver_mails, unique, draw_negatives, draw_non_edges,
    expand_targets, fold_rows, gather_rows, group_roots, group_slots, gru_gates, gru_memory, gru_state,
    head_linear, label_loss, layer_norm, linear, linear_pair, linear_sum, link_decoder, lstm_cell, next_batch, next_group,
    pair_logits, prefix_rows, project_time, read_mails, rnn_memory, root_rows, roots, sample_neighbors,
    scatter_add_rows, spmm, squared_loss, step_items, step_rows, temporal_attention, time_encode, top_rows,
    ungroup_norm, write_memory, write_rows,
}

/// Calls a method for the type that a table of reals is kept in: `R` itself, or one of 16 bits.
macro_rules! by_kept {
    ($dtype:expr, $real:ident, $op:ident.$method:ident($($argument:expr),*)) => {
        match $dtype {
            DType::Bf16 => $op.$method::<$real, half::bf16>($($argument),*),
            DType::F16 => $op.$method::<$real, half::f16>($($argument),*),
            _ => $op.$method::<$real, $real>($($argument),*),
        }
    };
}
use by_kept;

/// Refuses a wrong number of inputs.
fn arity(op: &'static str, ins: &[Spec], want: usize) -> Result<()> {
    ensure!(op, ins.len() == want, "{} inputs, want {want}", ins.len());
    Ok(())
}

/// Refuses a type that is not `want`.
fn typed(op: &'static str, what: &str, spec: &Spec, want: DType) -> Result<()> {
    ensure!(op, spec.dtype == want, "{what} is {spec}, want {want:?}");
    Ok(())
}

/// Refuses what is no table of reals, of 32 or 16 bits.
fn kept_reals(op: &'static str, what: &str, spec: &Spec) -> Result<()> {
    ensure!(op, spec.dtype.widened() == DType::F32, "{what} is {spec}, want reals");
    Ok(())
}

/// Refuses a shape that is not `[rows, cols]`, fixed.
fn shaped(op: &'static str, what: &str, spec: &Spec, rows: usize, cols: usize) -> Result<()> {
    let want = Spec { dtype: spec.dtype, rows: Rows::fixed(rows), cols };
    ensure!(op, *spec == want, "{what} is {spec}, want {want}");
    Ok(())
}

/// Refuses a presence, where input `at` is one, that does not say of each of `rows` whether it is there.
fn presence(op: &'static str, ins: &[Spec], at: Option<usize>, rows: Rows) -> Result<()> {
    let Some(at) = at else { return Ok(()) };
    ensure!(op, ins[at] == Spec::ids(rows, 1), "present is {}, want {}", ins[at], Spec::ids(rows, 1));
    Ok(())
}

/// Pieces of `size` elements of an output that may not be there: then as many `None` as anybody asks for.
fn optional_pieces(out: Option<&mut [f32]>, size: usize) -> impl Iterator<Item = Option<&mut [f32]>> {
    let pieces = out.into_iter().flat_map(move |out| out.chunks_mut(size.max(1)));
    pieces.map(Some).chain(std::iter::repeat_with(|| None))
}

/// The first `n` of `rest`, which keeps the others.
fn split_off<'a, T>(rest: &mut &'a mut [T], n: usize) -> &'a mut [T] {
    let (head, tail) = std::mem::take(rest).split_at_mut(n);
    *rest = tail;
    head
}

/// The most items that kernels count in 32 bits: a step of all their threads beyond these does not wrap.
const MOST_ITEMS: usize = i32::MAX as usize;

/// Refuses more of something than kernels count.
fn countable(op: &'static str, what: &str, n: usize) -> Result<()> {
    ensure!(op, n <= MOST_ITEMS, "{what}: {n}, want at most {MOST_ITEMS}");
    Ok(())
}
