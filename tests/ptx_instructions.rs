//! The interpreter of PTX itself, on hand-written PTX: results of instructions against Rust's arithmetic.
use crate::support::devices::{TestDevice, emulated};

/// Returns a module with a kernel `k` of two addresses, `in` and `out`, whose registers are declared.
pub fn module(body: &str) -> String {
    format!(
        ".version 8.5\n.target sm_90\n.address_size 64\n.extern .shared .align 16 .b8 dynamic[];\n\
         .global .align 4 .b8 table[8] = {{1, 2, 3, 4, 5, 6, 7, 8}};\n\
         .visible .entry k(.param .u64 in, .param .u64 out)\n.maxntid 1024, 1, 1\n{{\n\
         .reg .pred %p<10>;\n.reg .b16 %h<10>;\n.reg .b32 %w<20>;\n.reg .b64 %x<20>;\n{body}\nret;\n}}\n\0"
    )
}

/// Runs `body` in a thread for each row of `inputs`. The row is in `%x0` to `%x2`, its lower halves in `%w0`
/// to `%w2`, and 16 bits of it in `%h0` to `%h2`. Returns what the threads leave in `%x9`.
fn run(on: &TestDevice, body: &str, inputs: &[[u64; 3]]) -> Vec<u64> {
    let mut text = String::from(
        "mov.u32 %w19, %tid.x;\nld.param.u64 %x10, [in];\nld.param.u64 %x11, [out];\n\
         mad.wide.u32 %x12, %w19, 24, %x10;\nmad.wide.u32 %x13, %w19, 8, %x11;\n",
    );
    for i in 0..3 {
        text += &format!(
            "ld.global.u64 %x{i}, [%x12+{}];\ncvt.u32.u64 %w{i}, %x{i};\ncvt.u16.u64 %h{i}, %x{i};\n",
            8 * i
        );
    }
    text += &format!("{body}\nst.global.u64 [%x13], %x9;");
    let words = |values: &[u64]| -> Vec<u32> { bytemuck::cast_slice(values).to_vec() };
    let (input, out) = (on.words(&words(inputs.as_flattened())), on.words(&vec![0; 2 * inputs.len()]));
    let threads = inputs.len() as u32;
    on.launch(
        on.load(module(&text).as_bytes()),
        "k",
        (1, threads, 0),
        &[&[input.address()], &[out.address()]],
    );
    assert_eq!(on.fault(), "", "{body}");
    on.read(&out).chunks_exact(2).map(|w| u64::from(w[0]) | u64::from(w[1]) << 32).collect()
}

/// Checks an instruction on all `rows`. `sizes` are those of its operands, the result first: `h`, `w` and `x`
/// have 16, 32 and 64 bits, `p` is a predicate. Where `want` is `None`, the result is open.
fn check(
    on: &TestDevice,
    opcode: &str,
    sizes: &str,
    rows: &[[u64; 3]],
    want: impl Fn([u64; 3]) -> Option<u64>,
) {
    let mut operands = sizes.chars();
    let result = operands.next().unwrap();
    let ins: String = operands.enumerate().map(|(i, size)| format!(", %{size}{i}")).collect();
    let widen = match result {
        'h' => "cvt.u64.u16 %x9, %h9;",
        'w' => "cvt.u64.u32 %x9, %w9;",
        'p' => "selp.u64 %x9, 1, 0, %p9;",
        _ => "",
    };
    for rows in rows.chunks(1024) {
        let found = run(on, &format!("{opcode} %{result}9{ins};\n{widen}"), rows);
        for (row, found) in rows.iter().zip(found) {
            if let Some(want) = want(*row) {
                assert_eq!(found, want, "{opcode} of {row:x?} is {found:#x}, not {want:#x}");
            }
        }
    }
}

/// Returns all pairs of values, each with a third one.
fn pairs(values: &[u64]) -> Vec<[u64; 3]> {
    let n = values.len();
    (0..n * n).map(|i| [values[i / n], values[i % n], values[(5 * i + i / n) % n]]).collect()
}

