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
