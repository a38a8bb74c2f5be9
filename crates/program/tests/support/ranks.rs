//! Trainings over ranks of one process, and what they leave.
use super::trainings::config;
use safetensors::{SafeTensors, tensor::TensorView};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::Mutex,
};
use tgnn::{
    error::Result,
    runtime::{
        Device,
        comm::{DEADLINE, TrafficKind},
    },
};
use tgnn_data::Events;
use tgnn_training::{
    model::{ApanConfig, JodieConfig, ModelName},
    plan::{Access, AccessKind},
    task::{self, Config, EventTask, RunOptions, Summary, Task, on_local_ranks},
};

/// Trains over `ranks` ranks, with `out` as the folder of the run.
pub fn train(
    ranks: usize,
    config: &Config,
    events: &Events,
    out: Option<&Path>,
    resume: bool,
) -> Result<Summary> {
    let options = RunOptions { out: out.map(Into::into), resume, ..RunOptions::default() };
    on_local_ranks(
        ranks,
        DEADLINE,
        |_| Device::cpu(1),
        |device| task::train(config, events, &device, &options, &mut ()),
    )
}

/// Returns the tensors in the file of an epoch, by name.
pub fn tensors(dir: &Path, epoch: usize) -> Vec<(String, Vec<u8>)> {
    let bytes = fs::read(dir.join(format!("checkpoint/epoch-{epoch}.safetensors"))).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let owned = |(name, view): (String, TensorView<'_>)| (name, view.data().to_vec());
    let mut all: Vec<_> = file.tensors().into_iter().map(owned).collect();
    all.sort();
    all
}

/// Returns the largest difference of two lists of f32, relative to the largest magnitude.
pub fn apart(a: &[u8], b: &[u8]) -> f32 {
    let [a, b]: [Vec<f32>; 2] = [a, b].map(bytemuck::pod_collect_to_vec);
    assert_eq!(a.len(), b.len());
    let largest = a.iter().fold(f32::MIN_POSITIVE, |m, x| m.max(x.abs()));
    a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max) / largest
}

/// Names of the tensors of node memory and mails.
pub const STATE: [&str; 6] = ["memory", "memory time", "mail", "mail event", "mail time", "next mail"];

/// Returns the configuration of a short training of a model.
pub fn of_model(model: ModelName, plan: &str, epochs: usize) -> Config {
    // Batches of 100 events do not divide evenly among three ranks.
    let jodie = JodieConfig { memory: 8, time: 8, ..JodieConfig::default() };
    let apan = ApanConfig { memory: 8, time: 8, mails: 3, neighbors: 4, ..ApanConfig::default() };
    Config { model, plan: plan.into(), batch: 100, eval_batch: 100, jodie, apan, ..config(epochs, 8) }
}

