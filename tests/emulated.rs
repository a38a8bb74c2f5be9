//! The emulated device, one test at a time, and what it finds.
use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
};
use tgnn::{
    error::Result,
    runtime::cuda::{CudaEvent, CudaStream, DeviceBuffer, Gpu, load_emulator},
};

/// The device of the tests for as long as this value lives: schedules are the whole process's.
pub struct TestDevice {
    pub gpu: Gpu,
    pub emulated: bool,
    _one: MutexGuard<'static, ()>,
}

/// The device that kernels are tested on: the emulated one under the schedules of `seed` (0: everything in order), or,
/// with `TGNN_TEST_DEVICE=cuda`, a GPU, which has its own. `None` where there is neither; what is skipped then says so.
pub fn device(seed: u64) -> Option<TestDevice> {
    static ONE: Mutex<()> = Mutex::new(());
    static GPU: OnceLock<Option<Gpu>> = OnceLock::new();
    let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let emulated = std::env::var_os("TGNN_TEST_DEVICE").is_none_or(|d| d != "cuda");
    let opened = GPU.get_or_init(|| {
        if emulated && !cfg!(feature = "emu") {
            return None;
        }
        if emulated {
            load_emulator().expect("the emulator was built");
        }
        Some(Gpu::open(0).expect("the device opens").values_apart())
    });
    let Some(gpu) = opened.clone() else {
        println!("skipped: wants --features emu, or a GPU and TGNN_TEST_DEVICE=cuda");
        return None;
    };
    let made = TestDevice { gpu, emulated, _one: one };
    made.schedule(seed);
    Some(made)
}

/// The emulated device, for tests of itself.
fn emulated() -> Option<TestDevice> {
    let made = device(0).filter(|d| d.emulated);
    if made.is_none() {
        println!("skipped: wants the emulated device");
    }
    made
}

/// A function of the library that stands in for the driver.
fn symbol(name: &str) -> *mut c_void {
    let name = CString::new(name).unwrap();
    // SAFETY: looks a name up among the loaded libraries.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    assert!(!found.is_null(), "the emulator has no {name:?}");
    found
}

impl TestDevice {
    /// Orders of threads, blocks and streams from now on; forgets a fault. A GPU takes no orders.
    pub fn schedule(&self, seed: u64) {
        if !self.emulated {
            return;
        }
        // SAFETY: `void tgnn_emu_schedule(uint64_t)`.
        unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(u64)>(symbol("tgnn_emu_schedule"))(seed) };
    }
    /// What the first fault was.
    fn fault(&self) -> String {
        // SAFETY: `const char* tgnn_emu_fault()`, a text that ends with a zero byte.
        unsafe {
            let text: extern "C" fn() -> *const c_char = std::mem::transmute(symbol("tgnn_emu_fault"));
            CStr::from_ptr(text()).to_string_lossy().into_owned()
        }
    }
    /// Runs one of `kernels/emu/planted.cu` on `blocks` x `threads`, with `shared` bytes of dynamic shared memory a
    /// block, its arguments given as words of eight bytes.
    fn planted(&self, name: &str, (blocks, threads, shared): (u32, u32, u32), arguments: &[u64]) {
        type Launch = extern "C" fn(
            *mut c_void,
            u32,
            u32,
            u32,
            u32,
            u32,
            u32,
            u32,
            *mut c_void,
            *mut *mut c_void,
            *mut *mut c_void,
        ) -> c_int;
        let name = CString::new(name).unwrap();
        let mut function = std::ptr::null_mut();
        let mut addresses: Vec<*mut c_void> =
            arguments.iter().map(|a| std::ptr::from_ref(a).cast_mut().cast()).collect();
        // SAFETY: the driver's functions, with arguments as the driver takes them.
        unsafe {
            let find: extern "C" fn(*mut *mut c_void, *mut c_void, *const c_char) -> c_int =
                std::mem::transmute(symbol("cuModuleGetFunction"));
            assert_eq!(find(&mut function, std::ptr::null_mut(), name.as_ptr()), 0, "{name:?}");
            let launch: Launch = std::mem::transmute(symbol("cuLaunchKernel"));
            let null = std::ptr::null_mut();
            let given = launch(
                function,
                blocks,
                1,
                1,
                threads,
                1,
                1,
                shared,
                null,
                addresses.as_mut_ptr(),
                std::ptr::null_mut(),
            );
            assert_eq!(given, 0, "{name:?}");
            let wait: extern "C" fn() -> c_int = std::mem::transmute(symbol("cuCtxSynchronize"));
            wait();
        }
    }
    fn words(&self, values: &[u32]) -> DeviceBuffer {
        let buffer = DeviceBuffer::new(&self.gpu, 4 * values.len()).unwrap();
        buffer.upload(bytemuck::cast_slice(values), &CudaStream::new(&self.gpu).unwrap()).unwrap();
        buffer
    }
    fn read(&self, buffer: &DeviceBuffer) -> Vec<u32> {
        let mut words = vec![0u32; buffer.bytes() / 4];
        buffer.download(bytemuck::cast_slice_mut(&mut words), &CudaStream::new(&self.gpu).unwrap()).unwrap();
        words
    }
}

