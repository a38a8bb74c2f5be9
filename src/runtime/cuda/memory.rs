//! Device memory, and host memory that a device reads.
use super::{Gpu, error::checked, stream::CudaStream};
use crate::error::{Result, ensure};
use bytemuck::Pod;
use cudarc::driver::{result, sys};
use std::{ffi::c_void, sync::atomic::AtomicU64};

/// A block of device memory, freed when it is dropped. Its address never changes.
#[derive(Debug)]
pub struct DeviceBuffer {
    gpu: Gpu,
    address: u64,
    bytes: usize,
}

impl DeviceBuffer {
    /// Allocates `bytes` of device memory with undefined content.
    ///
    /// # Errors
    /// `OutOfMemory` if the device does not have such a block.
    pub fn new(gpu: &Gpu, bytes: usize) -> Result<Self> {
        gpu.enter()?;
        // SAFETY: the context is current; the size is not zero.
        let made = unsafe { result::malloc_sync(bytes.max(1)) };
        let address = checked(made, &format!("cannot allocate {bytes} bytes on {}", gpu.name()))?;
        gpu.took(bytes);
        Ok(DeviceBuffer { gpu: gpu.clone(), address, bytes })
    }
    /// Returns the address on the device.
    pub fn address(&self) -> u64 {
        self.address
    }
    /// Returns the device.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }
    /// Returns the size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
    /// Copies `from`, numbers of any type, to the start of the block, in the order of `stream`. `from` may be
    /// changed as soon as this returns.
    ///
    /// # Errors
    /// `Device` if the driver refuses; `Shape` if `from` is longer than the block.
    pub fn upload<T: Pod>(&self, from: &[T], stream: &CudaStream) -> Result<()> {
        let from: &[u8] = bytemuck::cast_slice(from);
        ensure!("upload", from.len() <= self.bytes, "{} bytes into {}", from.len(), self.bytes);
        if from.is_empty() {
            return Ok(());
        }
        self.gpu.enter()?;
        // SAFETY: the block is alive and long enough; pageable memory is read before the call returns.
        let copied = unsafe { result::memcpy_htod_async(self.address, from, stream.raw()) };
        checked(copied, "cannot copy to the device")
    }
    /// Copies the start of the block to `to`, numbers of any type, after all previous work of `stream`.
    /// Blocks until the copy is complete.
    ///
    /// # Errors
    /// `Device` if the copy or earlier work of the stream failed; `Shape` if `to` is longer than the block.
    pub fn download<T: Pod>(&self, to: &mut [T], stream: &CudaStream) -> Result<()> {
        self.download_at(0, to, stream)
    }
    /// Like [`download`](Self::download), from byte `at` on.
    ///
    /// # Errors
    /// As `download`; `Shape` if the range extends past the end of the block.
    pub fn download_at<T: Pod>(&self, at: usize, to: &mut [T], stream: &CudaStream) -> Result<()> {
        let to: &mut [u8] = bytemuck::cast_slice_mut(to);
        let end = at.checked_add(to.len()).filter(|&end| end <= self.bytes);
        ensure!("download", end.is_some(), "{} bytes from {at} of {}", to.len(), self.bytes);
        if to.is_empty() {
            return Ok(());
        }
        self.gpu.enter()?;
        // SAFETY: the block is alive and long enough, and `to` outlives the synchronisation below.
        let copied = unsafe { result::memcpy_dtoh_async(to, self.address + at as u64, stream.raw()) };
        checked(copied, "cannot copy from the device")?;
        stream.synchronize()
    }
    /// Copies all of `from`, a block of the same length, in the order of `stream`.
    ///
    /// # Errors
    /// `Device` if the driver refuses; `Shape` if the lengths differ.
    pub fn copy(&self, from: &DeviceBuffer, stream: &CudaStream) -> Result<()> {
        ensure!("copy", self.bytes == from.bytes, "{} bytes into {}", from.bytes, self.bytes);
        self.gpu.enter()?;
        // SAFETY: both blocks are alive and long enough.
        let copied =
            unsafe { result::memcpy_dtod_async(self.address, from.address, self.bytes, stream.raw()) };
        checked(copied, "cannot copy on the device")
    }
    /// Sets every byte to `value`, in the order of `stream`.
    ///
    /// # Errors
    /// `Device` if the driver refuses.
    pub fn fill(&self, value: u8, stream: &CudaStream) -> Result<()> {
        if self.bytes == 0 {
            return Ok(());
        }
        self.gpu.enter()?;
        // SAFETY: the block is alive.
        let filled = unsafe { result::memset_d8_async(self.address, value, self.bytes, stream.raw()) };
        checked(filled, "cannot fill device memory")
    }
}

