//! `tgnn-bench kernels`: verifies the kernels of every op on a device, then times them.
use super::{
    ceilings::{Caches, Ceilings, Effort, ReadyCase, Speed, Work, limit},
    say,
};
use crate::{
    autograd::{Alone, OpTime},
    error::{Error, ErrorKind, Result},
    ops::{Backend, Case, bench_cases, cases},
    runtime::{
        Device, MatmulPrecision,
        cuda::{Gpu, Rival},
    },
    testing::{self, Off, rivals::Rivals},
};
use clap::Args;
use serde_json::{Value, json};
use std::collections::BTreeSet;

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

/// A row of the table: an op in a case.
struct Line {
    op: &'static str,
    case: String,
    /// Median seconds of a run, warm and cold.
    seconds: [f64; 2],
    work: Work,
    rivals: Vec<Timed>,
}

/// A rival of an op: its largest error and its times, as those of the op.
struct Timed {
    name: &'static str,
    off: Off,
    seconds: [f64; 2],
}

/// How fast an op or a rival is, warm and cold.
struct Speeds {
    warm: Speed,
    cold: Speed,
}

impl Speeds {
    fn of(ceilings: &Ceilings, work: Work, [warm, cold]: [f64; 2]) -> Self {
        let speed = |seconds, caches| ceilings.speed(work, seconds, caches);
        Speeds { warm: speed(warm, Caches::Warm), cold: speed(cold, Caches::Cold) }
    }
    /// Returns what limits the speed: memory if the operands come from there, or arithmetic if they do not.
    fn limit(&self) -> &'static str {
        limit(self.cold.of_copy, self.warm.of_product)
    }
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
        let verified = verify(&gpu, &cases().into_iter().filter(selected).collect::<Vec<_>>())?;
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
        let effort = Effort::on(&gpu);
        let (rivals, mut lines, mut missing) = (Rivals::of(&gpu), Vec::new(), BTreeSet::new());
        let ceilings = Ceilings::of_gpu(&gpu, &rivals, effort)?;
        let bench_cases = bench_cases();
        for case in bench_cases.iter().filter(|c| selected(c)) {
            let mut case_lines = time(&gpu, case, &bench_cases, effort)?;
            for found in rivals.on(case) {
                // A rival that fails is reported as missing; the others are still measured.
                missing.extend(found.and_then(|r| compare(&gpu, case, r, &mut case_lines, effort)).err());
            }
            lines.extend(case_lines);
        }
        if self.json {
            say(json(&gpu, verified, &ceilings, &lines, &missing, effort));
        } else {
            table(&ceilings, &lines, &missing);
        }
        Ok(())
    }
    /// Prints a line for people: to standard error if standard output is JSON.
    fn note(&self, text: impl std::fmt::Display) {
        if self.json { eprintln!("{text}") } else { say(text) }
    }
}

/// Checks every case, forward and backward, against its definition in f64. Inputs are rounded to the
/// precision of products beforehand, so that products take them unchanged. Returns the number of cases.
///
/// # Errors
/// `Device` if a case differs by more than its allowance.
fn verify(gpu: &Gpu, cases: &[Case]) -> Result<usize> {
    let backend = Backend::Cuda(gpu.values_apart());
    for case in cases {
        let off = testing::worst(&case.with_inputs(gpu.precision()), backend.clone())?;
        if !off.within() {
            let text = format!("{case}: {off}");
            return Err(Error::new(ErrorKind::Device, text).remedy("this is a bug in tgnn: please report it"));
        }
    }
    Ok(cases.len())
}

/// Returns the times of the ops of a case for which `op` holds: warm and cold.
fn times(
    gpu: &Gpu,
    case: &Case,
    op: &dyn Fn(&str) -> bool,
    Effort { runs, timings }: Effort,
) -> Result<Vec<[OpTime; 2]>> {
    let mut ready = ReadyCase::new(case, Backend::Cuda(gpu.clone()))?;
    let [warm, cold] = [false, true].map(|cold| Alone { op, runs, timings, cold, by_launch: false });
    let (warm, cold) = (ready.time(&warm)?, ready.time(&cold)?);
    let with_cold = |warm: OpTime| {
        let cold = cold.iter().find(|cold| cold.op == warm.op)?;
        Some([warm, cold.clone()])
    };
    Ok(warm.into_iter().filter_map(with_cold).collect())
}

/// Times the op of a case, and the other ops that the case runs, unless they have a case of their own in
/// `bench_cases`.
fn time(gpu: &Gpu, case: &Case, bench_cases: &[Case], effort: Effort) -> Result<Vec<Line>> {
    let shown = |op: &str| op == case.op || bench_cases.iter().all(|c| c.op != op);
    let mut lines: Vec<Line> = times(gpu, case, &shown, effort)?
        .into_iter()
        .map(|[warm, cold]| Line {
            op: warm.op,
            case: case.to_string(),
            seconds: [warm.median, cold.median],
            work: Work::of_run(&warm),
            rivals: Vec::new(),
        })
        .collect();
    lines.sort_by_key(|l| l.op != case.op);
    Ok(lines)
}

