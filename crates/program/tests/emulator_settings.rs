//! The settings of the emulated device in the environment, as the program takes them.
use crate::support::program::program;
use std::process::Command;

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn an_unknown_way_to_launch_is_refused_in_one_line() {
    let mut command = Command::new(program());
    command.args(["train", "--device", "emu", "--epochs", "1"]).env("TGNN_LAUNCH", "late,soon");
    let ran = command.output().unwrap();
    let err = String::from_utf8(ran.stderr).unwrap();
    assert!(err.contains("TGNN_LAUNCH has `soon`, not late or unclustered"), "{err}");
    assert_eq!((ran.status.code(), err.matches('\n').count()), (Some(5), 1), "{err}");
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn unknown_units_and_a_driver_that_is_too_old_are_refused_in_one_line() {
    let said = |key: &str, value: &str| {
        let mut command = Command::new(program());
        command.args(["train", "--device", "emu", "--epochs", "1"]).env(key, value);
        let ran = command.output().unwrap();
        (ran.status.code(), String::from_utf8(ran.stderr).unwrap())
    };
    let (code, err) = said("TGNN_EMU_DRIVER", "12080");
    assert_eq!(
        (code, err.as_str()),
        (
            Some(5),
            "error: the CUDA driver supports CUDA 12.8, and 13.0 is needed; install NVIDIA's driver 580 or later, \
             or use --device cpu\n"
        )
    );
    let (code, err) = said("TGNN_EMU_MATRIX", "b300");
    assert!(code == Some(5) && err.contains("TGNN_EMU_MATRIX is `b300`, not h100, a100 or exact"), "{err}");
    assert_eq!(err.matches('\n').count(), 1, "{err}");
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu")]
fn an_unknown_code_is_refused_in_one_line() {
    let mut command = Command::new(program());
    command.args(["train", "--device", "emu", "--epochs", "1"]).env("TGNN_EMU_CODE", "sass");
    let ran = command.output().unwrap();
    let err = String::from_utf8(ran.stderr).unwrap();
    assert!(err.contains("TGNN_EMU_CODE is `sass`, not host, ptx or weak"), "{err}");
    assert_eq!((ran.status.code(), err.matches('\n').count()), (Some(5), 1), "{err}");
}

#[test]
#[cfg_attr(not(all(feature = "emu", kernels_compiled)), ignore = "wants --features emu and nvcc")]
fn the_lines_of_kernels_that_never_ran_are_listed() {
    let list = std::env::temp_dir().join(format!("tgnn-coverage-{}", std::process::id()));
    let mut command = Command::new(program());
    command.args(["train", "--device", "emu", "--epochs", "1", "--max-batches", "1", "--no-eval"]);
    command.env("TGNN_EMU_CODE", "ptx").env("TGNN_EMU_COVERAGE", &list);
    let ran = command.output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let text = std::fs::read_to_string(&list).unwrap();
    std::fs::remove_file(&list).unwrap();
    let lines_of =
        |file: &str| text.lines().filter(|l| l.split_once(':').is_some_and(|(f, _)| f == file)).count();
    // TGN has no LSTM, and updates its weights by Adam.
    assert!(lines_of("lstm_cell.cu") > 10 && lines_of("adam.cu") < 10, "{text}");
}
