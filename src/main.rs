//! `tgnn-bench` trains, evaluates and measures temporal graph networks. Its code is in [`tgnn::cli`].
use std::process::ExitCode;

fn main() -> ExitCode {
    tgnn::cli::main()
}
