//! Steps that read older state: which version of it, on every lane, device and rank.
use crate::{
    plans,
    support::{
        devices::{device, drawn},
        ranks::{frozen, of_model},
        trainings::small,
    },
};
use std::{fs, ops::Range, path::Path};
use tgnn::{
    autograd::{
        Lanes, Optimizer, Order, Parameters, Placement, Program, ScaledInit, Stage, Staleness, UpdateRule,
    },
    error::{ErrorKind, Result},
    ops::{Tape, epilogue::Activation},
    runtime::{comm::DEADLINE, philox::Key, *},
};
use tgnn_data::Events;
use tgnn_training::{
    model::ModelName,
    plan::{
        Access, AccessKind, Choice, Plan, StageSeconds,
        partition::{DemandOptions, needed_nodes},
        stale_rows,
    },
    task::{Config, EventTask, HistoryRule, MixedRows, Task, on_local_ranks},
};

/// Number of rows of the table that the program of [`Versions`] reads and writes.
const ROWS: usize = 5;

/// A program that reads a row of a table, adds a weight to it, writes the sum back and to a trace, and
/// updates the weight by a slope of the step. All numbers are small integers, so every sum is exact.
struct Versions {
    store: Store,
    program: Program,
    trace: BufferId,
    /// Row and slope of each step.
    steps: Vec<(usize, f32)>,
}

impl Versions {
    fn new(steps: usize, device: &Device, lanes: Lanes) -> Result<Self> {
        let key = Key::new(3, 1, [0, 0]);
        let drawn = |step: usize| {
            let [row, slope, ..] = key.draw(step as u64);
            (row as usize % ROWS, (slope % 3) as f32 - 1.0)
        };
        let drawn: Vec<(usize, f32)> = (0..steps).map(drawn).collect();
        let mut store = Store::new(Precision::F32);
        let ids = |n| Spec::ids(Rows::fixed(n), 1);
        let numbers = |n| Spec::real(Rows::fixed(n), 1);
        let order = store.values("order", ids(steps), &(0..steps as u32).collect::<Vec<_>>())?;
        let clock = store.zeros("clock", Spec::ids(Rows::fixed(1), 2))?;
        let rows: Vec<u32> = drawn.iter().map(|step| step.0 as u32).collect();
        let rows = store.values("rows", ids(steps), &rows)?;
        let slopes: Vec<f32> = drawn.iter().map(|step| step.1).collect();
        let slopes = store.values("slopes", numbers(steps), &slopes)?;
        let state = store.zeros("state", numbers(ROWS))?;
        let trace = store.zeros("trace", numbers(steps))?;
        let one = store.values("one", numbers(1), &[1.0f32])?;
        let sgd = UpdateRule::Sgd { momentum: 0.0, decay: Default::default() };
        let sgd = Optimizer { rule: sgd, ..Optimizer::default() };
        let mut parameters = Parameters::with_optimizer(&mut store, 1, 1.0, sgd)?;
        let w = parameters.add(&mut store, "w", 1, 1, ScaledInit::Constant(0.0))?;
        let mut t = Tape::new(&store);
        let [order, clock, rows, slopes, table] = t.stored_all([order, clock, rows, slopes, state])?;
        let [out, one, w] = t.stored_all([trace, one, w])?;
        let group = t.next_group(order, clock, 1)?;
        let row = t.gather_rows(rows, group.target)?;
        let slope = t.gather_rows(slopes, group.target)?;
        let read = t.gather_rows(table, row)?;
        let sum = t.linear(read, one, Some(w), None, Activation::Identity)?;
        // The gradient of the weight is the slope.
        let loss = t.linear(slope, w, None, None, Activation::Identity)?;
        parameters.minimize(&mut t, loss)?;
        t.write_rows(table, row, sum)?;
        t.write_rows(out, group.index, sum)?;
        let program = Program::on_lanes(&t, &[], Precision::F32, device, lanes)?;
        Ok(Versions { store, program, trace, steps: drawn })
    }
    /// Returns the sum of each step, whether in one pass or in several of these lengths.
    fn ran(&mut self, passes: &[usize]) -> Vec<f32> {
        for &steps in passes {
            self.program.repeat(&mut self.store, steps, &mut |_| {}).map_err(|e| e.1).unwrap();
        }
        self.store.fetch(&[self.trace]).unwrap();
        self.store.read::<f32>(self.trace).unwrap().to_vec()
    }
    /// Returns the same by the definition: with every version of the table and of the weight kept.
    fn defined(&self, passes: &[usize], Staleness { memory, weights }: Staleness) -> Vec<f32> {
        let (mut tables, mut values) = (vec![[0.0; ROWS]], vec![0.0]);
        let (mut sums, mut first) = (Vec::new(), 0);
        for &steps in passes {
            for step in first..first + steps {
                // Version n is what n steps have left.
                let [table, weight] = [memory, weights].map(|k| step.saturating_sub(k).max(first));
                let (row, slope) = self.steps[step];
                sums.push(tables[table][row] + values[weight]);
                let (mut table, value) = (tables[step], values[step] - slope);
                table[row] = sums[step];
                tables.push(table);
                values.push(value);
            }
            first += steps;
        }
        sums
    }
}

