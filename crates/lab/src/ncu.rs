//! What Nsight Compute counts: its metrics, and the reader of its CSV.
//!
//! The format is that of `--csv --page raw`: a line of column names, a line of units, and a line for every
//! launch of a kernel. With `--nvtx`, a column has the profiler ranges that were open, the innermost one
//! last.
use crate::{
    ceilings::median,
    csv::{fields, number},
};
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
pub fn metrics() -> String {
    let single = [TIME, DRAM, SM, BYTES, WARPS, REGISTERS];
    single.into_iter().chain(BLOCKS.map(|(name, _)| name)).collect::<Vec<_>>().join(",")
}

/// The launches of a kernel for an op: medians.
#[derive(Debug, PartialEq)]
pub struct Kernel {
    /// The innermost range, which is the op; empty if there was none.
    pub op: String,
    /// The kernel's name.
    pub name: String,
    /// Number of launches.
    pub launches: usize,
    /// Seconds of all launches.
    pub total: f64,
    /// Seconds of a launch.
    pub seconds: f64,
    /// Fraction of the peak of memory.
    pub of_dram: f64,
    /// Fraction of the peak of the multiprocessors.
    pub of_sm: f64,
    /// Bytes read from and written to memory.
    pub dram_bytes: f64,
    /// Fraction of the warps that a multiprocessor can hold.
    pub occupancy: f64,
    /// Registers of a thread.
    pub registers: f64,
    /// What allows no more blocks.
    pub held_by: &'static str,
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
pub fn read(text: &str) -> Result<Vec<Kernel>> {
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