/// Compares `rival` with its op: verifies its results on the case, then times it. The error says why it
/// cannot.
fn compare(gpu: &Gpu, case: &Case, rival: Rival, lines: &mut [Line], effort: Effort) -> Result<(), String> {
    let (op, name, gpu) = (rival.op(), rival.name(), gpu.with_rival(rival));
    let failed = |e| format!("{name} for {op}: {e}");
    let off = testing::worst(case, Backend::Cuda(gpu.values_apart())).map_err(failed)?;
    let times = times(&gpu, case, &|timed| timed == op, effort).map_err(failed)?;
    for line in lines.iter_mut().filter(|l| l.op == op) {
        let timed = |t: &[OpTime; 2]| Timed { name, off: off.clone(), seconds: [t[0].median, t[1].median] };
        line.rivals.extend(times.iter().map(timed));
    }
    Ok(())
}

/// Prints the table.
fn table(ceilings: &Ceilings, lines: &[Line], missing: &BTreeSet<String>) {
    let row = |name: &str, seconds: [f64; 2], work: Work, limit: &str, last: &str| {
        let Speeds { warm, cold } = Speeds::of(ceilings, work, seconds);
        say(format_args!(
            "{name:<25}{:>10.1}{:>10.1}{:>9.0}{:>9.0} %{:>11.0} %{:>10.0}{:>9.0} %  {limit:<12}{last}",
            1e6 * seconds[0],
            1e6 * seconds[1],
            warm.gb_per_s,
            100.0 * cold.of_copy,
            100.0 * warm.of_copy,
            warm.gflops,
            100.0 * warm.of_product,
        ));
    };
    ceilings.lines().iter().for_each(say);
    say(format_args!(
        "\n{:<25}{:>10}{:>10}{:>9}{:>11}{:>13}{:>10}{:>11}  {:<12}case",
        "op", "us", "us cold", "GB/s", "of copy", "of cached", "GFLOP/s", "of product", "limit"
    ));
    for l in lines {
        row(l.op, l.seconds, l.work, Speeds::of(ceilings, l.work, l.seconds).limit(), &l.case);
        for r in &l.rivals {
            let exact = if r.off.within() { String::new() } else { format!("; {}", r.off) };
            let against = format!("{:.2} x the op's time{exact}", r.seconds[0] / l.seconds[0]);
            row(&format!("  {}", r.name), r.seconds, l.work, "", &against);
        }
    }
    if !missing.is_empty() {
        say("\nrivals that are not available");
        missing.iter().for_each(|why| say(format_args!("  {why}")));
    }
}

/// Returns the table as JSON.
fn json(
    gpu: &Gpu,
    verified: usize,
    ceilings: &Ceilings,
    lines: &[Line],
    missing: &BTreeSet<String>,
    effort: Effort,
) -> Value {
    let ops: Vec<Value> = lines
        .iter()
        .map(|l| {
            let rivals = l.rivals.iter().map(|r| {
                json!({
                    "name": r.name, "us": 1e6 * r.seconds[0], "us_cold": 1e6 * r.seconds[1],
                    "times_the_op": r.seconds[0] / l.seconds[0],
                    "within_allowance": r.off.within(), "off_by": r.off.error, "allowed": r.off.allowed,
                })
            });
            let speeds = Speeds::of(ceilings, l.work, l.seconds);
            let Speeds { warm, cold } = &speeds;
            json!({
                "op": l.op, "case": l.case, "us": 1e6 * l.seconds[0], "us_cold": 1e6 * l.seconds[1],
                "bytes": l.work.bytes, "flops": l.work.flops, "gb_per_s": warm.gb_per_s,
                "share_of_copy_cold": cold.of_copy, "share_of_copy_warm": warm.of_copy,
                "gflops": warm.gflops, "share_of_product": warm.of_product,
                "limit": speeds.limit(), "rivals": rivals.collect::<Vec<_>>(),
            })
        })
        .collect();
    let mut table = json!({
        "schema": 2, "version": env!("CARGO_PKG_VERSION"), "device": gpu.name(),
        "precision": gpu.precision().name(), "verified_cases": verified,
    });
    ceilings.json().into_iter().for_each(|(key, value)| table[key] = value);
    table["runs"] = effort.runs.into();
    table["timings"] = effort.timings.into();
    table["ops"] = ops.into();
    table["missing_rivals"] = json!(missing);
    table
}
