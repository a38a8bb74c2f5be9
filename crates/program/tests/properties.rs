//! Properties of every stream: no leakage, unique nodes that represent all their occurrences, the same bits
//! however a run is threaded or interrupted, checkpoints that load completely or not at all.
use crate::support::{
    program::listing,
    trainings::{config, found, run, small, stream},
};
use proptest::prelude::*;
use std::{fs, path::Path};
use tgnn::ops::write_memory::Combiner;
use tgnn::{
    autograd::Program,
    error::ErrorKind,
    ops::{
        Backend, Tape,
        sample_neighbors::{History, Neighbors, Strategy as Draw},
    },
    runtime::*,
};
use tgnn_data::{Events, Features};
use tgnn_training::model::{CellKind, TimeStart};
use tgnn_training::{
    model::EventTables,
    task::{self, Checkpoint, Config, EpochRecord, EventTask, Protocol, Scores, Summary, Task},
};

/// Streams among few nodes, in which most events have the time of the event before.
fn any_stream() -> impl Strategy<Value = Events> {
    let event = (0usize..64, 0usize..64, prop_oneof![3 => Just(0i64), 2 => 1i64..4]);
    (1usize..9, proptest::collection::vec(event, 1..90)).prop_map(|(nodes, events)| {
        let ends: Vec<(usize, usize)> = events.iter().map(|e| (e.0, e.1)).collect();
        let mut now = -events[0].2;
        let time = events.iter().map(|e| {
            now += e.2;
            now
        });
        stream(nodes, &ends, time.collect())
    })
}

/// A query and its sampled slots: other end, event, seconds.
struct Sampled {
    node: u32,
    time: i64,
    /// First event of the batch.
    first: usize,
    slots: Vec<(u32, u32, f32)>,
}

/// Samples neighbours for the roots of every batch, once as roots, whose position in the adjacency is known,
/// and once as free queries, which search for it.
fn sample(
    events: &Events,
    capacity: usize,
    k: usize,
    draw: Draw,
    history: History,
    negatives: &[u32],
) -> [Vec<Sampled>; 2] {
    let mut store = Store::new(Precision::F32);
    let mut tables = EventTables::new(&mut store, events).unwrap();
    tables.history = history;
    let negatives: Vec<u32> =
        (0..events.len()).map(|i| negatives[i % negatives.len()] % events.nodes as u32).collect();
    let negatives = store.values("negatives", Spec::ids(Rows::fixed(events.len()), 1), &negatives).unwrap();
    let mut t = Tape::new(&store);
    let batch = tables.next_batch(&mut t, capacity).unwrap();
    let negatives = t.stored(negatives).unwrap();
    let negatives = t.gather_rows(negatives, batch.event).unwrap();
    let (node, time) = t.roots(batch.src, batch.dst, batch.time, negatives).unwrap();
    let tcsr = tables.tcsr(&mut t).unwrap();
    let how = tables.sampling(k, draw);
    let near = [3, 0]
        .map(|stride| t.sample_neighbors(tcsr, (node, time), (batch.event, batch.now), stride, how).unwrap());
    let outputs = near.iter().flat_map(|n| [n.node, n.event, n.dt, n.time, n.count]);
    let keep: Vec<Var> = [batch.event, node, time].into_iter().chain(outputs).collect();
    let mut program = Program::new(&t, &keep, Precision::F32, Backend::Cpu).expect("room");
    tables.seek(&mut store, 0, 0..events.len(), 0).unwrap();
    let mut results = [Vec::new(), Vec::new()];
    for first in (0..events.len()).step_by(capacity) {
        program.run(&mut store).unwrap();
        let (nodes, times) =
            (program.read::<u32>(node, &store).unwrap(), program.read::<i64>(time, &store).unwrap());
        assert_eq!(nodes.len(), 3 * capacity.min(events.len() - first));
        for (result, near) in results.iter_mut().zip(near) {
            let Neighbors { node, event, dt, time, count } = near;
            let (node, event) =
                (program.read::<u32>(node, &store).unwrap(), program.read::<u32>(event, &store).unwrap());
            let (dt, count) =
                (program.read::<f32>(dt, &store).unwrap(), program.read::<u32>(count, &store).unwrap());
            let time = program.read::<i64>(time, &store).unwrap();
            result.extend((0..nodes.len()).map(|i| {
                let used = i * k + count[i] as usize;
                assert!(node[used..(i + 1) * k].iter().chain(&event[used..(i + 1) * k]).all(|&v| v == NONE));
                assert!(dt[used..(i + 1) * k].iter().all(|&dt| dt == 0.0));
                assert!(time[used..(i + 1) * k].iter().all(|&time| time == 0));
                assert!((i * k..used).all(|s| time[s] == events.time[event[s] as usize]));
                let slots = (i * k..used).map(|s| (node[s], event[s], dt[s])).collect();
                Sampled { node: nodes[i], time: times[i], first, slots }
            }));
        }
    }
    results
}

