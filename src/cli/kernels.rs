//! `tgnn-bench kernels`: are the kernels right on this device, and how fast are they?
use super::say;
use crate::{
    error::{Error, ErrorKind, Result},
    ops::{Backend, Case, bench_cases, cases},
    runtime::{
        Device, MatmulPrecision,
        cuda::{CudaEvent, CudaStream, DeviceBuffer, Gpu},
    },
    testing,
};
use clap::Args;
use serde_json::{Value, json};

/// Runs of a kernel that one timing takes.
const RUNS: usize = 20;
/// Timings, of which the median counts.
const TIMINGS: usize = 7;

/// Arguments of the command.
#[derive(Args)]
pub struct KernelsArgs {
    /// CUDA device: cuda, cuda:N, or emu (its times mean nothing)
    #[arg(long, default_value = "cuda")]
    device: String,
    /// What dense products multiply in: f32, tf32 or bf16
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

/// One line of the table.
struct Line {
    op: &'static str,
    case: String,
    seconds: f64,
    bytes: f64,
    flops: f64,
}

impl KernelsArgs {
    /// Runs the command.
    pub fn run(&self) -> Result<()> {
        let device = Device::open(&self.device, 0)?;
        let Some(gpu) = device.gpu().map(|gpu| gpu.multiplying_in(self.precision)) else {
            return Err(Error::usage(format!("device `{}` has no kernels", self.device))
                .remedy("give --device cuda or emu; `cargo bench --bench ops` measures the CPU"));
        };
        let wanted = |c: &Case| c.op.contains(&self.filter);
        let verified = verify(&gpu, &cases().into_iter().filter(wanted).collect::<Vec<_>>())?;
        if verified == 0 {
            return Err(
                Error::usage(format!("no op's name contains `{}`", self.filter)).remedy("see src/ops")
            );
        }
        self.note(format_args!(
            "{}, products in {}: {verified} cases agree with their definitions\n",
            gpu.name(),
            self.precision.name()
        ));
        if self.verify {
            return Ok(());
        }
        let copy = copy_rate(&gpu)?;
        let mut lines = Vec::new();
        let all = bench_cases();
        for case in all.iter().filter(|c| wanted(c)) {
            lines.extend(time(&gpu, case, &all)?);
        }
        if self.json {
            say(json(&gpu, verified, copy, &lines));
        } else {
            table(copy, &lines);
        }
        Ok(())
    }
    fn note(&self, text: impl std::fmt::Display) {
        if self.json { eprintln!("{text}") } else { say(text) }
    }
}

/// Runs every case, forward and backward, against its definition in f64, on numbers that products take as they are.
/// Returns how many there were.
fn verify(gpu: &Gpu, cases: &[Case]) -> Result<usize> {
    let backend = Backend::Cuda(gpu.values_apart());
    for case in cases {
        if let Some(text) = testing::disagreement(&case.with_inputs(gpu.precision()), backend.clone())? {
            return Err(Error::new(ErrorKind::Device, text).remedy("this is a bug in tgnn: please report it"));
        }
    }
    Ok(cases.len())
}

/// Bytes a second, read and written, of a large copy on the device: the most that any kernel can move.
fn copy_rate(gpu: &Gpu) -> Result<f64> {
    let bytes = (gpu.memory()?.0 / 8).min(1 << 30);
    let (stream, from, to) =
        (CudaStream::new(gpu)?, DeviceBuffer::new(gpu, bytes)?, DeviceBuffer::new(gpu, bytes)?);
    from.fill(1, &stream)?;
    let mut rates = Vec::new();
    for _ in 0..TIMINGS {
        let (start, end) = (CudaEvent::new(gpu)?, CudaEvent::new(gpu)?);
        start.record(&stream)?;
        to.copy(&from, &stream)?;
        end.record(&stream)?;
        end.synchronize()?;
        rates.push(2.0 * bytes as f64 / end.seconds_since(&start)?);
    }
    Ok(median(rates))
}

/// Median times of the ops of a case that have no case of their own, and of its own op.
fn time(gpu: &Gpu, case: &Case, all: &[Case]) -> Result<Vec<Line>> {
    let (mut program, mut store, _) = testing::program(case, Backend::Cuda(gpu.clone()))?;
    program.run(&mut store)?;
    let timings: Vec<_> = (0..TIMINGS).map(|_| program.time_ops(&mut store, RUNS)).collect::<Result<_>>()?;
    let mut lines: Vec<Line> = timings[0]
        .iter()
        .filter(|t| t.op == case.op || all.iter().all(|c| c.op != t.op))
        .map(|t| {
            let same = timings.iter().flatten().filter(|o| o.op == t.op);
            Line {
                op: t.op,
                case: case.to_string(),
                seconds: median(same.map(|o| o.seconds / o.runs as f64).collect()),
                bytes: (t.cost.bytes / t.runs) as f64,
                flops: (t.cost.flops / t.runs) as f64,
            }
        })
        .collect();
    lines.sort_by_key(|l| l.op != case.op);
    Ok(lines)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

fn table(copy: f64, lines: &[Line]) {
    say(format_args!("copy {:.0} GB/s\n", copy / 1e9));
    say(format_args!("{:<25}{:>9}{:>9}{:>9}{:>11}  case", "op", "us", "GB/s", "of copy", "GFLOP/s"));
    for l in lines {
        let rate = l.bytes / l.seconds;
        say(format_args!(
            "{:<25}{:>9.1}{:>9.0}{:>7.0} %{:>11.0}  {}",
            l.op,
            1e6 * l.seconds,
            rate / 1e9,
            100.0 * rate / copy,
            l.flops / l.seconds / 1e9,
            l.case
        ));
    }
}

fn json(gpu: &Gpu, verified: usize, copy: f64, lines: &[Line]) -> Value {
    let ops: Vec<Value> = lines
        .iter()
        .map(|l| {
            json!({
                "op": l.op, "case": l.case, "us": 1e6 * l.seconds, "bytes": l.bytes, "flops": l.flops,
                "gb_per_s": l.bytes / l.seconds / 1e9, "share_of_copy": l.bytes / l.seconds / copy,
                "gflops": l.flops / l.seconds / 1e9,
            })
        })
        .collect();
    json!({
        "schema": 1, "version": env!("CARGO_PKG_VERSION"), "device": gpu.name(), "precision": gpu.precision().name(),
        "verified_cases": verified,
        "copy_gb_per_s": copy / 1e9, "runs": RUNS, "timings": TIMINGS, "ops": ops,
    })
}
