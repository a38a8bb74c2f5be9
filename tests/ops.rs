//! Every op, on every case: gradient against finite differences, fast path against the definition.
use crate::emulated::device;
use tgnn::{
    ops::{Backend, Case, bench_cases, cases},
    runtime::{Device, Precision},
    testing::{allowance, error, gradient_alone, gradient_error, largest, program, run},
};

#[test]
fn the_backward_of_every_op_equals_finite_differences_in_f64() {
    for case in cases() {
        let e = gradient_error(&case).unwrap_or_else(|e| panic!("{case}: {e}"));
        assert!(e < 2e-8, "{case}: {e:e}");
    }
}

#[test]
fn the_fast_path_of_every_op_agrees_with_its_definition_for_one_two_and_three_threads() {
    for threads in [1, 2, 3] {
        let device = Device::cpu(threads).unwrap();
        for case in cases() {
            let exact = run(&case, Precision::F64, Backend::Definition).unwrap();
            let plain = run(&case, Precision::F32, Backend::Definition).unwrap();
            let fast = device.install(|| run(&case, Precision::F32, Backend::Cpu)).unwrap();
            let allowed = allowance(&plain, &exact);
            for ((what, real, want), (_, _, got)) in exact.iter().zip(&fast) {
                let (e, allowed) = (error(got, want), if *real { allowed * largest(want) } else { 0.0 });
                assert!(e <= allowed, "{case}, {what}: {e:e} > {allowed:e}");
            }
        }
    }
}

#[test]
fn the_number_of_threads_changes_no_bit_of_any_op() {
    for case in cases() {
        let bits = |threads| {
            let results =
                Device::cpu(threads).unwrap().install(|| run(&case, Precision::F32, Backend::Cpu)).unwrap();
            results
                .into_iter()
                .map(|(_, _, v)| v.iter().map(|x| x.to_bits()).collect())
                .collect::<Vec<Vec<u64>>>()
        };
        assert!(bits(1) == bits(2), "{case}");
    }
}

#[test]
fn a_gradient_is_the_same_whether_or_not_somebody_asks_for_the_others() {
    for case in cases() {
        let all = run(&case, Precision::F32, Backend::Cpu).unwrap();
        let gradients = all.iter().filter(|(name, ..)| name.starts_with("gradient"));
        for (k, (_, _, want)) in gradients.enumerate() {
            assert_eq!(gradient_alone(&case, k).unwrap().as_ref(), Some(want), "{case}, gradient {k}");
        }
    }
}

#[test]
fn every_op_runs_at_the_size_that_benches_give_it() {
    for case in cases() {
        assert!(bench_cases().iter().any(|c| c.op == case.op), "{} has no bench", case.op);
    }
    for case in bench_cases() {
        let (mut program, mut store, _) = program(&case, Backend::Cpu).unwrap();
        program.run(&mut store).unwrap_or_else(|e| panic!("{case}: {e}"));
    }
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu, or a GPU and TGNN_TEST_DEVICE=cuda")]
fn the_kernels_of_every_op_agree_with_its_definition() {
    let Some(on) = device(0) else { return };
    for case in cases() {
        let exact = run(&case, Precision::F64, Backend::Definition).unwrap();
        let plain = run(&case, Precision::F32, Backend::Definition).unwrap();
        let found = run(&case, Precision::F32, Backend::Cuda(on.gpu.clone()));
        let found = found.unwrap_or_else(|e| panic!("{case}: {e}"));
        let allowed = allowance(&plain, &exact);
        for ((what, real, want), (_, _, got)) in exact.iter().zip(&found) {
            let (e, allowed) = (error(got, want), if *real { allowed * largest(want) } else { 0.0 });
            assert!(e <= allowed, "{case}, {what}: {e:e} > {allowed:e}");
        }
    }
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu, or a GPU and TGNN_TEST_DEVICE=cuda")]
fn no_order_of_threads_and_blocks_changes_a_bit_of_any_op() {
    let Some(on) = device(0) else { return };
    let bits = |case: &Case| -> Vec<Vec<u64>> {
        let results = run(case, Precision::F32, Backend::Cuda(on.gpu.clone()));
        let results = results.unwrap_or_else(|e| panic!("{case}: {e}"));
        results.into_iter().map(|(.., v)| v.iter().map(|x| x.to_bits()).collect()).collect()
    };
    let in_order: Vec<_> = cases().iter().map(bits).collect();
    for seed in 1..21 {
        on.schedule(seed);
        for (case, want) in cases().iter().zip(&in_order) {
            assert!(bits(case) == *want, "{case}, schedule {seed}");
        }
    }
}
