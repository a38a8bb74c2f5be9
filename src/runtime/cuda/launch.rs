//! The operands of an op as its kernels are launched, and the kernels.
use super::{Window, Windows, abi, error::checked, stream::CudaStream};
use crate::{
    error::{Error, ErrorKind, Result},
    runtime::{
        MatmulPrecision,
        changes::{Change, Changes},
        comm::Channel,
        spec::{DType, Element, Precision, Rows, Spec},
    },
};
use cudarc::driver::{result, sys};
use std::ffi::{CString, c_void};

/// The dimensions of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Blocks along x, y, z.
    pub blocks: (u32, u32, u32),
    /// Threads of a block along x, y, z.
    pub threads: (u32, u32, u32),
    /// Bytes of dynamic shared memory per block.
    pub shared: u32,
    /// Blocks of a thread block cluster along x, y, z, at most eight, which divide those of the grid; one
    /// block for no clusters. Devices older than compute capability 9.0 launch the blocks without clusters,
    /// so a kernel must ask for the size of its cluster (`cluster_blocks` in `kernels/ptx.cuh`).
    pub cluster: (u32, u32, u32),
}

impl Grid {
    /// Default number of threads of a block.
    pub const THREADS: u32 = 256;
    /// Enough blocks to fill any device; grid-stride loops cover the rest.
    const MOST_BLOCKS: usize = 4096;
    /// Rows and columns of a tile of a product (`kernels/product.cuh`).
    const TILE: usize = 64;
    /// Blocks that compute tiles on an H100 at the same time: two on each of its 132 multiprocessors.
    pub(crate) const TILES_AT_ONCE: usize = 264;
    /// Partial sums that a block adds (`add_parts` in `kernels/product.cuh`).
    const PARTS_AT_ONCE: usize = 16;
    /// Blocks of a cluster, at most: on every device that has clusters.
    const MOST_IN_CLUSTER: u32 = 8;

    /// Creates a grid of `blocks` blocks of `threads` threads along x.
    pub fn new(blocks: usize, threads: u32) -> Self {
        let blocks = (blocks.max(1) as u32, 1, 1);
        Grid { blocks, threads: (threads, 1, 1), shared: 0, cluster: (1, 1, 1) }
    }
    /// Creates a grid with one thread per item, of at least one and at most `MOST_BLOCKS` blocks.
    pub fn items(items: usize) -> Self {
        Self::new(items.div_ceil(Self::THREADS as usize).min(Self::MOST_BLOCKS), Self::THREADS)
    }
    /// Creates a grid with one warp per row, of at least one and at most `MOST_BLOCKS` blocks.
    pub fn warps(rows: usize) -> Self {
        Self::items(32 * rows)
    }
    /// Creates a grid with one block per tile of a product of `rows` x `columns`.
    pub fn tiles(rows: usize, columns: usize) -> Self {
        let tiles = |n: usize| n.div_ceil(Self::TILE).max(1) as u32;
        Grid { blocks: (tiles(rows), tiles(columns), 1), ..Self::new(1, Self::THREADS) }
    }
    /// Splits sums of `terms` terms, of which this is the grid of tiles, into ranges of at least `least`
    /// terms each, at most `most`, and at most as many as make `TILES_AT_ONCE` blocks: further ones would
    /// wait. Kernels use fewer ranges if fewer terms are live (`Part` in `kernels/product.cuh`).
    fn ranges(self, terms: usize, least: usize, most: usize) -> Self {
        let (x, y, z) = self.blocks;
        let ranges = (terms / least).clamp(1, most).min((Self::TILES_AT_ONCE / self.count()).max(1));
        Grid { blocks: (x, y, z * ranges as u32), ..self }
    }
    /// Returns the grid of sums over `rows` rows, a capacity, if this is the grid of their tiles.
    pub(crate) fn over_rows(self, rows: usize) -> Self {
        self.ranges(rows, 128, Self::PARTS_AT_ONCE.pow(2))
    }
    /// Returns the grid of sums over `depth` columns, if this is the grid of their tiles: at most one block
    /// for each half of a multiprocessor. The blocks of a tile are a cluster, unless they are too many.
    pub(crate) fn over_depth(self, depth: usize) -> Self {
        let grid = self.ranges(depth, 64, Self::PARTS_AT_ONCE);
        let ranges = grid.blocks.2 / self.blocks.2;
        Grid { cluster: (1, 1, if ranges > Self::MOST_IN_CLUSTER { 1 } else { ranges }), ..grid }
    }
    /// Returns the total number of blocks.
    pub fn count(self) -> usize {
        let (x, y, z) = self.blocks;
        x as usize * y as usize * z as usize
    }
    /// Returns the scratch needed for the partial sums of all blocks' tiles, in f32 numbers (`TileParts` in
    /// `kernels/product.cuh`).
    pub(crate) fn tile_parts(self) -> usize {
        self.count() * Self::TILE * Self::TILE
    }
    /// Returns the same grid with `parts` blocks along z.
    #[must_use]
    pub fn parts(self, parts: usize) -> Self {
        Grid { blocks: (self.blocks.0, self.blocks.1, parts as u32), ..self }
    }
    /// Returns the same grid with `bytes` of dynamic shared memory.
    #[must_use]
    pub fn shared(self, bytes: usize) -> Self {
        Grid { shared: bytes as u32, ..self }
    }
}