/// Returns every event that the query may see, latest first: events with strictly earlier times, and of
/// earlier batches if only they count.
fn legal(events: &Events, history: History, s: &Sampled) -> Vec<(u32, u32, f32)> {
    let touches = |i: &usize| events.src[*i] == s.node || events.dst[*i] == s.node;
    let slot = |i: usize| {
        let other = if events.src[i] == s.node { events.dst[i] } else { events.src[i] };
        (other, i as u32, (s.time - events.time[i]) as f32 * 0.5)
    };
    let end = if history == History::Batch { s.first } else { events.len() };
    (0..end).rev().filter(touches).filter(|&i| events.time[i] < s.time).map(slot).collect()
}

proptest! {
    #[test]
    fn the_most_recent_neighbours_equal_a_naive_search_by_time_or_in_earlier_batches(
        events in any_stream(), capacity in 1usize..30, k in 1usize..6, by_time: bool,
        negatives in proptest::collection::vec(0u32..64, 1..20),
    ) {
        let history = if by_time { History::Time } else { History::Batch };
        for sampled in sample(&events, capacity, k, Draw::Recent, history, &negatives) {
            prop_assert_eq!(sampled.len(), 3 * events.len());
            for s in sampled {
                let mut want = legal(&events, history, &s);
                want.truncate(k);
                prop_assert_eq!(s.slots, want);
            }
        }
    }

    #[test]
    fn a_uniform_draw_takes_only_legal_events_and_all_of_them_if_they_fit(
        events in any_stream(), capacity in 1usize..30, k in 1usize..6, seed: u64, by_time: bool,
        negatives in proptest::collection::vec(0u32..64, 1..20),
    ) {
        let history = if by_time { History::Time } else { History::Batch };
        for sampled in sample(&events, capacity, k, Draw::Uniform(seed), history, &negatives) {
            for s in sampled {
                let legal = legal(&events, history, &s);
                if legal.len() <= k {
                    prop_assert_eq!(s.slots, legal);
                } else {
                    prop_assert_eq!(s.slots.len(), k);
                    prop_assert!(s.slots.iter().all(|slot| legal.contains(slot)));
                }
            }
        }
    }

    #[test]
    fn every_event_comes_once_per_epoch_and_in_order_wherever_the_first_batch_ends(
        events in any_stream(), capacity in 1usize..30, chunks in 1usize..9, seed: u64, from in 0usize..90,
    ) {
        let range = from.min(events.len())..events.len();
        let mut store = Store::new(Precision::F32);
        let tables = EventTables::new(&mut store, &events).unwrap();
        let mut t = Tape::new(&store);
        let batch = tables.next_batch(&mut t, capacity).unwrap();
        let kept = [batch.event, batch.row, batch.src, batch.index];
        let mut program = Program::new(&t, &kept, Precision::F32, Backend::Cpu).expect("room");
        for epoch in 0..3 {
            let first = task::first_batch(seed, epoch, capacity, chunks);
            tables.seek(&mut store, epoch, range.clone(), capacity - first).unwrap();
            let (mut seen, batches) = (Vec::new(), task::batches(range.len(), capacity, first));
            for at in 0..batches {
                program.run(&mut store).unwrap();
                let read = |v| program.read::<u32>(v, &store).unwrap();
                let event = read(batch.event);
                let left = range.len() - seen.len();
                prop_assert_eq!(event.len(), left.min(if at == 0 { first } else { capacity }));
                let ranks: Vec<u32> = event.iter().map(|e| e - range.start as u32).collect();
                prop_assert_eq!((read(batch.row), read(batch.index)), (&ranks[..], &[at as u32][..]));
                prop_assert!(read(batch.src).iter().zip(event).all(|(&v, &e)| v == events.src[e as usize]));
                seen.extend_from_slice(event);
            }
            prop_assert_eq!(seen, range.clone().map(|e| e as u32).collect::<Vec<_>>());
            program.run(&mut store).unwrap();
            prop_assert!(program.read::<u32>(batch.event, &store).unwrap().is_empty(), "one batch more is empty");
        }
    }

    #[test]
    fn rows_of_the_unique_nodes_represent_all_occurrences_and_phi_is_the_latest_positive_root(
        nodes in 1usize..20, roots in proptest::collection::vec(0usize..64, 0..60),
        others in proptest::collection::vec(proptest::option::of(0usize..64), 0..80), negatives in 1usize..4,
    ) {
        let stride = 2 + negatives;
        let roots: Vec<u32> = roots.iter().map(|v| (v % nodes) as u32).collect();
        let roots = &roots[..roots.len() / stride * stride];
        let others: Vec<u32> = others.iter().map(|v| v.map_or(NONE, |v| (v % nodes) as u32)).collect();
        let mut store = Store::new(Precision::F32);
        let mut t = Tape::new(&store);
        let ids = |store: &mut Store, name: &str, v: &[u32]| store.values(name, Spec::ids(Rows::fixed(v.len()), 1), v).unwrap();
        let stamp = ids(&mut store, "stamp", &vec![0; nodes]);
        let (root, other) = (ids(&mut store, "roots", roots), ids(&mut store, "others", &others));
        let features = Features::random(nodes, 3, 1);
        let table = store.values("features", Spec::real(Rows::fixed(nodes), 3), features.values()).unwrap();
        let [stamped, root, other, table] = t.stored_all([stamp, root, other, table]).unwrap();
        let unique = t.unique(stamped, root, &[other], stride).unwrap();
        let rows = t.gather_rows(table, unique.node).unwrap();
        let through = t.gather_rows(rows, unique.psi[0]).unwrap();
        let direct = t.gather_rows(table, root).unwrap();
        let keep =
            [unique.node, unique.phi, unique.positives, unique.psi[0], unique.psi[1], through, direct];
        let mut program = Program::new(&t, &keep, Precision::F32, Backend::Cpu).expect("room");
        // Two runs: the first must leave the stamps as it found them.
        for _ in 0..2 {
            program.run(&mut store).unwrap();
            let bits = |v| program.read::<f32>(v, &store).unwrap().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(through), bits(direct));
            let read = |v| program.read::<u32>(v, &store).unwrap();
            let (node, phi) = (read(unique.node), read(unique.phi));
            let positives = read(unique.positives)[0] as usize;
            for (ids, psi) in [(roots, unique.psi[0]), (&others, unique.psi[1])] {
                for (&id, &row) in ids.iter().zip(read(psi)) {
                    prop_assert_eq!(id, if row == NONE { NONE } else { node[row as usize] });
                }
            }
            let mut once: Vec<u32> = roots.iter().chain(&others).copied().filter(|&v| v != NONE).collect();
            once.sort_unstable();
            once.dedup();
            let mut sorted = node.to_vec();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, once);
            for (row, (&v, &phi)) in node.iter().zip(phi).enumerate() {
                let latest = (0..roots.len()).rev().find(|&i| i % stride < 2 && roots[i] == v);
                prop_assert_eq!(phi, latest.map_or(NONE, |i| i as u32));
                prop_assert_eq!(row < positives, latest.is_some());
            }
            prop_assert!(store.read::<u32>(stamp).unwrap().iter().all(|&s| s == 0));
        }
    }

    #[test]
    fn an_epochs_record_survives_serialisation_to_the_last_bit(
        epoch in 0usize..100, numbers in proptest::array::uniform4(-1e3f64..1e3), mrr in proptest::option::of(0.0f64..1.0),
    ) {
        let [train_loss, train_seconds, events_per_second, ap] = numbers;
        let val = Some(Scores { ap: Some(ap), mrr, ..Scores::default() });
        let wall_time = train_seconds;
        let record = EpochRecord {
            epoch,
            train_loss,
            train_seconds,
            events_per_second,
            val,
            wall_time,
            graphs_captured: None,
            val_seconds: None,
        };
        let back: EpochRecord = serde_json::from_str(&serde_json::to_string(&record).unwrap()).unwrap();
        prop_assert_eq!(back, record);
    }
}

