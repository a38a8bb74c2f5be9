//! The range of a program that profilers record.
use super::{Gpu, error::checked};
use crate::error::Result;
use cudarc::driver::{result, sys};

/// The range that profilers record if they wait for it, from [`begin`](Self::begin) until this value is
/// dropped: Nsight Systems with `-c cudaProfilerApi`, Nsight Compute with `--profile-from-start off`. Without
/// a profiler it has no effect.
///
/// ```no_run
/// # use tgnn::{error::Result, runtime::cuda::{Gpu, ProfiledRange}};
/// # fn warm_up(_: &Gpu) {}
/// # fn work(_: &Gpu) {}
/// let gpu = Gpu::open(0)?;
/// warm_up(&gpu); // not recorded
/// let range = ProfiledRange::begin(&gpu)?;
/// work(&gpu);
/// drop(range);
/// # Ok::<(), tgnn::error::Error>(())
/// ```
#[must_use = "the range ends when this is dropped"]
#[derive(Debug)]
pub struct ProfiledRange {
    gpu: Gpu,
}

impl ProfiledRange {
    /// Begins the range once all work of the device that was submitted before is done.
    ///
    /// # Errors
    /// `Device` if that work failed, or the driver refuses.
    pub fn begin(gpu: &Gpu) -> Result<Self> {
        gpu.enter()?;
        checked(result::ctx::synchronize(), "work on the device failed")?;
        // SAFETY: a context is current.
        checked(unsafe { sys::cuProfilerStart() }.result(), "cannot start the profiler's range")?;
        Ok(ProfiledRange { gpu: gpu.clone() })
    }
}

impl Drop for ProfiledRange {
    /// Ends the range once all of its work is done. An error of that work is reported by whoever waits for
    /// it.
    fn drop(&mut self) {
        if self.gpu.enter().is_ok() {
            let _ = result::ctx::synchronize();
            // SAFETY: a context is current.
            let _ = unsafe { sys::cuProfilerStop() };
        }
    }
}
