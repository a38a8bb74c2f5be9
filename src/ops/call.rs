//! One run of one op on the caller's own memory, without tape, store or program: [`Call`] on the host,
//! [`DeviceCall`](super::DeviceCall) on a CUDA device.
use super::{Backend, DynOp};
use crate::{
    error::{Error, ErrorKind, Result, ensure},
    runtime::*,
};
use std::cell::OnceCell;

/// The operands of a call, by shape: what is the same on the host and on a device.
pub(super) struct Shapes<'a> {
    pub op: &'a dyn DynOp,
    pub ins: Vec<Spec>,
    /// The inputs that were given as state.
    states: Vec<usize>,
    /// Number of outputs given so far.
    given: usize,
    checked: OnceCell<CallFacts>,
}

/// What the op says of its inputs.
pub(super) struct CallFacts {
    /// Shapes of the outputs; rows that the op itself counts are all of the capacity.
    pub outs: Vec<Spec>,
    pub writes: Vec<usize>,
    /// Size of the scratch, in reals.
    pub scratch: usize,
    /// Number of tickets.
    pub tickets: usize,
}

impl<'a> Shapes<'a> {
    pub fn new(op: &'a dyn DynOp) -> Self {
        Shapes { op, ins: Vec::new(), states: Vec::new(), given: 0, checked: OnceCell::new() }
    }
    /// Adds an input; all inputs come before the first output.
    pub fn input(&mut self, spec: Spec, state: bool) -> Result<()> {
        let (op, at) = (self.op.name(), self.ins.len());
        let late = || format!("{} is given after the shapes were asked for", self.op.input_name(at));
        ensure!(op, self.checked.get().is_none(), "{}", late());
        ensure!(op, at < Io::MOST_INPUTS, "more than {} inputs", Io::MOST_INPUTS);
        spec.check_size(op)?;
        if state {
            self.states.push(at);
        }
        self.ins.push(spec);
        Ok(())
    }
    /// Returns the shape of the next output, and its index.
    pub fn next_output(&mut self) -> Result<(usize, Spec)> {
        let (at, outs) = (self.given, &self.checked()?.outs);
        let Some(&spec) = outs.get(at) else {
            let what = format!("{} outputs, want {}", at + 1, outs.len());
            return Err(Error::shape(self.op.name(), what));
        };
        self.given += 1;
        Ok((at, spec))
    }
    /// Returns what the op says, after checking that all outputs were given.
    pub fn complete(&self) -> Result<&CallFacts> {
        let (checked, given) = (self.checked()?, self.given);
        ensure!(self.op.name(), given == checked.outs.len(), "{given} outputs, want {}", checked.outs.len());
        Ok(checked)
    }
    /// Asks the op once what it makes of its inputs, and checks its answers as a tape does.
    pub fn checked(&self) -> Result<&CallFacts> {
        if let Some(checked) = self.checked.get() {
            return Ok(checked);
        }
        let op = self.op.name();
        let inferred = self.op.infer(&self.ins)?;
        let n = inferred.len();
        ensure!(op, n <= Io::MOST_OUTPUTS, "{n} outputs, at most {}", Io::MOST_OUTPUTS);
        let mut outs = Vec::with_capacity(n);
        for (k, out) in inferred.iter().enumerate() {
            let mut spec = out.spec;
            spec.check_size(op)?;
            if let Some(count) = out.counted_by {
                let is_count =
                    inferred.get(count).is_some_and(|c| c.spec == Spec::count() && c.counted_by.is_none());
                ensure!(op, is_count, "output {k} is counted by output {count}, which is no count");
                spec.rows = Rows::fixed(spec.rows.capacity);
            }
            let known = spec.rows.live.is_none_or(|l| self.ins.iter().any(|i| i.rows.live == Some(l)));
            ensure!(op, known, "the rows of output {k} are counted by no operand of this call");
            outs.push(spec);
        }
        let mut writes = self.op.writes(self.ins.len());
        writes.sort_unstable();
        writes.dedup();
        let named = |of: &[usize]| match of {
            [] => "nothing".to_owned(),
            _ => of.iter().map(|&i| self.op.input_name(i)).collect::<Vec<_>>().join(", "),
        };
        let (given, changed) = (named(&self.states), named(&writes));
        ensure!(op, given == changed, "given as state: {given}, changed by the op: {changed}");
        let scratch = self.op.scratch(&self.ins);
        Spec::real(Rows::fixed(scratch), 1).check_size(op)?;
        let tickets = self.op.tickets(&self.ins);
        Spec::ids(Rows::fixed(tickets), 1).check_size(op)?;
        Ok(self.checked.get_or_init(|| CallFacts { outs, writes, scratch, tickets }))
    }
}

