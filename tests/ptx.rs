//! The kernels as nvcc compiles them: the emulated device executes the PTX in their images.
//!
//! `TGNN_EMU_CODE=ptx` runs any other test of kernels like this, too.
use crate::{
    ops::{WITH_PRODUCTS, bits, changes_keep_bits},
    support::devices::{TestDevice, device, drawn},
};
use std::{ffi::c_void, path::Path};
use tgnn::{
    autograd::Program,
    ops::{Backend, Tape, cases, epilogue::DropRate, next_turn::Turns},
    runtime::{MatmulPrecision, Precision, Rows, Spec, Store, Var},
    testing::worst,
};

/// Returns a device that executes PTX; `None` without the emulated device, or if the kernels were not
/// compiled.
fn ptx(code: &str) -> Option<TestDevice> {
    let on = device(0).filter(|on| on.emulated && cfg!(kernels_compiled));
    match &on {
        Some(on) => on.code(code),
        None => println!("skipped: wants the emulated device and nvcc, see scripts/fetch-nvcc"),
    }
    on
}

#[test]
#[cfg_attr(not(all(feature = "emu", kernels_compiled)), ignore = "wants --features emu and nvcc")]
fn the_ptx_of_every_op_agrees_with_its_definition() {
    let Some(on) = ptx("ptx") else { return };
    for case in cases() {
        let off = worst(&case, Backend::Cuda(on.gpu.clone())).unwrap_or_else(|e| panic!("{case}: {e}"));
        assert!(off.within(), "{case}: {off}");
    }
}

#[test]
#[cfg_attr(not(all(feature = "emu", kernels_compiled)), ignore = "wants --features emu and nvcc")]
fn products_in_tf32_as_ptx_agree_with_the_definition_up_to_their_rounding() {
    let Some(on) = ptx("ptx") else { return };
    let precision = MatmulPrecision::Tf32;
    let backend = Backend::Cuda(on.gpu.multiplying_in(precision));
    for case in cases().into_iter().filter(|c| WITH_PRODUCTS.contains(&c.op)) {
        // On inputs that the precision represents exactly, no sum that a ReLU reads changes its sign.
        for case in [case, case.with_inputs(precision)] {
            let off = worst(&case, backend.clone()).unwrap_or_else(|e| panic!("{case}: {e}"));
            assert!(off.within(), "{case}, inputs in {:?}: {off}", case.inputs);
        }
    }
}

/// Checks that PTX gives the bits that it gives in order: `few` out of `all` orders for each case.
fn check_orders(code: &str, few: usize, all: usize) {
    let Some(on) = ptx(code) else { return };
    for (at, case) in cases().into_iter().enumerate() {
        for (variant, seed) in drawn(at, few, all) {
            // Other ops do not depend on the precision.
            let products = WITH_PRODUCTS.contains(&case.op);
            let precision =
                if products && variant % 2 == 1 { MatmulPrecision::Tf32 } else { MatmulPrecision::F32 };
            let gpu = on.gpu.multiplying_in(precision);
            on.schedule(0);
            let in_order = bits(&case, gpu.clone());
            on.schedule(seed);
            assert!(bits(&case, gpu) == in_order, "{case}, {precision:?}, {code}, schedule {seed}");
        }
    }
}

#[test]
#[cfg_attr(not(all(feature = "emu", kernels_compiled)), ignore = "wants --features emu and nvcc")]
fn no_order_of_lanes_warps_and_blocks_changes_a_bit_of_any_op_as_ptx() {
    check_orders("ptx", 1, 10);
}

#[test]
#[cfg_attr(not(all(feature = "emu", kernels_compiled)), ignore = "wants --features emu and nvcc")]
fn writes_that_other_blocks_see_late_change_no_bit_of_any_op() {
    check_orders("weak", 1, 10);
}

#[test]
#[cfg_attr(not(all(feature = "emu", kernels_compiled)), ignore = "wants --features emu and nvcc")]
fn kernels_that_wait_for_their_measurement_compute_the_bits_of_those_before_as_ptx() {
    if let Some(on) = ptx("ptx") {
        changes_keep_bits(&on);
    }
}

/// Runs ops on two operands, and returns their output.
fn output(backend: Backend, append: impl Fn(&mut Tape, &mut Store) -> Var) -> Vec<f32> {
    let mut store = Store::new(Precision::F32);
    let mut t = Tape::new(&store);
    let y = append(&mut t, &mut store);
    let mut program = Program::new(&t, &[y], Precision::F32, backend).unwrap();
    program.run(&mut store).unwrap();
    program.read::<f32>(y, &store).unwrap().to_vec()
}

/// Angles beyond 2^22 radians are reduced in f64; no case has such angles. Beyond 2^52 nothing is left of
/// them.
#[test]
#[cfg_attr(not(all(feature = "emu", kernels_compiled)), ignore = "wants --features emu and nvcc")]
fn cosines_of_angles_of_any_size_are_accurate_as_long_as_they_mean_anything() {
    let Some(on) = ptx("ptx") else { return };
    let times: Vec<f32> = (0..200i32)
        .map(|i| (1.0 + i as f32 / 77.0) * 2f32.powi(i / 2 - 10) * (1 - i % 2 * 2) as f32)
        .collect();
    let (w, b) = ([0.37f32, -1.0, 0.0083], [0.0f32, 1.5, -0.25]);
    let found = output(Backend::Cuda(on.gpu.clone()), |t, store| {
        let real = |rows, cols| Spec::real(Rows::fixed(rows), cols);
        let times = t.input(store, "times", real(200, 1), &times).unwrap();
        let w = t.input(store, "w", real(1, 3), &w).unwrap();
        let b = t.input(store, "b", real(1, 3), &b).unwrap();
        t.time_encode(times, w, b).unwrap()
    });
    for (i, y) in found.iter().enumerate() {
        let angle = w[i % 3] * times[i / 3] + b[i % 3];
        let close = (f64::from(*y) - f64::from(angle).cos()).abs() < 2.5e-7;
        assert!(close || angle.abs() > 4e15 && y.abs() <= 1.0, "cos({angle:e}) is not {y}");
    }
}