/// Allocates page-locked memory of the host.
fn lock_memory(gpu: &Gpu, bytes: usize, flags: u32) -> Result<*mut c_void> {
    gpu.enter()?;
    // SAFETY: the context is current; the size is not zero.
    let made = unsafe { result::malloc_host(bytes.max(1), flags) };
    checked(made, &format!("cannot lock {bytes} bytes of the host's memory"))
}

/// Page-locked host memory, which kernels read and write over the bus.
#[derive(Debug)]
pub(crate) struct PinnedBuffer {
    gpu: Gpu,
    address: *mut c_void,
    bytes: usize,
}

// SAFETY: the host writes the memory only with exclusive access; it is freed once, from any thread.
unsafe impl Send for PinnedBuffer {}
// SAFETY: as above.
unsafe impl Sync for PinnedBuffer {}

impl PinnedBuffer {
    /// Copies `bytes` to page-locked memory.
    ///
    /// # Errors
    /// `OutOfMemory` if the host cannot lock that much memory.
    pub fn new(gpu: &Gpu, bytes: &[u8]) -> Result<Self> {
        let address = lock_memory(gpu, bytes.len(), sys::CU_MEMHOSTALLOC_DEVICEMAP)?;
        // SAFETY: the new block is as long as `bytes`, and not shared yet.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address.cast::<u8>(), bytes.len()) };
        Ok(PinnedBuffer { gpu: gpu.clone(), address, bytes: bytes.len() })
    }
    /// Returns the device.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }
    /// Overwrites the memory after all previous work of `stream`.
    ///
    /// # Errors
    /// `Device` if earlier work of the stream failed; `Shape` if the lengths differ.
    pub fn upload(&mut self, from: &[u8], stream: &CudaStream) -> Result<()> {
        ensure!("upload", from.len() == self.bytes, "{} bytes into {}", from.len(), self.bytes);
        stream.synchronize()?;
        // SAFETY: the block has this length, and no work of the stream is left that uses it.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.address.cast::<u8>(), self.bytes) };
        Ok(())
    }
    /// Copies the memory to `to` after all previous work of `stream`.
    ///
    /// # Errors
    /// As [`upload`](Self::upload).
    pub fn download(&self, to: &mut [u8], stream: &CudaStream) -> Result<()> {
        ensure!("download", to.len() == self.bytes, "{} bytes of {}", to.len(), self.bytes);
        stream.synchronize()?;
        // SAFETY: the block has this length, and no work of the stream is left that uses it.
        unsafe { std::ptr::copy_nonoverlapping(self.address.cast::<u8>(), to.as_mut_ptr(), self.bytes) };
        Ok(())
    }
    /// Returns the address for kernels: devices of compute capability 8.0 or later use the host's addresses
    /// of such memory.
    pub fn address(&self) -> u64 {
        self.address as u64
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        if self.gpu.enter().is_ok() {
            // SAFETY: allocated by `new`, freed once.
            let _ = unsafe { result::free_host(self.address) };
        }
    }
}

/// Page-locked numbers of the host, zero at first, that the host and the streams of all devices change.
#[derive(Debug)]
pub(crate) struct PinnedWords {
    memory: PinnedBuffer,
    words: usize,
}

impl PinnedWords {
    /// Allocates `words` numbers.
    ///
    /// # Errors
    /// `OutOfMemory` if the host cannot lock that much memory.
    pub fn new(gpu: &Gpu, words: usize) -> Result<Self> {
        let bytes = words * size_of::<AtomicU64>();
        let flags = sys::CU_MEMHOSTALLOC_DEVICEMAP | sys::CU_MEMHOSTALLOC_PORTABLE;
        let address = lock_memory(gpu, bytes, flags)?;
        // SAFETY: the new block has this size, and is not shared yet.
        unsafe { std::ptr::write_bytes(address.cast::<u8>(), 0, bytes) };
        Ok(PinnedWords { memory: PinnedBuffer { gpu: gpu.clone(), address, bytes }, words })
    }
    /// Returns the numbers.
    pub fn all(&self) -> &[AtomicU64] {
        // SAFETY: the block holds this many initialised numbers, and is page-aligned.
        unsafe { std::slice::from_raw_parts(self.memory.address.cast(), self.words) }
    }
    /// Returns the address of number `at` for streams and kernels.
    pub fn address(&self, at: usize) -> u64 {
        self.memory.address() + (at * size_of::<AtomicU64>()) as u64
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        self.gpu.gave_back(self.bytes);
        if self.gpu.enter().is_ok() {
            // SAFETY: allocated by `new`, freed once. If this fails, an earlier error has already been
            // reported.
            let _ = unsafe { result::free_sync(self.address) };
        }
    }
}
