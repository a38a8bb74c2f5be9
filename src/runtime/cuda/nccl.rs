//! Windows of which NCCL brings a copy to every rank: for ranks that are processes, and for devices that are
//! not peers.
//!
//! A window has the same size on all ranks, so that a graph can capture the copy. A rank therefore gets whole
//! windows, not only its parts.
use super::{CudaStream, DeviceBuffer, Gpu, transport::Transport};
use crate::{
    error::{Error, ErrorKind, Result},
    runtime::comm::Comm,
};
use cudarc::nccl::{
    result::{self, NcclError},
    sys,
};
use std::{
    ffi::{CStr, c_void},
    mem::MaybeUninit,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A communicator of NCCL: all ranks, each with its device.
#[derive(Debug)]
pub(super) struct Nccl {
    gpu: Gpu,
    /// `None` once it has been aborted.
    raw: Mutex<Option<Communicator>>,
}

#[derive(Clone, Copy, Debug)]
struct Communicator(sys::ncclComm_t);

// SAFETY: a communicator may be used from any thread, by one at a time; a lock is held.
unsafe impl Send for Communicator {}

/// Converts an error of NCCL; `what` says what failed.
fn checked<T>(result: std::result::Result<T, NcclError>, what: &str) -> Result<T> {
    result.map_err(|e| {
        // SAFETY: NCCL returns static texts, for any code; null is allowed as a communicator.
        let text = |text: *const std::ffi::c_char| unsafe { CStr::from_ptr(text).to_string_lossy() };
        // SAFETY: as above.
        let (name, last) = unsafe {
            (text(sys::ncclGetErrorString(e.0)), text(sys::ncclGetLastError(std::ptr::null_mut())))
        };
        let last = if last.is_empty() { String::new() } else { format!(": {last}") };
        Error::new(ErrorKind::Comm, format!("{what}: NCCL: {name}{last}"))
            .remedy("NCCL_DEBUG=WARN says more; give every rank a GPU of its own")
    })
}

/// Bytes of the device's memory that go to a rank or come from it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub rank: usize,
    pub address: u64,
    pub bytes: usize,
}

/// Returns the error of a communicator that has been aborted.
fn aborted() -> Error {
    Error::new(ErrorKind::Comm, "the ranks have lost one another")
}

/// Bytes of the identification of a communicator.
pub(super) const ID_BYTES: usize = size_of::<sys::ncclUniqueId>();

/// Loads NCCL.
fn load() -> Result<()> {
    // SAFETY: the library's initialisers have no side effects.
    if unsafe { sys::is_culib_present() } {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Device, "there is no NCCL: libnccl.so is not found").remedy(
        "for GPUs of several processes, install it, with a link libnccl.so to libnccl.so.2 where the system \
         looks for libraries",
    ))
}

/// Returns the version of NCCL, as in `2.27.5`.
///
/// # Errors
/// `Device` if there is none.
pub fn nccl_version() -> Result<String> {
    load()?;
    let version = checked(result::get_nccl_version(), "cannot read the version")?;
    Ok(format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100))
}

