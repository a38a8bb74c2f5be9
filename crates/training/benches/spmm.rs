//! Times sparse products alone, on graphs of several shapes and rows of several widths, and compares them
//! with the rate of a copy and with PyTorch.
//!
//! ```sh
//! cargo bench --bench spmm                                          # ours
//! cargo bench --bench spmm -- python3 --threads 2 --json FILE       # and PyTorch's, if this Python has it
//! ```
//!
//! The product is `y = A x` of one step, undirected, with loops and normalisation. Graphs of one size have
//! about the same number of edges: with ends drawn uniformly, with ends drawn from a power law, and with a
//! hub that is joined to all other vertices. `of copy` is the percentage of the time that the compulsory
//! bytes (every row of x and y once, the neighbours, the offsets) need at the rate of a large copy in this
//! process; it shows whether rows that are read again come from a cache. Our product and PyTorch's use the
//! same matrix and number of threads. The median of the runs in half a second counts, without the first two.
//!
//! The bench first times the construction of the adjacency of twenty steps, which precedes training.
#[path = "../../../benches/peak.rs"]
mod peak;
#[path = "../../../benches/report.rs"]
mod report;

use report::{Head, Options};
use serde_json::{Value, json};
use std::{
    error::Error,
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};
use tgnn::{
    autograd::Program,
    ops::{Backend, Tape, epilogue::Activation},
    runtime::{Device, Precision, Rows, Spec, Store, philox::Key},
};
use tgnn_data::{Adjacency, Snapshots};
use tgnn_training::model::GraphTables;

type Fallible<T> = Result<T, Box<dyn Error>>;

const WIDTHS: [usize; 6] = [16, 32, 64, 128, 256, 512];
/// Shape, vertices and edges of each graph.
const GRAPHS: [(&str, usize, usize); 6] = [
    ("uniform", 10_000, 100_000),
    ("power law", 10_000, 100_000),
    ("one hub", 10_000, 100_000),
    ("uniform", 200_000, 2_000_000),
    ("power law", 200_000, 2_000_000),
    ("one hub", 200_000, 2_000_000),
];
/// Maximum length of x and of y, in numbers.
const MOST_NUMBERS: usize = 1 << 26;

/// Returns `steps` snapshots with `edges` drawn edges each; `shape` selects how their ends are drawn.
fn graph(shape: &str, nodes: usize, edges: usize, steps: usize) -> Snapshots {
    let (mut offsets, mut src, mut dst) = (vec![0], Vec::new(), Vec::new());
    for step in 0..steps {
        let key = Key::new(1, step as u32, [0, 0]);
        let mut drawn: Vec<(u32, u32)> = (0..edges as u64)
            .map(|i| {
                let [u, w, ..] = key.draw(i).map(|x| f64::from(x) / 2f64.powi(32));
                let power = if shape == "power law" { 4 } else { 1 };
                // The hub is an end of half of the edges. Duplicates are removed below.
                let hub = shape == "one hub" && i % 2 == 0;
                let from = if hub { 0.0 } else { u.powi(power) };
                ((from * nodes as f64) as u32, (w * nodes as f64) as u32)
            })
            .collect();
        drawn.sort_unstable();
        drawn.dedup();
        src.extend(drawn.iter().map(|edge| edge.0));
        dst.extend(drawn.iter().map(|edge| edge.1));
        offsets.push(src.len());
    }
    Snapshots {
        name: shape.into(),
        nodes,
        offsets,
        src,
        dst,
        weight: None,
        labels: vec![String::new(); steps],
        present: None,
        features: None,
        targets: None,
        target_unit: 1.0,
        classes: None,
        encoding: None,
        class_values: None,
        ids: None,
        notes: Vec::new(),
    }
}

/// Returns the quartiles of the seconds of a run, and its compulsory bytes.
fn ours(device: &Device, a: &Adjacency, width: usize) -> Fallible<([f64; 3], usize)> {
    let mut store = Store::new(Precision::F32);
    let mut t = Tape::new(&store);
    let tables = GraphTables::new(&mut store, a)?;
    let graph = tables.vars(&mut t)?;
    let x = store.values("x", Spec::real(Rows::fixed(a.nodes), width), &peak::numbers(a.nodes * width))?;
    let steps = store.values("steps", Spec::ids(Rows::fixed(1), 1), &[0u32])?;
    let (x, steps) = (t.stored(x)?, t.stored(steps)?);
    let y = t.spmm(graph, x, (steps, 0), None, Activation::Identity)?;
    let mut program = Program::new(&t, &[y], Precision::F32, Backend::Cpu)?;
    device.install(|| {
        device.keep_awake(|| {
            let (mut seconds, mut bytes, started) = (Vec::new(), 0, Instant::now());
            while seconds.len() < 7 || started.elapsed() < Duration::from_millis(500) {
                program.profile();
                program.run(&mut store).map_err(|e| e.to_string())?;
                let times = program.op_times();
                let op = times.iter().find(|t| t.op == "spmm").ok_or("the program has no op `spmm`")?;
                seconds.push(op.seconds);
                bytes = op.cost.bytes;
            }
            seconds.drain(..2);
            seconds.sort_unstable_by(f64::total_cmp);
            Ok(([1, 2, 3].map(|q| seconds[(seconds.len() - 1) * q / 4]), bytes))
        })
    })
}