#[test]
fn a_time_encoding_is_a_parameter_if_and_only_if_it_is_learned() {
    let events = small(400);
    for (start, learned) in [(TimeStart::Fixed, false), (TimeStart::Learned, true), (TimeStart::Random, true)]
    {
        let mut config = config(1, 8);
        config.tgn.time_encoding = start;
        let mut task = EventTask::new(&config, &events, Device::cpu(1).unwrap()).unwrap();
        let w = |task: &EventTask| {
            let found = task.core.parameters.iter().find(|p| p.0 == "time.w");
            found.map(|(_, id)| task.core.store.read::<f32>(id).unwrap().to_vec())
        };
        let before = w(&task);
        task.train_epoch(0, &mut |_| {}).unwrap();
        assert_eq!((before.is_some(), before != w(&task)), (learned, learned), "{start}");
    }
}

#[test]
fn one_and_two_threads_leave_the_same_bits_in_parameters_optimiser_memory_and_mailbox() {
    let events = small(3000);
    for (layers, combiner, updater) in
        [(1, Combiner::Last, CellKind::Gru), (2, Combiner::Mean, CellKind::Rnn)]
    {
        let mut config = config(3, 48);
        (config.batch, config.eval_batch, config.tgn.layers) = (400, 400, layers);
        (config.tgn.combiner, config.tgn.updater) = (combiner, updater);
        let state = |threads| {
            let mut task = EventTask::new(&config, &events, Device::cpu(threads).unwrap()).unwrap();
            let losses: Vec<u64> =
                (0..3).map(|e| task.train_epoch(e, &mut |_| {}).unwrap().0.to_bits()).collect();
            let raw = |id| (task.core.store.name(id).to_owned(), task.core.store.raw(id).unwrap().to_vec());
            (losses, task.core().checkpoint_buffers().into_iter().map(raw).collect::<Vec<_>>())
        };
        let (one, two) = (state(1), state(2));
        assert_eq!(one.0, two.0);
        for ((name, one), (_, two)) in one.1.iter().zip(&two.1) {
            assert!(one == two, "{layers} layers, {updater}: {name} differs");
        }
        let memory = one.1.iter().find(|(name, _)| name == "memory").unwrap();
        assert!(memory.1.iter().any(|&b| b != 0), "the memory was written");
    }
}