/// Returns lanes with every stage on the first one, and lanes with stages on one to five of them, some
/// prefetched.
fn lanes(staleness: Staleness) -> impl Iterator<Item = Lanes> {
    let drawn = (1..40).map(move |seed| {
        let key = Key::new(5, 9, [seed, 0]);
        Stage::ALL.map(|stage| {
            let [lane, prefetched, depth, _] = key.draw(stage as u64);
            let prefetch_depth = if prefetched.is_multiple_of(5) { depth as usize % 3 } else { 0 };
            Placement { lane: lane as usize % (1 + seed as usize % 5), prefetch_depth }
        })
    });
    let placements = std::iter::once([Placement::default(); Stage::ALL.len()]).chain(drawn);
    placements.map(move |placements| Lanes::Stages {
        placements,
        staleness,
        ahead: placements[0].lane,
        order: Order::Program,
    })
}

/// Returns kinds of staleness.
fn kinds() -> impl Iterator<Item = Staleness> {
    let kind = |(memory, weights)| Staleness { memory, weights };
    [(0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 3), (4, 2), (3, 7)].into_iter().map(kind)
}

#[test]
fn a_step_reads_exactly_the_version_of_memory_and_weights_that_its_staleness_says_on_any_lanes() {
    let (mut legal, mut illegal) = (0, 0);
    for staleness in kinds() {
        for (at, lanes) in lanes(staleness).enumerate() {
            let cpu = Device::cpu(1 + at % 2).unwrap();
            // A window has some 500 steps.
            let passes: &[usize] = if at.is_multiple_of(8) { &[1300, 1, 2, 700] } else { &[40, 1, 3] };
            match Versions::new(passes.iter().sum(), &cpu, lanes) {
                Ok(mut versions) => {
                    legal += 1;
                    let want = versions.defined(passes, staleness);
                    assert_eq!(versions.ran(passes), want, "{lanes:?}, {passes:?}");
                    // Profiled, node by node.
                    let mut versions = Versions::new(want.len(), &cpu, lanes).unwrap();
                    versions.program.profile();
                    assert_eq!(versions.ran(passes), want, "{lanes:?}, {passes:?}, profiled");
                }
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::Plan, "{e}");
                    illegal += 1;
                }
            }
        }
    }
    assert!(legal > 60 && illegal > 20, "{legal} legal, {illegal} illegal");
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu, or a GPU and TGNN_TEST_DEVICE=cuda")]
fn a_captured_graph_keeps_the_versions_under_every_schedule() {
    let Some(on) = device(0) else { return };
    let gpu = on.device();
    for (case, staleness) in kinds().enumerate() {
        // The first use of a window is launched, the later ones are a graph.
        let passes = [30, 30, 30, 7];
        for (at, lanes) in lanes(staleness).enumerate().skip(case % 4).step_by(4) {
            let Ok(mut versions) = Versions::new(passes.iter().sum(), &gpu, lanes) else { continue };
            let want = versions.defined(&passes, staleness);
            for (_, seed) in drawn(at, 1, 4) {
                on.schedule(seed + at as u64);
                let mut versions = Versions::new(want.len(), &gpu, lanes).unwrap();
                assert_eq!(versions.ran(&passes), want, "{lanes:?}, seed {seed}");
            }
            versions.program.profile();
            assert_eq!(versions.ran(&passes), want, "{lanes:?}, profiled");
        }
    }
}

/// Models with node memory.
const MODELS: [ModelName; 4] = [ModelName::Tgn, ModelName::Jodie, ModelName::DyRep, ModelName::Apan];

