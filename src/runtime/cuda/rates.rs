//! Rates of a device that are measured, not known.
use super::{CudaEvent, CudaStream, DeviceBuffer, Gpu};
use crate::error::Result;

/// Number of copies in a row that are timed together.
const COPIES: usize = 20;

/// Measures a copy of `bytes` on the device, one after the other from and to the same memory. Returns bytes
/// per second, read plus written, of each of `timings` timings.
///
/// # Errors
/// `OutOfMemory`; `Device` if the driver refuses.
pub fn copy_rates(gpu: &Gpu, bytes: usize, timings: usize) -> Result<Vec<f64>> {
    let (stream, from, to) =
        (CudaStream::new(gpu)?, DeviceBuffer::new(gpu, bytes)?, DeviceBuffer::new(gpu, bytes)?);
    from.fill(1, &stream)?;
    let (start, end) = (CudaEvent::timed(gpu)?, CudaEvent::timed(gpu)?);
    // One launch for all: a copy within L2 takes less time than its launch.
    let copies = stream.capture(|| {
        start.record_in_graph(&stream)?;
        (0..COPIES).try_for_each(|_| to.copy(&from, &stream))?;
        end.record_in_graph(&stream)
    })?;
    let time = |_| {
        // SAFETY: the memory and the events live until the stream is done.
        unsafe { copies.launch(&stream)? };
        stream.synchronize()?;
        Ok((2 * bytes * COPIES) as f64 / end.seconds_since(&start)?)
    };
    time(0)?; // fills the cache
    (0..timings).map(time).collect()
}

/// Number of times that a pair of events is timed.
const PAIRS: usize = 9;

/// Measures two events in a graph with nothing between them. Returns the median in seconds.
pub(super) fn empty_seconds(gpu: &Gpu) -> Result<f64> {
    let stream = CudaStream::new(gpu)?;
    let (start, end) = (CudaEvent::timed(gpu)?, CudaEvent::timed(gpu)?);
    let pair = stream.capture(|| {
        start.record_in_graph(&stream)?;
        end.record_in_graph(&stream)
    })?;
    let time = |_| {
        // SAFETY: the events live until the stream is done.
        unsafe { pair.launch(&stream)? };
        stream.synchronize()?;
        end.seconds_since(&start)
    };
    let mut seconds = (0..PAIRS).map(time).collect::<Result<Vec<f64>>>()?;
    seconds.sort_unstable_by(f64::total_cmp);
    Ok(seconds[PAIRS / 2])
}
