//! CUDA streams, events, and captured graphs.
use super::{Gpu, Grid, error::checked};
use crate::error::Result;
use cudarc::driver::{result, sys};
use std::{
    ffi::c_void,
    ptr::null_mut,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
};

/// An ordered queue of device work. The work of two streams may overlap unless an event orders it.
#[derive(Debug)]
pub struct CudaStream {
    gpu: Gpu,
    raw: sys::CUstream,
    /// Whether the stream is another owner's, and not destroyed here.
    borrowed: bool,
    launched: AtomicUsize,
    /// Whether the last work that was submitted is a kernel. Never true if others may submit work.
    after_kernel: AtomicBool,
}

// SAFETY: the driver's handles may be used from any thread in which the context is current, which `enter`
// ensures.
unsafe impl Send for CudaStream {}
// SAFETY: as above; the driver locks.
unsafe impl Sync for CudaStream {}

impl CudaStream {
    /// Creates a stream of the default priority, which is the lowest, that does not synchronise with the
    /// default stream.
    ///
    /// # Errors
    /// `Device` if the driver refuses.
    pub fn new(gpu: &Gpu) -> Result<Self> {
        gpu.enter()?;
        Self::with_priority(gpu, 0)
    }
    /// Like [`new`](Self::new), with the highest priority: if blocks of several streams wait for a
    /// multiprocessor, those of this stream go first. A [`capture`](Self::capture) keeps priorities.
    ///
    /// # Errors
    /// `Device` if the driver refuses.
    pub fn urgent(gpu: &Gpu) -> Result<Self> {
        gpu.enter()?;
        let (_, greatest) = checked(result::stream::get_priority_range(), "cannot read the priorities")?;
        Self::with_priority(gpu, greatest)
    }
    fn with_priority(gpu: &Gpu, priority: i32) -> Result<Self> {
        let kind = result::stream::StreamKind::NonBlocking;
        let raw = checked(result::stream::create_with_priority(kind, priority), "cannot create a stream")?;
        Ok(Self::wrap(gpu, raw, false))
    }
    fn wrap(gpu: &Gpu, raw: sys::CUstream, borrowed: bool) -> Self {
        CudaStream { gpu: gpu.clone(), raw, borrowed, launched: 0.into(), after_kernel: false.into() }
    }
    /// Borrows the stream `raw` of other code: a `cudaStream_t` or `CUstream`, such as PyTorch's
    /// `torch.cuda.current_stream().cuda_stream`; null is the default stream. It is not destroyed on drop.
    ///
    /// # Safety
    /// The stream must be of the primary context of `gpu`, and live as long as this value.
    pub unsafe fn borrowed(gpu: &Gpu, raw: *mut c_void) -> Self {
        Self::wrap(gpu, raw.cast(), true)
    }
    /// Returns the device.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }
    /// Returns the driver's handle, for other code that submits work to the stream.
    pub fn handle(&self) -> *mut c_void {
        self.raw().cast()
    }
    /// Returns the driver's handle, for work that is not a kernel.
    pub(super) fn raw(&self) -> sys::CUstream {
        self.after_kernel.store(false, Relaxed);
        self.raw
    }
    /// Launches a kernel. One that `waits` for the previous kernel by itself, as those of this crate do
    /// (`after_previous_kernel` in `kernels/common.cuh`), may be launched before that one has ended. A device
    /// without clusters launches the blocks of the grid's clusters by themselves.
    ///
    /// # Safety
    /// `arguments` must be those of the kernel, which must be alive, and device memory that they name must be
    /// as the kernel needs it until it has run.
    pub(super) unsafe fn launch(
        &self,
        kernel: sys::CUfunction,
        grid: Grid,
        arguments: &mut [*mut c_void],
        waits: bool,
    ) -> Result<(), result::DriverError> {
        let after_kernel = self.after_kernel.swap(!self.borrowed, Relaxed);
        self.launched.fetch_add(1, Relaxed);
        use sys::CUlaunchAttributeID::{
            CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION as CLUSTER,
            CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION as EARLY,
        };
        let launching = &self.gpu.launching;
        let attribute = |id, value| sys::CUlaunchAttribute { id, pad: [0; 4], value };
        let (x, y, z) = grid.cluster;
        let cluster = sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z };
        let mut attributes = [
            attribute(EARLY, sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 }),
            attribute(CLUSTER, sys::CUlaunchAttributeValue { clusterDim: cluster }),
        ];
        let early = waits && after_kernel && launching.early;
        let clustered = grid.cluster != (1, 1, 1) && launching.clusters;
        let used = &mut attributes[usize::from(!early)..1 + usize::from(clustered)];
        let ((gx, gy, gz), (bx, by, bz)) = (grid.blocks, grid.threads);
        let config = sys::CUlaunchConfig {
            gridDimX: gx,
            gridDimY: gy,
            gridDimZ: gz,
            blockDimX: bx,
            blockDimY: by,
            blockDimZ: bz,
            sharedMemBytes: grid.shared,
            hStream: self.raw,
            attrs: used.as_mut_ptr(),
            numAttrs: used.len() as u32,
        };
        // SAFETY: guaranteed by the caller; the driver copies the arguments before it returns.
        unsafe { sys::cuLaunchKernelEx(&raw const config, kernel, arguments.as_mut_ptr(), null_mut()) }
            .result()
    }
    /// Returns the number of kernels launched on the stream so far, including captured launches.
    pub fn launched(&self) -> usize {
        self.launched.load(Relaxed)
    }
    /// Blocks until all work of the stream is done.
    ///
    /// # Errors
    /// `Device` if any of the work failed.
    pub fn synchronize(&self) -> Result<()> {
        self.gpu.enter()?;
        // SAFETY: the stream is alive.
        checked(unsafe { result::stream::synchronize(self.raw) }, "work on the device failed")
    }
    /// Makes all work submitted from now on wait for `event`.
    ///
    /// # Errors
    /// `Device` if the driver refuses.
    pub fn wait(&self, event: &CudaEvent) -> Result<()> {
        self.gpu.enter()?;
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: both are alive.
        checked(
            unsafe { result::stream::wait_event(self.raw(), event.raw, flags) },
            "cannot wait for an event",
        )
    }
    /// Copies bytes within the device's memory.
    ///
    /// # Safety
    /// The memory must be alive until the stream is done.
    pub(crate) unsafe fn copy_bytes(&self, to: u64, from: u64, bytes: usize) -> Result<()> {
        self.gpu.enter()?;
        // SAFETY: promised by the caller.
        checked(
            unsafe { result::memcpy_dtod_async(to, from, bytes, self.raw()) },
            "cannot copy on the device",
        )
    }
    /// Submits operations on 32-bit words, in order. A write comes after all earlier work of the stream,
    /// whose writes every device and the host then see; a wait holds up all later work.
    ///
    /// # Safety
    /// The words must be alive until the stream is done, and accessible from its device.
    pub(super) unsafe fn word_ops(&self, ops: &[WordOp]) -> Result<()> {
        self.gpu.enter()?;
        for ops in ops.chunks(WordOp::MOST) {
            let mut of: Vec<_> = ops.iter().map(|op| op.argument()).collect();
            // SAFETY: the stream is alive; the caller guarantees the words.
            let submitted =
                unsafe { sys::cuStreamBatchMemOp_v2(self.raw(), of.len() as u32, of.as_mut_ptr(), 0) };
            checked(submitted.result(), "cannot submit operations on memory")?;
        }
        Ok(())
    }
    /// Records the work that `record` submits to this stream, and to streams that wait for it meanwhile, as a
    /// graph, without running it. `record` must not allocate device memory. The graph is uploaded to the
    /// device, so its first launch is as quick as the others.
    ///
    /// # Errors
    /// The errors of `record`; `Device` if the work cannot be captured.
    pub fn capture(&self, record: impl FnOnce() -> Result<()>) -> Result<CudaGraph> {
        self.gpu.enter()?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is alive.
        checked(unsafe { result::stream::begin_capture(self.raw(), mode) }, "cannot start a capture")?;
        let recorded = record();
        // SAFETY: ends the capture begun above, whether or not `record` failed.
        let graph = checked(unsafe { result::stream::end_capture(self.raw()) }, "cannot capture this work");
        recorded?;
        let graph = graph?;
        let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
        // SAFETY: the graph is valid until it is destroyed; the executable graph does not need it afterwards.
        let executable = unsafe { result::graph::instantiate(graph, flags) };
        // SAFETY: as above.
        unsafe { checked(result::graph::destroy(graph), "cannot free a graph")? };
        let raw = checked(executable, "cannot make the graph executable")?;
        let graph = CudaGraph { gpu: self.gpu.clone(), raw };
        // SAFETY: both are alive.
        checked(unsafe { result::graph::upload(graph.raw, self.raw) }, "cannot upload a graph")?;
        Ok(graph)
    }
}

