//! Arguments that kernels take by value, laid out as in `kernels/common.cuh`.

/// Rows of a value on the device: `*count * times` of them are live, at most `cap`; all where `count` is null.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Rows {
    /// Device address of the count, or null.
    pub count: *const u32,
    /// Rows for each unit of the count.
    pub times: u32,
    /// Upper bound.
    pub cap: u32,
}

/// The word for the first fault of an op.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Status {
    /// Device address.
    pub word: *mut u64,
}

/// How ticks become seconds; see [`Gaps`](crate::runtime::Gaps).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Gaps {
    /// Ticks that a longer gap counts as.
    pub longest: i64,
    /// Length of a tick.
    pub seconds_per_tick: f32,
    /// Fills the struct.
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

impl From<crate::runtime::philox::Key> for Key {
    /// The clock stays behind: kernels read it on the device.
    fn from(k: crate::runtime::philox::Key) -> Self {
        let [seed, salted] = k.words();
        Key { seed, salted }
    }
}

/// A parameter, its gradient, and its first and second moment; `end` is one past the last block that updates it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Parameter {
    /// Value.
    pub w: *mut f32,
    /// Gradient.
    pub g: *const f32,
    /// First moment.
    pub m: *mut f32,
    /// Second moment.
    pub v: *mut f32,
    /// Elements.
    pub n: u32,
    /// One past its last block.
    pub end: u32,
}

/// Parameters that one launch updates: those that fill it up have no elements and no blocks.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Parameters {
    /// The parameters.
    pub of: [Parameter; Parameters::MOST],
}

impl Parameters {
    /// As many as arguments have room for.
    pub const MOST: usize = 64;
}

/// A list of ids, and where the row of each is written.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct IdList {
    /// The ids.
    pub ids: *const u32,
    /// Their rows.
    pub psi: *mut u32,
    /// Rows of the list.
    pub rows: Rows,
    /// Ids a row.
    pub cols: u64,
}

/// Lists of ids; the first has `stride` of them an event.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct IdLists {
    /// The lists.
    pub of: [IdList; IdLists::MOST],
    /// How many there are.
    pub lists: u32,
    /// Ids an event.
    pub stride: u32,
}

impl IdLists {
    /// As many as arguments have room for.
    pub const MOST: usize = 8;
}
