//! Rates of a device that are measured, not known.
use super::{CudaEvent, CudaStream, DeviceBuffer, Gpu, Grid, Launch, Windows};
use crate::error::{Error, ErrorKind, Result};

/// Number of transfers in a row that are timed together.
const TRANSFERS: usize = 20;
/// Threads of a block that transfers words, and the bytes that it transfers (`kernels/rates.cu`).
const THREADS: u32 = 256;
const BLOCK_BYTES: usize = 8_192 * size_of::<u32>();

/// What moves bytes, to measure how fast memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// A copy by the driver.
    DriverCopy,
    /// A copy by a kernel, whose threads load 16 bytes at a time, eight times ahead.
    Copy,
    /// A kernel that reads in the same way, and writes nothing.
    Read,
}

impl Transfer {
    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Transfer::DriverCopy => "copy by the driver",
            Transfer::Copy => "copy by a kernel",
            Transfer::Read => "read by a kernel",
        }
    }
    /// Returns how many bytes are read and written for each byte of the source.
    fn times(self) -> usize {
        if self == Transfer::Read { 1 } else { 2 }
    }
    /// Launches a transfer of all bytes of `from`, or records it in a graph.
    fn launch(self, from: &DeviceBuffer, to: &DeviceBuffer, bytes: usize, stream: &CudaStream) -> Result<()> {
        let (words, grid) = ((bytes / size_of::<u32>()) as u64, Grid::new(bytes / BLOCK_BYTES, THREADS));
        let (windows, kernels) = (Windows::default(), stream.gpu().kernels());
        let on = Launch::without_operands(stream, &windows);
        let (source, target) = (from.address() as *const u32, to.address() as *mut u32);
        match self {
            Transfer::DriverCopy => to.copy(from, stream),
            // SAFETY: both buffers have these words, which are a multiple of those of a block.
            Transfer::Copy => unsafe { kernels.copy_words(&on, grid, source, target, words) },
            // SAFETY: as above.
            Transfer::Read => unsafe { kernels.read_words(&on, grid, source, target, words) },
        }
    }
}

/// Measures transfers of `bytes` on the device, one after the other from and to the same memory. The size is
/// rounded down to whole blocks of 32 KiB, at least one. Returns bytes per second, read plus written, of each
/// of `timings` timings.
///
/// # Errors
/// `OutOfMemory`; `Device` if the driver refuses.
pub fn transfer_rates(gpu: &Gpu, transfer: Transfer, bytes: usize, timings: usize) -> Result<Vec<f64>> {
    let bytes = (bytes / BLOCK_BYTES).max(1) * BLOCK_BYTES;
    let (stream, from, to) =
        (CudaStream::new(gpu)?, DeviceBuffer::new(gpu, bytes)?, DeviceBuffer::new(gpu, bytes)?);
    from.fill(1, &stream)?;
    to.fill(0, &stream)?;
    let (start, end) = (CudaEvent::timed(gpu)?, CudaEvent::timed(gpu)?);
    // One launch for all: a transfer within L2 takes less time than its launch.
    let transfers = stream.capture(|| {
        start.record_in_graph(&stream)?;
        (0..TRANSFERS).try_for_each(|_| transfer.launch(&from, &to, bytes, &stream))?;
        end.record_in_graph(&stream)
    })?;
    let time = |_| {
        // SAFETY: the memory and the events live until the stream is done.
        unsafe { transfers.launch(&stream)? };
        stream.synchronize()?;
        Ok((transfer.times() * bytes * TRANSFERS) as f64 / end.seconds_since(&start)?)
    };
    time(0)?; // fills the cache
    let mut last = [0u8; 16];
    to.download_at(bytes - last.len(), &mut last, &stream)?;
    if transfer != Transfer::Read && last != [1; 16] {
        let what = format!("a {} leaves bytes out", transfer.name());
        return Err(Error::new(ErrorKind::Device, what));
    }
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
