//! The operands of a running op.
use super::{
    spec::{DType, Element, NONE, Precision, Real, Rows, Spec},
    status::{Fault, Status},
};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// One operand of a running op: its address, its shape and its number of live rows.
#[derive(Clone, Copy, Debug)]
pub struct BufferView {
    /// Address of row 0.
    pub ptr: *mut u8,
    /// Shape and type.
    pub spec: Spec,
    /// Number of live rows.
    pub rows: usize,
    /// Whether any other op, or the caller, reads it.
    pub wanted: bool,
}

/// The operands of a running op: inputs, outputs, state and scratch. An `Io` cannot allocate or synchronise.
///
/// Slices cover the live rows. If the op itself computes the live count of an output, the slice of that
/// output covers the output's whole capacity.
///
/// Access to a missing operand, with another element type than the operand has in the program's precision, or
/// a second time to a writable operand panics: these are mistakes of the op's author.
#[derive(Debug)]
pub struct Io<'a> {
    ins: &'a [BufferView],
    outs: &'a [BufferView],
    scratch: (*mut u8, usize),
    precision: Precision,
    status: &'a Status,
    writes: &'a [usize],
    /// Bits of the states (first words), outputs and scratch (last word) that were handed out.
    taken: [AtomicU64; WORDS],
}

const WORDS: usize = 9;

impl<'a> Io<'a> {
    /// Maximum number of inputs of an op.
    pub const MOST_INPUTS: usize = 64 * (WORDS - 1);
    /// Maximum number of outputs of an op.
    pub const MOST_OUTPUTS: usize = 63;

    /// Returns the operands for one run of an op in a program of `precision`.
    ///
    /// # Safety
    /// For the lifetime `'a`, every buffer view must point to `spec.len()` aligned elements of that
    /// precision, initialised or zeroed, of which at least `rows * spec.cols` exist. `outs`, `scratch`
    /// (address and bytes) and the inputs named by `writes` must overlap nothing else, and no other code may
    /// read or write them.
    pub(crate) unsafe fn new(
        ins: &'a [BufferView],
        outs: &'a [BufferView],
        scratch: (*mut u8, usize),
        precision: Precision,
        writes: &'a [usize],
        status: &'a Status,
    ) -> Self {
        Io { ins, outs, scratch, precision, status, writes, taken: Default::default() }
    }

