//! Device memory, and memory of the host that a device reads.
use super::{Gpu, error::checked, stream::CudaStream};
use crate::error::{Result, ensure};
use cudarc::driver::{result, sys};
use std::ffi::c_void;

/// A block of device memory, freed when it is dropped. Its address never changes.
pub struct DeviceBuffer {
    gpu: Gpu,
    address: u64,
    bytes: usize,
}

impl DeviceBuffer {
    /// `bytes` of device memory, with any content.
    ///
    /// # Errors
    /// `OutOfMemory` when the device has no such block.
    pub fn new(gpu: &Gpu, bytes: usize) -> Result<Self> {
        gpu.enter()?;
        // SAFETY: the context is current; zero bytes are not asked for.
        let made = unsafe { result::malloc_sync(bytes.max(1)) };
        let address = checked(made, &format!("cannot allocate {bytes} bytes on {}", gpu.name()))?;
        gpu.took(bytes);
        Ok(DeviceBuffer { gpu: gpu.clone(), address, bytes })
    }
    /// Where it lies on the device.
    pub fn address(&self) -> u64 {
        self.address
    }
    /// The device.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }
    /// Its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
    /// Copies `from` to its start, in the order of `stream`. `from` may be changed as soon as this returns.
    ///
    /// # Errors
    /// Device, when the driver refuses; `Shape` when `from` is longer.
    pub fn upload(&self, from: &[u8], stream: &CudaStream) -> Result<()> {
        ensure!("upload", from.len() <= self.bytes, "{} bytes into {}", from.len(), self.bytes);
        if from.is_empty() {
            return Ok(());
        }
        self.gpu.enter()?;
        // SAFETY: the block is there and long enough; pageable memory is read before the call returns.
        let copied = unsafe { result::memcpy_htod_async(self.address, from, stream.raw()) };
        checked(copied, "cannot copy to the device")
    }
    /// Copies its start to `to`, after all that `stream` was given before. Blocks until the bytes are there.
    ///
    /// # Errors
    /// Device: also where earlier work of the stream failed; `Shape` when `to` is longer.
    pub fn download(&self, to: &mut [u8], stream: &CudaStream) -> Result<()> {
        self.download_at(0, to, stream)
    }
    /// [`download`](Self::download) from byte `at` on.
    ///
    /// # Errors
    /// As `download`; `Shape` when `to` reaches past the end.
    pub fn download_at(&self, at: usize, to: &mut [u8], stream: &CudaStream) -> Result<()> {
        let end = at.checked_add(to.len()).filter(|&end| end <= self.bytes);
        ensure!("download", end.is_some(), "{} bytes from {at} of {}", to.len(), self.bytes);
        if to.is_empty() {
            return Ok(());
        }
        self.gpu.enter()?;
        // SAFETY: the block is there and long enough, and `to` outlives the synchronisation below.
        let copied = unsafe { result::memcpy_dtoh_async(to, self.address + at as u64, stream.raw()) };
        checked(copied, "cannot copy from the device")?;
        stream.synchronize()
    }
    /// Copies all of `from`, which is as long, in the order of `stream`.
    ///
    /// # Errors
    /// Device, when the driver refuses; `Shape` when the lengths differ.
    pub fn copy(&self, from: &DeviceBuffer, stream: &CudaStream) -> Result<()> {
        ensure!("copy", self.bytes == from.bytes, "{} bytes into {}", from.bytes, self.bytes);
        self.gpu.enter()?;
        // SAFETY: both blocks are there and long enough.
        let copied =
            unsafe { result::memcpy_dtod_async(self.address, from.address, self.bytes, stream.raw()) };
        checked(copied, "cannot copy on the device")
    }
    /// Sets every byte to `value`, in the order of `stream`.
    ///
    /// # Errors
    /// Device, when the driver refuses.
    pub fn fill(&self, value: u8, stream: &CudaStream) -> Result<()> {
        if self.bytes == 0 {
            return Ok(());
        }
        self.gpu.enter()?;
        // SAFETY: the block is there.
        let filled = unsafe { result::memset_d8_async(self.address, value, self.bytes, stream.raw()) };
        checked(filled, "cannot fill device memory")
    }
}

/// Bytes in the host's memory, locked there, which kernels read over the bus at this address. They never change.
pub struct PinnedTable {
    gpu: Gpu,
    address: *mut c_void,
}

// SAFETY: nobody writes what it points to; it is freed once, in whatever thread.
unsafe impl Send for PinnedTable {}
// SAFETY: as above.
unsafe impl Sync for PinnedTable {}

impl PinnedTable {
    /// A locked copy of `bytes`.
    ///
    /// # Errors
    /// `OutOfMemory` when the host cannot lock that much.
    pub fn new(gpu: &Gpu, bytes: &[u8]) -> Result<Self> {
        gpu.enter()?;
        // SAFETY: the context is current; zero bytes are not asked for.
        let made = unsafe { result::malloc_host(bytes.len().max(1), sys::CU_MEMHOSTALLOC_DEVICEMAP) };
        let address = checked(made, &format!("cannot lock {} bytes of the host's memory", bytes.len()))?;
        // SAFETY: the new block is as long, and nobody else knows of it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address.cast::<u8>(), bytes.len()) };
        Ok(PinnedTable { gpu: gpu.clone(), address })
    }
    /// Where kernels read it: devices of compute capability 8.0 address the host's memory as the host does.
    pub fn address(&self) -> u64 {
        self.address as u64
    }
}

impl Drop for PinnedTable {
    fn drop(&mut self) {
        if self.gpu.enter().is_ok() {
            // SAFETY: allocated by `new`, freed once.
            let _ = unsafe { result::free_host(self.address) };
        }
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        self.gpu.gave_back(self.bytes);
        if self.gpu.enter().is_ok() {
            // SAFETY: allocated by `new`, freed once. A failure here follows one that was already reported.
            let _ = unsafe { result::free_sync(self.address) };
        }
    }
}