/// Writes a plan in which rows travel on a lane of their own, in so many parts, and returns its path.
pub fn parts_plan(dir: &Path, micro_batches: &str) -> String {
    let name = format!("parts-{}", micro_batches.trim_matches('"'));
    let ranks = format!("[ranks]\nupdate = \"readers\"\nmicro_batches = {micro_batches}\n");
    let path = dir.join(format!("{name}.toml"));
    fs::write(&path, format!("name = \"{name}\"\n{ranks}[stages.dispatch]\nlane = 2\n")).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Returns, for each rank, the rows that it sent for `kind` in a training pass, and the bytes; `open` opens
/// the device of a rank.
pub fn sent(
    ranks: usize,
    config: &Config,
    events: &Events,
    kind: TrafficKind,
    open: &(dyn Fn(usize) -> Result<Device> + Sync),
) -> Vec<(u64, u64)> {
    let of_rank = |device: Device| {
        let ranks = device.ranks().unwrap().clone();
        let mut task = EventTask::new(config, events, device)?;
        task.train_epoch(0, &mut |_| {})?;
        let own = [ranks.traffic().rows(kind) as f32, ranks.traffic().bytes(kind) as f32];
        let mut all = vec![0.0; 2 * ranks.size()];
        all[2 * ranks.rank()..][..2].copy_from_slice(&own);
        ranks.sum(&mut all)?;
        Ok(all.chunks_exact(2).map(|x| (x[0] as u64, x[1] as u64)).collect())
    };
    on_local_ranks(ranks, DEADLINE, open, of_rank).unwrap()
}

/// Writes a plan with these keys of `[ranks]` and these stages, and returns its path.
pub fn plan_file(dir: &Path, features: &str, ranks: &str, stages: &str) -> String {
    let path = dir.join(format!("{features}.toml"));
    let ranks = format!("[ranks]\nfeatures = \"{features}\"\n{ranks}");
    fs::write(&path, format!("name = \"{features}\"\n{ranks}\n{stages}")).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A configuration whose weights do not change, and without dropout, so that memory is the same in all
/// epochs.
pub fn frozen(model: ModelName, plan: &str, epochs: usize) -> Config {
    let mut config = Config { learning_rate: 1e-30, settle: false, ..of_model(model, plan, epochs) };
    (config.apan.dropout, config.dyrep.dropout) = (0.0, 0.0);
    config
}

/// Trains over ranks, on devices that `open` opens, until each of `copies` memory copies has been through the
/// training part. Returns their accesses to node memory, those of each pass after those of the one before,
/// with the number of batches and of the events on which all ranks together trained.
pub fn accessed_on(
    (ranks, copies): (usize, usize),
    open: &(dyn Fn(usize) -> Result<Device> + Sync),
    config: &Config,
    events: &Events,
) -> (Vec<Access>, usize, usize) {
    let all = Mutex::new(Vec::new());
    let work = |device: Device| {
        let mut task = EventTask::new(config, events, device)?;
        task.core_mut().trace();
        let mut trained = 0;
        for pass in 0..copies {
            trained += task.train_epoch(pass as u32, &mut |_| {})?.1;
            let after = |access: Access| Access {
                step: access.step + 1000 * pass,
                begin: access.begin + 1e6 * pass as f64,
                end: access.end + 1e6 * pass as f64,
                ..access
            };
            all.lock().unwrap().extend(task.plan_record().accesses.into_iter().map(after));
        }
        Ok((task.split.train.len().div_ceil(task.batch()), trained))
    };
    let (batches, trained) = match ranks {
        1 => work(open(0).unwrap()).unwrap(),
        _ => on_local_ranks(ranks, DEADLINE, open, work).unwrap(),
    };
    (all.into_inner().unwrap(), batches, trained)
}

/// Returns the order in which DistTGL's process serves the ranks of a copy of the memory in a pass over
/// `batches` (its algorithm 1): the set of ranks that read, those that write, those that read, ...
fn in_order(copy: usize, [i, j, _]: [usize; 3], batches: &[usize]) -> Vec<(AccessKind, BTreeSet<usize>)> {
    let of_batch = |batch: &usize| {
        let rank = (copy * j + batch % j) * i;
        let group: BTreeSet<usize> = (rank..rank + i).collect();
        [(AccessKind::Read, group.clone()), (AccessKind::Write, group)]
    };
    batches.iter().flat_map(of_batch).collect()
}

/// Checks a log against DistTGL's order.
pub fn check_log(log: &[Access], [i, j, k]: [usize; 3], batches: usize, what: &str) {
    for copy in 0..k {
        let of_copy: Vec<&Access> = log.iter().filter(|a| a.copy == copy).collect();
        // The order of the first reads and of the writes.
        let mut found: BTreeMap<(usize, AccessKind), BTreeSet<usize>> = BTreeMap::new();
        for access in of_copy.iter().filter(|a| a.repeat == 0) {
            let is_new = found.entry((access.step, access.kind)).or_default().insert(access.rank);
            assert!(is_new, "{what}: {access:?} is twice in the log");
        }
        let found: Vec<_> = found.into_iter().map(|((_, kind), ranks)| (kind, ranks)).collect();
        let rotated: Vec<usize> = (0..batches).map(|at| (copy * batches / k + at) % batches).collect();
        assert_eq!(found, in_order(copy, [i, j, k], &rotated), "{what}, copy {copy}");
        // Batches follow one another from where the copy begins; each is written once, and read j times.
        let mut written: Vec<(usize, usize)> =
            of_copy.iter().filter(|a| a.kind == AccessKind::Write).map(|a| (a.step, a.batch)).collect();
        written.sort_unstable();
        written.dedup();
        assert_eq!(written.iter().map(|w| w.1).collect::<Vec<_>>(), rotated, "{what}, copy {copy}");
        for batch in 0..batches {
            let reads = of_copy.iter().filter(|a| a.kind == AccessKind::Read && a.batch == batch);
            assert_eq!(reads.count(), i * j, "{what}, copy {copy}, batch {batch}");
        }
    }
    // On its own copy of the rows, each rank ends an access before the next one begins.
    for rank in 0..i * j * k {
        let mut own: Vec<&Access> = log.iter().filter(|a| a.rank == rank).collect();
        own.sort_by_key(|a| (a.step, a.kind));
        assert!(
            own.is_sorted_by(|a, b| a.begin <= a.end && a.end <= b.begin),
            "{what}, rank {rank}: {own:?}"
        );
    }
}