/// An operation of a stream on a 32-bit word.
#[derive(Clone, Copy, Debug)]
pub(super) enum WordOp {
    /// Wait until the word at an address has a value.
    Wait(u64, u32),
    /// Write a value to an address.
    Write(u64, u32),
}

impl WordOp {
    /// Number of operations that the driver takes at once.
    const MOST: usize = 255;
    /// Returns the operation as the driver takes it: operation, address, value and flags, in 8 bytes each.
    fn argument(self) -> sys::CUstreamBatchMemOpParams {
        use sys::CUstreamBatchMemOpType::{
            CU_STREAM_MEM_OP_WAIT_VALUE_32 as WAIT, CU_STREAM_MEM_OP_WRITE_VALUE_32 as WRITE,
        };
        let equal = sys::CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_EQ as u64;
        let (operation, address, value, flags) = match self {
            WordOp::Wait(address, value) => (WAIT, address, value, equal),
            WordOp::Write(address, value) => (WRITE, address, value, 0),
        };
        sys::CUstreamBatchMemOpParams { pad: [operation as u64, address, u64::from(value), flags, 0, 0] }
    }
}

impl Drop for CudaStream {
    fn drop(&mut self) {
        if !self.borrowed && self.gpu.enter().is_ok() {
            // SAFETY: created by `new`, destroyed once; the driver lets the stream's work finish.
            let _ = unsafe { result::stream::destroy(self.raw) };
        }
    }
}

