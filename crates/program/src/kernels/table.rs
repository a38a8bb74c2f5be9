//! The times of the kernels of every op, beside those of their rivals and the rates of the device.
use super::accuracy::{Accuracy, works};
use crate::output::say;
use serde_json::{Value, json};
use std::{collections::BTreeSet, ops::Range};
use tgnn::{
    autograd::{Alone, OpTime},
    error::Result,
    ops::{Backend, Case, Tape, bench_cases},
    runtime::cuda::Gpu,
    testing::{self, Off},
};
use tgnn_lab::{
    Rival, Rivals,
    ceilings::{Caches, Ceilings, Effort, ReadyCase, Speed, Work, limit},
};

/// The table.
pub(super) struct Table {
    ceilings: Ceilings,
    effort: Effort,
    /// Seconds that two events measure if there is nothing between them, which no time contains.
    empty_seconds: f64,
    lines: Vec<Line>,
    /// Rivals that are not available, and why.
    missing: BTreeSet<String>,
    /// Cases that were not timed, and why.
    not_timed: Vec<String>,
}

/// A row of the table: an op in a case.
struct Line {
    op: &'static str,
    /// The op whose cases verify this one.
    of: &'static str,
    case: String,
    /// Median seconds of a run, warm and cold.
    seconds: [f64; 2],
    work: Work,
    rivals: Vec<RivalTimes>,
}

/// A rival of an op: its largest error and its times, as those of the op.
struct RivalTimes {
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
    fn new(ceilings: &Ceilings, work: Work, [warm, cold]: [f64; 2]) -> Self {
        let speed = |seconds, caches| ceilings.speed(work, seconds, caches);
        Speeds { warm: speed(warm, Caches::Warm), cold: speed(cold, Caches::Cold) }
    }
    /// Returns what limits the speed: memory if the operands come from there, or arithmetic if they do not.
    fn limit(&self) -> &'static str {
        limit(self.cold.of_copy, self.warm.of_product)
    }
}