#[test]
fn two_epochs_resumed_to_four_equal_four_epochs_in_every_result_and_every_byte_of_the_checkpoint() {
    let (events, dir) = (small(1200), tempfile::tempdir().unwrap());
    let (whole, parts) = (dir.path().join("whole"), dir.path().join("parts"));
    let config = |epochs, width| Config { settle: true, ..config(epochs, width) };
    let at_once = run(&config(4, 16), &events, Some(&whole), false).unwrap();
    run(&config(2, 16), &events, Some(&parts), false).unwrap();
    let resumed = run(&config(4, 16), &events, Some(&parts), true).unwrap();
    assert_eq!(found(&at_once), found(&resumed));
    let checkpoint = |run: &Path| -> Vec<_> {
        let files = listing(&run.join("checkpoint")).into_iter();
        files.map(|(path, bytes)| (path.file_name().unwrap().to_owned(), bytes)).collect()
    };
    assert!(checkpoint(&whole) == checkpoint(&parts), "the checkpoints differ");
    let kind = |(name, _): &(std::ffi::OsString, _)| {
        name.to_string_lossy().split(['-', '.']).next().unwrap().to_owned()
    };
    let mut kinds: Vec<String> = checkpoint(&whole).iter().map(kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds.join(" "), "epoch extract latest manifest settled");
    assert_eq!(
        found(&at_once),
        found(&run(&config(4, 16), &events, None, false).unwrap()),
        "without a folder"
    );
    // A finished run is only tested again. One of another configuration or other data is refused.
    assert_eq!(found(&at_once), found(&run(&config(4, 16), &events, Some(&parts), true).unwrap()));
    for (config, events, out) in
        [(Config { seed: 2, ..config(5, 16) }, &events, &parts), (config(5, 16), &small(1201), &parts)]
    {
        let before = listing(dir.path());
        let e = run(&config, events, Some(out), true).unwrap_err();
        assert_eq!((e.kind(), listing(dir.path())), (ErrorKind::Checkpoint, before), "{e}");
    }
}

