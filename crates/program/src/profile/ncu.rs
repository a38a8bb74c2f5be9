//! The table of what Nsight Compute has counted.
use super::{report::OpDone, table::floors};
use crate::output::{print_json, say};
use serde_json::{Value, json};
use tgnn::error::Result;
use tgnn_lab::{
    ceilings::{Caches, Ceilings, limit},
    ncu::Kernel,
};

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
        let (seconds, floor) = runs.time_of(op);
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
    fn time_of(&self, op: &str) -> (f64, f64) {
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
            let (seconds, floor) = self.time_of(op);
            json!({"op": op, "us": 1e6 * seconds, "times_floor": floor, "kernels": kernels_of(op)})
        };
        let mut table = json!({"schema": 1, "version": env!("CARGO_PKG_VERSION"), "tool": "ncu",
            "caches": self.caches.name()});
        self.ceilings.json().into_iter().for_each(|(key, value)| table[key] = value);
        table["ops"] = self.names().into_iter().map(op).collect();
        table
    }
}