const INTEGERS: [u64; 21] = [
    0,
    1,
    2,
    7,
    31,
    32,
    33,
    63,
    64,
    100,
    0x7fff,
    0x8000,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0001,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    0xffff_ffff_ffff_fff9,
    u64::MAX,
];

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn integer_instructions_compute_what_rust_does() {
    let Some(on) = emulated() else { return };
    let rows = pairs(&INTEGERS);
    let i32s = |f: fn(i32, i32) -> Option<u32>| {
        move |[a, b, _]: [u64; 3]| f(a as u32 as i32, b as u32 as i32).map(u64::from)
    };
    let u64s = |f: fn(u64, u64) -> Option<u64>| move |[a, b, _]: [u64; 3]| f(a, b);
    check(&on, "div.u64", "xxx", &rows, u64s(u64::checked_div));
    check(&on, "rem.u64", "xxx", &rows, u64s(u64::checked_rem));
    check(&on, "div.s64", "xxx", &rows, u64s(|a, b| (a as i64).checked_div(b as i64).map(|x| x as u64)));
    check(&on, "rem.s64", "xxx", &rows, u64s(|a, b| (a as i64).checked_rem(b as i64).map(|x| x as u64)));
    check(&on, "div.u32", "www", &rows, i32s(|a, b| (a as u32).checked_div(b as u32)));
    check(&on, "rem.u32", "www", &rows, i32s(|a, b| (a as u32).checked_rem(b as u32)));
    check(&on, "div.s32", "www", &rows, i32s(|a, b| a.checked_div(b).map(|x| x as u32)));
    check(&on, "rem.s32", "www", &rows, i32s(|a, b| a.checked_rem(b).map(|x| x as u32)));
    check(&on, "mul.hi.u32", "www", &rows, |[a, b, _]| {
        Some((u64::from(a as u32) * u64::from(b as u32)) >> 32)
    });
    check(&on, "mul.hi.s32", "www", &rows, i32s(|a, b| Some(((i64::from(a) * i64::from(b)) >> 32) as u32)));
    check(&on, "mul.hi.u64", "xxx", &rows, u64s(|a, b| Some(((u128::from(a) * u128::from(b)) >> 64) as u64)));
    check(&on, "mul.wide.s32", "xww", &rows, |[a, b, _]| {
        Some((i64::from(a as i32) * i64::from(b as i32)) as u64)
    });
    check(&on, "mul.wide.s16", "whh", &rows, |[a, b, _]| {
        Some(u64::from((i32::from(a as i16) * i32::from(b as i16)) as u32))
    });
    check(&on, "mad.wide.u32", "xwwx", &rows, |[a, b, c]| {
        Some((u64::from(a as u32) * u64::from(b as u32)).wrapping_add(c))
    });
    check(&on, "mad.lo.s32", "wwww", &rows, |[a, b, c]| {
        Some(u64::from((a as u32).wrapping_mul(b as u32).wrapping_add(c as u32)))
    });
    check(&on, "sub.s16", "hhh", &rows, |[a, b, _]| Some(u64::from((a as u16).wrapping_sub(b as u16))));
    check(&on, "min.s64", "xxx", &rows, u64s(|a, b| Some((a as i64).min(b as i64) as u64)));
    check(&on, "max.u64", "xxx", &rows, u64s(|a, b| Some(a.max(b))));
    check(&on, "min.s32", "www", &rows, i32s(|a, b| Some(a.min(b) as u32)));
    check(&on, "abs.s32", "ww", &rows, |[a, ..]| Some(u64::from((a as i32).wrapping_abs() as u32)));
    check(&on, "cvt.s64.s32", "xw", &rows, |[a, ..]| Some(i64::from(a as i32) as u64));
    check(&on, "cvt.s32.s16", "wh", &rows, |[a, ..]| Some(u64::from(i32::from(a as i16) as u32)));
    check(&on, "setp.lt.s64", "pxx", &rows, u64s(|a, b| Some(u64::from((a as i64) < b as i64))));
    check(&on, "setp.ge.u32", "pww", &rows, |[a, b, _]| Some(u64::from(a as u32 >= b as u32)));
    check(&on, "setp.gt.s16", "phh", &rows, |[a, b, _]| Some(u64::from(a as i16 > b as i16)));
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn bits_are_shifted_inserted_counted_and_reversed_as_the_isa_says() {
    let Some(on) = emulated() else { return };
    let rows = pairs(&INTEGERS);
    let by = |b: u64| b as u32; // the amount has 32 bits
    check(&on, "shl.b32", "www", &rows, |[a, b, _]| {
        Some(u64::from((a as u32).checked_shl(by(b)).unwrap_or(0)))
    });
    check(&on, "shl.b64", "xxw", &rows, |[a, b, _]| Some(a.checked_shl(by(b)).unwrap_or(0)));
    check(&on, "shr.u32", "www", &rows, |[a, b, _]| {
        Some(u64::from((a as u32).checked_shr(by(b)).unwrap_or(0)))
    });
    check(&on, "shr.s32", "www", &rows, |[a, b, _]| Some(u64::from((a as i32 >> by(b).min(31)) as u32)));
    check(&on, "shr.s64", "xxw", &rows, |[a, b, _]| Some((a as i64 >> by(b).min(63)) as u64));
    check(&on, "shr.u16", "hhw", &rows, |[a, b, _]| {
        Some(u64::from((a as u16).checked_shr(by(b)).unwrap_or(0)))
    });
    // The lower 5 bits of `a` into `b`, and so on; position and length are the lower bytes.
    let insert = |a: u64, b: u64, position: u64, length: u64, width: u64| {
        let field = (position..(position + length).min(width)).fold(0u64, |m, i| m | 1 << i);
        (b & !field) | (a.checked_shl(position as u32).unwrap_or(0) & field)
    };
    for length in [0u64, 1, 5, 31, 32, 64, 255] {
        let body = |op: &str, size: char| {
            format!("mov.u32 %w8, {length};\n{op} %{size}9, %{size}0, %{size}1, %w2, %w8;\n")
        };
        let narrow = body("bfi.b32", 'w') + "cvt.u64.u32 %x9, %w9;";
        for (text, width) in [(narrow, 32), (body("bfi.b64", 'x'), 64)] {
            for ([a, b, c], found) in rows.iter().zip(run(&on, &text, &rows)) {
                let b = if width == 32 { u64::from(*b as u32) } else { *b };
                let want = insert(*a, b, c & 0xff, length, width);
                assert_eq!(found, want, "bfi of {length} bits of {a:x} at {c:x} into {b:x}, width {width}");
            }
        }
    }
    check(&on, "brev.b32", "ww", &rows, |[a, ..]| Some(u64::from((a as u32).reverse_bits())));
    check(&on, "popc.b64", "wx", &rows, |[a, ..]| Some(u64::from(a.count_ones())));
    check(&on, "clz.b32", "ww", &rows, |[a, ..]| Some(u64::from((a as u32).leading_zeros())));
    check(&on, "bfind.u32", "ww", &rows, |[a, ..]| {
        Some(u64::from((a as u32).checked_ilog2().unwrap_or(u32::MAX)))
    });
    check(&on, "bfind.shiftamt.u32", "ww", &rows, |[a, ..]| {
        Some(u64::from(if a as u32 == 0 { u32::MAX } else { (a as u32).leading_zeros() }))
    });
    let halves = run(
        &on,
        "mov.b32 %w9, {%h0, %h1};\nmov.b32 {%h8, %h9}, %w9;\nmov.b32 %w9, {%h9, %h8};\nmov.b64 %x9, {%w9, %w2};",
        &rows,
    );
    for ([a, b, c], found) in rows.iter().zip(halves) {
        assert_eq!(found, (b & 0xffff) | (a & 0xffff) << 16 | c << 32);
    }
}

const REALS: [f32; 20] = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    0.1,
    3.5,
    -2.5,
    1e-30,
    -3e38,
    f32::MAX,
    f32::MIN_POSITIVE,
    1e-45,
    -1e-40,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    1.0 + f32::EPSILON,
    16_777_217.0,
    2_147_483_648.0,
    -70_000.0,
];