impl Nccl {
    /// Connects the devices of all ranks. Collective.
    ///
    /// # Errors
    /// `Device` if there is no NCCL; `Comm` if it refuses: it wants a device for each rank.
    pub fn new(gpu: &Gpu, comm: &dyn Comm) -> Result<Self> {
        let mut id = Self::id(comm.rank())?;
        comm.broadcast(0, &mut id)?;
        Self::connect(gpu, &id, comm.rank(), comm.size())
    }
    /// Returns the identification of a new communicator on rank 0, and zeros on other ranks.
    ///
    /// # Errors
    /// `Device` if there is no NCCL; `Comm` if it refuses.
    pub fn id(rank: usize) -> Result<[u8; ID_BYTES]> {
        // Without it, every call below would panic.
        load()?;
        if rank > 0 {
            return Ok([0; ID_BYTES]);
        }
        let unique = checked(result::get_uniqueid(), "cannot connect the ranks")?;
        Ok(unique.internal.map(|byte| byte as u8))
    }
    /// Connects the devices of all ranks that have the same identification. Collective.
    ///
    /// # Errors
    /// `Comm` if NCCL refuses.
    pub fn connect(gpu: &Gpu, id: &[u8; ID_BYTES], rank: usize, ranks: usize) -> Result<Self> {
        let id = sys::ncclUniqueId { internal: id.map(|byte| byte as std::ffi::c_char) };
        gpu.enter()?;
        let mut raw = MaybeUninit::uninit();
        // SAFETY: `raw` receives the communicator; the device's context is current.
        let made = unsafe { result::comm_init_rank(raw.as_mut_ptr(), ranks as i32, id, rank as i32) };
        checked(made, "cannot connect the ranks")?;
        // SAFETY: initialised by the call above.
        let raw = Communicator(unsafe { raw.assume_init() });
        Ok(Nccl { gpu: gpu.clone(), raw: Mutex::new(Some(raw)) })
    }
    fn raw(&self) -> MutexGuard<'_, Option<Communicator>> {
        self.raw.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Submits messages to `stream`: the bytes at device addresses, to and from other ranks.
    ///
    /// # Errors
    /// `Comm` if NCCL refuses.
    ///
    /// # Safety
    /// The memory must be of this device, and live until the stream is done.
    pub unsafe fn messages(&self, sent: &[Message], received: &[Message], stream: &CudaStream) -> Result<()> {
        self.gpu.enter()?;
        let held = self.raw();
        let Some(Communicator(raw)) = *held else { return Err(aborted()) };
        let (kind, stream) = (sys::ncclDataType_t::ncclUint8, stream.handle().cast());
        checked(result::group_start(), "cannot send")?;
        let mut submitted = Ok(());
        for &Message { rank, address, bytes } in sent {
            // SAFETY: guaranteed by the caller.
            let sent =
                unsafe { sys::ncclSend(address as *const c_void, bytes, kind, rank as i32, raw, stream) };
            submitted = submitted.and(checked(sent.result().map(drop), "cannot send"));
        }
        for &Message { rank, address, bytes } in received {
            // SAFETY: guaranteed by the caller.
            let received =
                unsafe { sys::ncclRecv(address as *mut c_void, bytes, kind, rank as i32, raw, stream) };
            submitted = submitted.and(checked(received.result().map(drop), "cannot receive"));
        }
        // A group that has begun must be ended.
        let ended = checked(result::group_end().map(drop), "cannot send");
        submitted.and(ended)
    }
    /// Checks that no work has failed.
    ///
    /// # Errors
    /// `Comm`, with what NCCL says.
    pub fn check(&self) -> Result<()> {
        let Some(Communicator(raw)) = *self.raw() else { return Err(aborted()) };
        let mut state = sys::ncclResult_t::ncclSuccess;
        // SAFETY: the communicator is alive.
        let asked = unsafe { sys::ncclCommGetAsyncError(raw, &raw mut state) };
        checked(asked.result().and(state.result()).map(drop), "a collective on the device")
    }
    /// Ends all work that waits for other ranks.
    pub fn abort(&self) {
        if let Some(Communicator(raw)) = self.raw().take() {
            // SAFETY: the communicator is alive, and not used afterwards.
            let _ = unsafe { result::comm_abort(raw) };
        }
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        if let Some(Communicator(raw)) = self.raw().take()
            && self.gpu.enter().is_ok()
        {
            // SAFETY: the communicator is alive, and not used afterwards.
            let _ = unsafe { result::comm_destroy(raw) };
        }
    }
}

/// Copies of the windows of all ranks. This rank's own window is the copy of it.
#[derive(Debug)]
pub(super) struct GatheredWindows {
    nccl: Arc<Nccl>,
    memory: DeviceBuffer,
    rank: usize,
    ranks: usize,
}

impl GatheredWindows {
    /// Allocates windows of at least `bytes`, the same on all ranks. Collective.
    ///
    /// # Errors
    /// `OutOfMemory`; `Comm` if a rank is missing.
    pub fn open(gpu: &Gpu, nccl: Arc<Nccl>, comm: &dyn Comm, bytes: usize) -> Result<Self> {
        let (rank, ranks) = (comm.rank(), comm.size());
        let mut sizes = vec![0u64; ranks];
        let each = vec![size_of::<u64>(); ranks];
        comm.all_gather(&(bytes as u64).to_ne_bytes(), bytemuck::cast_slice_mut(&mut sizes), &each)?;
        let largest = sizes.into_iter().max().unwrap_or(0) as usize;
        let memory = DeviceBuffer::new(gpu, ranks * largest.next_multiple_of(ALIGN))?;
        Ok(GatheredWindows { nccl, memory, rank, ranks })
    }
    /// Returns the bytes of a window.
    fn bytes(&self) -> usize {
        self.memory.bytes() / self.ranks
    }
}

/// Alignment of windows, in bytes.
const ALIGN: usize = 256;

impl Transport for GatheredWindows {
    fn blocks(&self) -> Vec<[u64; 2]> {
        let bytes = self.bytes() as u64;
        (0..self.ranks as u64).map(|rank| [self.memory.address() + rank * bytes, bytes]).collect()
    }
    fn before_write(&self, _: &CudaStream) -> Result<()> {
        Ok(())
    }
    fn before_read(&self, stream: &CudaStream) -> Result<()> {
        self.nccl.gpu.enter()?;
        let Some(Communicator(raw)) = *self.nccl.raw() else {
            return Err(aborted());
        };
        let all = self.memory.address();
        let own = all + (self.rank * self.bytes()) as u64;
        // SAFETY: the memory lives until the stream is done, and has these sizes; a gather in place.
        let gathered = unsafe {
            sys::ncclAllGather(
                own as *const c_void,
                all as *mut c_void,
                self.bytes(),
                sys::ncclDataType_t::ncclUint8,
                raw,
                stream.handle().cast(),
            )
        };
        checked(gathered.result().map(drop), "cannot gather the windows")
    }
    fn after_read(&self, _: &CudaStream) -> Result<()> {
        Ok(())
    }
    fn is_captured(&self) -> bool {
        true
    }
    fn is_behind(&self, _: usize) -> bool {
        false
    }
    fn check(&self) -> Result<()> {
        self.nccl.check()
    }
    fn release(&self) {
        self.nccl.abort();
    }
}
