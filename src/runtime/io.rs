//! What an op sees while it runs.
use super::{
    spec::{Element, NONE, Precision, Real, Rows, Spec},
    status::Status,
};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// One operand of a running op: where it lies and how many of its rows count.
#[derive(Clone, Copy, Debug)]
pub struct BufferView {
    /// Address of row 0.
    pub ptr: *mut u8,
    /// Shape and type.
    pub spec: Spec,
    /// Live rows.
    pub rows: usize,
    /// Whether anybody reads it.
    pub wanted: bool,
}

/// The operands of a running op: inputs, outputs, state and scratch. It has no allocator and cannot synchronise.
///
/// Slices cover the live rows. An output whose live count the same op computes is given with all its room.
///
/// Asking for an operand that is not there, for another element type than the operand has in the program's precision, or
/// twice for what may be written, panics: these are mistakes of the op's author.
pub struct Io<'a> {
    ins: &'a [BufferView],
    outs: &'a [BufferView],
    scratch: (*mut u8, usize),
    precision: Precision,
    status: &'a Status,
    writes: &'a [usize],
    /// Which states (first words), outputs and scratch (last word) were handed out.
    taken: [AtomicU64; WORDS],
}

const WORDS: usize = 9;

impl<'a> Io<'a> {
    /// Most inputs an op may have.
    pub const MOST_INPUTS: usize = 64 * (WORDS - 1);
    /// Most outputs an op may have.
    pub const MOST_OUTPUTS: usize = 63;

    /// Operands for one run of an op in a program of `precision`.
    ///
    /// # Safety
    /// While `'a` lasts, every slot must point to `spec.len()` elements of that precision, initialised or zeroed and aligned,
    /// of which at least `rows * spec.cols` exist; `outs`, `scratch` (address and bytes) and the inputs named by `writes` must
    /// overlap nothing else, and nobody else may read or write them.
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

    /// Input `i`: its live rows.
    ///
    /// # Panics
    /// When the type is another, or the input is state that this op writes.
    pub fn input<T: Element>(&self, i: usize) -> &'a [T] {
        assert!(!self.writes.contains(&i), "input {i} is written: use state");
        let s = &self.ins[i];
        self.check::<T>(s, "input", i);
        // SAFETY: `new` promised `capacity * cols` elements; live rows are at most capacity; nothing mutates a plain input.
        unsafe { std::slice::from_raw_parts(s.ptr.cast(), s.rows * s.spec.cols) }
    }
    /// Input `i`, which this op changes in place: all its rows. Once per run.
    ///
    /// # Panics
    /// When `writes` does not name it, or on a second call.
    pub fn state<T: Element>(&self, i: usize) -> &'a mut [T] {
        assert!(self.writes.contains(&i), "input {i} is not declared as written");
        self.take(i);
        let s = &self.ins[i];
        self.check::<T>(s, "state", i);
        // SAFETY: declared as written, so `new` promised exclusivity; `take` lets it out once.
        unsafe { std::slice::from_raw_parts_mut(s.ptr.cast(), s.spec.len()) }
    }
    /// Output `k`: its live rows, to be written. Once per run.
    ///
    /// # Panics
    /// When the type is another, or on a second call.
    pub fn out<T: Element>(&self, k: usize) -> &'a mut [T] {
        self.take(Self::MOST_INPUTS + k);
        let s = &self.outs[k];
        self.check::<T>(s, "output", k);
        // SAFETY: outputs are exclusive by `new`; `take` lets each out once.
        unsafe { std::slice::from_raw_parts_mut(s.ptr.cast(), s.rows * s.spec.cols) }
    }
    /// Whether anybody reads output `k`. The fast paths may leave another unwritten, such as the gradient of a value
    /// that is not learned; the definition writes all.
    pub fn wanted(&self, k: usize) -> bool {
        self.outs[k].wanted
    }
    /// The scratch the op declared, as reals with arbitrary content. Once per run.
    pub fn scratch<R: Real>(&self) -> &'a mut [R] {
        assert_eq!(R::PRECISION, self.precision, "reals of the scratch");
        self.take(Self::MOST_INPUTS + Self::MOST_OUTPUTS);
        // SAFETY: exclusive by `new`, aligned by the arena; every bit pattern is a float.
        unsafe { std::slice::from_raw_parts_mut(self.scratch.0.cast(), self.scratch.1 / size_of::<R>()) }
    }
    /// Refuses elements of another type than the operand has.
    fn check<T: Element>(&self, s: &BufferView, what: &str, i: usize) {
        let name = std::any::type_name::<T>();
        assert!(
            s.spec.dtype.holds::<T>(self.precision),
            "{what} {i} is {} of {:?}, not {name}",
            s.spec,
            self.precision
        );
    }
    fn take(&self, bit: usize) {
        let mask = 1u64 << (bit % 64);
        assert_eq!(self.taken[bit / 64].fetch_or(mask, Relaxed) & mask, 0, "an operand is taken once a run");
    }
    /// Number of inputs.
    pub fn inputs(&self) -> usize {
        self.ins.len()
    }
    /// Live rows of input `i`.
    pub fn rows(&self, i: usize) -> usize {
        self.ins[i].rows
    }
    /// Live rows of `rows`, whose live count, if any, is input `count`.
    pub fn live_rows(&self, rows: Rows, count: usize) -> usize {
        rows.live.map_or(rows.capacity, |l| {
            (self.input::<u32>(count)[0] as usize).saturating_mul(l.times).min(rows.capacity)
        })
    }
    /// Width of input `i`.
    pub fn cols(&self, i: usize) -> usize {
        self.ins[i].spec.cols
    }
    /// Live rows of output `k` (all its room where this op computes the count).
    pub fn out_rows(&self, k: usize) -> usize {
        self.outs[k].rows
    }
    /// Width of output `k`.
    pub fn out_cols(&self, k: usize) -> usize {
        self.outs[k].spec.cols
    }
    /// Type of input `i`.
    pub fn spec(&self, i: usize) -> Spec {
        self.ins[i].spec
    }
    /// Records that `row` holds something it must not, such as a NaN; `value` helps to say what.
    pub fn fault(&self, row: usize, value: f64) {
        self.status.fault(row as u32, (value as f32).to_bits());
    }
    /// `index` as a row of a table of `rows` rows; `None` for [`NONE`]. An index outside is a fault, and `None`.
    pub fn row_of(&self, at: usize, index: u32, rows: usize) -> Option<usize> {
        let row = index as usize;
        if row < rows {
            return Some(row);
        }
        if index != NONE {
            self.fault(at, f64::from(index));
        }
        None
    }
}

// SAFETY: what it hands out is exclusive (each once, by an atomic mark) or read-only; `Status` is atomic.
unsafe impl Sync for Io<'_> {}