/// Schedules that tests try.
const SEEDS: std::ops::Range<u64> = 1..21;

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn a_missing_barrier_shows_under_some_schedule_and_a_right_kernel_under_none() {
    let Some(emu) = emulated() else { return };
    let x: Vec<u32> = (0..64).map(|i| (i as f32).to_bits()).collect();
    let want: Vec<u32> = (0..64).map(|i| ((i + 1) % 64) as f32).map(f32::to_bits).collect();
    let mut wrong = 0;
    for seed in SEEDS {
        emu.schedule(seed);
        let input = emu.words(&x);
        for (name, shared, mistaken) in
            [("passed_on", 0, false), ("passed_on_dynamic", 256, false), ("planted_missing_barrier", 0, true)]
        {
            let out = emu.words(&[0; 64]);
            emu.planted(name, (1, 64, shared), &[input.address(), out.address()]);
            let right = emu.read(&out) == want;
            assert!(right || mistaken, "{name}, seed {seed}");
            wrong += u32::from(!right);
        }
    }
    assert!(wrong > 0, "no schedule shows the missing barrier");
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn a_race_shows_under_some_schedule_and_atomics_count_right_under_all() {
    let Some(emu) = emulated() else { return };
    let mut lost = 0;
    for seed in SEEDS {
        emu.schedule(seed);
        let (right, raced) = (emu.words(&[0]), emu.words(&[0]));
        emu.planted("counted", (4, 96, 0), &[right.address()]);
        emu.planted("planted_race", (4, 96, 0), &[raced.address()]);
        assert_eq!(emu.read(&right), [4 * 96], "seed {seed}");
        lost += u32::from(emu.read(&raced) != [4 * 96]);
    }
    assert!(lost > 0, "no schedule shows the race");
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn blocks_run_in_every_order() {
    let Some(emu) = emulated() else { return };
    let firsts: std::collections::BTreeSet<u32> = SEEDS
        .map(|seed| {
            emu.schedule(seed);
            let first = emu.words(&[u32::MAX]);
            emu.planted("planted_block_order", (8, 32, 0), &[first.address()]);
            emu.read(&first)[0]
        })
        .collect();
    assert!(firsts.len() > 3, "only blocks {firsts:?} ever came first");
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn an_access_beyond_an_allocation_is_a_fault_that_names_kernel_and_thread() {
    let Some(emu) = emulated() else { return };
    let x = emu.words(&[0; 60]);
    emu.planted("planted_out_of_bounds", (1, 64, 0), &[x.address(), 60]);
    let fault = emu.fault();
    assert!(fault.contains("planted_out_of_bounds") && fault.contains("thread (60,0,0)"), "{fault}");
    let e = CudaStream::new(&emu.gpu).unwrap().synchronize().expect_err("the device is lost");
    assert!(e.to_string().contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{e}");
    emu.schedule(0);
    assert_eq!(emu.read(&emu.words(&[3])), [3], "after the fault is forgotten, it works again");
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn a_barrier_that_not_every_thread_reaches_is_a_fault_and_no_hang() {
    let Some(emu) = emulated() else { return };
    let x = emu.words(&[0; 64]);
    emu.planted("planted_divergent_barrier", (1, 32, 0), &[x.address()]);
    let fault = emu.fault();
    assert!(fault.contains("planted_divergent_barrier"), "{fault}");
    emu.schedule(0);
}

/// Copies `a` to `b` in one stream and `b` to the host in another, with an event between them or without.
fn handed_over(emu: &TestDevice, seed: u64, ordered: bool) -> Result<u32> {
    emu.schedule(seed);
    let (first, second) = (CudaStream::new(&emu.gpu)?, CudaStream::new(&emu.gpu)?);
    let (buffer, done) = (emu.words(&[0]), CudaEvent::new(&emu.gpu)?);
    buffer.upload(bytemuck::bytes_of(&7u32), &first)?;
    done.record(&first)?;
    if ordered {
        second.wait(&done)?;
    }
    let mut got = 0u32;
    buffer.download(bytemuck::bytes_of_mut(&mut got), &second)?;
    first.synchronize()?;
    Ok(got)
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn a_missing_event_between_streams_shows_as_a_wrong_result() {
    let Some(emu) = emulated() else { return };
    let results = |ordered| -> Vec<u32> { SEEDS.map(|s| handed_over(&emu, s, ordered).unwrap()).collect() };
    assert!(results(true).iter().all(|&x| x == 7), "an event orders them under every schedule");
    assert!(results(false).contains(&0), "without one, some schedule runs the second stream first");
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn a_capture_runs_nothing_can_be_replayed_and_refuses_to_allocate() {
    let Some(emu) = emulated() else { return };
    let stream = CudaStream::new(&emu.gpu).unwrap();
    let x = emu.words(&[5]);
    let graph = stream.capture(|| x.fill(1, &stream)).unwrap();
    assert_eq!(emu.read(&x), [5], "captured, not run");
    // SAFETY: `x` outlives the run.
    unsafe { graph.launch(&stream) }.unwrap();
    stream.synchronize().unwrap();
    assert_eq!(emu.read(&x), [0x0101_0101]);

    let allocated = stream.capture(|| {
        let _refused = DeviceBuffer::new(&emu.gpu, 4);
        Ok(())
    });
    let e = allocated.err().expect("a capture that allocates is lost");
    assert!(e.to_string().contains("CAPTURE"), "{e}");
    x.fill(0, &stream).unwrap();
    stream.synchronize().expect("the stream works again");
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn a_device_without_room_says_what_was_asked_for() {
    let Some(emu) = emulated() else { return };
    let e = DeviceBuffer::new(&emu.gpu, 1 << 50).err().expect("no device has that");
    assert_eq!(e.kind(), tgnn::error::ErrorKind::OutOfMemory);
    assert!(e.to_string().contains("cannot allocate 1125899906842624 bytes"), "{e}");
}
