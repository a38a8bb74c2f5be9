//! Every op of a TGN step at batch 600 (1,800 roots, 10 neighbours, width 100, 172 edge features), forward and
//! backward, on every core.
//!
//!     cargo bench --bench ops                             # criterion's statistics, then a table
//!     TGNN_BENCH_OUT=table.json cargo bench --bench ops   # the table as JSON too
//!
//! The table's shares are of what this machine does in the same run: a 1024-cubed product, and a copy of a buffer
//! larger than most caches. Bytes and operations are the compulsory ones that each op declares, times the share of rows
//! that its case fills; more than 100% of the copy means that the operands stayed in a cache.
use criterion::Criterion;
use rayon::prelude::*;
use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};
use tgnn::{
    ops::{Case, cases},
    runtime::{
        Device,
        matmul::{Mat, MatMut, matmul},
    },
    testing::program,
};

/// Rows that a case fills: a quarter of its nodes have no mail, its roots have five of ten neighbours on average.
fn filled(op: &str) -> f64 {
    match op {
        "gru_memory" | "gru_memory_grad" => 0.75,
        "temporal_attention" | "temporal_attention_grad" => 0.5,
        _ => 1.0,
    }
}

/// Ops with their sizes, in the order that each op's `CASES` explains.
const SIZES: &[(&str, &[usize])] = &[
    ("next_batch", &[110_231, 600, 3]),
    ("draw_negatives", &[600, 1, 1000]),
    ("roots", &[600, 1]),
    ("sample_neighbors", &[9227, 110_231, 109_631, 10, 0]),
    ("distinct", &[9227, 600, 10]),
    ("gru_memory", &[9227, 1487, 100, 172, 100]),
    ("prefix_rows", &[1487, 900, 100]),
    ("time_encode", &[1800, 100]),
    ("linear", &[1800, 100, 100, 1, 1]),
    ("head_linear", &[900, 2, 50, 372, 0]),
    ("head_linear", &[1800, 2, 50, 372, 1]),
    ("temporal_attention", &[1800, 900, 1487, 10, 2, 100, 172, 100, 10]),
    ("gather_rows", &[9227, 1800, 100]),
    ("scatter_add_rows", &[1800, 900, 100]),
    ("dropout", &[1800, 100, 10]),
    ("layer_norm", &[1800, 100]),
    ("link_decoder", &[600, 1, 100, 100]),
    ("bce_loss", &[600, 1]),
    ("add", &[1487, 100]),
    ("write_memory", &[9227, 600, 100, 172, 0]),
    ("write_rows", &[600, 600, 2]),
    ("expand_targets", &[1800, 10]),
    ("adam", &[100_000, 207_501]),
];

fn best(mut work: impl FnMut()) -> f64 {
    (0..7)
        .map(|_| {
            let started = Instant::now();
            work();
            started.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min)
}

/// GFLOP/s of a large product, GB/s of a large copy (read and written bytes).
fn peaks() -> (f64, f64) {
    const N: usize = 1024;
    const COPY: usize = 64 << 20;
    let a: Vec<f32> = (0..N * N).map(|i| (i % 997) as f32 / 997.0).collect();
    let mut out = vec![0.0; N * N];
    let product = best(|| matmul(MatMut::new(&mut out, N, N), Mat::new(&a, N, N), Mat::new(&a, N, N), false));
    let (from, mut to) = (vec![1u64; COPY / 8], vec![0u64; COPY / 8]);
    let copy = best(|| {
        to.par_chunks_mut(1 << 16).zip(from.par_chunks(1 << 16)).for_each(|(t, f)| t.copy_from_slice(f));
    });
    (2.0 * (N * N * N) as f64 / product / 1e9, 2.0 * COPY as f64 / copy / 1e9)
}

fn main() -> tgnn::error::Result<()> {
    let device = Device::cpu(0)?;
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800))
        .configure_from_args();
    let (flops, bytes) = device.install(peaks);
    let all = cases();
    let mut rows = Vec::new();
    for &(op, dims) in SIZES {
        let Some(found) = all.iter().find(|c| c.op == op) else { continue };
        let case = Case { dims, ..*found };
        let (mut program, mut store) = program(&case)?;
        let mut run = |n: u64| {
            device.keep_awake(|| {
                let started = Instant::now();
                (0..n).try_for_each(|_| program.run(&mut store))?;
                tgnn::error::Result::Ok(started.elapsed())
            })
        };
        run(1)?;
        criterion.bench_function(&case.to_string(), |b| b.iter_custom(|n| run(n).unwrap_or_default()));
        program.profile();
        device.keep_awake(|| (0..50).try_for_each(|_| program.run(&mut store)))?;
        for t in program.op_times() {
            let seconds = t.seconds / t.runs as f64;
            let rate = |x: usize| filled(t.op) * x as f64 / t.runs as f64 / seconds / 1e9;
            rows.push((t.op, dims, seconds * 1e6, rate(t.cost.flops), rate(t.cost.bytes)));
        }
    }
    println!(
        "\npeaks of this machine now: {flops:.0} GFLOP/s, {bytes:.1} GB/s, {} threads",
        device.threads()
    );
    println!("{:<26} {:>9} {:>9} {:>8} {:>7}  sizes", "op", "us", "GFLOP/s", "GB/s", "share");
    let mut json = String::new();
    for (op, dims, us, gflops, gbytes) in &rows {
        // Of the ceiling that the op is nearer to.
        let share = 100.0 * (gflops / flops).max(gbytes / bytes);
        println!("{op:<26} {us:>9.1} {gflops:>9.1} {gbytes:>8.1} {share:>6.0}%  {dims:?}");
        let comma = if json.is_empty() { "" } else { ",\n" };
        let _ = write!(
            json,
            r#"{comma}  {{"op": "{op}", "sizes": {dims:?}, "us": {us:.2}, "gflops": {gflops:.2}, "gbytes": {gbytes:.2}}}"#
        );
    }
    if let Ok(path) = std::env::var("TGNN_BENCH_OUT") {
        let text = format!(
            "{{\"what\": \"ops\", \"cpu\": \"{}\", \"threads\": {}, \"peak_gflops\": {flops:.1}, \"peak_gbytes\": {bytes:.1},\n\"command\": \"cargo bench --bench ops\", \"rows\": [\n{json}\n]}}\n",
            device.name(),
            device.threads()
        );
        std::fs::write(&path, text).map_err(|e| tgnn::error::Error::io(&path, "cannot write", e))?;
    }
    Ok(())
}
