//! Times every op at the sizes of one training step, forward and backward, and compares it with this
//! machine's measured peak.
//!
//! ```sh
//! cargo bench --bench ops                               # all ops, about a minute
//! cargo bench --bench ops -- attention --threads 1      # ops whose name contains a word
//! cargo bench --bench ops -- --json result.json
//! ```
//!
//! Criterion takes the statistics of each case's whole program and compares them with the previous run. The
//! medians of the single ops, in the table at the end, come from the same runs. `peak` is the percentage of
//! the op's time that its compulsory operations or bytes, whichever take longer, would need at the rates of a
//! large matrix product and a large copy in this process; the rates are the better of a measurement before
//! and one after the ops. Inputs that fit in cache are there from the run before: such an op may move its
//! bytes faster than the copy, and exceed 100 %.
mod peak;
mod report;

use criterion::Criterion;
use peak::{copy_rate, fastest, numbers};
use report::{Head, Options};
use serde_json::json;
use std::{
    collections::BTreeMap,
    error::Error,
    hint::black_box,
    time::{Duration, Instant},
};
use tgnn::{
    ops::{Backend, Case, Cost, bench_cases},
    runtime::{
        Device,
        matmul::{Mat, MatMut, matmul},
    },
    testing,
};

/// Operations and bytes per second, in units of 10^9.
#[derive(Clone, Copy)]
struct Peak {
    gflops: f64,
    gbs: f64,
}

impl Peak {
    /// Measures the rates of a large matrix product and a large copy.
    fn measure() -> Self {
        const N: usize = 2048;
        let (a, b, mut out) = (numbers(N * N), numbers(N * N), vec![0.0f32; N * N]);
        let product = fastest(|| {
            matmul(MatMut::new(&mut out, N, N), Mat::new(&a, N, N), Mat::new(&b, N, N), false);
            black_box(&out);
        });
        Peak { gflops: 2.0 * (N * N * N) as f64 / product / 1e9, gbs: copy_rate() / 1e9 }
    }
    /// Returns the higher one of each rate.
    fn or_better(self, other: Peak) -> Self {
        Peak { gflops: self.gflops.max(other.gflops), gbs: self.gbs.max(other.gbs) }
    }
}

/// One line of the table: an op in a case.
struct Line {
    op: &'static str,
    case: String,
    /// Quartiles of the time of one run, in seconds.
    quartiles: [f64; 3],
    /// Compulsory bytes and operations of one run.
    cost: Cost,
}

impl Line {
    fn gflops(&self) -> f64 {
        self.cost.flops as f64 / self.quartiles[1] / 1e9
    }
    fn gbs(&self) -> f64 {
        self.cost.bytes as f64 / self.quartiles[1] / 1e9
    }
    /// Returns the fraction of the peak, and the resource that bounds the op.
    fn of_peak(&self, peak: Peak) -> (f64, &'static str) {
        let (arithmetic, memory) = (self.gflops() / peak.gflops, self.gbs() / peak.gbs);
        if arithmetic > memory { (arithmetic, "arithmetic") } else { (memory, "memory") }
    }
}

/// Runs a case under criterion and returns the lines of its ops.
fn bench(
    criterion: &mut Criterion,
    device: &Device,
    case: Case,
    all_cases: &[Case],
) -> Result<Vec<Line>, Box<dyn Error>> {
    let (mut program, mut store, states) = testing::program(&case, Backend::Cpu)?;
    let start: Vec<Vec<u8>> = states.iter().map(|&id| store.raw(id).unwrap().to_vec()).collect();
    let mut samples: BTreeMap<&'static str, (Vec<f64>, Cost)> = BTreeMap::new();
    criterion.bench_function(&case.to_string(), |b| {
        b.iter_custom(|runs| {
            device.keep_awake(|| {
                let mut total = Duration::ZERO;
                for _ in 0..runs {
                    // Every run starts from the same state: a cursor that has advanced would leave less work.
                    states
                        .iter()
                        .zip(&start)
                        .for_each(|(&id, bytes)| store.raw_mut(id).unwrap().copy_from_slice(bytes));
                    program.profile();
                    let started = Instant::now();
                    program.run(&mut store).expect("a bench case should run as its tests do");
                    total += started.elapsed();
                    for t in program.op_times() {
                        let cost = Cost { bytes: t.cost.bytes / t.runs, flops: t.cost.flops / t.runs };
                        let (times, _) = samples.entry(t.op).or_insert((Vec::new(), cost));
                        times.push(t.seconds / t.runs as f64);
                    }
                }
                total
            })
        });
    });
    // Other ops in the program of a case have their own cases.
    samples.retain(|op, _| *op == case.op || all_cases.iter().all(|c| c.op != *op));
    let mut lines: Vec<Line> = samples
        .into_iter()
        .map(|(op, (mut times, cost))| {
            times.sort_unstable_by(f64::total_cmp);
            let quartiles = [1, 2, 3].map(|q| times[(times.len() - 1) * q / 4]);
            Line { op, case: case.to_string(), quartiles, cost }
        })
        .collect();
    // The op itself comes first, then its backward ops.
    lines.sort_by_key(|l| l.op != case.op);
    Ok(lines)
}

/// Prints the table.
fn print(lines: &[Line], peak: Peak, device: &Device) {
    println!(
        "\n{}, {} threads: {:.0} GFLOP/s, copy {:.1} GB/s\n",
        device.name(),
        device.threads(),
        peak.gflops,
        peak.gbs
    );
    println!("{:<25}{:>10}{:>16}{:>10}{:>9}{:>8}  case", "op", "us", "quartiles", "GFLOP/s", "GB/s", "peak");
    for l in lines {
        let [low, median, high] = l.quartiles.map(|s| 1e6 * s);
        let (fraction, _) = l.of_peak(peak);
        let spread = format!("{low:.1}-{high:.1}");
        let percentage = format!("{:.0} %", 100.0 * fraction);
        println!(
            "{:<25}{median:>10.1}{spread:>16}{:>10.1}{:>9.1}{percentage:>8}  {}",
            l.op,
            l.gflops(),
            l.gbs(),
            l.case
        );
    }
}

/// Returns the result as JSON.
fn report(lines: &[Line], peak: Peak, head: Head) -> serde_json::Value {
    let ops: Vec<_> = lines
        .iter()
        .map(|l| {
            let ([low, median, high], (fraction, bound)) = (l.quartiles.map(|s| 1e6 * s), l.of_peak(peak));
            json!({
                "op": l.op, "case": l.case, "us": median, "us_quartiles": [low, high],
                "flops": l.cost.flops, "bytes": l.cost.bytes, "gflops": l.gflops(), "gb_per_s": l.gbs(),
                "share_of_peak": fraction, "bound": bound,
            })
        })
        .collect();
    head.with(json!({
        "peak": { "gflops": peak.gflops, "copy_gb_per_s": peak.gbs },
        "ops": ops,
    }))
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse("NAME")?;
    let name = options.positional.first().map_or("", |name| name);
    let device = Device::cpu(options.threads)?;
    let head = Head::new("ops", &device);
    let before = device.install(Peak::measure);
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800));
    let all_cases = bench_cases();
    let mut lines = Vec::new();
    for case in all_cases.iter().filter(|c| c.op.contains(name)) {
        lines.extend(bench(&mut criterion, &device, *case, &all_cases)?);
    }
    if lines.is_empty() {
        return Err(format!("no op has a name that contains `{name}`").into());
    }
    let peak = before.or_better(device.install(Peak::measure));
    print(&lines, peak, &device);
    options.write(report(&lines, peak, head))
}
