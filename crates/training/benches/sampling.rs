//! Times temporal neighbour sampling alone, on streams of growing length: the cost of an event should not
//! grow with the length.
//!
//! ```sh
//! cargo bench --bench sampling                          # 10^5, 10^6 and 10^7 events
//! cargo bench --bench sampling -- 100000000             # 7 GB of memory
//! ```
//!
//! The streams are synthetic, with as many events per node as Wikipedia. A program processes the last million
//! events, or all if there are fewer, in batches of 600. The roots are the source, destination and negative
//! of each event; each samples its ten most recent neighbours, or ten uniform ones. The time is that of the
//! op, the median of five passes. Passes visit the events in order, so the cache holds the same data as in
//! training.
#[path = "../../../benches/report.rs"]
mod report;

use report::{Head, Options};
use serde_json::{Value, json};
use std::{error::Error, sync::Arc};
use tgnn::{
    autograd::Program,
    ops::{Backend, Tape, sample_neighbors::Strategy},
    runtime::{Device, Precision, Rows, Spec, Store},
};
use tgnn_data::SynthOptions;
use tgnn_training::model::EventTables;

const BATCH: usize = 600;
const NEIGHBORS: usize = 10;
/// Maximum number of events of a pass.
const MOST_VISITED: usize = 1_000_000;
const PASSES: usize = 5;

/// Returns the seconds of each pass over the end of the stream.
fn passes(store: &mut Store, tables: &EventTables, strategy: Strategy) -> Result<Vec<f64>, Box<dyn Error>> {
    let mut t = Tape::new(store);
    let batch = tables.next_batch(&mut t, BATCH)?;
    let pool: Vec<u32> = (0..tables.nodes as u32).collect();
    let pool = store.table("pool", Spec::ids(Rows::fixed(pool.len()), 1), Arc::new(pool))?;
    let pool = t.stored(pool)?;
    let negatives = t.draw_negatives(pool, batch.now, batch.src, 1, 0, 0)?;
    let query = t.roots(batch.src, batch.dst, batch.time, negatives)?;
    let how = tables.sampling(NEIGHBORS, strategy);
    let tcsr = tables.tcsr(&mut t)?;
    let near = t.sample_neighbors(tcsr, query, (batch.event, batch.now), 3, how)?;
    let mut program = Program::new(&t, &[near.count], Precision::F32, Backend::Cpu)?;
    let range = tables.events.saturating_sub(MOST_VISITED)..tables.events;
    let mut pass = || -> Result<f64, Box<dyn Error>> {
        tables.seek(store, 0, range.clone(), 0)?;
        program.profile();
        for _ in 0..range.len().div_ceil(BATCH) {
            program.run(store)?;
        }
        let times = program.op_times();
        let op = times
            .iter()
            .find(|t| t.op == "sample_neighbors")
            .ok_or("the program has no op `sample_neighbors`")?;
        Ok(op.seconds)
    };
    pass()?; // touches the tables for the first time
    (0..PASSES).map(|_| pass()).collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse("EVENTS...")?;
    let sizes: Vec<usize> = options.positional.iter().map(|n| n.parse()).collect::<Result<_, _>>()?;
    let sizes = if sizes.is_empty() { vec![100_000, 1_000_000, 10_000_000] } else { sizes };
    let device = Device::cpu(options.threads)?;
    let head = Head::new("sampling", &device);
    println!(
        "{}, {} threads; million events per second, each with three roots of {NEIGHBORS} neighbours\n",
        device.name(),
        device.threads()
    );
    println!("{:>12}{:>12}{:>10}{:>10}", "events", "nodes", "recent", "uniform");
    let mut rows = Vec::new();
    for events in sizes {
        let (sources, destinations) = ((events / 19).max(1), (events / 157).max(1));
        let made = SynthOptions { events, sources, destinations, edge_features: 0, ..Default::default() };
        let stream = tgnn_data::synth(&made)?;
        let mut store = Store::new(Precision::F32);
        let tables = EventTables::new(&mut store, &stream)?;
        let (nodes, visited) = (stream.nodes, events.min(MOST_VISITED));
        drop(stream);
        let mut rates = [0.0; 2];
        for (rate, (name, strategy)) in
            rates.iter_mut().zip([("recent", Strategy::Recent), ("uniform", Strategy::Uniform(1))])
        {
            let mut seconds = device.install(|| {
                device.keep_awake(|| passes(&mut store, &tables, strategy)).map_err(|e| e.to_string())
            })?;
            seconds.sort_unstable_by(f64::total_cmp);
            *rate = visited as f64 / seconds[PASSES / 2];
            rows.push(json!({
                "events": events, "nodes": nodes, "walked": visited, "batch": BATCH, "neighbors": NEIGHBORS, "sampling": name,
                "events_per_second": *rate, "seconds": seconds,
            }));
        }
        println!("{events:>12}{nodes:>12}{:>10.1}{:>10.1}", rates[0] / 1e6, rates[1] / 1e6);
    }
    options.write(head.with(json!({ "rows": Value::Array(rows) })))
}
