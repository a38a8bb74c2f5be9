//! Kernel arguments passed by value, laid out as in `kernels/common.cuh`.
use crate::runtime::{DType, Precision};

/// Row count of a value on the device: `*count * times` rows are live, at most `capacity`; all rows if
/// `count` is null.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Rows {
    /// Device address of the count, or null.
    pub count: *const u32,
    /// Rows per unit of the count.
    pub times: u32,
    /// Maximum number of rows.
    pub capacity: u32,
}

// SAFETY: an address of the device, which only its kernels follow.
unsafe impl Send for Rows {}

impl Rows {
    /// Returns the row count of items of `each` rows.
    pub(crate) fn items(self, each: u32) -> Self {
        Rows { times: self.times / each, capacity: self.capacity / each, ..self }
    }
}

/// The word that receives the first fault of an op.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Status {
    /// Device address.
    pub word: *mut u64,
}

/// The windows of all ranks; see `runtime/cuda/windows.rs`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Windows {
    /// Device address of address and bytes of each rank's window.
    pub of: *const u64,
    /// This rank.
    pub rank: u32,
    /// Number of ranks.
    pub ranks: u32,
}

/// Conversion of ticks to seconds; see [`Gaps`](crate::runtime::Gaps).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Gaps {
    /// Longer gaps, in ticks, are clamped to this.
    pub longest: i64,
    /// Length of a tick, in seconds.
    pub seconds_per_tick: f32,
    /// Padding.
    pub unused: u32,
}

impl From<crate::runtime::Gaps> for Gaps {
    fn from(g: crate::runtime::Gaps) -> Self {
        Gaps { longest: g.longest, seconds_per_tick: g.seconds_per_tick, unused: 0 }
    }
}

/// Seed and salt of random draws; see [`philox::Key`](crate::runtime::philox::Key).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Key {
    /// Low word of the seed.
    pub seed: u32,
    /// High word of the seed, mixed with the op's salt.
    pub salted: u32,
}

impl Key {
    /// Creates the key of the op with `salt` in a run with `seed`.
    pub fn new(seed: u64, salt: u32) -> Self {
        let [seed, salted] = crate::runtime::philox::key_words(seed, salt);
        Key { seed, salted }
    }
}

/// A parameter, its gradient, its first and second moments, and the sum of its values.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Parameter {
    /// Value.
    pub w: *mut f32,
    /// Gradient.
    pub g: *const f32,
    /// First moment.
    pub m: *mut f32,
    /// Second moment.
    pub v: *mut f32,
    /// Sum of the values after each step; may be null.
    pub sum: *mut f32,
    /// Number of elements.
    pub n: u32,
    /// One past the index of the last block that updates it.
    pub end: u32,
}

/// The parameters updated by one launch; unused entries have no elements and no blocks.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Parameters {
    /// The parameters.
    pub of: [Parameter; Parameters::MOST],
}

impl Parameters {
    /// Capacity of the argument.
    pub const MOST: usize = 64;
}

/// The terms of a sum; unused entries are null.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Terms {
    /// Device addresses.
    pub of: [*const f32; Terms::MOST],
    /// Number of terms.
    pub count: u64,
}

impl Terms {
    /// Capacity of the argument.
    pub const MOST: usize = 8;
}

/// A table and rows of it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct TableRows {
    /// Device address of the table.
    table: u64,
    /// Device address of the rows.
    rows: u64,
    /// Numbers of a row: 32-bit words, or 16-bit numbers of the table.
    width: u32,
    /// 0 if the table has 32-bit words; otherwise one more than the code of its 16-bit format.
    kind: u32,
}

/// Tables whose rows one launch reads or writes at the same indices.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Tables {
    of: [TableRows; Tables::MOST],
    /// Number of tables.
    count: u64,
}

impl Tables {
    /// Capacity of the argument.
    pub const MOST: usize = 8;

    /// Returns the argument for at most [`MOST`](Self::MOST) tables, each with the columns of the items that
    /// an index refers to, and with the addresses of the table and of the rows.
    pub fn new(tables: impl IntoIterator<Item = (DType, usize, [u64; 2])>) -> Self {
        let none = TableRows { table: 0, rows: 0, width: 0, kind: 0 };
        let mut all = Tables { of: [none; Self::MOST], count: 0 };
        for (to, (dtype, columns, [table, rows])) in all.of.iter_mut().zip(tables) {
            let (numbers, kind) = match dtype {
                DType::F16 => (1, 1),
                DType::Bf16 => (1, 2),
                words => (words.size(Precision::F32) / size_of::<u32>(), 0),
            };
            *to = TableRows { table, rows, width: (columns * numbers) as u32, kind };
            all.count += 1;
        }
        all
    }
}

