//! What an op sees when its kernels are launched, and the kernels.
use super::{abi, error::checked, stream::CudaStream};
use crate::{
    error::Result,
    runtime::{
        MatmulPrecision,
        spec::{DType, Element, Precision, Rows, Spec},
    },
};
use cudarc::driver::{result, sys};
use std::ffi::{CString, c_void};

/// How many blocks of how many threads, and dynamic shared memory in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Blocks along x, y, z.
    pub blocks: (u32, u32, u32),
    /// Threads of a block along x, y, z.
    pub threads: (u32, u32, u32),
    /// Bytes of dynamic shared memory of a block.
    pub shared: u32,
}

impl Grid {
    /// Threads of a block where nothing speaks for another number.
    pub const THREADS: u32 = 256;
    /// Blocks that keep any device busy; kernels go round for the rest.
    const MOST_BLOCKS: usize = 4096;
    /// Rows and columns of a tile of a product (`kernels/product.cuh`).
    const TILE: usize = 64;

    /// `blocks` blocks of `threads` threads.
    pub fn new(blocks: usize, threads: u32) -> Self {
        Grid { blocks: (blocks.max(1) as u32, 1, 1), threads: (threads, 1, 1), shared: 0 }
    }
    /// A thread for each of `items`, as long as there are blocks; at least one block.
    pub fn items(items: usize) -> Self {
        Self::new(items.div_ceil(Self::THREADS as usize).min(Self::MOST_BLOCKS), Self::THREADS)
    }
    /// A warp for each of `rows`, as long as there are blocks; at least one block.
    pub fn warps(rows: usize) -> Self {
        Self::items(32 * rows)
    }
    /// A block for each tile of a product of `rows` x `columns`.
    pub fn tiles(rows: usize, columns: usize) -> Self {
        let tiles = |n: usize| n.div_ceil(Self::TILE).max(1) as u32;
        Grid { blocks: (tiles(rows), tiles(columns), 1), ..Self::new(1, Self::THREADS) }
    }
    /// The parts that sums over `rows` rows are cut into (`kernels/product.cuh`): a number that depends on the room alone.
    pub fn parts_of(rows: usize) -> usize {
        (rows / 128).clamp(1, 16)
    }
    /// Blocks in all.
    pub fn count(self) -> usize {
        let (x, y, z) = self.blocks;
        x as usize * y as usize * z as usize
    }
    /// Real numbers of scratch for what these blocks leave of their tiles (`TileParts` in `kernels/product.cuh`).
    pub fn tile_parts(self) -> usize {
        self.count() * Self::TILE * Self::TILE
    }
    /// With `parts` layers of blocks.
    #[must_use]
    pub fn parts(self, parts: usize) -> Self {
        Grid { blocks: (self.blocks.0, self.blocks.1, parts as u32), ..self }
    }
    /// With `bytes` of dynamic shared memory.
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
    /// Its rows, as kernels take them.
    pub rows: abi::Rows,
    /// Whether anybody reads it.
    pub wanted: bool,
}

/// The operands of an op on the device, and the stream that its kernels go to. Nothing here waits or allocates.
pub struct Launch<'a> {
    pub(crate) ins: &'a [DeviceView],
    pub(crate) outs: &'a [DeviceView],
    pub(crate) writes: &'a [usize],
    pub(crate) scratch: u64,
    pub(crate) tickets: u64,
    pub(crate) status: u64,
    pub(crate) precision: MatmulPrecision,
    pub(crate) stream: &'a CudaStream,
}