/// The checkpoint of a short run.
struct Saved {
    events: Events,
    checkpoint: Checkpoint,
    device: Device,
    dir: tempfile::TempDir,
}

impl Saved {
    fn new() -> Self {
        let (events, dir) = (small(300), tempfile::tempdir().unwrap());
        run(&config(1, 8), &events, Some(dir.path()), false).unwrap();
        Saved { events, checkpoint: Checkpoint::at(dir.path()), device: Device::cpu(1).unwrap(), dir }
    }
    fn folder(&self) -> std::path::PathBuf {
        self.dir.path().join("checkpoint")
    }
    fn evaluate(&self, config: &Config) -> tgnn::error::Result<Summary> {
        task::evaluate(&self.checkpoint, config, &self.events, &self.device, "", false, &mut ())
    }
    /// Checks that a task with this configuration refuses the checkpoint, and keeps its state.
    fn refused(&self, config: &Config, what: &str) {
        let mut task = EventTask::new(config, &self.events, self.device.clone()).unwrap();
        let buffers = task.core().checkpoint_buffers();
        let state = |task: &EventTask| {
            buffers.iter().map(|&id| task.core.store.raw(id).unwrap().to_vec()).collect::<Vec<_>>()
        };
        let before = state(&task);
        for best in [false, true] {
            let e = self.checkpoint.load(&mut task.core.store, &buffers, best).expect_err(what);
            assert_eq!(e.kind(), ErrorKind::Checkpoint, "{what}: {e}");
            assert!(e.to_string().contains(self.folder().to_str().unwrap()), "{what}: {e}");
            assert!(state(&task) == before, "{what}: something was changed");
        }
        let e = self.evaluate(config).expect_err(what);
        assert_eq!(e.kind(), ErrorKind::Checkpoint, "{what}: {e}");
    }
}

#[test]
fn a_checkpoint_of_another_size_is_refused_and_changes_nothing() {
    let saved = Saved::new();
    for width in [4, 16] {
        saved.refused(&config(1, width), "another width");
    }
    let mut two_layers = config(1, 8);
    two_layers.tgn.layers = 2;
    saved.refused(&two_layers, "another number of layers");
    saved.evaluate(&config(1, 8)).expect("its own configuration reads it");
}

#[test]
fn a_damaged_file_of_tensors_is_refused_and_changes_nothing() {
    let (saved, good) = (Saved::new(), config(1, 8));
    let file = saved.folder().join("epoch-1.safetensors");
    let whole = fs::read(&file).unwrap();
    let write = |bytes: &[u8]| fs::write(&file, bytes).unwrap();
    // One flipped bit: in the header's length, in the header, in the values, in the last byte.
    for at in [0, 9, 100, whole.len() / 2, whole.len() - 1] {
        for bit in [0, 7] {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            write(&bytes);
            saved.refused(&good, &format!("bit {bit} of byte {at}"));
        }
    }
    for length in [0, 7, 200, whole.len() / 2, whole.len() - 1] {
        write(&whole[..length]);
        saved.refused(&good, &format!("cut to {length} bytes"));
    }
    write(&[&whole[..], &[0]].concat());
    saved.refused(&good, "a byte too many");
    fs::remove_file(&file).unwrap();
    saved.refused(&good, "no file");
    write(&whole);
    saved.evaluate(&good).expect("the restored file is read again");
}

