//! Streams, events, and captured graphs.
use super::{Gpu, error::checked};
use crate::error::Result;
use cudarc::driver::{result, sys};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// An ordered queue of device work. Works of two streams run side by side unless an event orders them.
pub struct CudaStream {
    gpu: Gpu,
    raw: sys::CUstream,
    launched: AtomicUsize,
}

// SAFETY: the driver's handles may be used from any thread in which the context is current; `enter` sees to that.
unsafe impl Send for CudaStream {}
// SAFETY: as above; the driver locks.
unsafe impl Sync for CudaStream {}

impl CudaStream {
    /// A stream that does not wait for the default one.
    ///
    /// # Errors
    /// Device, when the driver refuses.
    pub fn new(gpu: &Gpu) -> Result<Self> {
        gpu.enter()?;
        let raw =
            checked(result::stream::create(result::stream::StreamKind::NonBlocking), "cannot make a stream")?;
        Ok(CudaStream { gpu: gpu.clone(), raw, launched: AtomicUsize::new(0) })
    }
    pub(super) fn raw(&self) -> sys::CUstream {
        self.raw
    }
    pub(super) fn count_launch(&self) {
        self.launched.fetch_add(1, Relaxed);
    }
    /// Kernels that it was given so far, captured ones too.
    pub fn launched(&self) -> usize {
        self.launched.load(Relaxed)
    }
    /// Blocks until everything given to it is done.
    ///
    /// # Errors
    /// Device: what went wrong with any of it.
    pub fn synchronize(&self) -> Result<()> {
        self.gpu.enter()?;
        // SAFETY: the stream is alive.
        checked(unsafe { result::stream::synchronize(self.raw) }, "work on the device failed")
    }
    /// Makes what is given to it from now on wait for `event`.
    ///
    /// # Errors
    /// Device, when the driver refuses.
    pub fn wait(&self, event: &CudaEvent) -> Result<()> {
        self.gpu.enter()?;
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: both are alive.
        checked(unsafe { result::stream::wait_event(self.raw, event.raw, flags) }, "cannot wait for an event")
    }
    /// Records what `record` gives to this stream, and to streams that wait for it meanwhile, as a graph; nothing of it
    /// runs. Memory cannot be allocated in there.
    ///
    /// # Errors
    /// Those of `record`; Device, where it did what cannot be captured.
    pub fn capture(&self, record: impl FnOnce() -> Result<()>) -> Result<CudaGraph> {
        self.gpu.enter()?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is alive.
        checked(unsafe { result::stream::begin_capture(self.raw, mode) }, "cannot start a capture")?;
        let recorded = record();
        // SAFETY: this ends what was begun above, whatever came of it.
        let graph = checked(unsafe { result::stream::end_capture(self.raw) }, "cannot capture this work");
        recorded?;
        let graph = graph?;
        // SAFETY: the graph is valid until it is destroyed; an executable one does not need it any more.
        let made = unsafe { result::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0)) };
        // SAFETY: as above.
        unsafe { checked(result::graph::destroy(graph), "cannot free a graph")? };
        Ok(CudaGraph { gpu: self.gpu.clone(), raw: checked(made, "cannot make the graph executable")? })
    }
}

impl Drop for CudaStream {
    fn drop(&mut self) {
        if self.gpu.enter().is_ok() {
            // SAFETY: made by `new`, destroyed once; the driver lets its work finish.
            let _ = unsafe { result::stream::destroy(self.raw) };
        }
    }
}

/// A mark in a stream.
pub struct CudaEvent {
    gpu: Gpu,
    raw: sys::CUevent,
}

// SAFETY: as for streams.
unsafe impl Send for CudaEvent {}
// SAFETY: as for streams.
unsafe impl Sync for CudaEvent {}

impl CudaEvent {
    /// An event that can take the time.
    ///
    /// # Errors
    /// Device, when the driver refuses.
    pub fn new(gpu: &Gpu) -> Result<Self> {
        gpu.enter()?;
        let raw =
            checked(result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT), "cannot make an event")?;
        Ok(CudaEvent { gpu: gpu.clone(), raw })
    }
    /// Marks the end of what `stream` was given so far.
    ///
    /// # Errors
    /// Device, when the driver refuses.
    pub fn record(&self, stream: &CudaStream) -> Result<()> {
        self.gpu.enter()?;
        // SAFETY: both are alive.
        checked(unsafe { result::event::record(self.raw, stream.raw) }, "cannot record an event")
    }
    /// Whether the mark was reached. Never blocks.
    ///
    /// # Errors
    /// Device: what went wrong before it.
    pub fn is_reached(&self) -> Result<bool> {
        self.gpu.enter()?;
        // SAFETY: the event is alive.
        match unsafe { result::event::query(self.raw) } {
            Err(e) if e.0 == sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            other => checked(other, "work on the device failed").map(|()| true),
        }
    }
    /// Blocks until the mark is reached.
    ///
    /// # Errors
    /// Device: what went wrong before it.
    pub fn synchronize(&self) -> Result<()> {
        self.gpu.enter()?;
        // SAFETY: the event is alive.
        checked(unsafe { result::event::synchronize(self.raw) }, "work on the device failed")
    }
    /// Seconds from `earlier` to this one; both were reached.
    ///
    /// # Errors
    /// Device, where one was not.
    pub fn seconds_since(&self, earlier: &CudaEvent) -> Result<f64> {
        self.gpu.enter()?;
        // SAFETY: both are alive.
        let ms = checked(unsafe { result::event::elapsed(earlier.raw, self.raw) }, "cannot take the time")?;
        Ok(f64::from(ms) / 1e3)
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        if self.gpu.enter().is_ok() {
            // SAFETY: made by `new`, destroyed once.
            let _ = unsafe { result::event::destroy(self.raw) };
        }
    }
}

/// Work recorded once, to be run as often as one likes with one call each.
pub struct CudaGraph {
    gpu: Gpu,
    raw: sys::CUgraphExec,
}

// SAFETY: launches are serialised by the borrow of whoever owns it.
unsafe impl Send for CudaGraph {}

impl CudaGraph {
    /// Gives it to `stream`.
    ///
    /// # Errors
    /// Device, when the driver refuses.
    ///
    /// # Safety
    /// All memory that the captured work reads and writes, of the device and of the host, must be there until it has run.
    pub unsafe fn launch(&self, stream: &CudaStream) -> Result<()> {
        self.gpu.enter()?;
        // SAFETY: both are alive; the memory is the caller's promise.
        checked(unsafe { result::graph::launch(self.raw, stream.raw) }, "cannot launch the captured step")
    }
}

impl Drop for CudaGraph {
    fn drop(&mut self) {
        if self.gpu.enter().is_ok() {
            // SAFETY: made by `capture`, destroyed once.
            let _ = unsafe { result::graph::exec_destroy(self.raw) };
        }
    }
}
