//! The devices on which tests run kernels.
// Two crates of tests use this file, each a part of it.
#![allow(dead_code)]
use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    sync::{Condvar, Mutex, OnceLock, PoisonError},
};
use tgnn::runtime::{
    Device,
    cuda::{CudaStream, DeviceBuffer, Gpu, load_emulator},
};

/// Number of devices of the emulated machine.
const EMULATED: usize = 8;

/// A device that one test owns until this value is dropped.
pub struct TestDevice {
    pub gpu: Gpu,
    pub emulated: bool,
}

/// How a test launches a kernel.
#[derive(Clone, Copy)]
pub struct Shape {
    /// Blocks.
    pub grid: (u32, u32, u32),
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of dynamic shared memory of a block.
    pub shared: u32,
    /// Blocks of a cluster; none: no clusters.
    pub cluster: Option<(u32, u32, u32)>,
    /// Whether it may start before the previous kernel has ended.
    pub early: bool,
}

impl Shape {
    /// Returns a plain launch of blocks along x.
    pub fn new((blocks, threads, shared): (u32, u32, u32)) -> Self {
        Shape { grid: (blocks, 1, 1), threads, shared, cluster: None, early: false }
    }
}

/// Ordinals of the devices that no test owns. The emulated machine has several, so that tests run side by
/// side.
static FREE: Mutex<Option<Vec<usize>>> = Mutex::new(None);
static GIVEN_BACK: Condvar = Condvar::new();

/// Returns the device on which kernels are tested: an emulated one with the schedule of `seed` (0: everything
/// in order) or, with `TGNN_TEST_DEVICE=cuda`, a GPU, which has its own schedule. `None` if there is neither;
/// the skipped test then prints why.
pub fn device(seed: u64) -> Option<TestDevice> {
    devices(1, seed)?.pop()
}

/// Like [`device`], for several ranks: as many emulated devices, which a test gets all at once, or one GPU,
/// which the ranks share.
pub fn devices(count: usize, seed: u64) -> Option<Vec<TestDevice>> {
    static OPENED: [OnceLock<Gpu>; EMULATED] = [const { OnceLock::new() }; EMULATED];
    let emulated = std::env::var_os("TGNN_TEST_DEVICE").is_none_or(|d| d != "cuda");
    if emulated && !cfg!(feature = "emu") {
        println!("skipped: wants --features emu, or a GPU and TGNN_TEST_DEVICE=cuda");
        return None;
    }
    if emulated {
        load_emulator().expect("the emulator was built");
    }
    let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
    free.get_or_insert_with(|| (0..if emulated { EMULATED } else { 1 }).rev().collect());
    let wanted = if emulated { count } else { 1 };
    let ordinals = loop {
        match free.as_mut().filter(|free| free.len() >= wanted) {
            Some(free) => break free.split_off(free.len() - wanted),
            None => free = GIVEN_BACK.wait(free).unwrap_or_else(PoisonError::into_inner),
        }
    };
    drop(free);
    let open = |ordinal: usize| {
        let open = || Gpu::open(ordinal).expect("the device opens").values_apart();
        let device = TestDevice { gpu: OPENED[ordinal].get_or_init(open).clone(), emulated };
        device.schedule(seed);
        device.connections(0);
        device.matrix_units("h100");
        device.code(&std::env::var("TGNN_EMU_CODE").unwrap_or_else(|_| "host".into()));
        device
    };
    Some(ordinals.into_iter().map(open).collect())
}

impl Drop for TestDevice {
    fn drop(&mut self) {
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        free.as_mut().expect("devices were lent").push(self.gpu.ordinal());
        GIVEN_BACK.notify_all();
    }
}

/// Chooses variants of a test to try on its `case`-th case, out of `all`, each with the seed of its schedule.
/// There are `few` of them, and each case continues after the variants of the previous one, so that every
/// variant is tried. In a soak test all variants are tried, with seeds of its round.
pub fn drawn(case: usize, few: usize, all: usize) -> Vec<(usize, u64)> {
    let round = soak();
    let tried = if round.is_some() { all } else { few };
    let first = 1 + 1000 * round.map_or(0, |round| round - 1);
    (0..tried).map(|i| (case * tried + i) % all).map(|variant| (variant, first + variant as u64)).collect()
}

/// Returns the number of the round of a soak test, from 1 on: `TGNN_SOAK`.
pub fn soak() -> Option<u64> {
    std::env::var("TGNN_SOAK").ok().map(|round| round.parse().expect("TGNN_SOAK is a number"))
}

