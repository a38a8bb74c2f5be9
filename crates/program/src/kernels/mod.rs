//! `tgnn-bench kernels`: verifies the kernels of every op on a device, then times them.
mod accuracy;
mod table;

use super::output::{print, say, tell};
use accuracy::{Accuracy, works};
use clap::Args;
use serde_json::{Value, json};
use table::Table;
use tgnn::{
    error::{Error, Result},
    ops::{Case, cases},
    runtime::{Device, MatmulPrecision, cuda::Gpu},
};

/// Arguments of the command.
#[derive(Args)]
pub struct KernelsArgs {
    /// CUDA device: cuda, cuda:N, or emu (whose times are meaningless)
    #[arg(long, default_value = "cuda")]
    device: String,
    /// Precision of dense products: f32, tf32 or bf16
    #[arg(long, default_value = "f32")]
    precision: MatmulPrecision,
    /// Only ops whose name contains this
    #[arg(long, default_value = "")]
    filter: String,
    /// Print JSON, and nothing else on standard output
    #[arg(long)]
    json: bool,
    /// Only verify
    #[arg(long)]
    verify: bool,
}

impl KernelsArgs {
    /// Runs the command.
    pub fn run(&self) -> Result<()> {
        let device = Device::open(&self.device, 0)?;
        let Some(gpu) = device.gpu().map(|gpu| gpu.multiplying_in(self.precision)) else {
            return Err(Error::usage(format!("device `{}` has no kernels", self.device))
                .remedy("give --device cuda or emu; `cargo bench --bench ops` measures the CPU"));
        };
        let selected = |c: &Case| c.op.contains(&self.filter);
        let cases: Vec<Case> = cases().into_iter().filter(selected).collect();
        if cases.is_empty() {
            return Err(
                Error::usage(format!("no op's name contains `{}`", self.filter)).remedy("see src/ops")
            );
        }
        let accuracy = self.verify(&gpu, &cases);
        // A device that no longer works cannot be timed.
        let timed = !self.verify && works(&gpu);
        let table = timed.then(|| Table::measure(&gpu, selected)).transpose()?;
        if self.json {
            let mut found = described(&gpu, &accuracy);
            table.iter().for_each(|table| table.add_to(&mut found, &accuracy));
            print(found);
        } else {
            table.iter().for_each(|table| table.print(&accuracy));
        }
        accuracy.check()
    }
    /// Measures the accuracy of the ops of `cases`, and prints it: of every op if nothing else is asked for,
    /// otherwise of those that are off.
    fn verify(&self, gpu: &Gpu, cases: &[Case]) -> Accuracy {
        self.note(format_args!(
            "{}, matmul in {}, launches {}",
            gpu.name(),
            gpu.precision().name(),
            gpu.launching()
        ));
        if self.verify {
            self.note(Accuracy::HEAD);
        }
        let accuracy = Accuracy::measure(gpu, cases, |op| {
            if self.verify || !op.agrees() {
                self.note(op);
            }
        });
        self.note(format_args!("{}\n", accuracy.summary()));
        accuracy
    }
    /// Prints a line for people: to standard error if standard output is JSON.
    fn note(&self, text: impl std::fmt::Display) {
        if self.json { tell(text) } else { say(text) }
    }
}

/// Returns device, settings and accuracy as JSON.
fn described(gpu: &Gpu, accuracy: &Accuracy) -> Value {
    let mut found = json!({
        "schema": 3, "version": env!("CARGO_PKG_VERSION"), "device": gpu.name(),
        "precision": gpu.precision().name(), "launching": gpu.launching(),
    });
    accuracy.json().into_iter().for_each(|(key, value)| found[key] = value);
    found
}
