//! What Nsight Compute counts: its metrics, the reader of its CSV, and the table.
//!
//! The format is that of `--csv --page raw`: a line of column names, a line of units, and a line for every
//! launch of a kernel. With `--nvtx`, a column has the profiler ranges that were open, the innermost one
//! last.
use super::{
    csv::{fields, number},
    report::OpDone,
    table::floors,
};
use crate::{
    ceilings::{Caches, Ceilings, limit, median},
    output::{print_json, say},
};
use serde_json::{Value, json};
use tgnn::error::{Error, ErrorKind, Result};

/// Column with the name of the kernel.
const KERNEL: &str = "Kernel Name";
/// Beginning of the name of the column with the ranges that were pushed and not popped yet.
const RANGES: &str = "thread Domain:Push/Pop_Range";
const TIME: &str = "gpu__time_duration.sum";
const DRAM: &str = "dram__throughput.avg.pct_of_peak_sustained_elapsed";
const SM: &str = "sm__throughput.avg.pct_of_peak_sustained_elapsed";
const BYTES: &str = "dram__bytes.sum";
const WARPS: &str = "sm__warps_active.avg.pct_of_peak_sustained_active";
const REGISTERS: &str = "launch__registers_per_thread";
/// Blocks of a multiprocessor by what they need, and the words for it.
const BLOCKS: [(&str, &str); 4] = [
    ("launch__occupancy_limit_registers", "registers"),
    ("launch__occupancy_limit_shared_mem", "shared memory"),
    ("launch__occupancy_limit_warps", "warps"),
    ("launch__occupancy_limit_blocks", "blocks"),
];

/// Returns the names of the metrics.
pub(super) fn metrics() -> String {
    let single = [TIME, DRAM, SM, BYTES, WARPS, REGISTERS];
    single.into_iter().chain(BLOCKS.map(|(name, _)| name)).collect::<Vec<_>>().join(",")
}

/// The launches of a kernel for an op: medians.
#[derive(Debug, PartialEq)]
pub(super) struct Kernel {
    /// The innermost range, which is the op; empty if there was none.
    op: String,
    name: String,
    launches: usize,
    /// Seconds of all launches.
    total: f64,
    seconds: f64,
    /// Fractions of the peak of memory and of the multiprocessors.
    of_dram: f64,
    of_sm: f64,
    dram_bytes: f64,
    /// Fraction of the warps that a multiprocessor can hold.
    occupancy: f64,
    registers: f64,
    /// What allows no more blocks.
    held_by: &'static str,
}

/// Returns an error about the output of ncu.
fn wrong(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Device, what)
}

/// The columns that are read.
struct Columns {
    names: Vec<String>,
    units: Vec<String>,
}

impl Columns {
    /// Returns the position of a column.
    fn at(&self, name: &str) -> Result<usize> {
        let found = self.names.iter().position(|column| column == name);
        found.ok_or_else(|| {
            wrong(format!("ncu's CSV has no column `{name}`")).remedy(
                "Nsight Compute 2022 or later is known to have it; `ncu --version` prints the version",
            )
        })
    }
    /// Returns a number of a launch, in seconds, bytes, or without unit; percentages as fractions.
    fn value(&self, launch: &[String], name: &str) -> Result<f64> {
        let at = self.at(name)?;
        let (text, unit) = (launch.get(at).map_or("", String::as_str), self.units.get(at).map_or("", |u| u));
        let number = number(text).ok_or_else(|| {
            wrong(format!("ncu measured no {name}: `{text}`")).remedy("this GPU may not have the counter")
        })?;
        Ok(number * factor(unit))
    }
}

/// Returns the factor of a unit.
fn factor(unit: &str) -> f64 {
    match unit {
        "ns" | "nsecond" => 1e-9,
        "us" | "usecond" => 1e-6,
        "ms" | "msecond" => 1e-3,
        "%" => 1e-2,
        "Kbyte" => 1e3,
        "Mbyte" => 1e6,
        "Gbyte" => 1e9,
        _ => 1.0,
    }
}

/// Reads the CSV in the output of ncu. Kernels are in the order of their first launches.
///
/// # Errors
/// `Device` if there is no CSV, a column is missing, or a number is.
pub(super) fn read(text: &str) -> Result<Vec<Kernel>> {
    let mut lines = text.lines().filter(|line| line.starts_with('"')).map(fields);
    let Some(names) = lines.find(|names| names.iter().any(|name| name == KERNEL)) else {
        return Err(wrong("ncu wrote no table of kernels").remedy(last_line(text)));
    };
    let columns = Columns { names, units: lines.next().unwrap_or_default() };
    let ranges = columns.names.iter().position(|name| name.starts_with(RANGES));
    let name = columns.at(KERNEL)?;
    let mut launches: Vec<(String, String, Vec<Vec<String>>)> = Vec::new();
    for launch in lines {
        let kernel = launch.get(name).cloned().unwrap_or_default();
        let op = ranges.and_then(|at| innermost(launch.get(at)?)).unwrap_or_default();
        match launches.iter_mut().find(|(o, k, _)| *o == op && *k == kernel) {
            Some((_, _, same)) => same.push(launch),
            None => launches.push((op, kernel, vec![launch])),
        }
    }
    if launches.is_empty() {
        return Err(wrong("ncu saw no kernel within the range").remedy(last_line(text)));
    }
    launches.into_iter().map(|(op, name, launches)| kernel(&columns, op, name, &launches)).collect()
}

