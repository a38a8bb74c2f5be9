//! CUDA devices: the driver, loaded when somebody asks for it; device memory, streams, events, captured graphs; and the
//! kernels, one typed wrapper each.
//!
//! The emulated device is the same code over another `libcuda.so` (`kernels/emu/`): no op and no program asks which it is.
pub mod abi;
pub(crate) mod cublaslt;
pub(crate) mod cusparse;
mod error;
mod launch;
mod memory;
mod stream;

pub use launch::{DeviceView, Grid, Kernels, Launch, Rival};
pub use memory::{DeviceBuffer, PinnedTable};
pub use stream::{CudaEvent, CudaGraph, CudaStream};

use crate::{
    error::{Error, ErrorKind, Result},
    runtime::MatmulPrecision,
};
use cudarc::driver::{result, sys};
use error::checked;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// A CUDA device with its kernels loaded, and how programs use it. Clones are the same device.
#[derive(Clone)]
pub struct Gpu {
    inner: Arc<Inner>,
    values: Values,
    precision: MatmulPrecision,
    rival: Option<Arc<Rival>>,
}

/// How programs lay out their values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Values {
    /// In one arena, where values that are never alive together overlap.
    Packed,
    /// Each in an allocation of its own.
    Apart,
}

struct Inner {
    ordinal: usize,
    context: sys::CUcontext,
    name: String,
    kernels: Kernels,
    /// Bytes that this process has allocated there, now and at most.
    held: AtomicU64,
    most: AtomicU64,
}

// SAFETY: a context may be used from any thread that makes it current, which `enter` does.
unsafe impl Send for Inner {}
// SAFETY: as above; the driver locks.
unsafe impl Sync for Inner {}

impl std::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cuda:{} ({})", self.inner.ordinal, self.inner.name)
    }
}

/// The lowest compute capability that kernels are made for.
const LEAST_CAPABILITY: (i32, i32) = (8, 0);

impl Gpu {
    /// CUDA device `ordinal`.
    ///
    /// # Errors
    /// Device, with what is missing: the driver, the device, kernels for it.
    pub fn open(ordinal: usize) -> Result<Self> {
        // SAFETY: loads the library, if there is one. Everything below would panic without it.
        if !unsafe { sys::is_culib_present() } {
            return Err(Error::new(ErrorKind::Device, "there is no CUDA driver: libcuda.so is not found")
                .remedy("install NVIDIA's driver, or use --device cpu"));
        }
        checked(result::init(), "the CUDA driver does not start")?;
        let there = checked(result::device::get_count(), "cannot count CUDA devices")?;
        if ordinal as i32 >= there {
            return Err(Error::new(
                ErrorKind::Device,
                format!("there is no device cuda:{ordinal}, there are {there}"),
            )
            .remedy("give a lower number, or use --device cpu"));
        }
        let device = checked(result::device::get(ordinal as i32), "cannot open the device")?;
        let name = checked(result::device::get_name(device), "cannot read the device's name")?;
        use sys::CUdevice_attribute::{
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
        };
        // SAFETY: the device is valid.
        let attribute =
            |what| checked(unsafe { result::device::get_attribute(device, what) }, "cannot ask the device");
        let capability = (attribute(MAJOR)?, attribute(MINOR)?);
        if capability < LEAST_CAPABILITY {
            let text = format!("{name} has compute capability {}.{}", capability.0, capability.1);
            return Err(
                Error::new(ErrorKind::Device, text).remedy("8.0 or later is needed; use --device cpu")
            );
        }
        // SAFETY: the device is valid.
        let context = checked(unsafe { result::primary_ctx::retain(device) }, "cannot make a context")?;
        enter(context)?;
        let (kernels, held, most) = (Kernels::load()?, AtomicU64::new(0), AtomicU64::new(0));
        let inner = Arc::new(Inner { ordinal, context, name, kernels, held, most });
        Ok(Gpu { inner, values: Values::Packed, precision: MatmulPrecision::F32, rival: None })
    }
    /// Makes its context this thread's.
    pub(crate) fn enter(&self) -> Result<()> {
        enter(self.inner.context)
    }
    /// The maker's name of it.
    pub fn name(&self) -> &str {
        &self.inner.name
    }
    /// Its number.
    pub fn ordinal(&self) -> usize {
        self.inner.ordinal
    }
    /// Bytes of its memory: free, and all.
    ///
    /// # Errors
    /// Device, when the driver refuses.
    pub fn memory(&self) -> Result<(usize, usize)> {
        self.enter()?;
        checked(result::mem_get_info(), "cannot ask for the device's memory")
    }
    /// Most bytes that this process ever held there.
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
    /// The same device, on which every value of a program gets an allocation of its own: an access beyond a value is
    /// then one beyond an allocation, which an emulated device and compute-sanitizer notice.
    #[must_use]
    pub fn values_apart(&self) -> Self {
        Gpu { values: Values::Apart, ..self.clone() }
    }
    /// The same device, on which `rival` does the work of its op.
    #[must_use]
    pub fn with_rival(&self, rival: Rival) -> Self {
        Gpu { rival: Some(Arc::new(rival)), ..self.clone() }
    }
    /// Who does the work of the op called `op` in its place.
    pub(crate) fn rival(&self, op: &str) -> Option<&Rival> {
        self.rival.as_deref().filter(|r| r.op() == op)
    }
    /// Whether the driver is the one of `kernels/emu`: no other library knows it, and its times mean nothing.
    pub fn is_emulated(&self) -> bool {
        self.name() == "emulated CUDA device"
    }
    pub(crate) fn keeps_values_apart(&self) -> bool {
        self.values == Values::Apart
    }
    /// The same device, on which dense products multiply in `precision`; f32 where nothing is said.
    #[must_use]
    pub fn multiplying_in(&self, precision: MatmulPrecision) -> Self {
        Gpu { precision, ..self.clone() }
    }
    /// What dense products multiply in.
    pub fn precision(&self) -> MatmulPrecision {
        self.precision
    }
    /// Its kernels.
    pub fn kernels(&self) -> &Kernels {
        &self.inner.kernels
    }
}

/// Makes `context`, which lives as long as the process, this thread's. Asked for every time: other code of the thread may have made
/// another one its own.
fn enter(context: sys::CUcontext) -> Result<()> {
    // SAFETY: the context is alive: nobody releases it.
    checked(unsafe { result::ctx::set_current(context) }, "cannot use the device")
}

/// Makes the emulated driver the one that [`Gpu::open`] finds. Once a process has a driver, it keeps it.
///
/// # Errors
/// Device, where this build has no emulator, or its library cannot be loaded.
pub fn load_emulator() -> Result<()> {
    let built = option_env!("TGNN_EMULATOR");
    let Some(path) = std::env::var("TGNN_EMULATOR").ok().or(built.map(Into::into)) else {
        return Err(Error::new(ErrorKind::Device, "this build has no emulated device")
            .remedy("build with --features emu, which needs a C++ compiler"));
    };
    let wrong =
        |why: String| Error::new(ErrorKind::Device, format!("cannot load the emulator {path}: {why}"));
    let file = std::ffi::CString::new(path.clone()).map_err(|e| wrong(e.to_string()))?;
    // SAFETY: the library's initialisers do nothing; it stays loaded for good.
    if unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) }.is_null() {
        // SAFETY: `dlerror` gives a text after a failed `dlopen`.
        let why = unsafe { std::ffi::CStr::from_ptr(libc::dlerror()) };
        return Err(wrong(why.to_string_lossy().into_owned()));
    }
    Ok(())
}