impl Table {
    /// Times the ops of the benchmark cases for which `selected` holds. A case that fails does not end this,
    /// but a fault after which the device does nothing any more does. Rivals, which libraries compute, come
    /// last.
    ///
    /// # Errors
    /// `Device` if the rates of the device cannot be measured.
    pub fn measure(gpu: &Gpu, selected: impl Fn(&Case) -> bool) -> Result<Self> {
        let (effort, rivals) = (Effort::on(gpu), Rivals::new(gpu));
        let mut table = Table {
            ceilings: Ceilings::of_gpu(gpu, &rivals, effort)?,
            effort,
            empty_seconds: gpu.empty_seconds()?,
            lines: Vec::new(),
            missing: BTreeSet::new(),
            not_timed: Vec::new(),
        };
        let (bench_cases, mut timed) = (bench_cases(), Vec::new());
        for case in bench_cases.iter().filter(|c| selected(c)) {
            match time(gpu, case, &bench_cases, effort) {
                Ok(lines) => {
                    timed.push((case, table.lines.len()..table.lines.len() + lines.len()));
                    table.lines.extend(lines);
                }
                Err(e) if works(gpu) => table.not_timed.push(format!("{case}: {e}")),
                Err(e) => {
                    table.not_timed.push(format!("{case}, and all cases after it: {e}"));
                    break;
                }
            }
        }
        if works(gpu) {
            table.add_rivals(gpu, &timed, &rivals);
        }
        Ok(table)
    }
    /// Adds the rivals of the ops of each case, which have a range of the lines. A rival that fails is
    /// reported as missing. The others are still measured, unless the device does nothing any more.
    fn add_rivals(&mut self, gpu: &Gpu, timed: &[(&Case, Range<usize>)], rivals: &Rivals) {
        for (case, lines) in timed {
            for found in rivals.on(case) {
                let lines = &mut self.lines[lines.clone()];
                let compared = found.and_then(|r| compare(gpu, case, r, lines, self.effort));
                let Err(why) = compared else { continue };
                if !works(gpu) {
                    let after = "it left the device unusable, so the rivals after it are not measured";
                    self.missing.insert(format!("{why}; in {case} {after}"));
                    return;
                }
                self.missing.insert(why);
            }
        }
    }
    /// Prints the table. Rows of ops that are not verified say so.
    pub fn print(&self, accuracy: &Accuracy) {
        let row = |name: &str, seconds: [f64; 2], work: Work, limit: &str, last: &str| {
            let Speeds { warm, cold } = Speeds::new(&self.ceilings, work, seconds);
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
        self.ceilings.lines().iter().for_each(say);
        say(format_args!(
            "\n{:<25}{:>10}{:>10}{:>9}{:>11}{:>13}{:>10}{:>11}  {:<12}case",
            "op", "us", "us cold", "GB/s", "of copy", "of cached", "GFLOP/s", "of product", "limit"
        ));
        for l in &self.lines {
            let limit = Speeds::new(&self.ceilings, l.work, l.seconds).limit();
            let off = if accuracy.agrees(l.of) { "" } else { "; NOT VERIFIED, see above" };
            row(l.op, l.seconds, l.work, limit, &format!("{}{off}", l.case));
            for r in &l.rivals {
                let exact = if r.off.within() { String::new() } else { format!("; {}", r.off) };
                let against = format!("{:.2} x the op's time{exact}", r.seconds[0] / l.seconds[0]);
                row(&format!("  {}", r.name), r.seconds, l.work, "", &against);
            }
        }
        let listed = |what: &str, all: &mut dyn Iterator<Item = &String>| {
            for (at, why) in all.enumerate() {
                say(format_args!("{}  {why}", if at == 0 { format!("\n{what}\n") } else { String::new() }));
            }
        };
        listed("rivals that are not available", &mut self.missing.iter());
        listed("cases that were not timed", &mut self.not_timed.iter());
    }
    /// Adds the table to a JSON object.
    pub fn add_to(&self, found: &mut Value, accuracy: &Accuracy) {
        self.ceilings.json().into_iter().for_each(|(key, value)| found[key] = value);
        found["runs"] = self.effort.runs.into();
        found["timings"] = self.effort.timings.into();
        found["events_us"] = (1e6 * self.empty_seconds).into();
        found["ops"] = self.lines.iter().map(|l| l.json(&self.ceilings, accuracy.agrees(l.of))).collect();
        found["missing_rivals"] = json!(self.missing);
        found["not_timed"] = json!(self.not_timed);
    }
}

impl Line {
    fn json(&self, ceilings: &Ceilings, verified: bool) -> Value {
        let rivals = self.rivals.iter().map(|r| {
            json!({
                "name": r.name, "us": 1e6 * r.seconds[0], "us_cold": 1e6 * r.seconds[1],
                "times_the_op": r.seconds[0] / self.seconds[0],
                "within_allowance": r.off.within(), "off_by": r.off.error, "allowed": r.off.allowed,
            })
        });
        let speeds = Speeds::new(ceilings, self.work, self.seconds);
        let Speeds { warm, cold } = &speeds;
        json!({
            "op": self.op, "case": self.case, "verified": verified,
            "us": 1e6 * self.seconds[0], "us_cold": 1e6 * self.seconds[1],
            "bytes": self.work.bytes, "flops": self.work.flops, "gb_per_s": warm.gb_per_s,
            "share_of_copy_cold": cold.of_copy, "share_of_copy_warm": warm.of_copy,
            "gflops": warm.gflops, "share_of_product": warm.of_product,
            "limit": speeds.limit(), "rivals": rivals.collect::<Vec<_>>(),
        })
    }
}

/// Returns the times of the ops of a case for which `op` holds: warm and cold.
fn times(
    gpu: &Gpu,
    case: &Case,
    rival: Option<&Rival>,
    op: &dyn Fn(&str) -> bool,
    Effort { runs, timings }: Effort,
) -> Result<Vec<[OpTime; 2]>> {
    let mut ready = ReadyCase::with_rival(case, Backend::Cuda(gpu.clone()), rival)?;
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
    let mut lines: Vec<Line> = times(gpu, case, None, &shown, effort)?
        .into_iter()
        .map(|[warm, cold]| Line {
            op: warm.op,
            of: case.op,
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
    let (op, name) = (rival.op(), rival.name());
    let failed = |e| format!("{name} for {op}: {e}");
    let edit = |tape: &mut Tape| rival.take_over(tape);
    let off = testing::edited_worst(case, Backend::Cuda(gpu.values_apart()), &edit).map_err(failed)?;
    let times = times(gpu, case, Some(&rival), &|timed| timed == op, effort).map_err(failed)?;
    for line in lines.iter_mut().filter(|l| l.op == op) {
        let timed =
            |t: &[OpTime; 2]| RivalTimes { name, off: off.clone(), seconds: [t[0].median, t[1].median] };
        line.rivals.extend(times.iter().map(timed));
    }
    Ok(())
}
