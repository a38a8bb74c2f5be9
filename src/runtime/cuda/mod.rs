//! CUDA devices: the driver library, loaded on first use; device memory, streams, events, captured graphs;
//! and one typed wrapper per kernel.
//!
//! The emulated device runs the same code over another `libcuda.so` (`crates/emulator`): ops and programs do
//! not distinguish the two.
pub mod abi;
pub mod dlpack;
mod error;
mod exchange;
mod launch;
mod launching;
mod memory;
mod module;
mod nccl;
mod nccl_comm;
mod peers;
mod probe;
mod profiler;
mod rates;
mod stream;
mod tensor;
mod transport;
mod windows;

pub use launch::{DeviceView, Grid, Kernels, Launch};
pub use memory::DeviceBuffer;
pub(crate) use memory::PinnedBuffer;
pub use module::{CudaKernel, CudaModule};
pub use nccl::nccl_version;
pub use nccl_comm::NcclComm;
pub use profiler::ProfiledRange;
pub use rates::{Transfer, transfer_rates};
pub use stream::{CudaEvent, CudaGraph, CudaStream};
pub use tensor::DeviceTensor;
pub use windows::WindowSize;
pub(crate) use windows::{Window, Windows};

use crate::{
    error::{Error, ErrorKind, Result},
    runtime::{
        MatmulPrecision,
        changes::{Change, Changes},
        phases::Phases,
    },
};
use cudarc::driver::{result, sys};
use error::checked;
use launching::Launching;
use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

/// A CUDA device with its kernels loaded, and options of the programs that use it. Clones refer to the same
/// device.
#[derive(Clone)]
pub struct Gpu {
    inner: Arc<Inner>,
    values: Values,
    precision: MatmulPrecision,
    launching: Launching,
    changes: Changes,
}

/// The memory layout of a program's values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Values {
    /// In one arena, where values that are never alive at the same time overlap.
    Packed,
    /// Each value in an allocation of its own.
    Apart,
}

struct Inner {
    ordinal: usize,
    context: sys::CUcontext,
    name: String,
    kernels: Kernels,
    /// Device memory allocated by this process, in bytes: now, and at most so far.
    held: AtomicU64,
    most: AtomicU64,
    /// Seconds between two events in a graph with nothing between them.
    empty_seconds: OnceLock<f64>,
    /// What the time goes to until the device is busy.
    phases: Phases,
}

// SAFETY: a context may be used from any thread in which it is current; `enter` makes it current.
unsafe impl Send for Inner {}
// SAFETY: as above; the driver locks.
unsafe impl Sync for Inner {}

impl std::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cuda:{} ({})", self.inner.ordinal, self.inner.name)
    }
}

/// The version of CUDA whose functions are called: 1000 times the major version, plus 10 times the minor one.
const LEAST_DRIVER: i32 = 13_000;

/// The lowest compute capability for which kernels are built.
const LEAST_CAPABILITY: (i32, i32) = (8, 0);