/// An operand on the device.
#[derive(Clone, Copy, Debug)]
pub struct DeviceView {
    /// Device address of row 0.
    pub address: u64,
    /// Shape and type.
    pub spec: Spec,
    /// Its row count, as kernels take it.
    pub rows: abi::Rows,
    /// Whether the value is read.
    pub wanted: bool,
}

/// The operands of an op on the device, and the CUDA stream for its kernels. No method waits or allocates.
#[derive(Debug)]
pub struct Launch<'a> {
    pub(crate) ins: &'a [DeviceView],
    pub(crate) outs: &'a [DeviceView],
    pub(crate) writes: &'a [usize],
    pub(crate) scratch: u64,
    pub(crate) tickets: u64,
    pub(crate) status: u64,
    pub(crate) precision: MatmulPrecision,
    pub(crate) changes: Changes,
    pub(crate) stream: &'a CudaStream,
    pub(crate) windows: &'a Windows,
}

impl<'a> Launch<'a> {
    /// Returns a launch of kernels that are no op's.
    pub(super) fn without_operands(stream: &'a CudaStream, windows: &'a Windows) -> Self {
        let (precision, changes) = (MatmulPrecision::F32, stream.gpu().changes());
        let (ins, outs, writes) = (&[], &[], &[]);
        Launch { ins, outs, writes, scratch: 0, tickets: 0, status: 0, precision, changes, stream, windows }
    }
}

