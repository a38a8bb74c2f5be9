//! `tgnn-bench kernels`: verifies the kernels of every op on a device, then times them.
use super::say;
use crate::{
    autograd::OpTime,
    error::{Error, ErrorKind, Result},
    ops::{Backend, Case, bench_cases, cases},
    runtime::{
        Device, MatmulPrecision,
        cuda::{CudaEvent, CudaStream, DeviceBuffer, Gpu, Rival},
    },
    testing::{self, Off, rivals::Rivals},
};
use clap::Args;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// A kernel below this fraction of both ceilings is limited by latency: it waits for its own loads, or is too
/// small.
const LATENCY_BOUND: f64 = 0.25;

/// How often an op is timed.
#[derive(Clone, Copy)]
struct Effort {
    /// Number of runs per timing.
    runs: usize,
    /// Number of timings, whose median counts.
    timings: usize,
}

impl Effort {
    /// Returns the effort for a device; an emulated one is timed once.
    fn on(gpu: &Gpu) -> Self {
        if gpu.is_emulated() { Effort { runs: 1, timings: 1 } } else { Effort { runs: 20, timings: 7 } }
    }
}

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
    /// Median seconds of a run.
    seconds: f64,
    /// Compulsory bytes of a run.
    bytes: f64,
    /// Floating-point operations of a run.
    flops: f64,
    rivals: Vec<Timed>,
}

/// A rival of an op: its largest error and its time.
struct Timed {
    name: &'static str,
    off: Off,
    seconds: f64,
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
        let ceilings = Ceilings::of(&gpu, &rivals, effort)?;
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

/// The peak rates of the device, measured in the same run.
struct Ceilings {
    /// Bytes per second, read plus written, of a large copy.
    copy: f64,
    /// Operations per second of a large product: the fastest of `products` that is as exact as the products
    /// of the table.
    product: f64,
    /// Names of the implementations of the large product, with their operations per second.
    products: Vec<(&'static str, f64)>,
}

impl Ceilings {
    /// Returns the sizes of the large product as `linear` takes them: rows, depth, columns, and none of its
    /// options. An emulated device is too slow for the large sizes.
    fn sizes(gpu: &Gpu) -> &'static [usize] {
        if gpu.is_emulated() { &[64, 64, 64, 0, 0, 0] } else { &[4096, 4096, 4096, 0, 0, 0] }
    }
    /// Measures the ceilings.
    fn of(gpu: &Gpu, rivals: &Rivals, effort: Effort) -> Result<Self> {
        let (dims, bench) = (Self::sizes(gpu), bench_cases());
        let flops = 2.0 * dims[..3].iter().map(|&n| n as f64).product::<f64>();
        let mut products = Vec::new();
        if let Some(linear) = bench.iter().find(|c| c.op == "linear") {
            let case = Case { dims, ..*linear };
            let rate = |gpu: &Gpu| -> Result<f64> {
                let ops = times(gpu, &case, effort)?;
                let seconds = ops.iter().find(|t| t.op == case.op).map_or(f64::INFINITY, |t| t.seconds);
                Ok(flops / seconds)
            };
            products.push(("tgnn", rate(gpu)?));
            // A rival that fails is reported as missing when it is compared with an op.
            let forward = rivals.on(&case).into_iter().flatten().filter(|r| r.op() == case.op);
            products.extend(forward.filter_map(|r| Some((r.name(), rate(&gpu.with_rival(r)).ok()?))));
        }
        let exact = |name: &str| gpu.precision() != MatmulPrecision::F32 || !name.ends_with("tf32");
        let product = products.iter().filter(|p| exact(p.0)).map(|p| p.1).fold(0.0, f64::max);
        Ok(Ceilings { copy: copy_rate(gpu, effort)?, product, products })
    }
    /// Returns the fractions of the copy rate and of the product rate that a line reaches if it takes
    /// `seconds`.
    fn fractions(&self, l: &Line, seconds: f64) -> [f64; 2] {
        [l.bytes / self.copy, l.flops / self.product].map(|minimum| minimum / seconds)
    }
    /// Returns what limits the speed of a line.
    fn limit(&self, l: &Line) -> &'static str {
        match self.fractions(l, l.seconds) {
            [copy, product] if copy.max(product) < LATENCY_BOUND => "latency",
            [copy, product] if copy >= product => "memory",
            _ => "arithmetic",
        }
    }
}

/// Measures the bytes per second, read plus written, of a large copy on the device: the upper bound for any
/// kernel.
fn copy_rate(gpu: &Gpu, effort: Effort) -> Result<f64> {
    let bytes = (gpu.memory()?.0 / 8).min(1 << 30);
    let (stream, from, to) =
        (CudaStream::new(gpu)?, DeviceBuffer::new(gpu, bytes)?, DeviceBuffer::new(gpu, bytes)?);
    from.fill(1, &stream)?;
    let mut rates = Vec::new();
    for _ in 0..effort.timings {
        let (start, end) = (CudaEvent::timed(gpu)?, CudaEvent::timed(gpu)?);
        start.record(&stream)?;
        to.copy(&from, &stream)?;
        end.record(&stream)?;
        end.synchronize()?;
        rates.push(2.0 * bytes as f64 / end.seconds_since(&start)?);
    }
    Ok(median(rates))
}