/// Returns a kernel of its launches.
fn kernel(columns: &Columns, op: String, name: String, launches: &[Vec<String>]) -> Result<Kernel> {
    let all = |metric: &str| {
        let values = launches.iter().map(|launch| columns.value(launch, metric));
        values.collect::<Result<Vec<f64>>>()
    };
    let typical = |metric: &str| Ok::<f64, Error>(median(all(metric)?));
    let mut held_by = ("", f64::INFINITY);
    for (metric, word) in BLOCKS {
        let blocks = typical(metric)?;
        if blocks < held_by.1 {
            held_by = (word, blocks);
        }
    }
    Ok(Kernel {
        launches: launches.len(),
        total: all(TIME)?.iter().sum(),
        seconds: typical(TIME)?,
        of_dram: typical(DRAM)?,
        of_sm: typical(SM)?,
        dram_bytes: typical(BYTES)?,
        occupancy: typical(WARPS)?,
        registers: typical(REGISTERS)?,
        held_by: held_by.0,
        op,
        name,
    })
}

/// Returns the name of the innermost range of a cell: thread, and `"<domain>:name:..."` for each range.
fn innermost(cell: &str) -> Option<String> {
    let last = cell.trim().trim_end_matches('"').rsplit('"').next()?;
    Some(last.split(':').nth(1)?.to_owned())
}

/// Returns what ncu said last, for the line of an error.
fn last_line(text: &str) -> String {
    let last = text.lines().map(str::trim).rfind(|line| line.starts_with("=="));
    last.map_or("it said nothing".to_owned(), |line| format!("it said: {line}"))
}

/// Prints the table: each op with its kernels below it, or JSON.
pub(super) fn print(
    ceilings: &Ceilings,
    kernels: &[Kernel],
    ops: &[OpDone],
    caches: Caches,
    as_json: bool,
) -> Result<()> {
    let runs = OpRuns { ceilings, kernels, ops, caches };
    if as_json {
        return print_json(&runs.json());
    }
    ceilings.lines().iter().for_each(say);
    say(format_args!(
        "\n{:<34}{:>9}{:>10}{:>9}{:>9}{:>11}{:>11}  {:<14}{:<12}{:>8}",
        "op, kernels",
        "launches",
        "us",
        "of DRAM",
        "of SMs",
        "occupancy",
        "registers",
        "held by",
        "limit",
        "x floor"
    ));
    for op in runs.names() {
        let (seconds, floor) = runs.of(op);
        let name = if op.is_empty() { "outside of ops" } else { op };
        say(format_args!("{name:<43}{:>10.1}{:>75}", 1e6 * seconds, floors(floor)));
        kernels.iter().filter(|kernel| kernel.op == op).for_each(line);
    }
    Ok(())
}

/// Prints the line of a kernel.
fn line(k: &Kernel) {
    say(format_args!(
        "  {:<32}{:>9}{:>10.1}{:>7.0} %{:>7.0} %{:>9.0} %{:>11.0}  {:<14}{}",
        k.name,
        k.launches,
        1e6 * k.seconds,
        100.0 * k.of_dram,
        100.0 * k.of_sm,
        100.0 * k.occupancy,
        k.registers,
        k.held_by,
        limit(k.of_dram, k.of_sm)
    ));
}

/// The kernels of ops, and how often each op ran.
struct OpRuns<'a> {
    ceilings: &'a Ceilings,
    kernels: &'a [Kernel],
    ops: &'a [OpDone],
    caches: Caches,
}

impl<'a> OpRuns<'a> {
    /// Returns the names of the ops in the order of their kernels.
    fn names(&self) -> Vec<&'a str> {
        let mut names: Vec<&str> = Vec::new();
        for kernel in self.kernels {
            if !names.contains(&kernel.op.as_str()) {
                names.push(&kernel.op);
            }
        }
        names
    }
    /// Returns the seconds of a run of an op, and how many times as long that is as its floor; NaN if it is
    /// not known.
    fn of(&self, op: &str) -> (f64, f64) {
        let of_op = self.kernels.iter().filter(|kernel| kernel.op == op);
        let total: f64 = of_op.map(|kernel| kernel.total).sum();
        let done: Vec<&OpDone> = self.ops.iter().filter(|done| done.op == op).collect();
        let runs: usize = done.iter().map(|done| done.runs).sum();
        if runs == 0 {
            return (total, f64::NAN);
        }
        // An op may run in several cases, or on several lanes.
        let of_runs = |done: &&OpDone| done.runs as f64 * self.ceilings.floor(done.work(), self.caches);
        let floor: f64 = done.iter().map(of_runs).sum();
        (total / runs as f64, total / floor)
    }
    fn json(&self) -> Value {
        let kernels_of = |op: &str| -> Value {
            let of_op = self.kernels.iter().filter(|kernel| kernel.op == op);
            of_op
                .map(|k| {
                    json!({
                        "kernel": k.name, "launches": k.launches, "us": 1e6 * k.seconds,
                        "share_of_dram": k.of_dram, "share_of_sms": k.of_sm, "dram_bytes": k.dram_bytes,
                        "occupancy": k.occupancy, "registers": k.registers, "held_by": k.held_by,
                        "limit": limit(k.of_dram, k.of_sm),
                    })
                })
                .collect()
        };
        let op = |op: &str| {
            let (seconds, floor) = self.of(op);
            json!({"op": op, "us": 1e6 * seconds, "times_floor": floor, "kernels": kernels_of(op)})
        };
        let mut table = json!({"schema": 1, "version": env!("CARGO_PKG_VERSION"), "tool": "ncu",
            "caches": self.caches.name()});
        self.ceilings.json().into_iter().for_each(|(key, value)| table[key] = value);
        table["ops"] = self.names().into_iter().map(op).collect();
        table
    }
}
