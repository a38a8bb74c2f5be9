//! The table of a profile without a tool, the same for every device.
use super::measured::MeasuredOp;
use crate::output::{print_json, say};
use serde_json::{Value, json};
use tgnn::{
    autograd::ShapeTime,
    error::Result,
    runtime::{Device, MatmulPrecision},
};
use tgnn_lab::ceilings::{Caches, Ceilings, Work};

/// Prints the table, or JSON.
pub(super) fn print(
    device: &Device,
    ceilings: &Ceilings,
    found: &[MeasuredOp],
    caches: Caches,
    as_json: bool,
) -> Result<()> {
    if as_json {
        return print_json(&json(device, ceilings, found, caches));
    }
    let (precision, threads) = (precision(device), device.threads());
    let threads = if device.gpu().is_none() { format!(", {threads} threads") } else { String::new() };
    say(format_args!("{}{threads}, matmul in {precision}, caches {}", device.name(), caches.name()));
    ceilings.lines().iter().for_each(say);
    say(format_args!(
        "\n{:<25}{:>8}{:>11}{:>8}{:>9}{:>9}{:>10}{:>12}  {:<12}{:>9}  place",
        "op", "runs", "us", "share", "GB/s", "of copy", "GFLOP/s", "of product", "limit", "x floor"
    ));
    let total: f64 = found.iter().map(all_seconds).sum();
    for m in found {
        let speed = ceilings.speed(m.work, m.seconds, caches);
        say(format_args!(
            "{:<25}{:>8}{:>11.1}{:>6.0} %{:>9.1}{:>7.0} %{:>10.1}{:>10.0} %  {:<12}{:>9}  {}",
            m.op,
            m.runs,
            1e6 * m.seconds,
            100.0 * all_seconds(m) / total,
            speed.gb_per_s,
            100.0 * speed.of_copy,
            speed.gflops,
            100.0 * speed.of_product,
            speed.limit(),
            floors(speed.floors),
            m.place
        ));
    }
    Ok(())
}

/// Returns the precision of dense products.
fn precision(device: &Device) -> &'static str {
    device.gpu().map_or(MatmulPrecision::F32, |gpu| gpu.precision()).name()
}

/// Returns the seconds of all runs.
fn all_seconds(m: &MeasuredOp) -> f64 {
    m.seconds * m.runs as f64
}

/// Formats a time as a multiple of its floor; an op may have nothing that it must do.
pub(super) fn floors(floors: f64) -> String {
    if floors.is_finite() { format!("{floors:.1}") } else { "-".into() }
}

fn json(device: &Device, ceilings: &Ceilings, found: &[MeasuredOp], caches: Caches) -> Value {
    let ops = found.iter().map(|m| {
        let speed = ceilings.speed(m.work, m.seconds, caches);
        json!({
            "op": m.op, "place": m.place, "runs": m.runs, "us": 1e6 * m.seconds, "kernels": m.kernels,
            "bytes": m.work.bytes, "flops": m.work.flops,
            "gb_per_s": speed.gb_per_s, "share_of_copy": speed.of_copy,
            "gflops": speed.gflops, "share_of_product": speed.of_product,
            "limit": speed.limit(), "times_floor": speed.floors,
            "shapes": m.shapes.iter().map(|s| of_shape(ceilings, s, caches)).collect::<Vec<_>>(),
        })
    });
    let mut table = json!({
        "schema": 1, "version": env!("CARGO_PKG_VERSION"), "device": device.name(),
        "threads": device.threads(), "precision": precision(device), "caches": caches.name(),
    });
    ceilings.json().into_iter().for_each(|(key, value)| table[key] = value);
    table["ops"] = ops.collect();
    table
}

/// Returns what was measured of an op on operands of the same shapes.
fn of_shape(ceilings: &Ceilings, of: &ShapeTime, caches: Caches) -> Value {
    let runs = of.runs.max(1) as f64;
    let work = Work { bytes: of.cost.bytes as f64 / runs, flops: of.cost.flops as f64 / runs };
    let speed = ceilings.speed(work, of.median, caches);
    json!({
        "shape": of.shape, "runs": of.runs, "us": 1e6 * of.median, "bytes": work.bytes, "flops": work.flops,
        "times_floor": speed.floors,
    })
}