/// The bits of a result of arithmetic: there is one NaN.
fn result(x: f32) -> Option<u64> {
    Some(if x.is_nan() { 0x7fff_ffff } else { u64::from(x.to_bits()) })
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn real_instructions_compute_what_rust_does() {
    let Some(on) = emulated() else { return };
    let rows = pairs(&REALS.map(|x| u64::from(x.to_bits())));
    let reals = |f: fn(f32, f32, f32) -> f32| {
        move |row: [u64; 3]| {
            let [a, b, c] = row.map(|x| f32::from_bits(x as u32));
            result(f(a, b, c))
        }
    };
    let holds = |f: fn(f32, f32) -> bool| {
        move |[a, b, _]: [u64; 3]| Some(u64::from(f(f32::from_bits(a as u32), f32::from_bits(b as u32))))
    };
    check(&on, "add.f32", "www", &rows, reals(|a, b, _| a + b));
    check(&on, "mul.rn.f32", "www", &rows, reals(|a, b, _| a * b));
    check(&on, "fma.rn.f32", "wwww", &rows, reals(f32::mul_add));
    check(&on, "div.rn.f32", "www", &rows, reals(|a, b, _| a / b));
    check(&on, "sqrt.rn.f32", "ww", &rows, reals(|a, _, _| a.sqrt()));
    // If one operand is NaN, the result is the other; -0 is less than +0.
    check(
        &on,
        "min.f32",
        "www",
        &rows,
        reals(|a, b, _| if a == b && a.is_sign_negative() { a } else { b.min(a) }),
    );
    check(
        &on,
        "max.f32",
        "www",
        &rows,
        reals(|a, b, _| if a == b && a.is_sign_positive() { a } else { b.max(a) }),
    );
    check(&on, "copysign.f32", "www", &rows, |[a, b, _]| Some((a & 0x8000_0000) | (b & 0x7fff_ffff)));
    check(&on, "cvt.sat.f32.f32", "ww", &rows, reals(|a, _, _| if a > 0.0 { a.min(1.0) } else { 0.0 }));
    check(&on, "cvt.rni.s32.f32", "ww", &rows, |[a, ..]| {
        Some(u64::from(f32::from_bits(a as u32).round_ties_even() as i32 as u32))
    });
    check(&on, "cvt.f64.f32", "xw", &rows, |[a, ..]| {
        let x = f64::from(f32::from_bits(a as u32));
        (!x.is_nan()).then_some(x.to_bits())
    });
    check(&on, "cvt.rn.f32.s64", "wx", &pairs(&INTEGERS), |[a, ..]| result(a as i64 as f32));
    check(&on, "cvt.rn.f32.u64", "wx", &pairs(&INTEGERS), |[a, ..]| result(a as f32));
    check(&on, "setp.lt.f32", "pww", &rows, holds(|a, b| a < b));
    check(
        &on,
        "setp.ne.f32",
        "pww",
        &rows,
        holds(|a, b| a.partial_cmp(&b).is_some_and(|order| order.is_ne())),
    );
    check(&on, "setp.neu.f32", "pww", &rows, holds(|a, b| a != b));
    #[allow(clippy::neg_cmp_op_on_partial_ord)]
    check(&on, "setp.geu.f32", "pww", &rows, holds(|a, b| !(a < b)));
    check(&on, "setp.num.f32", "pww", &rows, holds(|a, b| !a.is_nan() && !b.is_nan()));
    // Flushed subnormals, and the bounds of the errors that the ISA gives.
    let near = |found: u64, want: f64, bound: f64| {
        let found = f64::from(f32::from_bits(found as u32));
        found == want || (found.is_nan() && want.is_nan()) || (found - want).abs() <= bound * want.abs()
    };
    let flushed = |x: f64| if x.abs() < f64::from(f32::MIN_POSITIVE) { 0.0 * x } else { x };
    for (opcode, f) in [("rcp", (|x| 1.0 / x) as fn(f64) -> f64), ("ex2", f64::exp2), ("lg2", f64::log2)] {
        let text = format!("{opcode}.approx.ftz.f32 %w9, %w0;\ncvt.u64.u32 %x9, %w9;");
        for ([a, ..], found) in rows.iter().zip(run(&on, &text, &rows)) {
            let a = f64::from(f32::from_bits(*a as u32));
            let want = f64::from(flushed(f(flushed(a))) as f32);
            assert!(near(found, want, 2f64.powi(-22)), "{opcode} of {a}: {found:x}, not {want}");
        }
    }
}

/// The exact sum of a b and c, in units of 2^-120, for multiples of 2^-60 that are not too large.
fn exact(a: f32, b: f32, c: f32) -> i128 {
    let units = |x: f32| (f64::from(x) * 2f64.powi(60)) as i128;
    units(a) * units(b) + (units(c) << 60)
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn sums_are_rounded_down_and_towards_zero() {
    let Some(on) = emulated() else { return };
    let mut state = 1u64;
    let mut draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let (sign, mantissa, exponent) =
            (state >> 63, state >> 33 & 0x7f_ffff, 127 + (state >> 56 & 15) - 15);
        sign << 31 | exponent << 23 | mantissa
    };
    let mut rows: Vec<[u64; 3]> = (0..1000).map(|_| [draw(), draw(), draw()]).collect();
    rows.extend(pairs(&[1.0f32, -1.0, 0.0, -0.0, 0.5].map(|x| u64::from(x.to_bits()))).into_iter().take(24));
    let unit = |x: u64| exact(f32::from_bits(x as u32), 1.0, 0.0);
    let check = |opcode: &str, exact_of: &dyn Fn([f32; 3]) -> i128, down: bool| {
        let text = format!("{opcode};\ncvt.u64.u32 %x9, %w9;");
        for (row, found) in rows.iter().zip(run(&on, &text, &rows)) {
            let want = exact_of(row.map(|x| f32::from_bits(x as u32)));
            let x = f32::from_bits(found as u32);
            if want == 0 {
                assert!(x == 0.0, "{opcode} of {row:x?} is {x}");
                continue;
            }
            // The result is the last number before the exact one in the direction of rounding.
            let up = down || want > 0;
            let next = if up { x.next_up() } else { x.next_down() };
            let (at, beyond) = (unit(found), unit(u64::from(next.to_bits())));
            let right = if up { at <= want && want < beyond } else { at >= want && want > beyond };
            assert!(right, "{opcode} of {row:x?} is {x}");
        }
    };
    check("fma.rm.f32 %w9, %w0, %w1, %w2", &|[a, b, c]| exact(a, b, c), true);
    check("fma.rz.f32 %w9, %w0, %w1, %w2", &|[a, b, c]| exact(a, b, c), false);
    check("add.rm.f32 %w9, %w0, %w1", &|[a, b, _]| exact(a, 1.0, b), true);
    check("add.rz.f32 %w9, %w0, %w1", &|[a, b, _]| exact(a, 1.0, b), false);
    // The sum of opposite numbers is -0 only if it is rounded down.
    let opposite = [[1.5f32, -1.5, 0.0].map(|x| u64::from(x.to_bits()))];
    for (mode, want) in [("rm", 0x8000_0000), ("rz", 0)] {
        let text = format!("add.{mode}.f32 %w9, %w0, %w1;\ncvt.u64.u32 %x9, %w9;");
        assert_eq!(run(&on, &text, &opposite), [want], "add.{mode}");
    }
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn numbers_are_rounded_to_narrow_formats_and_back() {
    let Some(on) = emulated() else { return };
    let ties =
        [1.0 + 1.0 / 2048.0, 1.0 + 1.0 / 1024.0 + 1.0 / 2048.0, 65_519.0, 65_520.0, 6e-8, 2.0 + 1.0 / 128.0];
    let rows =
        pairs(&[&REALS[..], &ties].concat().iter().map(|x| u64::from(x.to_bits())).collect::<Vec<_>>());
    let real = |x: u64| f32::from_bits(x as u32);
    let half = |x: f32| if x.is_nan() { 0x7fff } else { u64::from(half::f16::from_f32(x).to_bits()) };
    check(&on, "cvt.rn.f16.f32", "hw", &rows, |[a, ..]| Some(half(real(a))));
    // To the nearest of the numbers with so many bits less.
    let rounded = |x: u64, bits: u32, to_even: bool| {
        let half = 1u64 << (bits - 1);
        let up = if to_even { half - 1 + (x >> bits & 1) } else { half };
        if real(x).is_nan() { 0x7fff_ffff >> (bits * u32::from(to_even)) } else { (x + up) >> bits }
    };
    check(&on, "cvt.rna.tf32.f32", "ww", &rows, |[a, ..]| {
        Some(if real(a).is_nan() { 0x7fff_ffff } else { rounded(a, 13, false) << 13 })
    });
    check(&on, "cvt.rn.bf16x2.f32", "www", &rows, |[a, b, _]| {
        Some(rounded(a, 16, true) << 16 | rounded(b, 16, true))
    });
    let halves: Vec<[u64; 3]> = (0..0x10000).step_by(67).map(|x| [x, 0, 0]).collect();
    check(&on, "cvt.f32.f16", "wh", &halves, |[a, ..]| result(half::f16::from_bits(a as u16).to_f32()));
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn shuffles_take_the_lane_that_the_isa_names() {
    let Some(on) = emulated() else { return };
    // A warp for each width and distance.
    let settings: Vec<(u64, u64)> =
        [2, 8, 16, 32].iter().flat_map(|&w| [0, 1, 2, 7, 15, 31, 32, 40].map(|by| (w, by))).collect();
    for (how, clamp) in [("up", 0), ("down", 31), ("bfly", 31), ("idx", 31)] {
        let rows: Vec<[u64; 3]> = settings
            .iter()
            .flat_map(|&(width, by)| (0..32).map(move |lane| [1000 + lane, by, (32 - width) << 8 | clamp]))
            .collect();
        let text = format!(
            "shfl.sync.{how}.b32 %w9|%p9, %w0, %w1, %w2, -1;\nselp.u32 %w8, 1, 0, %p9;\nmov.b64 %x9, {{%w9, %w8}};"
        );
        for (at, found) in run(&on, &text, &rows).into_iter().enumerate() {
            let ((width, by), lane) = (settings[at / 32], at as u64 % 32);
            let (first, by) = (lane / width * width, by % 32);
            let from = match how {
                "up" => lane.checked_sub(by).filter(|&l| l >= first),
                "down" => Some(lane + by).filter(|&l| l < first + width),
                "bfly" => Some(lane ^ by).filter(|&l| l < first + width),
                _ => Some(first + by % width),
            };
            let want = (1000 + from.unwrap_or(lane)) | u64::from(from.is_some()) << 32;
            assert_eq!(found, want, "{how} by {by} of {width}, lane {lane}");
        }
    }
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn branches_guards_and_memory_of_every_space_work_in_every_order() {
    let Some(on) = emulated() else { return };
    let rows: Vec<[u64; 3]> = (0..96).map(|i| [i * 3, 95 - i, i % 7]).collect();
    // A loop of as many rounds as the thread's third number, a value through shared memory, one through local
    // memory, a table of the module, and a register of a scope of its own.
    let text = "
        .shared .align 4 .b8 held[384];
        .local .align 8 .b8 stack[16];
        mov.u32 %w3, 0;
    again: setp.ge.u32 %p1, %w3, %w2;
        @%p1 bra done;
        add.u32 %w3, %w3, 1;
        bra.uni again;
    done: { .reg .b32 %w3; mov.u32 %w3, 77; }
        mov.u32 %w4, held;
        mad.lo.u32 %w5, %w19, 4, %w4;
        st.shared.u32 [%w5], %w0;
        bar.sync 0;
        mad.lo.u32 %w5, %w1, 4, %w4;
        ld.shared.u32 %w6, [%w5];
        mov.u64 %x3, stack;
        cvta.local.u64 %x4, %x3;
        st.v2.u32 [%x4+8], {%w6, %w3};
        ld.local.u64 %x9, [stack+8];
        mov.u64 %x5, table;
        ld.global.u8 %w7, [%x5+2];
        setp.eq.u32 %p2, %w2, 0;
        cvt.u64.u32 %x6, %w7;
        @!%p2 add.u64 %x9, %x9, %x6;";
    for seed in 0..6 {
        on.schedule(seed);
        for (i, found) in run(&on, text, &rows).into_iter().enumerate() {
            let [_, other, rounds] = rows[i];
            let want = (rows[other as usize][0] | rounds << 32) + if rounds == 0 { 0 } else { 3 };
            assert_eq!(found, want, "thread {i}, schedule {seed}");
        }
    }
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn barriers_tell_votes_and_no_lane_waits_for_those_that_have_returned() {
    let Some(on) = emulated() else { return };
    let rows: Vec<[u64; 3]> = (0..80).map(|i| [i % 5, 0, 0]).collect();
    for (vote, want) in [("or", [1, 1, 0]), ("and", [1, 0, 0])] {
        for (limit, want) in [5, 3, 0].into_iter().zip(want) {
            let text = format!(
                "setp.lt.u32 %p1, %w0, {limit};\nbar.red.{vote}.pred %p2, 0, %p1;\nselp.u64 %x9, 1, 0, %p2;"
            );
            assert_eq!(run(&on, &text, &rows), [want; 80], "{vote} of numbers below {limit}");
        }
    }
    let count = "setp.lt.u32 %p1, %w0, 3;\nbar.red.popc.u32 %w9, 0, %p1;\ncvt.u64.u32 %x9, %w9;";
    assert_eq!(run(&on, count, &rows), [48; 80]);
    // The lower lanes wait in a collective of the whole warp, and the others return meanwhile.
    let text = "
        setp.ge.u32 %p1, %w19, 16;
        @%p1 bra late;
        bar.warp.sync -1;
        mov.u64 %x9, 2;
        bra.uni end;
    late: mov.u64 %x9, 1;
        st.global.u64 [%x13], %x9;
        ret;
    end:";
    for seed in 0..6 {
        on.schedule(seed);
        let found = run(&on, text, &rows[..32]);
        assert_eq!(found, [[2; 16], [1; 16]].concat(), "schedule {seed}");
    }
}