impl Launch<'_> {
    /// Returns the address of input `i`.
    ///
    /// # Panics
    /// If the element type is not `T`, which is a bug of the op.
    pub fn input<T: Element>(&self, i: usize) -> *const T {
        assert_eq!(T::DTYPE, self.ins[i].spec.dtype, "type of input {i}");
        self.ins[i].address as *const T
    }
    /// Returns the address of input `i` as 4-byte words, reals or ids.
    ///
    /// # Panics
    /// If its elements have another size.
    pub fn words(&self, i: usize) -> *const u32 {
        assert!(!self.ins[i].spec.dtype.is_half(), "input {i} is narrower than a word");
        self.ins[i].address as *const u32
    }
    /// Returns the address of input `i` as 16-bit words, and the code of their format for kernels
    /// (`kernels/stored.cuh`).
    ///
    /// # Panics
    /// If its elements are not 16-bit reals.
    pub fn halves(&self, i: usize) -> (*const u16, u32) {
        let dtype = self.ins[i].spec.dtype;
        assert!(dtype.is_half(), "input {i} is {dtype:?}, not of 16 bits");
        (self.ins[i].address as *const u16, u32::from(dtype == DType::Bf16))
    }
    /// Returns the [`halves`](Self::halves) of an input that this op changes in place.
    ///
    /// # Panics
    /// As `halves`, or if the input is not in `writes`.
    pub(crate) fn halves_state(&self, i: usize) -> (*mut u16, u32) {
        assert!(self.writes.contains(&i), "input {i} is not declared as written");
        let (address, kind) = self.halves(i);
        (address.cast_mut(), kind)
    }
    /// Returns the address of input `i`, which this op changes in place.
    ///
    /// # Panics
    /// If the input is not in `writes`, or the element type is not `T`.
    pub fn state<T: Element>(&self, i: usize) -> *mut T {
        assert!(self.writes.contains(&i), "input {i} is not declared as written");
        self.input::<T>(i).cast_mut()
    }
    /// Returns the address of input `i`, of any type, which this op changes in place.
    ///
    /// # Panics
    /// If the input is not in `writes`.
    pub(crate) fn state_address(&self, i: usize) -> u64 {
        assert!(self.writes.contains(&i), "input {i} is not declared as written");
        self.address(i)
    }
    /// Returns the address of output `k`; null if the output is not read.
    ///
    /// # Panics
    /// If the element type is not `T`.
    pub fn out<T: Element>(&self, k: usize) -> *mut T {
        assert_eq!(T::DTYPE, self.outs[k].spec.dtype, "type of output {k}");
        if self.outs[k].wanted { self.outs[k].address as *mut T } else { std::ptr::null_mut() }
    }
    /// Returns the address of output `k` as 4-byte words; null if the output is not read.
    ///
    /// # Panics
    /// If its elements are times (8 bytes).
    pub(crate) fn out_words(&self, k: usize) -> *mut u32 {
        if self.outs[k].wanted { self.outs[k].address as *mut u32 } else { std::ptr::null_mut() }
    }
    /// Returns the address of output `k`, whether or not another op reads it: for outputs that the op itself
    /// reads again.
    ///
    /// # Panics
    /// If the element type is not `T`.
    pub fn needed<T: Element>(&self, k: usize) -> *mut T {
        assert_eq!(T::DTYPE, self.outs[k].spec.dtype, "type of output {k}");
        self.outs[k].address as *mut T
    }
    /// Returns the address of input `i`, of any type.
    pub(crate) fn address(&self, i: usize) -> u64 {
        self.ins[i].address
    }
    /// Returns the address of output `k`, of any type, whether or not another op reads it.
    pub(crate) fn needed_words(&self, k: usize) -> *mut u32 {
        self.outs[k].address as *mut u32
    }
    /// Returns the CUDA stream of the launch.
    pub fn stream(&self) -> &CudaStream {
        self.stream
    }
    /// Returns the number of outputs.
    pub fn outputs(&self) -> usize {
        self.outs.len()
    }
    /// Sets output `k` to zero, in the order of the CUDA stream, for kernels that add to it.
    ///
    /// # Errors
    /// `Device` if the driver refuses.
    pub fn clear(&self, k: usize) -> Result<()> {
        let DeviceView { address, spec, .. } = self.outs[k];
        let bytes = spec.bytes(Precision::F32);
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the output has this size and no other user until the op is over; its context is current.
        checked(
            unsafe { result::memset_d8_async(address, 0, bytes, self.stream.raw()) },
            "cannot clear an output",
        )
    }
    /// Whether output `k` is read.
    pub fn wanted(&self, k: usize) -> bool {
        self.outs[k].wanted
    }
    /// Returns the row count of input `i`, for a kernel.
    pub fn rows(&self, i: usize) -> abi::Rows {
        self.ins[i].rows
    }
    /// Returns the row count of output `k`, for a kernel; the capacity if this op computes the count.
    pub fn out_rows(&self, k: usize) -> abi::Rows {
        self.outs[k].rows
    }
    /// Converts `rows` for a kernel; the live count, if any, is input `count`.
    pub fn live_rows(&self, rows: Rows, count: usize) -> abi::Rows {
        abi::Rows {
            count: rows.live.map_or(std::ptr::null(), |_| self.input(count)),
            times: rows.live.map_or(1, |l| l.times as u32),
            capacity: rows.capacity as u32,
        }
    }
    /// Returns the capacity of input `i`, in rows.
    pub fn capacity(&self, i: usize) -> usize {
        self.ins[i].spec.rows.capacity
    }
    /// Returns the capacity of output `k`, in rows.
    pub fn out_cap(&self, k: usize) -> usize {
        self.outs[k].spec.rows.capacity
    }
    /// Returns the width of input `i`.
    pub fn cols(&self, i: usize) -> u32 {
        self.ins[i].spec.cols as u32
    }
    /// Returns the width of output `k`.
    pub fn out_cols(&self, k: usize) -> u32 {
        self.outs[k].spec.cols as u32
    }
    /// Returns the shape and type of input `i`.
    pub fn spec(&self, i: usize) -> Spec {
        self.ins[i].spec
    }
    /// Returns the number of inputs.
    pub fn inputs(&self) -> usize {
        self.ins.len()
    }
    /// Communicates with the other ranks: `write` launches kernels that write this rank's window, `read` such
    /// that read the windows of all ranks.
    pub(crate) fn exchange(
        &self,
        channel: Channel,
        write: impl FnOnce(&Window) -> Result<()>,
        read: impl FnOnce(&Window) -> Result<()>,
    ) -> Result<()> {
        let window = self.windows.get(channel).ok_or_else(|| {
            Error::new(ErrorKind::Device, "ranks communicate in programs only, not in a single call")
        })?;
        window.exchange(self.stream, || write(window), || read(window))
    }
    /// Returns the scratch that the op declared; its content is undefined.
    pub fn scratch(&self) -> *mut f32 {
        self.scratch as *mut f32
    }
    /// Returns the tickets that the op declared, all zero.
    pub fn tickets(&self) -> *mut u32 {
        self.tickets as *mut u32
    }
    /// Whether a change that waits for its measurement is in use.
    pub(crate) fn has(&self, change: Change) -> bool {
        self.changes.has(change)
    }
    /// Returns the precision of dense products, as the code that kernels use, and whether they use the loop
    /// of before (`TESTED` in `kernels/product.cuh`).
    pub fn precision(&self) -> u32 {
        let tested = if self.has(Change::Products) { 0 } else { 2 };
        self.precision.code() + tested
    }
    /// Returns the word that receives the op's first fault.
    pub fn status(&self) -> abi::Status {
        abi::Status { word: self.status as *mut u64 }
    }
}