/// Returns an emulated device, for tests of the emulator itself, whose own kernels are host code.
pub fn emulated() -> Option<TestDevice> {
    let device = device(0).filter(|d| d.emulated);
    match &device {
        Some(device) => device.code("host"),
        None => println!("skipped: wants the emulated device"),
    }
    device
}

/// Returns a function of the library that stands in for the CUDA driver.
pub fn symbol(name: &str) -> *mut c_void {
    let name = CString::new(name).unwrap();
    // SAFETY: looks up a name among the loaded libraries.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    assert!(!found.is_null(), "the emulator has no {name:?}");
    found
}

impl TestDevice {
    /// Returns this device as programs take it, with one thread of the CPU.
    pub fn device(&self) -> Device {
        let kind = if self.emulated { "emu" } else { "cuda" };
        Device::open(&format!("{kind}:{}", self.gpu.ordinal()), 1).unwrap()
    }
    /// Sets the schedule of threads, blocks and CUDA streams from now on, and clears a fault. Does nothing on
    /// a GPU.
    pub fn schedule(&self, seed: u64) {
        if !self.emulated {
            return;
        }
        // SAFETY: the signature is `void tgnn_emu_schedule(int, uint64_t)`.
        unsafe {
            let schedule: extern "C" fn(c_int, u64) = std::mem::transmute(symbol("tgnn_emu_schedule"));
            schedule(self.gpu.ordinal() as c_int, seed);
        }
    }
    /// Sets the number of connections from now on; 0: as many as streams. If streams share them, the device
    /// runs what they are given in its order, and calls of the driver that may wait for all work do so. Does
    /// nothing on a GPU.
    pub fn connections(&self, number: u32) {
        if !self.emulated {
            return;
        }
        // SAFETY: the signature is `void tgnn_emu_connections(int, unsigned)`.
        unsafe {
            let set: extern "C" fn(c_int, u32) = std::mem::transmute(symbol("tgnn_emu_connections"));
            set(self.gpu.ordinal() as c_int, number);
        }
    }
    /// Sets the matrix units from now on: those of an `h100`, which is the default, of an `a100`, or `exact`
    /// ones. Does nothing on a GPU.
    pub fn matrix_units(&self, chip: &str) {
        self.set("tgnn_emu_matrix", chip);
    }
    /// Sets what kernels run as from now on: as `host` code, which is the default without `TGNN_EMU_CODE`, as
    /// `ptx`, or as PTX with `weak` memory. Does nothing on a GPU.
    pub fn code(&self, code: &str) {
        self.set("tgnn_emu_code", code);
    }
    fn set(&self, function: &str, to: &str) {
        if !self.emulated {
            return;
        }
        let name = CString::new(to).unwrap();
        // SAFETY: the signature is `bool f(int, const char*)`.
        let known = unsafe {
            let set: extern "C" fn(c_int, *const c_char) -> bool = std::mem::transmute(symbol(function));
            set(self.gpu.ordinal() as c_int, name.as_ptr())
        };
        assert!(known, "{function} knows no {to}");
    }
    /// Returns the text of the first fault.
    pub fn fault(&self) -> String {
        // SAFETY: the signature is `const char* tgnn_emu_fault(int)`, and the text ends with a zero byte.
        unsafe {
            let text: extern "C" fn(c_int) -> *const c_char = std::mem::transmute(symbol("tgnn_emu_fault"));
            CStr::from_ptr(text(self.gpu.ordinal() as c_int)).to_string_lossy().into_owned()
        }
    }
    /// Loads a module from an image that ends with a zero byte, by the driver's own function.
    pub fn load(&self, image: &[u8]) -> *mut c_void {
        let mut module = std::ptr::null_mut();
        self.gpu.memory().unwrap(); // makes it this thread's device
        // SAFETY: this is the driver's function, and the image is complete.
        let loaded = unsafe {
            let load: extern "C" fn(*mut *mut c_void, *const u8) -> c_int =
                std::mem::transmute(symbol("cuModuleLoadData"));
            load(&mut module, image.as_ptr())
        };
        assert_eq!(loaded, 0, "the driver refuses the image");
        module
    }
    /// Runs a kernel of a module (null: the emulator's own kernels) on `blocks` x `threads`, with `shared`
    /// bytes of dynamic shared memory per block. Each argument is words of eight bytes; a narrower parameter
    /// takes the lower bytes.
    pub fn launch(&self, module: *mut c_void, name: &str, size: (u32, u32, u32), arguments: &[&[u64]]) {
        assert_eq!(self.submit(module, name, Shape::new(size), arguments), 0, "{name:?}");
        self.wait();
    }
    /// Waits for all work of the device.
    pub fn wait(&self) {
        self.gpu.memory().unwrap(); // makes it this thread's device
        // SAFETY: this is the driver's function.
        let wait: extern "C" fn() -> c_int = unsafe { std::mem::transmute(symbol("cuCtxSynchronize")) };
        wait();
    }
    /// Submits work that is not a kernel: zeroes the first word of a buffer.
    pub fn clear(&self, words: &DeviceBuffer) {
        self.gpu.memory().unwrap(); // makes it this thread's device
        // SAFETY: this is the driver's function, and the buffer has a word.
        let given = unsafe {
            let fill: extern "C" fn(u64, u8, usize, *mut c_void) -> c_int =
                std::mem::transmute(symbol("cuMemsetD8Async"));
            fill(words.address(), 0, 4, std::ptr::null_mut())
        };
        assert_eq!(given, 0);
    }
    /// Launches a kernel in any way, with arguments as [`launch`](Self::launch) takes them, and does not wait
    /// for it. Returns the driver's result.
    pub fn submit(&self, module: *mut c_void, name: &str, shape: Shape, arguments: &[&[u64]]) -> c_int {
        let name = CString::new(name).unwrap();
        let mut function = std::ptr::null_mut();
        let mut addresses: Vec<*mut c_void> =
            arguments.iter().map(|a| a.as_ptr().cast_mut().cast()).collect();
        // `CUlaunchAttribute`: programmatic stream serialization (6) is allowed; cluster dimension (4).
        let mut attributes: Vec<[u64; 9]> = Vec::new();
        if shape.early {
            attributes.push([6, 1, 0, 0, 0, 0, 0, 0, 0]);
        }
        if let Some((x, y, z)) = shape.cluster {
            attributes.push([4, u64::from(x) | u64::from(y) << 32, u64::from(z), 0, 0, 0, 0, 0, 0]);
        }
        // `CUlaunchConfig`: grid, block, shared memory; stream; attributes and their number.
        let mut config = [0u64; 7];
        let (x, y, z) = shape.grid;
        let sizes = [x, y, z, shape.threads, 1, 1, shape.shared, 0];
        config[..4].copy_from_slice(bytemuck::cast_slice(&sizes));
        (config[5], config[6]) = (attributes.as_ptr().addr() as u64, attributes.len() as u64);
        self.gpu.memory().unwrap(); // makes it this thread's device
        // SAFETY: these are the driver's functions, with arguments as the driver takes them; it copies them.
        unsafe {
            let find: extern "C" fn(*mut *mut c_void, *mut c_void, *const c_char) -> c_int =
                std::mem::transmute(symbol("cuModuleGetFunction"));
            assert_eq!(find(&mut function, module, name.as_ptr()), 0, "{name:?}");
            let launch: extern "C" fn(*const u64, *mut c_void, *mut *mut c_void, *mut *mut c_void) -> c_int =
                std::mem::transmute(symbol("cuLaunchKernelEx"));
            launch(config.as_ptr(), function, addresses.as_mut_ptr(), std::ptr::null_mut())
        }
    }
    /// Returns the number of kernels so far that were launched before the previous one had ended.
    pub fn early_launches(&self) -> u64 {
        self.count("tgnn_emu_early")
    }
    /// Returns the number of kernels so far that were launched as clusters of several blocks.
    pub fn clustered_launches(&self) -> u64 {
        self.count("tgnn_emu_clustered")
    }
    fn count(&self, function: &str) -> u64 {
        // SAFETY: these functions have the signature `uint64_t f(int)`.
        let count: extern "C" fn(c_int) -> u64 = unsafe { std::mem::transmute(symbol(function)) };
        count(self.gpu.ordinal() as c_int)
    }
    /// Runs a kernel of `crates/emulator/emu/planted.cu`.
    pub fn planted(&self, name: &str, size: (u32, u32, u32), arguments: &[u64]) {
        let arguments: Vec<&[u64]> = arguments.iter().map(std::slice::from_ref).collect();
        self.launch(std::ptr::null_mut(), name, size, &arguments);
    }
    pub fn words(&self, values: &[u32]) -> DeviceBuffer {
        let buffer = DeviceBuffer::new(&self.gpu, 4 * values.len()).unwrap();
        buffer.upload(values, &CudaStream::new(&self.gpu).unwrap()).unwrap();
        buffer
    }
    pub fn read(&self, buffer: &DeviceBuffer) -> Vec<u32> {
        let mut words = vec![0u32; buffer.bytes() / 4];
        buffer.download(&mut words, &CudaStream::new(&self.gpu).unwrap()).unwrap();
        words
    }
}
