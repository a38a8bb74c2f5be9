//! `tgnn-bench kernels`: what it prints, and what a defect of a device leaves readable.
use crate::support::{
    devices::device,
    program::{done, json, program},
};
use serde_json::Value;
use std::process::Command;
use tgnn::{
    ops::{Backend, Case, cases},
    testing::edited_worst,
};
use tgnn_lab::{Rival, Rivals};

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn the_kernel_table_lists_rivals_below_their_op_with_verification_and_times() {
    let dir = tempfile::tempdir().unwrap();
    let words = ["kernels", "--device", "emu", "--filter", "scatter_add_rows"];
    let ran = done(dir.path(), &words);
    let (op, rival) =
        ran.out.split_once("\nscatter_add_rows ").unwrap().1.split_once("\n  atomics  ").unwrap();
    assert!(
        op.ends_with("scatter_add_rows 1800x1487x100") && rival.contains(" x the op's time\n"),
        "{}",
        ran.out
    );
    let found = json(&done(dir.path(), &[&words[..], &["--json"]].concat()).out);
    let rival = &found["ops"][0]["rivals"][0];
    assert_eq!((&rival["name"], &rival["within_allowance"]), (&"atomics".into(), &true.into()), "{found}");
    let op = &found["ops"][0];
    for key in ["us", "us_cold", "share_of_copy_cold", "share_of_copy_warm", "share_of_product"] {
        assert!(op[key].as_f64().unwrap() >= 0.0, "{key}: {op}");
    }
    assert!(rival["us"].as_f64().unwrap() > 0.0 && found["missing_rivals"].as_array().unwrap().is_empty());
    let transfers = found["transfers"].as_array().unwrap();
    let by: Vec<&str> = transfers.iter().map(|t| t["by"].as_str().unwrap()).collect();
    assert_eq!(by[..3], ["copy by a kernel", "copy by the driver", "read by a kernel"]);
    assert_eq!(by[..3], by[3..], "large, and within the cache");
    assert!(transfers.iter().all(|t| t["gb_per_s"].as_f64().unwrap() > 0.0), "{transfers:?}");
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn a_copy_that_leaves_bytes_out_is_no_ceiling() {
    let mut command = Command::new(program());
    command.args(["profile", "add", "--device", "emu", "--runs", "1"]);
    let ran = command.env("TGNN_EMU_DEFECT", "skip:copy_words").output().unwrap();
    let err = String::from_utf8(ran.stderr).unwrap();
    assert!(ran.status.code() == Some(5) && err.contains("a copy by a kernel leaves bytes out"), "{err}");
}

/// Runs `tgnn-bench kernels` on an emulated device with a planted defect; returns the JSON that it prints and
/// its line of error. It ends with exit code `code`.
fn kernels_with(defect: &str, words: &[&str], code: i32) -> (Value, String) {
    let mut command = Command::new(program());
    command.args(["kernels", "--device", "emu", "--json"]).args(words).env("TGNN_EMU_DEFECT", defect);
    let ran = command.output().unwrap();
    let err = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(ran.status.code(), Some(code), "{err}");
    (json(&String::from_utf8(ran.stdout).unwrap()), err.lines().last().unwrap_or_default().to_owned())
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn a_wrong_kernel_hides_no_other_kernel_and_no_time() {
    let (found, err) = kernels_with("skip:clip_norm", &["--filter", "norm"], 5);
    assert!(err.starts_with("error: ") && err.contains(" cases are off (clip_norm)"), "{err}");
    assert_eq!((&found["verified"], &found["schema"]), (&false.into(), &3.into()));
    let ops = found["accuracy"].as_array().unwrap();
    assert_eq!(
        ops.iter().map(|op| op["op"].as_str().unwrap()).collect::<Vec<_>>(),
        ["clip_norm", "layer_norm", "ungroup_norm"]
    );
    for op in ops {
        // The worst error is null if a result is not a number.
        let (wrong, worst) = (op["op"] == "clip_norm", op["worst"].as_f64());
        let off = worst.is_none_or(|worst| worst > 1.0);
        assert_eq!((off, op["off"].as_array().unwrap().is_empty()), (wrong, !wrong), "{op}");
    }
    let times = found["ops"].as_array().unwrap();
    let of =
        |name: &str| times.iter().find(|op| op["op"] == name).unwrap_or_else(|| panic!("no {name}: {found}"));
    for (op, verified) in [("clip_norm", false), ("layer_norm", true), ("ungroup_norm", true)] {
        assert_eq!(of(op)["verified"], verified, "{op}");
        assert!(of(op)["us"].as_f64().unwrap() > 0.0, "{op}");
    }
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn after_a_fault_that_ends_the_device_the_ops_that_were_not_tried_are_named() {
    let (found, err) = kernels_with("fault:layer_norm", &["--filter", "norm", "--verify"], 5);
    assert_eq!(found["not_tried"], serde_json::json!(["ungroup_norm"]));
    assert!(err.contains("the device no longer works, so these ops were not tried: ungroup_norm"), "{err}");
    let ops = found["accuracy"].as_array().unwrap();
    assert!(ops[0]["off"].as_array().unwrap().is_empty(), "{found}");
    assert!(ops[1]["off"][0].as_str().unwrap().contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{found}");
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn a_rival_that_ends_the_device_costs_no_time_of_an_op_and_is_named() {
    let (found, _) = kernels_with("fault:scatter_add_rows_atomic", &["--filter", "_rows"], 0);
    let ops: Vec<&str> =
        found["ops"].as_array().unwrap().iter().map(|op| op["op"].as_str().unwrap()).collect();
    assert_eq!(
        (ops.contains(&"split_rows"), found["not_timed"].as_array().unwrap().len()),
        (true, 0),
        "{found}"
    );
    let missing = found["missing_rivals"].as_array().unwrap();
    assert_eq!(missing.len(), 1, "{missing:?}");
    let why = missing[0].as_str().unwrap();
    assert!(why.starts_with("atomics for scatter_add_rows: ") && why.contains("ILLEGAL_ADDRESS"), "{why}");
    assert!(why.ends_with("it left the device unusable, so the rivals after it are not measured"), "{why}");
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn a_device_that_refuses_graphs_with_early_launches_works_without_them() {
    let mut command = Command::new(program());
    let ran = command
        .args(["kernels", "--device", "emu", "--filter", "clip_norm", "--verify"])
        .env("TGNN_EMU_DEFECT", "early")
        .output()
        .unwrap();
    let out = String::from_utf8(ran.stdout).unwrap();
    assert_eq!(ran.status.code(), Some(0), "{out}");
    let head = out.lines().next().unwrap();
    assert!(head.contains("launches late, in clusters; early launches failed when they were tried: cannot make the graph executable: CUDA_ERROR_NOT_SUPPORTED"), "{head}");
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu, or a GPU and TGNN_TEST_DEVICE=cuda")]
fn a_rival_computes_the_same_as_its_op_or_says_why_it_is_missing() {
    let Some(on) = device(0) else { return };
    let off = |case: &Case, rival: &Rival| {
        edited_worst(case, Backend::Cuda(on.gpu.clone()), &|tape| rival.take_over(tape)).unwrap()
    };
    let (rivals, mut present, mut missing) = (Rivals::new(&on.gpu), Vec::new(), Vec::new());
    for case in cases() {
        for (at, found) in rivals.on(&case).enumerate() {
            match found {
                Ok(rival) => {
                    on.schedule(at as u64 + 1);
                    let (op, name) = (rival.op(), rival.name());
                    let off = off(&case, &rival);
                    assert!(off.within() || name.ends_with("tf32"), "{case}, {op} by {name}: {off}");
                    present.push(format!("{op} by {name}"));
                }
                Err(why) => missing.push(why),
            }
        }
    }
    assert!(present.contains(&"scatter_add_rows by atomics".into()), "{present:?}");
    // A missing library and a rival call it by two spellings.
    let of_cublaslt = |text: &String| text.to_lowercase().contains("cublaslt");
    assert!(present.iter().any(of_cublaslt) || missing.first().is_some_and(of_cublaslt), "{missing:?}");
    // A rival really runs in place of the op's kernels, and its wrong results are seen.
    let case = cases().into_iter().find(|c| c.op == "scatter_add_rows" && c.dims[0] > 1).unwrap();
    let zeros = Rival::new("scatter_add_rows", "zeros", |on| on.clear(0));
    assert!(!off(&case, &zeros).within(), "{case}");
}