/// Returns the median seconds of a run of every op of a case, and the ops' costs.
fn times(gpu: &Gpu, case: &Case, effort: Effort) -> Result<Vec<OpTime>> {
    let (mut program, mut store, _) = testing::program(case, Backend::Cuda(gpu.clone()))?;
    program.run(&mut store)?;
    let timings: Vec<_> =
        (0..effort.timings).map(|_| program.time_ops(&mut store, effort.runs)).collect::<Result<_>>()?;
    let mut ops = timings[0].clone();
    for op in &mut ops {
        let same = timings.iter().flatten().filter(|o| o.op == op.op);
        op.seconds = median(same.map(|o| o.seconds / o.runs as f64).collect());
    }
    Ok(ops)
}

/// Times the op of a case, and the other ops that the case runs, unless they have a case of their own in
/// `bench_cases`.
fn time(gpu: &Gpu, case: &Case, bench_cases: &[Case], effort: Effort) -> Result<Vec<Line>> {
    let ops = times(gpu, case, effort)?;
    let shown = ops.iter().filter(|t| t.op == case.op || bench_cases.iter().all(|c| c.op != t.op));
    let mut lines: Vec<Line> = shown
        .map(|t| Line {
            op: t.op,
            case: case.to_string(),
            seconds: t.seconds,
            bytes: (t.cost.bytes / t.runs) as f64,
            flops: (t.cost.flops / t.runs) as f64,
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
    let times = times(&gpu, case, effort).map_err(failed)?;
    for line in lines.iter_mut().filter(|l| l.op == op) {
        let timed = times.iter().filter(|t| t.op == op);
        line.rivals.extend(timed.map(|t| Timed { name, off: off.clone(), seconds: t.seconds }));
    }
    Ok(())
}

/// Returns the median of a non-empty list; the upper one of an even number of values.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Prints the table.
fn table(ceilings: &Ceilings, lines: &[Line], missing: &BTreeSet<String>) {
    let row = |name: &str, seconds: f64, l: &Line, limit: &str, last: &str| {
        let [of_copy, of_product] = ceilings.fractions(l, seconds).map(|fraction| 100.0 * fraction);
        say(format_args!(
            "{name:<25}{:>9.1}{:>9.0}{of_copy:>7.0} %{:>10.0}{of_product:>9.0} %  {limit:<12}{last}",
            1e6 * seconds,
            l.bytes / seconds / 1e9,
            l.flops / seconds / 1e9,
        ));
    };
    say(format_args!("copy {:.0} GB/s", ceilings.copy / 1e9));
    for (name, rate) in &ceilings.products {
        say(format_args!("large product by {name} {:.0} GFLOP/s", rate / 1e9));
    }
    say(format_args!(
        "\n{:<25}{:>9}{:>9}{:>9}{:>10}{:>11}  {:<12}case",
        "op", "us", "GB/s", "of copy", "GFLOP/s", "of product", "limit"
    ));
    for l in lines {
        row(l.op, l.seconds, l, ceilings.limit(l), &l.case);
        for r in &l.rivals {
            let exact = if r.off.within() { String::new() } else { format!("; {}", r.off) };
            let against = format!("{:.2} x the op's time{exact}", r.seconds / l.seconds);
            row(&format!("  {}", r.name), r.seconds, l, "", &against);
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
                    "name": r.name, "us": 1e6 * r.seconds, "times_the_op": r.seconds / l.seconds,
                    "within_allowance": r.off.within(), "off_by": r.off.error, "allowed": r.off.allowed,
                })
            });
            let [of_copy, of_product] = ceilings.fractions(l, l.seconds);
            json!({
                "op": l.op, "case": l.case, "us": 1e6 * l.seconds, "bytes": l.bytes, "flops": l.flops,
                "gb_per_s": l.bytes / l.seconds / 1e9, "share_of_copy": of_copy,
                "gflops": l.flops / l.seconds / 1e9, "share_of_product": of_product,
                "limit": ceilings.limit(l), "rivals": rivals.collect::<Vec<_>>(),
            })
        })
        .collect();
    let products = ceilings.products.iter().map(|(name, rate)| json!({"by": name, "gflops": rate / 1e9}));
    json!({
        "schema": 1, "version": env!("CARGO_PKG_VERSION"), "device": gpu.name(),
        "precision": gpu.precision().name(), "verified_cases": verified,
        "copy_gb_per_s": ceilings.copy / 1e9, "large_products": products.collect::<Vec<_>>(),
        "runs": effort.runs, "timings": effort.timings, "ops": ops,
        "missing_rivals": missing,
    })
}