#[test]
fn a_damaged_manifest_is_refused_and_changes_nothing() {
    let (saved, good) = (Saved::new(), config(1, 8));
    let manifest = saved.folder().join("manifest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    for (what, damaged) in [
        ("another schema", text.replacen("\"schema\": 2", "\"schema\": 3", 1)),
        ("a manifest cut short", text[..text.len() / 2].to_owned()),
        ("an empty manifest", String::new()),
        ("other data", text.replacen("300", "301", 1)),
    ] {
        assert_ne!(damaged, text, "{what}");
        fs::write(&manifest, damaged).unwrap();
        if what == "other data" {
            let e = saved.evaluate(&good).expect_err(what);
            assert_eq!(e.kind(), ErrorKind::Checkpoint, "{what}: {e}");
        } else {
            saved.refused(&good, what);
        }
    }
    fs::remove_file(&manifest).unwrap();
    saved.refused(&good, "no manifest");
    fs::write(&manifest, text).unwrap();
    saved.evaluate(&good).expect("the restored manifest is read again");
}

#[test]
fn a_batch_larger_than_the_data_trains_and_is_the_whole_data() {
    let events = small(100);
    let large =
        run(&Config { batch: 1 << 20, eval_batch: 1 << 20, ..config(2, 8) }, &events, None, false).unwrap();
    let exact = run(&Config { batch: 70, eval_batch: 70, ..config(2, 8) }, &events, None, false).unwrap();
    assert_eq!(found(&large), found(&exact));
    assert!(
        large.epochs.iter().all(|e| e.train_loss.is_finite())
            && large.test.unwrap().transductive.ap.is_some()
    );
}

#[test]
fn one_event_trains_and_leaves_nothing_to_test() {
    let one = stream(2, &[(0, 1)], vec![0]);
    let s = run(&Config { protocol: Protocol::Tgl, ..config(2, 8) }, &one, None, false).unwrap();
    assert!(s.epochs.len() == 2 && s.epochs.iter().all(|e| e.train_loss > 0.0 && e.train_loss.is_finite()));
    assert_eq!(s.test.unwrap().transductive, Scores::default());
}

#[test]
fn a_stream_whose_events_all_have_the_same_time_trains_without_any_neighbour() {
    let ends: Vec<(usize, usize)> = (0..50).map(|i| (i * 7, i * 5 + 1)).collect();
    let s =
        run(&Config { batch: 8, eval_batch: 8, ..config(2, 8) }, &stream(9, &ends, vec![0; 50]), None, false)
            .unwrap();
    assert!(s.epochs.iter().all(|e| e.train_loss.is_finite()) && s.test.unwrap().transductive.ap.is_none());
}

#[test]
fn a_checkpoint_is_tested_from_the_best_epochs_state_and_not_from_the_last_ones() {
    let (events, dir) = (small(600), tempfile::tempdir().unwrap());
    // The first seed whose last epoch is not its best, so that the two states differ.
    let (config, summary, out) = (1..50)
        .map(|seed| {
            let (config, out) = (Config { seed, ..config(4, 8) }, dir.path().join(seed.to_string()));
            let summary = run(&config, &events, Some(&out), false).unwrap();
            (config, summary, out)
        })
        .find(|(_, summary, _)| summary.best_epoch != Some(4))
        .expect("one of 49 seeds gets worse again");
    let again =
        task::evaluate(&Checkpoint::at(&out), &config, &events, &Device::cpu(1).unwrap(), "", false, &mut ())
            .unwrap();
    assert_eq!((again.test, again.best_epoch), (summary.test, summary.best_epoch));
}