/// Writes a plan with this staleness and memory over ranks, and MSPipe's lanes; returns its path.
fn plan_of(dir: &Path, [memory, gradients]: [usize; 2], ranks: &str) -> String {
    let stages = "[stages.sample]\nlane = 2\nprefetch_depth = 1\n[stages.fetch_features]\nlane = 3\n\
                  [stages.fetch_memory]\nlane = 3\n[stages.write_memory]\nlane = 4\n";
    let name = format!("{memory}-{gradients}-{}", ranks.len());
    let staleness = format!("[staleness]\nmemory = {memory}\ngradients = {gradients}\n");
    let path = dir.join(format!("{name}.toml"));
    let ranks = if ranks.is_empty() { String::new() } else { format!("[ranks]\n{ranks}\n") };
    fs::write(&path, format!("name = \"{name}\"\n{staleness}{ranks}{stages}")).unwrap();
    path.to_str().unwrap().into()
}

/// Returns the state of the nodes, whole, after an epoch.
fn state_after(config: &Config, events: &Events, device: Device) -> Result<Vec<Vec<u8>>> {
    let mut task = EventTask::new(config, events, device)?;
    task.train_epoch(0, &mut |_| {})?;
    let state = task.core().nodes.buffers.clone();
    task.core.store.fetch(&state)?;
    state.iter().map(|&id| Ok(task.core.store.raw(id)?.to_vec())).collect()
}

/// The rows of a table that belong to a node.
fn rows_of(node: u32, table: &[u8], nodes: usize) -> Range<usize> {
    let bytes = table.len() / nodes;
    node as usize * bytes..(node as usize + 1) * bytes
}

/// Returns the state of the nodes after an epoch with this memory staleness by the definition: each batch is
/// trained on a copy of the state as it was, and the rows of its sources and destinations are kept.
fn defined_state(config: &Config, events: &Events, staleness: usize) -> Vec<Vec<u8>> {
    let mut task = EventTask::new(config, events, Device::cpu(1).unwrap()).unwrap();
    let (train, batch, nodes) = (task.split.train.clone(), task.batch(), events.nodes);
    let state = task.core().nodes.buffers.clone();
    let read = |task: &EventTask| -> Vec<Vec<u8>> {
        state.iter().map(|&id| task.core.store.raw(id).unwrap().to_vec()).collect()
    };
    // Version n is what n batches have left.
    let mut versions = vec![read(&task)];
    for (at, first) in train.clone().step_by(batch).enumerate() {
        let range = first..train.end.min(first + batch);
        task.core_mut().nodes.own = Some(versions[at.saturating_sub(staleness)].clone());
        task.split.train = range.clone();
        task.train_epoch(0, &mut |_| {}).unwrap();
        let (new, mut kept) = (read(&task), versions[at].clone());
        for node in range.flat_map(|event| [events.src[event], events.dst[event]]) {
            for (kept, new) in kept.iter_mut().zip(&new) {
                let rows = rows_of(node, new, nodes);
                kept[rows.clone()].copy_from_slice(&new[rows]);
            }
        }
        versions.push(kept);
    }
    versions.pop().unwrap()
}

#[test]
fn with_frozen_weights_memory_is_that_of_the_definition_for_any_staleness_lanes_and_ranks() {
    let (events, dir) = (small(500), tempfile::tempdir().unwrap());
    for model in MODELS {
        for k in [1, 2, 5] {
            let config = |plan: &str| Config { batch: 30, eval_batch: 30, ..frozen(model, plan, 1) };
            let fixed = config(&format!("mspipe:k={k}"));
            let want = state_after(&fixed, &events, Device::cpu(1).unwrap()).unwrap();
            // The mails of APAN go to neighbours, too, and a mailbox depends on how many it has got.
            if model != ModelName::Apan {
                assert_eq!(want, defined_state(&config("sequential"), &events, k), "{model:?}, {k}");
            }
            assert_ne!(want, state_after(&config("sequential"), &events, Device::cpu(1).unwrap()).unwrap());
            let four = state_after(&fixed, &events, Device::cpu(4).unwrap()).unwrap();
            assert_eq!(four, want, "{model:?}, {k}, four threads");
            let mut over = vec!["memory = \"replicated\"", "memory = \"partitioned\"\nupdate = \"readers\""];
            if model != ModelName::Apan {
                over.push("memory = \"partitioned\"\nupdate = \"owners\"");
                over.push("memory = \"partitioned\"\nupdate = \"readers\"\nmicro_batches = 3");
            }
            for ranks in over {
                let config = config(&plan_of(dir.path(), [k, 0], ranks));
                for size in [2, 3] {
                    let whole = |device: Device| {
                        let mut task = EventTask::new(&config, &events, device)?;
                        task.train_epoch(0, &mut |_| {})?;
                        let tables = task.core().nodes.ranks.clone().unwrap();
                        let state = task.core().nodes.buffers.clone();
                        let rows = state.iter().map(|&id| Ok(task.core.store.raw(id)?.to_vec()));
                        let rows = rows.collect::<Result<Vec<_>>>()?;
                        let own = tables.own().iter().enumerate().map(|(at, &node)| (at as u32, node));
                        for (at, node) in own {
                            for (own, want) in rows.iter().zip(&want) {
                                let own = &own[rows_of(at, own, tables.own().len())];
                                let same = own == &want[rows_of(node, want, events.nodes)];
                                assert!(same, "{model:?}, {k}, {ranks}, {size} ranks: node {node}");
                            }
                        }
                        Ok(())
                    };
                    on_local_ranks(size, DEADLINE, |_| Device::cpu(1), whole).unwrap();
                }
            }
        }
    }
}