impl Gpu {
    /// Returns the latest version of CUDA that the driver supports, as major and minor version.
    ///
    /// # Errors
    /// `Device` if there is no driver, or it does not support CUDA 13.0.
    pub fn driver_version() -> Result<(i32, i32)> {
        // SAFETY: loads the library, if there is one. Without it every call below would panic.
        if !unsafe { sys::is_culib_present() } {
            return Err(Error::new(ErrorKind::Device, "there is no CUDA driver: libcuda.so is not found")
                .remedy("install NVIDIA's driver, or use --device cpu"));
        }
        let mut version = 0;
        // SAFETY: the driver writes a number.
        let asked = unsafe { sys::cuDriverGetVersion(&raw mut version) }.result();
        checked(asked, "cannot query the CUDA driver")?;
        let (major, minor) = (version / 1000, version % 1000 / 10);
        if version < LEAST_DRIVER {
            let what = format!("the CUDA driver supports CUDA {major}.{minor}, and 13.0 is needed");
            return Err(Error::new(ErrorKind::Device, what)
                .remedy("install NVIDIA's driver 580 or later, or use --device cpu"));
        }
        Ok((major, minor))
    }
    /// Returns the number of CUDA devices.
    ///
    /// # Errors
    /// Those of [`driver_version`](Self::driver_version).
    pub fn count() -> Result<usize> {
        Self::driver_version()?;
        checked(result::init(), "cannot initialise the CUDA driver")?;
        Ok(checked(result::device::get_count(), "cannot count CUDA devices")?.max(0) as usize)
    }
    /// Opens CUDA device `ordinal`.
    ///
    /// # Errors
    /// `Device`, naming what is missing: the driver, the device, or kernels for it.
    pub fn open(ordinal: usize) -> Result<Self> {
        let (phases, began) = (Phases::default(), Instant::now());
        let devices = Self::count()?;
        if ordinal >= devices {
            return Err(Error::new(
                ErrorKind::Device,
                format!("there is no device cuda:{ordinal} (CUDA devices found: {devices})"),
            )
            .remedy("give a lower number, or use --device cpu"));
        }
        let device = checked(result::device::get(ordinal as i32), "cannot open the device")?;
        let name = checked(result::device::get_name(device), "cannot read the device's name")?;
        if !cfg!(feature = "cuda") && name != EMULATED {
            return Err(Error::new(ErrorKind::Device, "this build has no kernels for GPUs")
                .remedy("build with the cargo feature `cuda`"));
        }
        use sys::CUdevice_attribute::{
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
        };
        // SAFETY: the device is valid.
        let attribute =
            |what| checked(unsafe { result::device::get_attribute(device, what) }, "cannot query the device");
        let capability = (attribute(MAJOR)?, attribute(MINOR)?);
        if capability < LEAST_CAPABILITY {
            let text = format!("{name} has compute capability {}.{}", capability.0, capability.1);
            return Err(
                Error::new(ErrorKind::Device, text).remedy("8.0 or later is needed; use --device cpu")
            );
        }
        let setting = std::env::var_os("TGNN_LAUNCH").map(|v| v.to_string_lossy().into_owned());
        let launching = Launching::choose(capability, setting.as_deref())?;
        let changes = Changes::of_environment()?;
        // SAFETY: the device is valid.
        let context = checked(unsafe { result::primary_ctx::retain(device) }, "cannot create a context")?;
        enter(context)?;
        phases.add("context", began.elapsed().as_secs_f64());
        let kernels = phases.time("kernels", Kernels::load)?;
        let (held, most, empty_seconds) = (AtomicU64::new(0), AtomicU64::new(0), OnceLock::new());
        let inner = Arc::new(Inner { ordinal, context, name, kernels, held, most, empty_seconds, phases });
        let gpu = Gpu { inner, values: Values::Packed, precision: MatmulPrecision::F32, launching, changes };
        let opened = gpu.inner.clone();
        opened.phases.time("probe", || gpu.tried())
    }
    /// Tries a graph of kernels. If it fails, kernels are not launched early any more.
    fn tried(mut self) -> Result<Self> {
        if let Err(e) = probe::try_graph(&self) {
            if !self.launching.early {
                return Err(e);
            }
            self.launching = self.launching.late(&e);
            probe::try_graph(&self)?;
        }
        Ok(self)
    }
    /// What the time goes to until the device is busy.
    pub(crate) fn phases(&self) -> &Phases {
        &self.inner.phases
    }
    /// Returns which changes that wait for their measurement are in use (`TGNN_BEFORE`).
    pub(crate) fn changes(&self) -> Changes {
        self.changes
    }
    /// Whether a change that waits for its measurement is in use (`TGNN_BEFORE`).
    pub(crate) fn has(&self, change: Change) -> bool {
        self.changes.has(change)
    }
    /// Returns how kernels are launched, as text: early or late, with or without clusters, and why not early
    /// if the device should be able to.
    pub fn launching(&self) -> String {
        self.launching.to_string()
    }
    /// Makes the device's context current in this thread, for calls of other libraries.
    ///
    /// # Errors
    /// `Device` if the driver refuses.
    pub fn enter(&self) -> Result<()> {
        enter(self.inner.context)
    }
    /// Lets kernels of this device access the memory of device `ordinal`. Returns whether they can.
    fn reach(&self, ordinal: usize) -> Result<bool> {
        if ordinal == self.ordinal() {
            return Ok(true);
        }
        self.enter()?;
        let own = checked(result::device::get(self.ordinal() as i32), "cannot open the device")?;
        let other = checked(result::device::get(ordinal as i32), "cannot open the device")?;
        let mut can = 0;
        // SAFETY: both devices are valid.
        let asked = unsafe { sys::cuDeviceCanAccessPeer(&raw mut can, own, other) }.result();
        checked(asked, "cannot query the device")?;
        if can == 0 {
            return Ok(false);
        }
        // SAFETY: the device is valid.
        let context = checked(unsafe { result::primary_ctx::retain(other) }, "cannot create a context")?;
        // SAFETY: the context is alive: it is never released.
        match unsafe { sys::cuCtxEnablePeerAccess(context, 0) } {
            sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => Ok(true),
            other => checked(other.result(), "cannot access the memory of another device").map(|()| true),
        }
    }
    /// Returns the same device without thread block clusters, which devices older than compute capability 9.0
    /// do not have anyway.
    #[must_use]
    pub fn without_clusters(&self) -> Self {
        Gpu { launching: Launching { clusters: false, ..self.launching.clone() }, ..self.clone() }
    }
    /// Returns the manufacturer's name of the device.
    pub fn name(&self) -> &str {
        &self.inner.name
    }
    /// Returns the device's number.
    pub fn ordinal(&self) -> usize {
        self.inner.ordinal
    }
    /// Returns the free and the total device memory, in bytes.
    ///
    /// # Errors
    /// `Device` if the driver refuses.
    pub fn memory(&self) -> Result<(usize, usize)> {
        self.enter()?;
        checked(result::mem_get_info(), "cannot query the device's memory")
    }
    /// Returns the bytes of the device's L2 cache.
    ///
    /// # Errors
    /// `Device` if the driver refuses.
    pub fn l2_bytes(&self) -> Result<usize> {
        self.enter()?;
        let device = checked(result::device::get(self.ordinal() as i32), "cannot open the device")?;
        let what = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE;
        // SAFETY: the device is valid.
        let bytes =
            checked(unsafe { result::device::get_attribute(device, what) }, "cannot query the device")?;
        Ok(bytes.max(1) as usize)
    }
    /// Returns the seconds that two events in a graph measure if there is nothing between them, which times
    /// of kernels contain. It is measured once.
    ///
    /// # Errors
    /// `Device` if the driver refuses.
    pub fn empty_seconds(&self) -> Result<f64> {
        if let Some(&seconds) = self.inner.empty_seconds.get() {
            return Ok(seconds);
        }
        let seconds = rates::empty_seconds(self)?;
        Ok(*self.inner.empty_seconds.get_or_init(|| seconds))
    }
    /// Returns the peak device memory allocated by this process, in bytes.
    pub fn peak_bytes(&self) -> u64 {
        self.inner.most.load(Relaxed)
    }
    pub(crate) fn took(&self, bytes: usize) {
        let held = self.inner.held.fetch_add(bytes as u64, Relaxed) + bytes as u64;
        self.inner.most.fetch_max(held, Relaxed);
    }
    pub(crate) fn gave_back(&self, bytes: usize) {
        self.inner.held.fetch_sub(bytes as u64, Relaxed);
    }
    /// Returns the same device with a separate allocation for every value of a program: an access beyond a
    /// value is then beyond an allocation, which the emulated device and compute-sanitizer detect.
    #[must_use]
    pub fn values_apart(&self) -> Self {
        Gpu { values: Values::Apart, ..self.clone() }
    }
    /// Whether the driver is the one of `crates/emulator`: the vendor libraries do not work with it, and
    /// timings mean nothing.
    pub fn is_emulated(&self) -> bool {
        self.name() == EMULATED
    }
    pub(crate) fn keeps_values_apart(&self) -> bool {
        self.values == Values::Apart
    }
    /// Returns the same device with the changes in `names` switched back, a list with commas between them,
    /// and no others: as `TGNN_BEFORE` does.
    ///
    /// # Errors
    /// `Device` for a word that names no change.
    pub fn before(&self, names: &str) -> Result<Self> {
        Ok(Gpu { changes: Changes::parse(names)?, ..self.clone() })
    }
    /// Returns the same device with dense products in `precision`; the default is f32.
    #[must_use]
    pub fn multiplying_in(&self, precision: MatmulPrecision) -> Self {
        Gpu { precision, ..self.clone() }
    }
    /// Returns the precision of dense products.
    pub fn precision(&self) -> MatmulPrecision {
        self.precision
    }
    /// Returns the device's kernels.
    pub fn kernels(&self) -> &Kernels {
        &self.inner.kernels
    }
}

