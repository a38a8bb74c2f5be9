//! Every op on every case: gradients against finite differences, the fast path and kernels against the
//! definition.
use crate::support::devices::{TestDevice, device, drawn};
use std::collections::BTreeSet;
use tgnn::{
    autograd::Program,
    error::Result,
    ops::{
        Backend, Case, Tape, bench_cases, cases,
        epilogue::{Activation, DropRate},
        mix_tokens::MixerVars,
    },
    runtime::{Device, MatmulPrecision, Precision, Rows, Spec, Store, Var, cuda::Gpu},
    testing::{Results, gradient_alone, gradient_error, program, run, run_again, worst},
};

#[test]
fn the_backward_of_every_op_equals_finite_differences_in_f64() {
    for case in cases() {
        let e = gradient_error(&case).unwrap_or_else(|e| panic!("{case}: {e}"));
        assert!(e < 2e-8, "{case}: a gradient is off by {e:e} from finite differences, want less than 2e-8");
    }
}

#[test]
fn the_fast_path_of_every_op_agrees_with_its_definition_for_one_two_and_three_threads() {
    for threads in [1, 2, 3] {
        let device = Device::cpu(threads).unwrap();
        for case in cases() {
            let off = device.install(|| worst(&case, Backend::Cpu)).unwrap();
            assert!(off.within(), "{case}: {off}");
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
fn a_gradient_does_not_depend_on_which_other_gradients_are_computed() {
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
fn one_op_computes_the_gradients_of_a_loss_and_a_decoder_of_a_prefix_and_all_rows_and_a_sum_of_eight() {
    for (op, gradients) in [
        ("link_decoder", [("link_decoder_grad", 1), ("bce_loss_grad", 0)]),
        ("linear_pair", [("linear_pair_input_grad", 1), ("pad_rows", 0)]),
        ("sum", [("add", 4), ("sum", 1)]),
    ] {
        let case = bench_cases().into_iter().find(|c| c.op == op).unwrap();
        let (program, _, _) = program(&case, Backend::Cpu).unwrap();
        for (name, count) in gradients {
            assert_eq!(program.nodes().filter(|n| n.op.name() == name).count(), count, "{case}: {name}");
        }
    }
}

/// Runs an op of one operand on `values`, forward and backward with upstream gradients of 1. Returns the
/// output and the gradient.
fn with_gradient(
    backend: &Backend,
    (rows, values): (usize, &[f32]),
    append: impl Fn(&mut Tape, Var) -> Result<Var>,
) -> (Vec<f32>, Vec<f32>) {
    let mut store = Store::new(Precision::F32);
    let mut t = Tape::new(&store);
    let a = store.values("a", Spec::real(Rows::fixed(rows), values.len() / rows.max(1)), values).unwrap();
    let a = t.stored(a).unwrap();
    let out = append(&mut t, a).unwrap();
    let spec = t.spec(out);
    let dout = store.values("dout", spec, &vec![1.0f32; spec.len()]).unwrap();
    let dout = t.stored(dout).unwrap();
    let da = t.backward(out, dout, &[a]).unwrap()[0];
    let mut program = Program::new(&t, &[out, da], Precision::F32, backend.clone()).unwrap();
    program.run(&mut store).expect("no fault");
    let read = |v| program.read::<f32>(v, &store).unwrap().to_vec();
    (read(out), read(da))
}

#[test]
fn logarithms_powers_and_means_that_are_not_finite_are_as_ieee_754_says_and_no_faults() {
    const INFINITY: f32 = f32::INFINITY;
    let on = device(0);
    let cuda = on.as_ref().map(|on| Backend::Cuda(on.gpu.clone()));
    for backend in [Some(Backend::Definition), Some(Backend::Cpu), cuda].iter().flatten() {
        let (out, da) =
            with_gradient(backend, (1, &[0.0, -0.0, -2.0, INFINITY, 1.0, f32::NAN]), |t, a| t.log(a));
        assert!(out[..2] == [-INFINITY; 2] && out[3..5] == [INFINITY, 0.0], "{backend:?}: {out:?}");
        assert!(out[2].is_nan() && out[5].is_nan(), "{backend:?}: {out:?}");
        assert!(da[..5] == [INFINITY, -INFINITY, -0.5, 0.0, 1.0] && da[5].is_nan(), "{backend:?}: {da:?}");

        let (out, da) =
            with_gradient(backend, (1, &[-INFINITY, -200.0, 0.0, 200.0, f32::NAN]), |t, a| t.exp(a));
        assert!(out[..4] == [0.0, 0.0, 1.0, INFINITY] && out[4].is_nan(), "{backend:?}: {out:?}");
        assert!(da[..4] == out[..4] && da[4].is_nan(), "{backend:?}: {da:?}");

        let (out, da) = with_gradient(backend, (2, &[1.0, INFINITY, 2.0, -3.0]), |t, a| t.mean(a));
        assert_eq!((out, da), (vec![INFINITY], vec![0.25; 4]), "{backend:?}");
        let (out, da) = with_gradient(backend, (0, &[]), |t, a| t.mean(a));
        assert_eq!((out, da), (vec![0.0], vec![]), "{backend:?}");
    }
}

/// Returns y and dx, as bits, of tokens of the events from `first` on, which a rank mixes after those of the
/// events before: four events with two roots each, three tokens a root, five channels.
fn mixed_from(first: usize, backend: &Backend) -> [Vec<u32>; 2] {
    const EVENTS: usize = 4;
    let mut store = Store::new(Precision::F32);
    let mut t = Tape::new(&store);
    let values = |n: usize| (0..n).map(|i| (0.7 * i as f32).sin()).collect::<Vec<f32>>();
    let mut real = |name: &str, rows: Rows, cols, values: &[f32]| {
        let id = store.values(name, Spec::real(rows, cols), values).unwrap();
        t.stored(id).unwrap()
    };
    let mut weights = |name, rows, cols| real(name, Rows::fixed(rows), cols, &values(rows * cols));
    let (norm, first_layer) =
        ([weights("gain", 1, 3), weights("bias", 1, 3)], [weights("w1", 4, 3), weights("b1", 1, 4)]);
    let second = [weights("w2", 3, 4), weights("b2", 1, 3)];
    let clock = store.values("now", Spec::ids(Rows::fixed(1), 3), &[3u32, 5, first as u32]).unwrap();
    let count = store.values("count", Spec::count(), &[(EVENTS - first) as u32]).unwrap();
    let [clock, count] = t.stored_all([clock, count]).unwrap();
    let spec = Spec::real(Rows::live(EVENTS - first, count).times(6), 5);
    let rows = &values(EVENTS * 30)[first * 30..];
    let x = t.input(&mut store, "x", spec, rows).unwrap();
    let drop = (DropRate { p: 0.3, seed: 11, salt: 2 }, clock);
    let y = t.mix_tokens(x, MixerVars { norm, first: first_layer, second }, Some(drop)).unwrap();
    let dy = t.input(&mut store, "dy", spec, rows).unwrap();
    let dx = t.backward(y, dy, &[x]).unwrap()[0];
    let mut program = Program::new(&t, &[y, dx], Precision::F32, backend.clone()).unwrap();
    program.run(&mut store).unwrap();
    [y, dx].map(|v| program.read::<f32>(v, &store).unwrap().iter().map(|x| x.to_bits()).collect())
}

#[test]
fn a_rank_that_mixes_the_tokens_of_its_own_events_drops_what_one_rank_drops() {
    let on = device(0);
    let cuda = on.as_ref().map(|on| Backend::Cuda(on.gpu.clone()));
    for backend in [Some(Backend::Definition), Some(Backend::Cpu), cuda].iter().flatten() {
        let whole = mixed_from(0, backend);
        for first in 1..4 {
            let part = mixed_from(first, backend);
            for (whole, part) in whole.iter().zip(part) {
                assert!(whole[first * 30..] == part, "{backend:?}, from event {first} on");
            }
        }
    }
}

/// Returns the results of a case on a device, as bits.
pub fn bits(case: &Case, gpu: Gpu) -> Vec<Vec<u64>> {
    let results = run(case, Precision::F32, Backend::Cuda(gpu)).unwrap_or_else(|e| panic!("{case}: {e}"));
    as_bits(results)
}
fn as_bits(results: Results) -> Vec<Vec<u64>> {
    results.into_iter().map(|(.., v)| v.iter().map(|x| x.to_bits()).collect()).collect()
}

/// Checks that kernels that wait for their measurement compute the bits of those before, in every case of the
/// ops that have such kernels.
pub fn changes_keep_bits(on: &TestDevice) {
    const CHANGED: [&str; 4] = ["adam", "gru_memory", "rnn_memory", "temporal_attention"];
    let before = on.gpu.before("attention,products,small").unwrap();
    for case in cases().into_iter().filter(|case| CHANGED.contains(&case.op)) {
        assert!(bits(&case, on.gpu.clone()) == bits(&case, before.clone()), "{case}");
    }
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu, or a GPU and TGNN_TEST_DEVICE=cuda")]
fn kernels_that_wait_for_their_measurement_compute_the_bits_of_those_before() {
    if let Some(on) = device(0) {
        changes_keep_bits(&on);
    }
}

/// Ops whose dense products run on the matrix units.
pub const WITH_PRODUCTS: [&str; 7] =
    ["gru_memory", "head_linear", "linear", "linear_pair", "linear_sum", "link_decoder", "rnn_memory"];

/// Checks the kernels on every eighth case of each op, from case `first` on, and on the case of an op that
/// has no other.
fn check_kernels(first: usize) {
    let Some(on) = device(0) else { return };
    let cases = cases();
    for of_op in cases.chunk_by(|a, b| a.op == b.op) {
        for (at, case) in of_op.iter().enumerate() {
            if at % 8 == first || of_op.len() == 1 {
                let off =
                    worst(case, Backend::Cuda(on.gpu.clone())).unwrap_or_else(|e| panic!("{case}: {e}"));
                assert!(off.within(), "{case}: {off}");
            }
        }
    }
}

/// Declares the tests of the kernels: eight, of which `.ci/run` runs one under each sanitizer.
macro_rules! kernels_agree {
    ($($test:ident: $first:literal;)*) => {$(
        #[test]
        #[cfg_attr(not(feature = "emu"), ignore = "wants --features emu, or a GPU and TGNN_TEST_DEVICE=cuda")]
        fn $test() {
            check_kernels($first);
        }
    )*};
}
kernels_agree! {
    the_kernels_of_every_op_agree_with_its_definition_in_the_first_eighth: 0;
    the_kernels_of_every_op_agree_with_its_definition_in_the_second_eighth: 1;
    the_kernels_of_every_op_agree_with_its_definition_in_the_third_eighth: 2;
    the_kernels_of_every_op_agree_with_its_definition_in_the_fourth_eighth: 3;
    the_kernels_of_every_op_agree_with_its_definition_in_the_fifth_eighth: 4;
    the_kernels_of_every_op_agree_with_its_definition_in_the_sixth_eighth: 5;
    the_kernels_of_every_op_agree_with_its_definition_in_the_seventh_eighth: 6;
    the_kernels_of_every_op_agree_with_its_definition_in_the_last_eighth: 7;
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu, or a GPU and TGNN_TEST_DEVICE=cuda")]
fn products_in_tf32_agree_with_the_definition_up_to_their_rounding() {
    let Some(on) = device(0) else { return };
    let precision = MatmulPrecision::Tf32;
    let backend = Backend::Cuda(on.gpu.multiplying_in(precision));
    for case in cases().into_iter().filter(|c| WITH_PRODUCTS.contains(&c.op)) {
        // On inputs that the precision represents exactly, no sum that a ReLU reads changes its sign.
        for case in [case, case.with_inputs(precision)] {
            let off = worst(&case, backend.clone()).unwrap();
            let inputs = case.inputs;
            assert!(off.within(), "{case}, inputs in {inputs:?}, products in {precision:?}: {off}");
        }
    }
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu, or a GPU and TGNN_TEST_DEVICE=cuda")]
fn a_product_equals_that_of_its_operands_rounded_to_the_precision() {
    let Some(on) = device(0) else { return };
    // `head_up` is a product and nothing else.
    for case in cases().into_iter().filter(|c| c.op == "head_linear" && c.dims[4] == 0) {
        for precision in MatmulPrecision::ALL {
            let output = |case: Case| bits(&case, on.gpu.multiplying_in(precision)).swap_remove(0);
            assert!(output(case) == output(case.with_inputs(precision)), "{case}, {precision:?}");
        }
    }
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu, or a GPU and TGNN_TEST_DEVICE=cuda")]
fn a_nan_makes_its_own_row_of_a_product_nan_and_no_other() {
    let Some(on) = device(0) else { return };
    for precision in MatmulPrecision::ALL {
        // NaN as a program writes it, as a device produces it, and the latter with a sign.
        for bits in [f32::NAN.to_bits(), 0x7fff_ffff, 0xffff_ffff] {
            let mut store = Store::new(Precision::F32);
            let mut t = Tape::new(&store);
            let mut values = [1.0; 60];
            values[27] = f32::from_bits(bits);
            let x = store.values("x", Spec::real(Rows::fixed(3), 20), &values).unwrap();
            let w = store.values("w", Spec::real(Rows::fixed(5), 20), &[1.0; 100]).unwrap();
            let (x, w) = (t.stored(x).unwrap(), t.stored(w).unwrap());
            let y = t.linear(x, w, None, None, Activation::Identity).unwrap();
            let backend = Backend::Cuda(on.gpu.multiplying_in(precision));
            let mut program = Program::new(&t, &[y], Precision::F32, backend).unwrap();
            program.run(&mut store).unwrap();
            for (i, row) in program.read::<f32>(y, &store).unwrap().chunks_exact(5).enumerate() {
                let right = row.iter().all(|y| if i == 1 { y.is_nan() } else { *y == 20.0 });
                assert!(right, "{precision:?}, {bits:#x}, row {i}: {row:?}");
            }
        }
    }
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu, or a GPU and TGNN_TEST_DEVICE=cuda")]
fn the_precision_of_products_changes_every_op_with_dense_products_and_no_other() {
    let Some(on) = device(0) else { return };
    for op in cases().iter().map(|c| c.op).collect::<BTreeSet<_>>() {
        let found: BTreeSet<Vec<Vec<Vec<u64>>>> = MatmulPrecision::ALL
            .map(|p| {
                cases().iter().filter(|c| c.op == op).map(|c| bits(c, on.gpu.multiplying_in(p))).collect()
            })
            .into();
        assert_eq!(found.len(), if WITH_PRODUCTS.contains(&op) { 2 } else { 1 }, "{op}");
    }
}

/// Kernels leave device state that the next run uses, such as tickets, as they found it.
#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu, or a GPU and TGNN_TEST_DEVICE=cuda")]
fn a_run_of_kernels_that_keep_no_state_does_not_depend_on_the_one_before() {
    let Some(on) = device(1) else { return };
    for case in cases() {
        let first = run(&case, Precision::F32, Backend::Cuda(on.gpu.clone())).unwrap();
        if first.iter().all(|(what, ..)| what.starts_with("output") || what.starts_with("gradient")) {
            let later = run_again(&case, Precision::F32, Backend::Cuda(on.gpu.clone())).unwrap();
            assert!(as_bits(first) == as_bits(later), "{case}");
        }
    }
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu, or a GPU and TGNN_TEST_DEVICE=cuda")]
fn no_order_of_threads_and_blocks_changes_a_bit_of_any_op() {
    let Some(on) = device(0) else { return };
    for precision in MatmulPrecision::ALL {
        let gpu = on.gpu.multiplying_in(precision);
        for (at, case) in cases().into_iter().enumerate() {
            // Ops with products take most of the time and share their code, so few schedules are tried.
            let (few, all) = match (WITH_PRODUCTS.contains(&case.op), precision) {
                (false, MatmulPrecision::F32) => (3, 20),
                (true, MatmulPrecision::F32) => (1, 5),
                (true, _) => (1, 2),
                (false, _) => continue,
            };
            on.schedule(0);
            let in_order = bits(&case, gpu.clone());
            for (_, seed) in drawn(at, few, all) {
                on.schedule(seed);
                assert!(bits(&case, gpu.clone()) == in_order, "{case}, {precision:?}, schedule {seed}");
            }
        }
    }
}