impl Launch<'_> {
    /// Address of input `i`.
    ///
    /// # Panics
    /// When the type is another: a mistake of the op.
    pub fn input<T: Element>(&self, i: usize) -> *const T {
        assert_eq!(T::DTYPE, self.ins[i].spec.dtype, "type of input {i}");
        self.ins[i].address as *const T
    }
    /// Address of input `i` as 4-byte words, reals or ids.
    ///
    /// # Panics
    /// When its elements have another size.
    pub fn words(&self, i: usize) -> *const u32 {
        assert_eq!(self.ins[i].spec.dtype.size(Precision::F32), 4, "bytes of an element of input {i}");
        self.ins[i].address as *const u32
    }
    /// Address of input `i` as words of 16 bits, and how kernels name what they are (`kernels/stored.cuh`).
    ///
    /// # Panics
    /// When it holds no reals of 16 bits.
    pub fn halves(&self, i: usize) -> (*const u16, u32) {
        let dtype = self.ins[i].spec.dtype;
        assert!(dtype.is_half(), "input {i} is {dtype:?}, not of 16 bits");
        (self.ins[i].address as *const u16, u32::from(dtype == DType::Bf16))
    }
    /// [`halves`](Self::halves) of an input that this op changes in place.
    ///
    /// # Panics
    /// As `halves`, or when `writes` does not name it.
    pub fn halves_state(&self, i: usize) -> (*mut u16, u32) {
        assert!(self.writes.contains(&i), "input {i} is not declared as written");
        let (address, kind) = self.halves(i);
        (address.cast_mut(), kind)
    }
    /// Address of input `i`, which this op changes in place.
    ///
    /// # Panics
    /// When `writes` does not name it, or the type is another.
    pub fn state<T: Element>(&self, i: usize) -> *mut T {
        assert!(self.writes.contains(&i), "input {i} is not declared as written");
        self.input::<T>(i).cast_mut()
    }
    /// [`words`](Self::words) of an input that this op changes in place.
    ///
    /// # Panics
    /// As `words`, or when `writes` does not name it.
    pub fn state_words(&self, i: usize) -> *mut u32 {
        assert!(self.writes.contains(&i), "input {i} is not declared as written");
        self.words(i).cast_mut()
    }
    /// Address of output `k`; null where nobody reads it.
    ///
    /// # Panics
    /// When the type is another.
    pub fn out<T: Element>(&self, k: usize) -> *mut T {
        assert_eq!(T::DTYPE, self.outs[k].spec.dtype, "type of output {k}");
        if self.outs[k].wanted { self.outs[k].address as *mut T } else { std::ptr::null_mut() }
    }
    /// Address of output `k` as 4-byte words; null where nobody reads it.
    ///
    /// # Panics
    /// When it holds times.
    pub fn out_words(&self, k: usize) -> *mut u32 {
        assert_ne!(self.outs[k].spec.dtype, DType::I64, "output {k} is wider than a word");
        if self.outs[k].wanted { self.outs[k].address as *mut u32 } else { std::ptr::null_mut() }
    }
    /// Address of output `k`, whether or not somebody else reads it: for what the op itself reads again.
    ///
    /// # Panics
    /// When the type is another.
    pub fn kept<T: Element>(&self, k: usize) -> *mut T {
        assert_eq!(T::DTYPE, self.outs[k].spec.dtype, "type of output {k}");
        self.outs[k].address as *mut T
    }
    /// Whether anybody reads output `k`.
    pub fn wanted(&self, k: usize) -> bool {
        self.outs[k].wanted
    }
    /// Rows of input `i`, for a kernel.
    pub fn rows(&self, i: usize) -> abi::Rows {
        self.ins[i].rows
    }
    /// Rows of output `k`, for a kernel; all its room where this op makes the count.
    pub fn out_rows(&self, k: usize) -> abi::Rows {
        self.outs[k].rows
    }
    /// `rows` for a kernel, where the live count, if any, is input `count`.
    pub fn live_rows(&self, rows: Rows, count: usize) -> abi::Rows {
        abi::Rows {
            count: rows.live.map_or(std::ptr::null(), |_| self.input(count)),
            times: rows.live.map_or(1, |l| l.times as u32),
            capacity: rows.capacity as u32,
        }
    }
    /// Room of input `i` in rows.
    pub fn capacity(&self, i: usize) -> usize {
        self.ins[i].spec.rows.capacity
    }
    /// Room of output `k` in rows.
    pub fn out_cap(&self, k: usize) -> usize {
        self.outs[k].spec.rows.capacity
    }
    /// Width of input `i`.
    pub fn cols(&self, i: usize) -> u32 {
        self.ins[i].spec.cols as u32
    }
    /// Width of output `k`.
    pub fn out_cols(&self, k: usize) -> u32 {
        self.outs[k].spec.cols as u32
    }
    /// Shape and type of input `i`.
    pub fn spec(&self, i: usize) -> Spec {
        self.ins[i].spec
    }
    /// Number of inputs.
    pub fn inputs(&self) -> usize {
        self.ins.len()
    }
    /// The scratch that the op declared, with any content.
    pub fn scratch(&self) -> *mut f32 {
        self.scratch as *mut f32
    }
    /// The tickets that the op declared, all zero.
    pub fn tickets(&self) -> *mut u32 {
        self.tickets as *mut u32
    }
    /// What dense products multiply in, as kernels name it.
    pub fn precision(&self) -> u32 {
        self.precision.code()
    }
    /// Where kernels leave the op's first fault.
    pub fn status(&self) -> abi::Status {
        abi::Status { word: self.status as *mut u64 }
    }
}

type Launcher = dyn Fn(&Kernels, &Launch<'_>) -> Result<()> + Send + Sync;

/// Other code for the work of an op, on the same operands: what the op's own kernels are measured against.
pub struct Rival {
    op: &'static str,
    name: &'static str,
    launch: Box<Launcher>,
}

impl Rival {
    /// `name` is its own; `launch` does what that of the op called `op` does.
    pub fn new(
        op: &'static str,
        name: &'static str,
        launch: impl Fn(&Kernels, &Launch<'_>) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        Rival { op, name, launch: Box::new(launch) }
    }
    /// Name of the op.
    pub fn op(&self) -> &'static str {
        self.op
    }
    /// Its own name.
    pub fn name(&self) -> &'static str {
        self.name
    }
    pub(crate) fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        (self.launch)(k, on)
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
/// One method each, made from the kernel's signature; they check nothing, so they are `unsafe`: an op
/// knows its shapes.
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
            // A driver loads a kernel's code when somebody first asks for it: now, and not at a launch that is captured.
            let any = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
            // SAFETY: the function was just found.
            let loaded = unsafe { result::function::get_function_attribute(function, any) };
            checked(loaded, &format!("cannot load kernel `{name}`"))?;
            functions.push(function);
        }
        Ok(Kernels { functions, _modules: modules })
    }
    /// # Safety
    /// The arguments are those of this very kernel, and as its wrapper wants them.
    unsafe fn launch(
        &self,
        at: usize,
        on: &Launch<'_>,
        grid: Grid,
        arguments: &mut [*mut c_void],
    ) -> Result<()> {
        let Grid { blocks, threads, shared } = grid;
        // SAFETY: the caller's; the driver copies the arguments before it returns.
        let launched = unsafe {
            result::launch_kernel(self.functions[at], blocks, threads, shared, on.stream.raw(), arguments)
        };
        on.stream.count_launch();
        checked(launched, &format!("cannot launch {}", NAMES[at].0))
    }
}

include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
