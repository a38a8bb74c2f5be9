//! Tests of the emulated device itself.
use crate::support::devices::{TestDevice, emulated, symbol};
use std::ffi::c_void;
use tgnn::{
    error::Result,
    runtime::cuda::{CudaEvent, CudaStream, DeviceBuffer},
};

/// Seeds of the schedules that these tests try.
const SEEDS: std::ops::Range<u64> = 1..21;

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn a_missing_barrier_shows_under_some_schedule_and_a_correct_kernel_is_right_under_all() {
    let Some(emu) = emulated() else { return };
    let x: Vec<u32> = (0..64).map(|i| (i as f32).to_bits()).collect();
    let want: Vec<u32> = (0..64).map(|i| ((i + 1) % 64) as f32).map(f32::to_bits).collect();
    let mut wrong = 0;
    for seed in SEEDS {
        emu.schedule(seed);
        let input = emu.words(&x);
        for (name, shared, faulty) in
            [("passed_on", 0, false), ("passed_on_dynamic", 256, false), ("planted_missing_barrier", 0, true)]
        {
            let out = emu.words(&[0; 64]);
            emu.planted(name, (1, 64, shared), &[input.address(), out.address()]);
            let right = emu.read(&out) == want;
            assert!(right || faulty, "{name}, seed {seed}");
            wrong += u32::from(!right);
        }
    }
    assert!(wrong > 0, "no schedule shows the missing barrier");
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn a_race_shows_under_some_schedule_and_atomics_count_correctly_under_all() {
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
fn blocks_run_in_many_orders() {
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
fn a_barrier_that_some_threads_miss_is_a_fault_and_not_a_hang() {
    let Some(emu) = emulated() else { return };
    let x = emu.words(&[0; 64]);
    emu.planted("planted_divergent_barrier", (1, 32, 0), &[x.address()]);
    let fault = emu.fault();
    assert!(fault.contains("planted_divergent_barrier"), "{fault}");
    emu.schedule(0);
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn blocks_run_concurrently_under_a_schedule_and_one_after_another_in_order() {
    let Some(emu) = emulated() else { return };
    // SAFETY: the signature is `unsigned tgnn_emu_blocks_at_once()`.
    let at_once = unsafe {
        std::mem::transmute::<*mut c_void, extern "C" fn() -> u32>(symbol("tgnn_emu_blocks_at_once"))()
    };
    for (seed, tries, met) in [(0, 100, 1), (1, 10_000_000, 2)] {
        if seed > 0 && at_once < 2 {
            println!("skipped: one core, a sanitizer or TGNN_EMU_THREADS=1");
            return;
        }
        emu.schedule(seed);
        let (arrived, met_count) = (emu.words(&[0]), emu.words(&[0]));
        emu.planted("meeting", (2, 32, 0), &[arrived.address(), met_count.address(), tries]);
        assert_eq!(emu.read(&met_count), [met], "seed {seed}");
    }
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn a_seed_repeats_the_result_of_a_block_and_the_reported_fault() {
    let Some(emu) = emulated() else { return };
    for seed in SEEDS.take(3) {
        let run_once = || {
            emu.schedule(seed);
            let x = emu.words(&(0..64).collect::<Vec<u32>>());
            let out = emu.words(&[0; 64]);
            emu.planted("planted_missing_barrier", (1, 64, 0), &[x.address(), out.address()]);
            emu.planted("planted_out_of_bounds", (16, 96, 0), &[x.address(), 90]);
            let fault = emu.fault();
            emu.schedule(0);
            (emu.read(&out), fault.split(": ").next().map(str::to_owned))
        };
        // A sanitizer build does not fill shared memory with NaN, so the first run may read what an earlier
        // block left.
        let [_, first, again] = [run_once(), run_once(), run_once()];
        assert_eq!(first, again, "seed {seed}");
    }
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn devices_share_neither_memory_nor_faults() {
    let (Some(faulty), Some(healthy)) = (emulated(), emulated()) else { return };
    let before = healthy.gpu.memory().unwrap();
    let x = faulty.words(&[0; 60]);
    assert_eq!(healthy.gpu.memory().unwrap(), before);
    faulty.planted("planted_out_of_bounds", (1, 64, 0), &[x.address(), 60]);
    assert!(faulty.fault().contains("planted_out_of_bounds") && healthy.fault().is_empty());
    assert_eq!(healthy.read(&healthy.words(&[3])), [3]);
    faulty.schedule(0);
}

/// Uploads a word in one CUDA stream and downloads it in another, with an event between them if `ordered`.
fn handed_over(emu: &TestDevice, seed: u64, ordered: bool) -> Result<u32> {
    emu.schedule(seed);
    let (first, second) = (CudaStream::new(&emu.gpu)?, CudaStream::new(&emu.gpu)?);
    let (buffer, done) = (emu.words(&[0]), CudaEvent::new(&emu.gpu)?);
    buffer.upload(&[7u32], &first)?;
    done.record(&first)?;
    if ordered {
        second.wait(&done)?;
    }
    let mut got = 0u32;
    buffer.download(std::slice::from_mut(&mut got), &second)?;
    first.synchronize()?;
    Ok(got)
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn only_events_with_a_time_tell_the_time_between_them() {
    let Some(emu) = emulated() else { return };
    let stream = CudaStream::urgent(&emu.gpu).unwrap();
    let record = |event: Result<CudaEvent>| event.and_then(|e| e.record(&stream).map(|()| e)).unwrap();
    let (start, end, order) = (
        record(CudaEvent::timed(&emu.gpu)),
        record(CudaEvent::timed(&emu.gpu)),
        record(CudaEvent::new(&emu.gpu)),
    );
    stream.synchronize().unwrap();
    assert!(end.seconds_since(&start).unwrap() >= 0.0);
    assert!(order.seconds_since(&start).is_err() && end.seconds_since(&order).is_err());
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn an_event_in_a_graph_is_recorded_by_a_launch_of_it_and_only_by_a_capture() {
    let Some(emu) = emulated() else { return };
    let (stream, x) = (CudaStream::new(&emu.gpu).unwrap(), emu.words(&[5]));
    let [start, end] = [(); 2].map(|()| CudaEvent::timed(&emu.gpu).unwrap());
    let record = |event: &CudaEvent| event.record_in_graph(&stream);
    let graph =
        stream.capture(|| record(&start).and_then(|()| x.fill(1, &stream)).and_then(|()| record(&end)));
    assert!(end.seconds_since(&start).is_err(), "captured, not recorded");
    // SAFETY: `x` and the events outlive the run.
    unsafe { graph.unwrap().launch(&stream) }.unwrap();
    stream.synchronize().unwrap();
    assert!(end.is_reached().unwrap() && end.seconds_since(&start).unwrap() >= 0.0);
    let e = record(&start).expect_err("nothing is captured");
    assert!(e.to_string().contains("CUDA_ERROR_INVALID_VALUE"), "{e}");
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn a_missing_event_between_cuda_streams_shows_as_a_wrong_result() {
    let Some(emu) = emulated() else { return };
    let results = |ordered| -> Vec<u32> { SEEDS.map(|s| handed_over(&emu, s, ordered).unwrap()).collect() };
    assert!(results(true).iter().all(|&x| x == 7), "an event orders them under every schedule");
    assert!(results(false).contains(&0), "without one, some schedule runs the second stream first");
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn a_capture_runs_nothing_can_be_replayed_and_refuses_allocations() {
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
    let e = allocated.expect_err("a capture that allocates is lost");
    assert!(e.to_string().contains("CAPTURE"), "{e}");
    x.fill(0, &stream).unwrap();
    stream.synchronize().expect("the stream works again");
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn an_allocation_beyond_device_memory_reports_its_size() {
    let Some(emu) = emulated() else { return };
    let e = DeviceBuffer::new(&emu.gpu, 1 << 50).expect_err("no device has that");
    assert_eq!(e.kind(), tgnn::error::ErrorKind::OutOfMemory);
    assert!(e.to_string().contains("cannot allocate 1125899906842624 bytes"), "{e}");
}