/// The kernels of a device.
///
/// ```compile_fail,E0133
/// use tgnn::runtime::cuda::{Grid, Kernels, Launch};
/// fn anywhere(k: &Kernels, on: &Launch<'_>) {
///     let nowhere = 8 as *mut f32;
///     let _ = k.add(on, Grid::items(1), nowhere, nowhere, nowhere, on.rows(0), 1);
/// }
/// ```
///
/// There is one method per kernel, generated from its signature. The methods do not check their arguments, so
/// they are `unsafe`: an op knows its shapes.
#[derive(Debug)]
pub struct Kernels {
    functions: Vec<sys::CUfunction>,
    _modules: Vec<sys::CUmodule>,
}

// SAFETY: functions are read-only handles of a context that lives as long as the process.
unsafe impl Send for Kernels {}
// SAFETY: as above.
unsafe impl Sync for Kernels {}

impl Kernels {
    /// Loads all images into the current context.
    pub(super) fn load() -> Result<Self> {
        let mut modules = Vec::with_capacity(IMAGES.len());
        for (file, image) in IMAGES {
            // SAFETY: the image is a fatbin, or a text that the driver refuses.
            let module = unsafe { result::module::load_data(image.as_ptr().cast()) };
            modules.push(checked(module, &format!("cannot load kernels/{file}.cu"))?);
        }
        let mut functions = Vec::with_capacity(NAMES.len());
        for &(name, module) in NAMES {
            let text = CString::new(name).expect("kernels have the names of C functions");
            // SAFETY: the module is loaded.
            let function = unsafe { result::module::get_function(modules[module], text) };
            let function = checked(function, &format!("there is no kernel `{name}`"))?;
            // The driver loads a kernel's code at its first use; this use makes sure that it is not in a
            // captured launch.
            let any = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
            // SAFETY: the function was just found.
            let loaded = unsafe { result::function::get_function_attribute(function, any) };
            checked(loaded, &format!("cannot load kernel `{name}`"))?;
            functions.push(function);
        }
        Ok(Kernels { functions, _modules: modules })
    }
    /// Launches kernel `at` of [`NAMES`].
    ///
    /// # Safety
    /// The arguments must be those of kernel `at`, and satisfy the conditions of its wrapper.
    unsafe fn launch(
        &self,
        at: usize,
        on: &Launch<'_>,
        grid: Grid,
        arguments: &mut [*mut c_void],
    ) -> Result<()> {
        // SAFETY: promised by the caller.
        let launched = unsafe { on.stream.launch(self.functions[at], grid, arguments, true) };
        checked(launched, &format!("cannot launch {}", NAMES[at].0))
    }
}

include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