#[test]
fn training_with_older_state_has_the_same_bits_on_any_lanes_and_as_many_ranks_as_one_would() {
    let (events, dir) = (small(500), tempfile::tempdir().unwrap());
    for (model, kind) in MODELS.into_iter().zip([[1, 0], [3, 2], [2, 1], [0, 4]]) {
        let [memory, _] = kind;
        let history = if memory % 2 == 0 { HistoryRule::Time } else { HistoryRule::Batch };
        let config = |plan: &str| Config { batch: 30, eval_batch: 30, history, ..of_model(model, plan, 1) };
        let [memory, gradients] = kind;
        let one_lane = dir.path().join("one-lane.toml");
        let text = format!("name = \"x\"\n[staleness]\nmemory = {memory}\ngradients = {gradients}\n");
        fs::write(&one_lane, text).unwrap();
        let one_lane = config(one_lane.to_str().unwrap());
        let several = config(&plan_of(dir.path(), kind, ""));
        let cpu = |threads| Device::cpu(threads).unwrap();
        let (losses, state) = plans::trained(&several, &events, &cpu(2), true);
        assert!(plans::trained(&one_lane, &events, &cpu(1), true) == (losses.clone(), state), "{model:?}");
        let replicated = config(&plan_of(dir.path(), kind, "memory = \"replicated\""));
        let of_rank = |device: Device| {
            let mut task = EventTask::new(&replicated, &events, device)?;
            let over_ranks: Vec<f64> =
                (0..2).map(|epoch| Ok(task.train_epoch(epoch, &mut |_| {})?.0)).collect::<Result<_>>()?;
            for (own, one) in over_ranks.iter().zip(&losses) {
                assert!((own - one).abs() < 1e-5, "{model:?}: {over_ranks:?} {losses:?}");
            }
            Ok(())
        };
        on_local_ranks(2, DEADLINE, |_| Device::cpu(1), of_rank).unwrap();
    }
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu, or a GPU and TGNN_TEST_DEVICE=cuda")]
fn devices_read_the_same_versions_in_a_captured_graph() {
    let Some(on) = device(0) else { return };
    let (events, dir) = (small(400), tempfile::tempdir().unwrap());
    for (case, (model, kind)) in MODELS.into_iter().zip([[2, 1], [1, 0], [4, 0], [1, 2]]).enumerate() {
        let plan = plan_of(dir.path(), kind, "");
        let config = Config { batch: 30, eval_batch: 30, ..frozen(model, &plan, 1) };
        let want = state_after(&config, &events, Device::cpu(1).unwrap()).unwrap();
        for (_, seed) in drawn(case, 1, 4) {
            on.schedule(seed + case as u64);
            let found = state_after(&config, &events, on.device()).unwrap();
            // Kernels add up in another order than the processor.
            for (found, want) in found.iter().zip(&want) {
                let differ = found.chunks(4).zip(want.chunks(4)).filter(|(a, b)| {
                    let [a, b] = [a, b].map(|x| f32::from_le_bytes([x[0], x[1], x[2], x[3]]));
                    a.to_bits() != b.to_bits() && (a - b).abs() > 1e-4 * (1.0 + b.abs())
                });
                assert_eq!(differ.count(), 0, "{model:?}, {kind:?}, seed {seed}");
            }
        }
    }
}

#[test]
fn no_row_misses_more_writes_than_the_staleness_and_the_shares_are_those_of_the_data() {
    let events = small(3000);
    for model in MODELS {
        for k in [1, 2, 4] {
            let config = Config { batch: 40, eval_batch: 40, ..of_model(model, &format!("mspipe:k={k}"), 1) };
            let mut task = EventTask::new(&config, &events, Device::cpu(2).unwrap()).unwrap();
            task.core_mut().trace();
            task.train_epoch(0, &mut |_| {}).unwrap();
            let missed = task.plan_record().staleness.unwrap().missed_writes;
            assert_eq!(missed.len(), k + 1, "{model:?}: {missed:?}");
            // Batches of the whole part, with negatives of another draw.
            let around = if model == ModelName::Tgn { config.tgn.neighbors } else { 0 };
            let options =
                DemandOptions { ranks: 1, batch: 40, neighbors: around, ..DemandOptions::default() };
            let needed = needed_nodes(&events, task.split.train.clone(), &options).unwrap();
            let shares = stale_rows(&events, task.split.train.clone(), 40, 1000, needed).unwrap();
            let share = missed[1..].iter().sum::<u64>() as f64 / missed.iter().sum::<u64>() as f64;
            let same = model == ModelName::DyRep || (share - shares[k - 1]).abs() < 0.05;
            assert!(same, "{model:?}, {k}: {share} {shares:?}");
            // Every fetch begins after the last write that it must see; that it ends before the first one
            // that it must not see is checked op by op, in the test of lanes.
            let log = task.plan_record().accesses;
            let of = |kind| log.iter().filter(move |access| access.kind == kind);
            let writes: Vec<&Access> = of(AccessKind::Write).collect();
            for read in of(AccessKind::Read).filter(|read| read.step > k) {
                let (seen, unseen) = (writes[read.step - 1 - k], writes[read.step - k]);
                assert!(seen.end <= read.begin && read.begin <= unseen.begin, "{read:?} {seen:?} {unseen:?}");
            }
        }
    }
}

#[test]
fn the_least_staleness_is_found_while_a_run_trains_and_kept_to() {
    let events = small(3000);
    let config = Config { batch: 4, eval_batch: 4, ..of_model(ModelName::Tgn, "mspipe", 2) };
    let mut task = EventTask::new(&config, &events, Device::cpu(2).unwrap()).unwrap();
    for epoch in 0..2 {
        task.train_epoch(epoch, &mut |_| {}).unwrap();
    }
    let Some(Choice::Staleness(choice)) = task.plan_record().chosen else { panic!("a choice") };
    assert_eq!(choice.steps.iter().sum::<usize>(), 2 * task.steps());
    assert!(choice.steps.len() > 1 && choice.steps.len() <= choice.most + 1, "{choice:?}");
    let StageSeconds { sample, memory, train, write, .. } = choice.seconds;
    assert!([sample, memory, train, write].iter().all(|&seconds| seconds > 0.0), "{choice:?}");
    assert!(task.plan_record().staleness.unwrap().missed_writes.len() <= choice.most + 1);
    // Ranks agree on it.
    let of_rank = |device: Device| {
        let mut task = EventTask::new(&config, &events, device)?;
        task.train_epoch(0, &mut |_| {})?;
        assert!(task.plan_record().chosen.is_some());
        Ok(())
    };
    on_local_ranks(2, DEADLINE, |_| Device::cpu(1), of_rank).unwrap();
    let fixed = Config { deterministic: true, ..config };
    let e = EventTask::new(&fixed, &events, Device::cpu(1).unwrap()).unwrap_err();
    assert!(e.to_string().contains("deterministic is set; give a staleness"), "{e}");
}

#[test]
fn what_cannot_be_combined_is_refused_with_the_rule() {
    let refused = |text: &str| Plan::parse(&format!("name = \"x\"\n{text}")).unwrap_err().to_string();
    let text = refused("[staleness]\nmemory = 9");
    assert_eq!(text, "plan x: staleness.memory is 9; give 0 to 8");
    let text = refused("[staleness]\ngradients = 64");
    assert_eq!(text, "plan x: staleness.gradients is 64; give 0 to 8");
    let text = refused("[staleness]\nmemory = \"most\"");
    assert!(text.contains("a number of steps, 0 to 8, or \"minimal\""), "{text}");
    let text = refused("[staleness]\nmemory = 1\n[ranks]\nmemory = \"cached\"\nupdate = \"readers\"");
    assert!(text.contains("rows newer than its copies; give ranks.memory = \"partitioned\""), "{text}");
    let text =
        refused("[staleness]\nmemory = 1\n[ranks]\nmemory = \"replicated\"\n[ranks.parallel]\nmemory = 2");
    assert!(text.contains("would read the end of the stream"), "{text}");
    let text = refused("[staleness]\nmemory = 1\n[groups]\nfirst = \"even\"");
    assert!(text.contains("groups and staleness are both given"), "{text}");
    // On the lane of the write, a fetch can be neither earlier nor later than its version.
    let text = refused(
        "[staleness]\nmemory = 1\n[stages.sample]\nlane = 2\nprefetch_depth = 3\n\
                        [stages.fetch_memory]\nprefetch_depth = 1",
    );
    assert!(text.contains("comes before write_memory of 2 steps before, which it needs"), "{text}");
    let text = refused("[staleness]\nmitigation = \"similar\"\n[ranks]\n");
    assert!(text.contains("counts the common neighbours of its events alone"), "{text}");
    let events = small(300);
    let over = |device| EventTask::new(&of_model(ModelName::Tgn, "mspipe-s", 1), &events, device).map(drop);
    let text = on_local_ranks(2, DEADLINE, |_| Device::cpu(1), over).unwrap_err().to_string();
    assert!(text.contains("train on one rank, or give --plan mspipe"), "{text}");
    for name in ["mspipe:k=9", "mspipe:2", "mspipe:k=", "mspipe-s:k=9"] {
        let text = Plan::named(name).unwrap_err().to_string();
        let family = name.split(':').next().unwrap();
        let want = format!("is no staleness; give {family}:k=0 to {family}:k=8");
        assert!(text.contains(&want), "{text}");
    }
}

#[test]
fn mixing_rows_with_those_of_similar_nodes_brings_the_stale_ones_nearer_to_what_they_should_be() {
    let events = small(3000);
    for model in MODELS {
        let config = Config { batch: 10, eval_batch: 10, ..of_model(model, "mspipe-s:k=3", 2) };
        let cpu = |threads| Device::cpu(threads).unwrap();
        let mut task = EventTask::new(&config, &events, cpu(1)).unwrap();
        for epoch in 0..2 {
            task.train_epoch(epoch, &mut |_| {}).unwrap();
        }
        let MixedRows { all, stale } = task.plan_record().staleness.unwrap().mixed.unwrap();
        assert!(
            stale.rows > 5.0 && stale.rows < all.rows && all.before == stale.before,
            "{model:?}: {all:?}"
        );
        // The rows of APAN are its last outputs, and no sum over a node's events: their means tell less.
        assert!(stale.after < stale.before || model == ModelName::Apan, "{model:?}: {stale:?}");
        let trained = plans::trained(&config, &events, &cpu(4), true);
        assert!(plans::trained(&config, &events, &cpu(1), true) == trained, "{model:?}");
        let without = Config { plan: "mspipe:k=3".into(), ..config };
        assert!(plans::trained(&without, &events, &cpu(1), false) != trained, "{model:?}");
    }
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu, or a GPU and TGNN_TEST_DEVICE=cuda")]
fn devices_find_the_same_similar_nodes() {
    let Some(on) = device(0) else { return };
    let events = small(1200);
    for (case, model) in [ModelName::Tgn, ModelName::Apan].into_iter().enumerate() {
        let config = Config { batch: 20, eval_batch: 20, ..of_model(model, "mspipe-s:k=2", 1) };
        let mixed = |device| {
            let mut task = EventTask::new(&config, &events, device).unwrap();
            let loss = task.train_epoch(0, &mut |_| {}).unwrap().0;
            (task.plan_record().staleness.unwrap(), loss)
        };
        let (want, want_loss) = mixed(Device::cpu(1).unwrap());
        for (_, seed) in drawn(case, 1, 4) {
            on.schedule(seed);
            let (found, loss) = mixed(on.device());
            assert_eq!(found.missed_writes, want.missed_writes);
            let [found, want] = [found, want.clone()].map(|record| record.mixed.unwrap());
            assert_eq!((found.all.rows, found.stale.rows), (want.all.rows, want.stale.rows));
            assert!(want.all.rows > 5.0 && (loss - want_loss).abs() < 1e-3, "{loss} {want_loss}");
            assert!((found.all.after / want.all.after - 1.0).abs() < 1e-3, "{found:?} {want:?}");
        }
    }
}