/// Makes `context`, which lives as long as the process, current in this thread. Called every time, because
/// other code of the thread may have made another context current.
fn enter(context: sys::CUcontext) -> Result<()> {
    // SAFETY: the context is alive: it is never released.
    checked(unsafe { result::ctx::set_current(context) }, "cannot use the device")
}

/// The name of an emulated device.
const EMULATED: &str = "emulated CUDA device";

/// The environment variable with the number of connections between a process and a device.
const CONNECTIONS: &str = "CUDA_DEVICE_MAX_CONNECTIONS";

/// Makes a driver that is not open yet use 32 connections to a device, the most that there are, instead of 8,
/// unless the environment names a number. Streams that share a connection hold up one another, and several
/// ranks on a device have many streams. Returns whether a number is set now: it cannot be set once the
/// process has several threads.
pub fn set_connections() -> bool {
    if std::env::var_os(CONNECTIONS).is_some() {
        return true;
    }
    let alone = std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1);
    if alone {
        // SAFETY: no other thread reads the environment, because there is none.
        unsafe { std::env::set_var(CONNECTIONS, "32") };
    }
    alone
}

/// Makes [`Gpu::open`] use the emulated driver. A process cannot change its driver once one is loaded.
///
/// # Errors
/// `Device` if this build has no emulator, or its library cannot be loaded.
pub fn load_emulator() -> Result<()> {
    let built = option_env!("TGNN_EMULATOR");
    let Some(path) = std::env::var("TGNN_EMULATOR").ok().or(built.map(Into::into)) else {
        return Err(Error::new(ErrorKind::Device, "this build has no emulated device")
            .remedy("build with --features emu, which needs a C++ compiler"));
    };
    let cannot_load =
        |why: String| Error::new(ErrorKind::Device, format!("cannot load the emulator {path}: {why}"));
    // A sanitizer's build of the driver has no NCCL beside it.
    let nccl = std::path::Path::new(&path).with_file_name("libnccl.so");
    for library in std::iter::once(path.clone().into()).chain(nccl.exists().then_some(nccl)) {
        let file = library.into_os_string().into_encoded_bytes();
        let file = std::ffi::CString::new(file).map_err(|e| cannot_load(e.to_string()))?;
        // SAFETY: the library's initialisers have no side effects; it stays loaded.
        if unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) }.is_null() {
            // SAFETY: `dlerror` returns a text after a failed `dlopen`.
            let why = unsafe { std::ffi::CStr::from_ptr(libc::dlerror()) };
            return Err(cannot_load(why.to_string_lossy().into_owned()));
        }
    }
    Ok(())
}