/// A clock of three numbers counts the events of other ranks before this rank's; no case has one.
#[test]
#[cfg_attr(not(all(feature = "emu", kernels_compiled)), ignore = "wants --features emu and nvcc")]
fn a_drop_out_by_a_clock_that_counts_the_events_of_other_ranks_drops_what_the_definition_drops() {
    let Some(on) = ptx("ptx") else { return };
    let x: Vec<f32> = (0..40 * 12).map(|i| 1.0 + i as f32).collect();
    let [want, found] = [Backend::Definition, Backend::Cuda(on.gpu.clone())].map(|backend| {
        output(backend, |t, store| {
            let count = t.input(store, "count", Spec::ids(Rows::fixed(1), 1), &[37u32]).unwrap();
            let x = t.input(store, "x", Spec::real(Rows::live(40, count), 12), &x).unwrap();
            let now = t.input(store, "now", Spec::ids(Rows::fixed(1), 3), &[3u32, 5, 19]).unwrap();
            t.gelu(x, Some((DropRate { p: 0.3, seed: 11, salt: 2 }, now))).unwrap()
        })
    });
    let dropped = want[..37 * 12].iter().filter(|y| **y == 0.0).count();
    assert!(dropped > 100 && dropped < 170, "{dropped} of 444");
    for (i, (want, found)) in want.iter().zip(&found).enumerate().take(37 * 12) {
        assert!((want - found).abs() <= 1e-6 * want.abs(), "element {i} is {found}, not {want}");
    }
}

/// Loads the image of a kernel file, which lies beside the compiler's report.
fn image(on: &TestDevice, file: &str) -> *mut c_void {
    let Some(report) = option_env!("TGNN_PTXAS") else { unreachable!("the kernels were compiled") };
    let path = Path::new(report).with_file_name(file).with_extension("fatbin");
    on.load(&std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
}

/// nvcc divides 64-bit numbers as 32-bit ones if they fit. No case has numbers that do not.
#[test]
#[cfg_attr(not(all(feature = "emu", kernels_compiled)), ignore = "wants --features emu and nvcc")]
fn counts_beyond_32_bits_are_divided_correctly() {
    let Some(on) = ptx("ptx") else { return };
    // One row of a slice that begins at n * slice / parts.
    let (n, slice, parts) = (3_000_000_000u64, 2_000_000_001u64, 4_000_000_000u64);
    let first = n * slice / parts;
    assert_eq!(n * (slice + 1) / parts - first, 1);
    let (x, out, status) = (on.words(&[7, 8, 9, 10]), on.words(&[0; 4]), on.words(&[0; 2]));
    // The address at which row `first` of the whole is the buffer; addresses wrap around.
    let whole = out.address().wrapping_sub(16 * first);
    let rows = |live: u64| [0u64, 1 | live << 32]; // no count, times 1, capacity
    on.launch(
        image(&on, "join_rows"),
        "join_rows",
        (1, 32, 0),
        &[&[x.address()], &[whole], &rows(n), &rows(1), &[4], &[slice], &[parts], &[status.address()]],
    );
    assert_eq!((on.fault().as_str(), on.read(&out)), ("", vec![7, 8, 9, 10]));

    // The second of five groups, at the end of as many events as there can be, each of them a batch.
    let (events, step, first) = (u32::MAX - 1, u32::MAX - 2, 3_000_000_000u32);
    let (range, clock, at) = (on.words(&[0, events, 0]), on.words(&[9, step]), on.words(&[0; 2]));
    let first_at = on.words(&[first]);
    let null = &[0u64][..];
    let [range_at, clock_at, first_at, turn_at] = [&range, &clock, &first_at, &at].map(|b| [b.address()]);
    on.launch(
        image(&on, "next_turn"),
        "next_turn",
        (1, 1, 0),
        &[&range_at, &clock_at, &first_at, &turn_at, null, null, &rows(u64::from(events)), &[1], &[1], &[5]],
    );
    assert_eq!(on.fault(), "");
    let turns = Turns { group: 1, groups: 5, ..Turns::ALL };
    let turn = turns.at(step as usize, first as usize..events as usize);
    let batch = turn.batch.unwrap() as u32;
    assert_eq!(on.read(&at), [9 + turn.slot as u32, batch]);
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn a_kernel_without_ptx_is_one_fault_that_says_what_is_missing() {
    let Some(on) = device(0).filter(|on| on.emulated) else { return };
    on.code("ptx");
    on.launch(std::ptr::null_mut(), "counted", (1, 32, 0), &[&[0]]);
    assert_eq!(on.fault(), "kernel counted has no PTX: build with nvcc (scripts/fetch-nvcc)");
    on.schedule(0);
}