/// A list of ids, and the address that receives the row index of each.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct IdList {
    /// The ids.
    pub ids: *const u32,
    /// Their row indices.
    pub psi: *mut u32,
    /// Row count of the list.
    pub rows: Rows,
    /// Ids per row.
    pub cols: u64,
}

/// Lists of ids; the first has `stride` ids per event.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct IdLists {
    /// The lists.
    pub of: [IdList; IdLists::MOST],
    /// Number of lists.
    pub lists: u16,
    /// 1 if every occurrence of an id has a row of its own, else 0.
    pub repeated: u16,
    /// Ids per event.
    pub stride: u32,
}

impl IdLists {
    /// Capacity of the argument.
    pub const MOST: usize = 8;
}

/// The dropout of an op; see [`DropRate`](crate::ops::epilogue::DropRate).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Drop {
    /// Device address of epoch and batch; null without dropout.
    pub now: *const u32,
    /// Key of the draws.
    pub key: Key,
    /// Elements whose 16-bit number is below this are dropped.
    pub threshold: u32,
    /// Factor of the kept elements.
    pub scale: f32,
    /// Number of elements of each event, by which the draws of a rank come after those of the events before
    /// its own; 0 if the clock does not count these.
    pub per_event: u32,
}

/// The epilogue of a product or a sum; see [`Epilogue`](crate::ops::epilogue::Epilogue).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Epilogue {
    /// 0 identity, 1 relu, 2 leaky relu, 3 tanh, 4 sigmoid.
    pub activation: u32,
    /// Slope of a leaky relu for negative z.
    pub slope: f32,
    /// The dropout that follows it.
    pub drop: Drop,
}

/// Operands of temporal attention; see the [op](crate::ops::temporal_attention).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs)] // documented by the op
pub(crate) struct Attention {
    pub query: *const f32,
    pub h: *const f32,
    pub dt: *const f32,
    pub edge: *const f32,
    pub w: *const f32,
    pub b: *const f32,
    pub starts: *const u32,
    pub order: *const u32,
    pub own: *const u32,
    pub row: *const u32,
    pub event: *const u32,
    pub count: *const u32,
    pub roots: Rows,
    pub queries: Rows,
    pub heads: u32,
    pub k: u32,
    pub d: u32,
    pub f: u32,
    pub t: u32,
    pub scale: f32,
    pub drop: Drop,
}

/// Operands of a memory update; see [`memory_update`](crate::ops::memory_update).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs)] // documented by the op
pub struct MemoryUpdate {
    pub unique: *const u32,
    pub mail_event: *const u32,
    pub memory: *const f32,
    pub mail: *const f32,
    pub edge: *const f32,
    pub w: *const f32,
    pub b: *const f32,
    pub w_x: *const f32,
    pub w_h: *const f32,
    pub b_x: *const f32,
    pub b_h: *const f32,
    pub mailed: *const u32,
    pub node: *const u32,
    pub feature: *const u32,
    pub dt: *const f32,
    pub weights: *mut f32,
    pub out: *mut f32,
    pub messages: *mut f32,
    pub gates: *mut f32,
    pub rows: Rows,
    pub mails: Rows,
    pub d: u32,
    pub f: u32,
    pub t: u32,
    pub gathered: u32,
    pub precision: u32,
    pub nodes: u32,
    pub joint: u32,
    pub apart: u32,
}

/// Operands of a sparse product; see the [op](crate::ops::spmm).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs)] // documented by the op
pub(crate) struct Spmm {
    pub steps: *const u32,
    pub begin: *const u32,
    pub len: *const u32,
    pub col: *const u32,
    pub first: *const u32,
    pub slices: *const u32,
    pub weight: *const f32,
    pub scale: *const f32,
    pub column_scale: *const f32,
    pub bias: *const f32,
    pub y: *mut f32,
    pub parts: *mut f32,
    pub tickets: *mut u32,
    pub place: u32,
    pub most_steps: u32,
    pub x_rows: u32,
    pub vertices: u32,
    pub columns: u32,
    pub d: u32,
    pub short_rows: u32,
    pub most_slices: u32,
    pub most_rows: u32,
    pub pool: u32,
    pub cut: u32,
    pub unused: u32,
    pub then: Epilogue,
}