    /// Returns the live rows of input `i`.
    ///
    /// # Panics
    /// If the element type is another one, or the input is state that this op writes.
    pub fn input<T: Element>(&self, i: usize) -> &'a [T] {
        assert!(!self.writes.contains(&i), "input {i} is written by this op: use `state`");
        let view = &self.ins[i];
        self.check::<T>(view, "input", i);
        // SAFETY: the caller of `new` guarantees `capacity * cols` elements, of which at most `capacity` rows
        // are live, and nothing writes an input that is not state.
        unsafe { std::slice::from_raw_parts(view.ptr.cast(), view.rows * view.spec.cols) }
    }
    /// Returns all rows of input `i`, which this op changes in place. May be called once per run.
    ///
    /// # Panics
    /// If `writes` does not name the input, the element type is another one, or this is a second call.
    pub fn state<T: Element>(&self, i: usize) -> &'a mut [T] {
        assert!(self.writes.contains(&i), "input {i} is not declared as written");
        self.take(i);
        let view = &self.ins[i];
        self.check::<T>(view, "state", i);
        // SAFETY: the input is declared as written, so the caller of `new` guarantees that it is exclusive;
        // `take` allows one access.
        unsafe { std::slice::from_raw_parts_mut(view.ptr.cast(), view.spec.len()) }
    }
    /// Returns the live rows of output `k`, to be written. May be called once per run.
    ///
    /// # Panics
    /// If the element type is another one, or this is a second call.
    pub fn out<T: Element>(&self, k: usize) -> &'a mut [T] {
        self.take(Self::MOST_INPUTS + k);
        let view = &self.outs[k];
        self.check::<T>(view, "output", k);
        // SAFETY: the caller of `new` guarantees that outputs are exclusive; `take` allows one access to
        // each.
        unsafe { std::slice::from_raw_parts_mut(view.ptr.cast(), view.rows * view.spec.cols) }
    }
    /// Returns whether output `k` is read. The fast paths may leave an unread output unwritten, such as the
    /// gradient of a value that is not learned; the definition writes every output.
    pub fn wanted(&self, k: usize) -> bool {
        self.outs[k].wanted
    }
    /// Returns the scratch that the op declared, as real numbers with arbitrary content. May be called once
    /// per run.
    ///
    /// # Panics
    /// If `R` is not the type of the program's precision, or this is a second call.
    pub fn scratch<R: Real>(&self) -> &'a mut [R] {
        assert_eq!(R::PRECISION, self.precision, "real type of the scratch");
        self.take(Self::MOST_INPUTS + Self::MOST_OUTPUTS);
        // SAFETY: the caller of `new` guarantees that the scratch is exclusive, the arena that it is aligned;
        // every bit pattern is a float.
        unsafe { std::slice::from_raw_parts_mut(self.scratch.0.cast(), self.scratch.1 / size_of::<R>()) }
    }
    /// Panics if `T` is not the element type of the operand.
    fn check<T: Element>(&self, view: &BufferView, what: &str, i: usize) {
        let name = std::any::type_name::<T>();
        assert!(
            view.spec.dtype.holds::<T>(self.precision),
            "{what} {i} is {} in a program of {:?}, not {name}",
            view.spec,
            self.precision
        );
    }
    /// Marks a writable operand as handed out; panics the second time.
    fn take(&self, bit: usize) {
        let mask = 1u64 << (bit % 64);
        assert_eq!(
            self.taken[bit / 64].fetch_or(mask, Relaxed) & mask,
            0,
            "a writable operand may be taken once per run"
        );
    }
    /// Returns the live rows of input `i` if they are u32 and this op does not change them.
    pub(crate) fn ids(&self, i: usize) -> Option<&'a [u32]> {
        let readable = self.ins[i].spec.dtype == DType::U32 && !self.writes.contains(&i);
        readable.then(|| self.input(i))
    }
    /// Returns the number of inputs.
    pub fn inputs(&self) -> usize {
        self.ins.len()
    }
    /// Returns the number of outputs.
    pub fn outputs(&self) -> usize {
        self.outs.len()
    }
    /// Returns the number of live rows of input `i`.
    pub fn rows(&self, i: usize) -> usize {
        self.ins[i].rows
    }
    /// Returns the number of live rows in `rows`; its live count, if it has one, is input `count`.
    pub fn live_rows(&self, rows: Rows, count: usize) -> usize {
        rows.live.map_or(rows.capacity, |live| {
            (self.input::<u32>(count)[0] as usize).saturating_mul(live.times).min(rows.capacity)
        })
    }
    /// Returns the width of input `i`.
    pub fn cols(&self, i: usize) -> usize {
        self.ins[i].spec.cols
    }
    /// Returns the number of live rows of output `k`, or its capacity if this op computes the count.
    pub fn out_rows(&self, k: usize) -> usize {
        self.outs[k].rows
    }
    /// Returns the width of output `k`.
    pub fn out_cols(&self, k: usize) -> usize {
        self.outs[k].spec.cols
    }
    /// Returns the shape and type of input `i`.
    pub fn spec(&self, i: usize) -> Spec {
        self.ins[i].spec
    }
    /// Records that `row` is invalid.
    pub fn fault(&self, row: usize, fault: Fault) {
        self.status.fault(row, fault);
    }
    /// Writes `loss`, of the rows of input 0, to output 0. A loss that is not finite is a fault of the first
    /// row that is not.
    pub(crate) fn write_loss<R: Real>(&self, loss: R) {
        if !loss.f64().is_finite() {
            let first = self.input::<R>(0).iter().position(|x| !x.f64().is_finite());
            self.fault(first.unwrap_or(0) / self.cols(0), Fault::NotFinite(loss.f64() as f32));
        }
        self.out::<R>(0)[0] = loss;
    }
    /// Records that the op failed, with the error that the run shall return.
    pub(crate) fn fail(&self, e: crate::error::Error) {
        self.status.fail(e);
    }
    /// Returns the live rows of input `i`, of any type, as bytes.
    ///
    /// # Panics
    /// If the input is state that this op writes.
    pub(crate) fn input_bytes(&self, i: usize) -> &'a [u8] {
        assert!(!self.writes.contains(&i), "input {i} is written by this op: use `state`");
        let view = &self.ins[i];
        // SAFETY: as `input`; every byte of an element is initialised.
        unsafe { std::slice::from_raw_parts(view.ptr, view.rows * self.row_bytes(&view.spec)) }
    }
    /// Returns the live rows of output `k`, of any type, as bytes to be written. May be called once per run.
    ///
    /// # Panics
    /// If this is a second call.
    pub(crate) fn out_bytes(&self, k: usize) -> &'a mut [u8] {
        self.take(Self::MOST_INPUTS + k);
        let view = &self.outs[k];
        // SAFETY: as `out`; every bit pattern is an element.
        unsafe { std::slice::from_raw_parts_mut(view.ptr, view.rows * self.row_bytes(&view.spec)) }
    }
    /// Returns the bytes of a row.
    pub(crate) fn row_bytes(&self, spec: &Spec) -> usize {
        spec.cols * spec.dtype.size(self.precision)
    }
    /// Returns `index` as a row of a table of `rows` rows, or `None` if it is [`NONE`]. Any other index
    /// outside the table is recorded as a fault of row `at` and gives `None`.
    pub fn row_of(&self, at: usize, index: u32, rows: usize) -> Option<usize> {
        let row = index as usize;
        if row < rows {
            return Some(row);
        }
        if index != NONE {
            self.fault(at, Fault::OutOfRange(index));
        }
        None
    }
}

// SAFETY: the slices it hands out are exclusive (each once, marked atomically) or read-only; `Status` is
// atomic.
unsafe impl Sync for Io<'_> {}