/// An input: bytes that the op reads, or state that it changes.
enum Input<'a> {
    Read(&'a [u8]),
    State(&'a mut [u8]),
}

/// One run of one op on slices of the caller: no tape, no store, no program. It allocates nothing but a few
/// pointers if [`scratch`](Self::scratch) is given and no output is [ignored](Self::ignore).
///
/// Inputs are given in the order of the table at the top of the op's module, with their shape `[rows, cols]`;
/// then outputs, whose shapes the op determines ([`outputs`](Self::outputs)). All rows of an input are live.
/// An output whose rows the op counts itself has its whole capacity, of which the first rows are live; the
/// op's count output says how many.
///
/// ```
/// use tgnn::ops::{Call, pointwise::Add};
/// let (a, b, mut sum) = ([1.0f32, 2.0], [10.0f32, 20.0], [0.0f32; 2]);
/// Call::new(&Add).input(&a, [2, 1])?.input(&b, [2, 1])?.output(&mut sum)?.run()?;
/// assert_eq!(sum, [11.0, 22.0]);
/// // What does not fit is an error:
/// let e = Call::new(&Add).input(&a, [2, 1])?.input(&b, [1, 2])?.outputs().unwrap_err();
/// assert_eq!(e.to_string(), "add: b is F32 [1, 2], want F32 [2, 1] for [n, d], where a is F32 [2, 1]");
/// # Ok::<(), tgnn::error::Error>(())
/// ```
///
/// Every op is a struct in its module. If one has no constructor, a tape makes it: `&*tape.nodes()[0].op`.
pub struct Call<'a> {
    shapes: Shapes<'a>,
    ins: Vec<Input<'a>>,
    /// Memory of the outputs; `None` for those that the caller does not read.
    outs: Vec<Option<&'a mut [u8]>>,
    scratch: Option<&'a mut [f32]>,
}