/// Returns PyTorch's times for the same matrix: for each width, an object of seconds by product.
fn torch(python: &str, device: &Device, a: &Adjacency, widths: &[usize]) -> Fallible<Vec<Value>> {
    let folder = tempfile::tempdir()?;
    let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes);
    let rows = &a.from;
    let end = [rows.col.len() as i64];
    let starts: Vec<i64> = rows.begin.iter().map(|&begin| begin.into()).chain(end).collect();
    let mut values = Vec::with_capacity(rows.col.len());
    for (i, (&begin, &len)) in rows.begin.iter().zip(&rows.len).enumerate() {
        let neighbors = &rows.col[begin as usize..][..len as usize];
        values.extend(neighbors.iter().map(|&j| a.scale[i] * a.scale[j as usize]));
    }
    let cols: Vec<i64> = rows.col.iter().map(|&j| j.into()).collect();
    write("starts", bytemuck::cast_slice(&starts))?;
    write("cols", bytemuck::cast_slice(&cols))?;
    write("values", bytemuck::cast_slice(&values))?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/peers/torch_spmm.py");
    let mut command = Command::new(python);
    command.arg(script).arg(folder.path()).args(["--threads", &device.threads().to_string()]);
    let done = command.arg("--widths").args(widths.iter().map(ToString::to_string)).output()?;
    if !done.status.success() {
        return Err(String::from_utf8_lossy(&done.stderr).into());
    }
    Ok(serde_json::from_slice(&done.stdout)?)
}

fn main() -> Fallible<()> {
    let options = Options::parse("PYTHON")?;
    let device = Device::cpu(options.threads)?;
    let head = Head::new("spmm", &device);
    let copy = device.install(peak::copy_rate);
    println!("{}, {} threads, copy {:.1} GB/s\n", device.name(), device.threads(), copy / 1e9);
    let steps = graph("uniform", 10_000, 100_000, 20);
    let adjacency_seconds =
        peak::fastest(|| _ = std::hint::black_box(Adjacency::from_snapshots(&steps, false)));
    println!("adjacency of 20 steps of 100,000 edges: {:.1} ms\n", 1e3 * adjacency_seconds);
    println!(
        "{:<11}{:>9}{:>10}{:>7}{:>10}{:>9}{:>9}  PyTorch's time / ours",
        "graph", "vertices", "entries", "width", "us", "GB/s", "of copy"
    );
    let mut lines = Vec::new();
    for (shape, nodes, edges) in GRAPHS {
        let a = Adjacency::from_snapshots(&graph(shape, nodes, edges, 1), false)?;
        let widths: Vec<usize> = WIDTHS.into_iter().filter(|w| nodes * w <= MOST_NUMBERS).collect();
        let peers = match options.positional.first() {
            Some(python) => torch(python, &device, &a, &widths)?,
            None => vec![json!({}); widths.len()],
        };
        for (&width, peers) in widths.iter().zip(&peers) {
            let ([low, median, high], bytes) = ours(&device, &a, width)?;
            let rate = bytes as f64 / median;
            let slower: Vec<String> = peers
                .as_object()
                .into_iter()
                .flatten()
                .map(|(name, seconds)| format!("{name} {:.1}", seconds.as_f64().unwrap_or(f64::NAN) / median))
                .collect();
            println!(
                "{shape:<11}{nodes:>9}{:>10}{width:>7}{:>10.0}{:>9.1}{:>7.0} %  {}",
                a.entries(),
                1e6 * median,
                rate / 1e9,
                100.0 * rate / copy,
                slower.join(", ")
            );
            lines.push(json!({
                "graph": shape, "vertices": nodes, "entries": a.entries(), "width": width,
                "us": 1e6 * median, "us_quartiles": [1e6 * low, 1e6 * high], "bytes": bytes,
                "gb_per_s": rate / 1e9, "share_of_copy": rate / copy, "peer_seconds": peers,
            }));
        }
    }
    options.write(head.with(json!({
        "copy_gb_per_s": copy / 1e9, "adjacency_of_20_steps_ms": 1e3 * adjacency_seconds, "products": lines,
    })))
}