/// A marker in a stream.
#[derive(Debug)]
pub struct CudaEvent {
    gpu: Gpu,
    raw: sys::CUevent,
}

// SAFETY: as for streams.
unsafe impl Send for CudaEvent {}
// SAFETY: as for streams.
unsafe impl Sync for CudaEvent {}

impl CudaEvent {
    /// Creates an event that only orders work, which costs the device less than one with a time.
    ///
    /// # Errors
    /// `Device` if the driver refuses.
    pub fn new(gpu: &Gpu) -> Result<Self> {
        Self::with_flags(gpu, sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
    }
    /// Creates an event that also records when it was reached, for [`seconds_since`](Self::seconds_since).
    ///
    /// # Errors
    /// `Device` if the driver refuses.
    pub fn timed(gpu: &Gpu) -> Result<Self> {
        Self::with_flags(gpu, sys::CUevent_flags::CU_EVENT_DEFAULT)
    }
    fn with_flags(gpu: &Gpu, flags: sys::CUevent_flags) -> Result<Self> {
        gpu.enter()?;
        let raw = checked(result::event::create(flags), "cannot create an event")?;
        Ok(CudaEvent { gpu: gpu.clone(), raw })
    }
    /// Marks the end of the work submitted to `stream` so far.
    ///
    /// # Errors
    /// `Device` if the driver refuses.
    pub fn record(&self, stream: &CudaStream) -> Result<()> {
        self.gpu.enter()?;
        // SAFETY: both are alive.
        checked(unsafe { result::event::record(self.raw, stream.raw) }, "cannot record an event")
    }
    /// Does the same in a [`capture`](CudaStream::capture): every launch of the graph marks the end of the
    /// work before this call. The event must live as long as the graph.
    ///
    /// # Errors
    /// `Device` if the driver refuses, or the stream is not being captured.
    pub fn record_in_graph(&self, stream: &CudaStream) -> Result<()> {
        self.gpu.enter()?;
        let flags = sys::CUevent_record_flags_enum::CU_EVENT_RECORD_EXTERNAL as u32;
        // SAFETY: both are alive.
        let recorded = unsafe { sys::cuEventRecordWithFlags(self.raw, stream.raw(), flags) };
        checked(recorded.result(), "cannot record an event in a graph")
    }
    /// Returns whether the marker has been reached, without blocking.
    ///
    /// # Errors
    /// `Device` if work before the marker failed.
    pub fn is_reached(&self) -> Result<bool> {
        self.gpu.enter()?;
        // SAFETY: the event is alive.
        match unsafe { result::event::query(self.raw) } {
            Err(e) if e.0 == sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            other => checked(other, "work on the device failed").map(|()| true),
        }
    }
    /// Blocks until the marker has been reached.
    ///
    /// # Errors
    /// `Device` if work before the marker failed.
    pub fn synchronize(&self) -> Result<()> {
        self.gpu.enter()?;
        // SAFETY: the event is alive.
        checked(unsafe { result::event::synchronize(self.raw) }, "work on the device failed")
    }
    /// Returns the seconds from `earlier` to this event; both must be [`timed`](Self::timed) and have been
    /// reached.
    ///
    /// # Errors
    /// `Device` if one of them is not timed or has not been reached.
    pub fn seconds_since(&self, earlier: &CudaEvent) -> Result<f64> {
        self.gpu.enter()?;
        // SAFETY: both are alive.
        let ms = checked(
            unsafe { result::event::elapsed(earlier.raw, self.raw) },
            "cannot read the time between two events",
        )?;
        Ok(f64::from(ms) / 1e3)
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        if self.gpu.enter().is_ok() {
            // SAFETY: created by `new`, destroyed once.
            let _ = unsafe { result::event::destroy(self.raw) };
        }
    }
}

/// Recorded work, which can be launched any number of times with one call each.
#[derive(Debug)]
pub struct CudaGraph {
    gpu: Gpu,
    raw: sys::CUgraphExec,
}

// SAFETY: launches are serialised by the owner's borrow.
unsafe impl Send for CudaGraph {}

impl CudaGraph {
    /// Launches the graph on `stream`.
    ///
    /// # Errors
    /// `Device` if the driver refuses.
    ///
    /// # Safety
    /// All device and host memory that the captured work reads and writes must stay valid until the work is
    /// done.
    pub unsafe fn launch(&self, stream: &CudaStream) -> Result<()> {
        self.gpu.enter()?;
        // SAFETY: both are alive; the caller guarantees the memory.
        checked(unsafe { result::graph::launch(self.raw, stream.raw()) }, "cannot launch the captured step")
    }
}

impl Drop for CudaGraph {
    fn drop(&mut self) {
        if self.gpu.enter().is_ok() {
            // SAFETY: created by `capture`, destroyed once.
            let _ = unsafe { result::graph::exec_destroy(self.raw) };
        }
    }
}