brief_debug!(Call<'_>, c => { op: c.shapes.op.name(), ins: c.shapes.ins });

impl<'a> Call<'a> {
    /// Creates a call of `op` without operands.
    pub fn new(op: &'a dyn DynOp) -> Self {
        Call { shapes: Shapes::new(op), ins: Vec::new(), outs: Vec::new(), scratch: None }
    }
    /// Adds the next input: `values` row by row, of shape `[rows, cols]`.
    ///
    /// # Errors
    /// `Shape` if there are not `rows * cols` values, they are f64, or an output was given before.
    pub fn input<T: Element>(mut self, values: &'a [T], shape: [usize; 2]) -> Result<Self> {
        self.add_input(values, shape, false)?;
        self.ins.push(Input::Read(bytemuck::cast_slice(values)));
        Ok(self)
    }
    /// Adds the next input, which is state that the op changes in place.
    ///
    /// # Errors
    /// As [`input`](Self::input).
    pub fn state<T: Element>(mut self, values: &'a mut [T], shape: [usize; 2]) -> Result<Self> {
        self.add_input(values, shape, true)?;
        self.ins.push(Input::State(bytemuck::cast_slice_mut(values)));
        Ok(self)
    }
    fn add_input<T: Element>(&mut self, values: &[T], [rows, cols]: [usize; 2], state: bool) -> Result<()> {
        let spec = Spec { dtype: T::DTYPE, rows: Rows::fixed(rows), cols };
        let (op, at) = (self.shapes.op, self.ins.len());
        self.shapes.input(spec, state)?;
        fits(op.name(), || op.input_name(at), spec, values)
    }
    /// Adds the next output. Its previous values are not read; if the run fails, they may have changed.
    ///
    /// # Errors
    /// `Shape` if the op refuses its inputs, or has no such output, or if the output has another length or
    /// type.
    pub fn output<T: Element>(mut self, values: &'a mut [T]) -> Result<Self> {
        let ((at, spec), op) = (self.shapes.next_output()?, self.shapes.op);
        fits(op.name(), || op.output_name(at), spec, values)?;
        self.outs.push(Some(bytemuck::cast_slice_mut(values)));
        Ok(self)
    }
    /// Skips the next output: nobody reads it. The run allocates memory for it, which the op may leave
    /// unwritten.
    ///
    /// # Errors
    /// `Shape` if the op refuses its inputs, or has no such output.
    pub fn ignore(mut self) -> Result<Self> {
        self.shapes.next_output()?;
        self.outs.push(None);
        Ok(self)
    }
    /// Returns the shapes of all outputs, after all inputs were given.
    ///
    /// # Errors
    /// `Shape` if the op refuses its inputs, or changes other inputs than those given as state.
    pub fn outputs(&self) -> Result<&[Spec]> {
        Ok(&self.shapes.checked()?.outs)
    }
    /// Returns the number of reals that the op needs as scratch.
    ///
    /// # Errors
    /// As [`outputs`](Self::outputs).
    pub fn scratch_len(&self) -> Result<usize> {
        Ok(self.shapes.checked()?.scratch)
    }
    /// Gives the op its scratch: at least [`scratch_len`](Self::scratch_len) reals, of any content. Without
    /// it, the run allocates.
    ///
    /// # Errors
    /// `Shape` if the scratch is too short, or as [`outputs`](Self::outputs).
    pub fn scratch(mut self, reals: &'a mut [f32]) -> Result<Self> {
        let (has, needs) = (reals.len(), self.scratch_len()?);
        ensure!(self.shapes.op.name(), has >= needs, "{has} reals of scratch, want {needs}");
        self.scratch = Some(&mut reals[..needs]);
        Ok(self)
    }
    /// Runs the op's fast path on the team of threads that is current here: this thread alone, unless the
    /// caller is inside of [`Device::install`].
    ///
    /// # Errors
    /// `Shape` if outputs are missing; `Data` or `Diverged` if the op meets an index outside of its table or
    /// a number that is not finite, as a program reports it. What the op has written by then stays written.
    pub fn run(self) -> Result<()> {
        let Call { shapes, mut ins, mut outs, scratch } = self;
        let checked = shapes.complete()?;
        let memory = |spec: &Spec| OwnBytes::zeros(spec.bytes(Precision::F32));
        let view = |ptr: *mut u8, spec: Spec, wanted: bool| BufferView {
            ptr,
            spec,
            rows: spec.rows.capacity,
            wanted,
        };
        let in_views = ins.iter_mut().zip(&shapes.ins).map(|(values, &spec)| match values {
            Input::Read(values) => view(values.as_ptr().cast_mut(), spec, true),
            Input::State(values) => view(values.as_mut_ptr(), spec, true),
        });
        let in_views: Vec<BufferView> = in_views.collect();
        // The memory of the outputs that are ignored.
        let mut ignored = Vec::new();
        let mut out_views = Vec::with_capacity(outs.len());
        for (values, &spec) in outs.iter_mut().zip(&checked.outs) {
            out_views.push(match values {
                Some(values) => view(values.as_mut_ptr(), spec, true),
                None => {
                    ignored.push(memory(&spec)?);
                    view(ignored[ignored.len() - 1].address(), spec, false)
                }
            });
        }
        let own_scratch = match scratch {
            Some(_) => None,
            None => Some(memory(&Spec::real(Rows::fixed(checked.scratch), 1))?),
        };
        let scratch = match (scratch, &own_scratch) {
            (Some(given), _) => given.as_mut_ptr().cast(),
            (None, Some(own)) => own.address(),
            (None, None) => std::ptr::null_mut(), // one of the two is there
        };
        let (scratch, status) = ((scratch, checked.scratch * size_of::<f32>()), Status::default());
        // SAFETY: every view has the elements of its spec: `fits` checked the caller's slices, and the rest
        // was allocated for it. Slices given as mutable overlap nothing and stay borrowed until the end of
        // the run; the inputs that the op writes are exactly the mutable ones.
        let io = unsafe { Io::new(&in_views, &out_views, scratch, Precision::F32, &checked.writes, &status) };
        shapes.op.run(&Backend::Cpu, Precision::F32, &io);
        if let Some(e) = status.failure() {
            return Err(e);
        }
        status.take().map_or(Ok(()), |(row, fault)| Err(fault_error(shapes.op, row, fault, Some(&io))))
    }
    /// Runs the op as [`run`](Self::run) does, with `threads` threads (0: one per core). The threads are
    /// started by the first such call, wait for the next one with the same number, and are shared by all
    /// callers of the process; if several callers run at the same time, one of them has the threads.
    ///
    /// # Errors
    /// As `run`; `Device` if the threads cannot be started, `Usage` if there are too many.
    pub fn run_on_threads(self, threads: usize) -> Result<()> {
        Device::shared_cpu(threads)?.install(|| self.run())
    }
}

/// Checks that `values` are the elements of `spec`; `name` returns their name in the error.
fn fits<T: Element>(op: &str, name: impl Fn() -> String, spec: Spec, values: &[T]) -> Result<()> {
    let (n, of) = (values.len(), std::any::type_name::<T>());
    ensure!(op, spec.dtype.holds::<T>(Precision::F32), "{} holds {of}, want {spec}", name());
    ensure!(op, n == spec.len(), "{} has {n} elements, want {} for {spec}", name(), spec.len());
    Ok(())
}

/// Returns the error of an op that reported a fault of `row`. It names the operand at fault if the operands,
/// `io`, are still there, as on the host.
pub(crate) fn fault_error(op: &dyn DynOp, row: u32, fault: Fault, io: Option<&Io<'_>>) -> Error {
    let named = |index| io.map_or_else(String::new, |io| held_by(op, io, row as usize, index));
    let text = |what: String| format!("{}: {}{what}", op.name(), op.row().replace("{}", &row.to_string()));
    match fault {
        Fault::OutOfRange(index) => {
            let what = format!("{} names row {index} of a smaller table", named(index));
            Error::new(ErrorKind::Data, text(what))
        }
        Fault::AboveMost(count) => {
            Error::new(ErrorKind::Data, text(format!(" of `count` is {count}, and there are fewer slots")))
        }
        Fault::NotFinite(value) => Error::new(ErrorKind::Diverged, text(format!(" is {value}")))
            .remedy("lower the learning rate, or look for extreme values among the features"),
    }
}

/// Returns which inputs hold `id` in their row `row`, or else anywhere: ` of` and their names. Nothing if
/// that tells too little.
fn held_by(op: &dyn DynOp, io: &Io<'_>, row: usize, id: u32) -> String {
    let in_row = |i: &usize| {
        let (ids, cols) = (io.ids(*i), io.cols(*i));
        ids.and_then(|ids| ids.get(row * cols..(row + 1) * cols)).is_some_and(|ids| ids.contains(&id))
    };
    let anywhere = |i: &usize| io.ids(*i).is_some_and(|ids| ids.contains(&id));
    let mut holders: Vec<usize> = (0..io.inputs()).filter(in_row).collect();
    if holders.is_empty() {
        holders = (0..io.inputs()).filter(anywhere).collect();
    }
    let names: Vec<String> = holders.iter().map(|&i| format!("`{}`", op.input_name(i))).collect();
    if (1..=2).contains(&names.len()) { format!(" of {}", names.join(" or ")) } else { String::new() }
}
