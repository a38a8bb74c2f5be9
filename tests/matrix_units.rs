//! The matrix units of chips, which cut sums off, as the emulated device has them, and the accuracy of
//! products on them.
use crate::{
    ops::WITH_PRODUCTS,
    support::devices::{TestDevice, device},
};
use tgnn::{
    autograd::Program,
    ops::{Backend, Tape, cases, epilogue::Activation},
    runtime::{MatmulPrecision, Precision, Rows, Spec, Store},
    testing::worst,
};

/// Returns the product of a row with a column of ones on the matrix units of a chip, in TF32. There are more
/// such columns than a narrow map has, which is not multiplied there.
fn sum(on: &TestDevice, chip: &str, row: &[f32]) -> f32 {
    on.matrix_units(chip);
    let mut store = Store::new(Precision::F32);
    let mut t = Tape::new(&store);
    let k = row.len();
    let x = t.input(&mut store, "x", Spec::real(Rows::fixed(1), k), row).unwrap();
    let w = t.input(&mut store, "w", Spec::real(Rows::fixed(33), k), &vec![1.0f32; 33 * k]).unwrap();
    let y = t.linear(x, w, None, None, Activation::Identity).unwrap();
    let backend = Backend::Cuda(on.gpu.multiplying_in(MatmulPrecision::Tf32));
    let mut program = Program::new(&t, &[y], Precision::F32, backend).unwrap();
    program.run(&mut store).unwrap();
    program.read::<f32>(y, &store).unwrap()[0]
}

/// The unit of the last place of an f32 from 1 to 2.
const ULP: f32 = f32::EPSILON;

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn sums_are_aligned_to_the_largest_term_and_cut() {
    let Some(on) = device(0).filter(|on| on.emulated) else { return };
    let row = |first: f32, small: f32, k: usize| [&[first][..], &vec![small; k - 1]].concat();
    // Quarters of a unit: an H100 has two more bits than f32, so they add up among eight terms and are cut
    // afterwards; an A100 has one more bit, and drops them.
    for (chip, want) in [
        ("h100", 1.0 + 3.0 * ULP), // 1 + 7/4 units, cut to 1 unit; then 8/4 more
        ("a100", 1.0),
        ("exact", 1.0 + 4.0 * ULP), // rounded after eight terms
    ] {
        assert_eq!(sum(&on, chip, &row(1.0, ULP / 4.0, 16)), want, "{chip}");
        assert_eq!(sum(&on, chip, &row(-1.0, -ULP / 4.0, 16)), -want, "{chip}");
    }
    // Halves: an A100 adds four terms at a time and cuts each sum. (A row of eight is two products of eight
    // terms, of which half are zero.)
    assert_eq!(sum(&on, "a100", &row(1.0, ULP / 2.0, 8)), 1.0 + 3.0 * ULP); // 1/2 unit, cut; then 2/2 thrice
    assert_eq!(sum(&on, "a100", &row(1.0, ULP / 2.0, 16)), 1.0 + 7.0 * ULP); // 3/2 units, cut; then 4/2 thrice
    // What is below the kept bits is lost, even if more of it would count.
    assert_eq!(sum(&on, "h100", &row(1.0, ULP / 8.0, 8)), 1.0);
    // Infinities and NaN pass, and zeros are zero.
    assert_eq!(sum(&on, "h100", &row(f32::INFINITY, 1.0, 8)), f32::INFINITY);
    assert!(sum(&on, "a100", &row(f32::NAN, 1.0, 8)).is_nan());
    assert_eq!(sum(&on, "h100", &[0.0; 9]), 0.0);
    assert_eq!(sum(&on, "h100", &row(2f32.powi(-60), 2f32.powi(-60), 8)), 2f32.powi(-57));
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn products_in_f32_are_as_accurate_as_f32_on_every_chip() {
    let Some(on) = device(0).filter(|on| on.emulated) else { return };
    for chip in ["h100", "a100", "exact"] {
        on.matrix_units(chip);
        for case in cases().iter().filter(|c| WITH_PRODUCTS.contains(&c.op)) {
            let off = worst(case, Backend::Cuda(on.gpu.clone())).unwrap();
            assert!(off.within(), "{case}, {chip}: {off}");
        }
    }
}

/// Infinities, and numbers that round to infinity in TF32, have no split into two TF32 numbers.
#[test]
fn infinities_and_the_largest_numbers_are_multiplied_as_in_f32() {
    let Some(on) = device(0) else { return };
    let (rows, k, columns) = (70, 37, 5);
    let special = [f32::MAX, -f32::MAX, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
    let mut x: Vec<f32> = (0..rows * k).map(|i| (i % 13) as f32 / 8.0 - 0.5).collect();
    special.iter().enumerate().for_each(|(i, &v)| x[(i + 1) * k + 7 * i] = v);
    // Column 0 halves everything; column 1 meets the special numbers with zeros.
    let weight = |i: usize| [0.5, 0.0, -0.25, 0.125, 0.03125][i / k];
    let w: Vec<f32> = (0..columns * k).map(weight).collect();
    let results = |backend: Backend| {
        let mut store = Store::new(Precision::F32);
        let mut t = Tape::new(&store);
        let x = t.input(&mut store, "x", Spec::real(Rows::fixed(rows), k), &x).unwrap();
        let w = t.input(&mut store, "w", Spec::real(Rows::fixed(columns), k), &w).unwrap();
        let dy = vec![0.5f32; rows * columns];
        let dy = t.input(&mut store, "dy", Spec::real(Rows::fixed(rows), columns), &dy).unwrap();
        let y = t.linear(x, w, None, None, Activation::Identity).unwrap();
        let dw = t.backward_many(&[(y, dy)]).unwrap()[&w];
        let mut program = Program::new(&t, &[y, dw], Precision::F32, backend).unwrap();
        program.run(&mut store).unwrap();
        [y, dw].map(|v| program.read::<f32>(v, &store).unwrap().to_vec()).concat()
    };
    let want = results(Backend::Definition);
    let is_infinite = |v: &&f32| v.is_infinite();
    assert!(
        want.iter().filter(is_infinite).count() > 8 && want.iter().any(|v| v.abs() > 1e38 && v.is_finite())
    );
    for chip in if on.emulated { &["h100", "a100", "exact"][..] } else { &["a GPU"] } {
        on.matrix_units(chip);
        for (i, (got, want)) in results(Backend::Cuda(on.gpu.clone())).iter().zip(&want).enumerate() {
            let close = (got - want).abs() <= 1e-5 * want.abs().max(1.0);
            assert!(close || got == want || got.is_nan() && want.is_nan(), "{chip}, {i}: {got}, want {want}");
        }
    }
}
