//! Comparison with fixtures that PyTorch computed in f64 with full mails and plain attention;
//! `golden/make.py` writes and documents them. Lean mails and absorbed attention must give the same numbers:
//! memory, mailbox, loss and gradients after every batch, and the parameters after Adam.
use crate::support::devices::device;
use safetensors::SafeTensors;
use std::{
    collections::{BTreeMap, HashMap},
    str::FromStr,
    sync::Arc,
};
use tgnn::ops::write_memory::Combiner;
use tgnn::{
    autograd::{Parameters, Program},
    ops::{
        Backend, Home, Tape,
        epilogue::DropRate,
        gru_memory::Gru,
        memory_update::{Cell, CellVars, FeatureRow, MemoryVars},
        rnn_memory::Rnn,
        sample_neighbors::{History, Neighbors},
    },
    runtime::*,
    testing::{Results, allowance, error, largest},
};
use tgnn_data::{Events, Features};
use tgnn_training::model::NeighborTime;
use tgnn_training::model::{
    ApanConfig, Attention, AttentionInputs, DyRepConfig, EventTables, GraphMixerConfig, HeadKind,
    JodieConfig, ModelConfig, Negatives, Net, TgatConfig, TgnConfig, TimeEncoding, TimeStart,
};

/// Allowed error relative to the largest number of a tensor: the effect in f64 of another order of summation,
/// amplified by ten steps of Adam. A wrong formula is off by far more.
const EXACT: f64 = 1e-9;

pub struct Golden {
    file: SafeTensors<'static>,
    facts: HashMap<String, String>,
}

impl Golden {
    pub fn open(bytes: &'static [u8]) -> Self {
        let facts = SafeTensors::read_metadata(bytes).unwrap().1.metadata().clone().unwrap();
        Golden { file: SafeTensors::deserialize(bytes).unwrap(), facts }
    }
    pub fn fact<T: FromStr>(&self, name: &str) -> T {
        self.facts[name].parse().unwrap_or_else(|_| panic!("{name} is {}", self.facts[name]))
    }
    fn words(&self, name: &str) -> impl Iterator<Item = [u8; 8]> {
        let tensor = self.file.tensor(name).unwrap_or_else(|e| panic!("{name}: {e}"));
        tensor.data().as_chunks::<8>().0.iter().copied()
    }
    pub fn real(&self, name: &str) -> Vec<f64> {
        self.words(name).map(f64::from_le_bytes).collect()
    }
    fn ints(&self, name: &str) -> Vec<i64> {
        self.words(name).map(i64::from_le_bytes).collect()
    }
    /// Reads ids; -1 becomes [`NONE`].
    pub fn ids(&self, name: &str) -> Vec<u32> {
        self.ints(name).into_iter().map(|v| if v < 0 { NONE } else { v as u32 }).collect()
    }
    pub fn f32(&self, name: &str) -> Vec<f32> {
        self.real(name).into_iter().map(|v| v as f32).collect()
    }
    fn events(&self) -> Events {
        let features = |name: &str, rows, cols| {
            (cols > 0).then(|| Features::from_vec(rows, cols, self.f32(name)).unwrap())
        };
        let (events, nodes) = (self.fact("events"), self.fact("nodes"));
        let events = Events {
            name: "golden".into(),
            src: self.ids("src").into(),
            dst: self.ids("dst").into(),
            time: self.ints("time").into(),
            label: None,
            label_names: None,
            classes: None,
            node_labels: None,
            nodes,
            first_destination: None,
            ticks_per_second: 1.0,
            encoding: None,
            tables: tgnn_data::Encodings::default(),
            time_format: tgnn_data::TimeFormat::Seconds,
            origin: 0,
            ids: None,
            edge_features: features("edge_features", events, self.fact("edge_features")),
            node_features: features("node_features", nodes, self.fact("node_features")),
            lines: None,
            notes: Vec::new(),
        };
        events.validate("golden").unwrap();
        events
    }
    fn combiner(&self) -> Combiner {
        if self.fact::<String>("combiner") == "mean" { Combiner::Mean } else { Combiner::Last }
    }
    fn config(&self) -> Box<dyn ModelConfig> {
        let (time, learned) = (self.fact("time"), TimeStart::Learned);
        match self.facts.get("model").map_or("tgn", String::as_str) {
            "jodie" => Box::new(JodieConfig {
                memory: self.fact("memory"),
                time,
                time_encoding: learned,
                gap_quantile: 1.0,
                ..JodieConfig::default()
            }),
            "dyrep" => Box::new(DyRepConfig {
                memory: self.fact("memory"),
                time,
                time_encoding: learned,
                gap_quantile: 1.0,
                heads: self.fact("heads"),
                neighbors: self.fact("neighbours"),
                dropout: 0.0,
                ..DyRepConfig::default()
            }),
            "apan" => Box::new(ApanConfig {
                memory: self.fact("memory"),
                mails: self.fact("mails"),
                neighbors: self.fact("neighbours"),
                time,
                time_encoding: learned,
                gap_quantile: 1.0,
                heads: self.fact("heads"),
                combiner: self.combiner(),
                dropout: 0.0,
                ..ApanConfig::default()
            }),
            "tgat" => Box::new(TgatConfig {
                time,
                time_encoding: learned,
                gap_quantile: 1.0,
                embedding: self.fact("embedding"),
                heads: self.fact("heads"),
                layers: self.fact("layers"),
                neighbors: self.fact("neighbours"),
                neighbor_time: match self.fact::<String>("neighbour_time").as_str() {
                    "query" => NeighborTime::Query,
                    _ => NeighborTime::Event,
                },
                dropout: 0.0,
                ..TgatConfig::default()
            }),
            "graph-mixer" => Box::new(GraphMixerConfig {
                time,
                width: self.fact("width"),
                embedding: self.fact("embedding"),
                gap_quantile: 1.0,
                layers: self.fact("layers"),
                neighbors: self.fact("neighbours"),
                token_expansion: self.fact("token_expansion"),
                channel_expansion: self.fact("channel_expansion"),
                dropout: 0.0,
                ..GraphMixerConfig::default()
            }),
            _ => Box::new(TgnConfig {
                memory: self.fact("memory"),
                time,
                time_encoding: learned,
                gap_quantile: 1.0,
                embedding: self.fact("embedding"),
                heads: self.fact("heads"),
                layers: self.fact("layers"),
                neighbors: self.fact("neighbours"),
                combiner: self.combiner(),
                dropout: 0.0,
                ..TgnConfig::default()
            }),
        }
    }
    fn batches(&self) -> usize {
        self.fact::<usize>("events").div_ceil(self.fact("batch"))
    }
}

fn home(t: &Tape, v: Var) -> BufferId {
    match t.home(v) {
        Home::Stored { id, .. } => id,
        Home::Step => panic!("{v:?} is not stored"),
    }
}

fn reals(program: &Program, v: Var, store: &Store) -> Vec<f64> {
    match store.precision() {
        Precision::F64 => program.read::<f64>(v, store).unwrap().to_vec(),
        Precision::F32 => program.read::<f32>(v, store).unwrap().iter().map(|&x| x.into()).collect(),
    }
}

/// Trains batch by batch with the crate; returns the results of every batch, and last the final parameters.
fn train(g: &Golden, precision: Precision, backend: Backend) -> Vec<Results> {
    train_from(g, precision, backend, |_, w| w)
}

/// Trains from the fixture's weights, each as `start` changes it.
fn train_from(
    g: &Golden,
    precision: Precision,
    backend: Backend,
    start: impl Fn(usize, f64) -> f64,
) -> Vec<Results> {
    let events = g.events();
    let mut store = Store::new(precision);
    let mut tables = EventTables::new(&mut store, &events).unwrap();
    let by_time = g.facts.get("history").is_some_and(|history| history == "time");
    tables.history = if by_time { History::Time } else { History::Batch };
    let mut parameters = Parameters::new(&mut store, 0, g.fact("learning_rate")).unwrap();
    let net = Net::new(&mut parameters, &mut store, &tables, &*g.config(), HeadKind::Links, 0).unwrap();
    for (name, id) in parameters.iter() {
        let weights = g.real(&format!("init.{name}"));
        let weights: Vec<f64> = weights.into_iter().enumerate().map(|(i, w)| start(i, w)).collect();
        store.write(id, &weights).unwrap();
    }
    let mut t = Tape::new(&store);
    let edge = tables.edge_if(&mut t, true).unwrap();
    let edge = home(&t, edge);
    if precision == Precision::F64 {
        // The tables were loaded through f32; the fixture has all digits.
        store.write(edge, &g.real("edge_features")).unwrap();
        if let Some(nodes) = tables.features.node {
            store.write(nodes, &g.real("node_features")).unwrap();
        }
    }
    let negatives = g.ids("neg");
    let negatives =
        store.table("negatives", Spec::ids(Rows::fixed(events.len()), 1), Arc::new(negatives)).unwrap();

    let capacity = g.fact("batch");
    let f = net.forward(&mut t, &tables, capacity, Negatives::Given(negatives), true).unwrap();
    let loss = t.bce_loss(f.logits).unwrap();
    let grads = parameters.minimize(&mut t, loss).unwrap();
    net.write(&mut t, &tables, &f).unwrap();
    let keep: Vec<Var> = [loss, f.logits].into_iter().chain(grads.iter().map(|g| g.1)).collect();
    let mut program = Program::new(&t, &keep, precision, backend).expect("room");

    let state: HashMap<String, BufferId> =
        net.model.state().into_iter().map(|id| (store.name(id).to_owned(), id)).collect();
    tables.seek(&mut store, 0, 0..events.len(), 0).unwrap();
    let mut results: Vec<Results> = (0..g.batches())
        .map(|_| {
            program.run(&mut store).unwrap();
            let mut r: Results = vec![
                ("loss".into(), true, reals(&program, loss, &store)),
                ("logits".into(), true, reals(&program, f.logits, &store)),
            ];
            r.extend(grads.iter().map(|(n, v)| (format!("grad.{n}"), true, reals(&program, *v, &store))));
            r.extend(mailbox(&store, &state, edge, events.edge_width()));
            r
        })
        .collect();
    let parameters = parameters.iter().map(|(n, id)| (n.to_owned(), true, store.read_f64(id).unwrap()));
    results.push(parameters.collect());
    results
}

/// Returns memory and mailbox, if the model has them, with each lean mail expanded to the full row that it
/// represents.
fn mailbox(store: &Store, state: &HashMap<String, BufferId>, edge: BufferId, f: usize) -> Results {
    let Some(&memory) = state.get("memory") else { return Vec::new() };
    let nodes = store.spec(memory).rows.capacity;
    let memory = store.read_f64(memory).unwrap();
    let d = memory.len() / nodes;
    let (content, event) =
        (store.read_f64(state["mail"]).unwrap(), store.read::<u32>(state["mail event"]).unwrap());
    let own_features = state.get("mail features").map(|&id| store.read_f64(id).unwrap());
    let edge = store.read_f64(edge).unwrap();
    // A mail of `NodeMemory` holds only the partner's row; a mail of a ring (APAN) holds both.
    let (slots, width) = (event.len() / nodes, content.len() / event.len());
    let mut mail = Vec::new();
    for (slot, &event_id) in event.iter().enumerate() {
        if event_id == NONE {
            mail.resize(mail.len() + 2 * d + f, 0.0);
            continue;
        }
        if width == d {
            mail.extend_from_slice(&memory[slot / slots * d..][..d]);
        }
        mail.extend_from_slice(&content[slot * width..][..width]);
        mail.extend_from_slice(match &own_features {
            Some(features) => &features[slot * f..][..f],
            None => &edge[event_id as usize * f..][..f],
        });
    }
    let mut results: Results = vec![("memory".into(), true, memory), ("mail".into(), true, mail)];
    let mut exact = |name: &str, values| results.push((name.into(), false, values));
    for (name, ours) in [("memory_time", "memory time"), ("mail_time", "mail time")] {
        if let Some(&id) = state.get(ours) {
            exact(name, store.read::<i64>(id).unwrap().iter().map(|&t| t as f64).collect());
        }
    }
    exact("has_mail", event.iter().map(|&e| f64::from(u8::from(e != NONE))).collect());
    if let Some(&id) = state.get("next mail") {
        exact("next", store.read::<u32>(id).unwrap().iter().map(|&slot| slot.into()).collect());
    }
    results
}

/// Reads the fixture's values under the names of `ours`, and checks that every value of the fixture is among
/// them.
fn wanted(g: &Golden, ours: &[Results]) -> Vec<Results> {
    let mut compared = 0;
    let expected = ours
        .iter()
        .enumerate()
        .map(|(k, results)| {
            let prefix = if k < g.batches() { format!("batch.{k}") } else { "final".into() };
            let read = |(name, real, _): &(String, bool, Vec<f64>)| {
                compared += 1;
                let full = format!("{prefix}.{name}");
                let ints = |n: &str| g.ints(n).into_iter().map(|t| t as f64).collect();
                (name.clone(), *real, if *real { g.real(&full) } else { ints(&full) })
            };
            results.iter().map(read).collect()
        })
        .collect();
    let results = g.file.names().into_iter().filter(|n| n.starts_with("batch.") || n.starts_with("final."));
    assert_eq!(compared, results.count(), "values compared, values in the fixture");
    expected
}

/// Panics at the first tensor whose error exceeds `allowed` times its largest number. Integers must be equal.
fn compare(what: &str, got: &Results, want: &Results, allowed: f64) {
    for ((name, real, want), (_, _, got)) in want.iter().zip(got) {
        let (e, allowed) = (error(got, want), if *real { allowed * largest(want) } else { 0.0 });
        assert!(e <= allowed, "{what}, {name}: off by {e:e}, allowed {allowed:e}");
    }
}

/// Number of plain runs from weights that differ in their last bit.
const PLAIN_RUNS: u32 = 6;
/// Typical errors of the fast path may be this much larger than those of the plain path.
const FARTHER: f64 = 1.5;

const TRAININGS: [(&str, &[u8]); 10] = [
    ("TGN, one layer, last mail", include_bytes!("../../../tests/golden/tgn.safetensors")),
    ("TGN, two layers, mean mail", include_bytes!("../../../tests/golden/tgn_two_layers_mean.safetensors")),
    ("TGN, three layers", include_bytes!("../../../tests/golden/tgn_three_layers.safetensors")),
    ("TGAT", include_bytes!("../../../tests/golden/tgat.safetensors")),
    (
        "TGAT, neighbours at the query's time",
        include_bytes!("../../../tests/golden/tgat_query_time.safetensors"),
    ),
    ("GraphMixer", include_bytes!("../../../tests/golden/graph_mixer.safetensors")),
    ("JODIE", include_bytes!("../../../tests/golden/jodie.safetensors")),
    ("DyRep", include_bytes!("../../../tests/golden/dyrep.safetensors")),
    ("APAN, last mail", include_bytes!("../../../tests/golden/apan.safetensors")),
    ("APAN, mean mail", include_bytes!("../../../tests/golden/apan_mean.safetensors")),
];

#[test]
fn ten_batches_with_lean_mails_and_absorbed_attention_equal_full_mails_and_plain_attention_in_f64() {
    for (name, bytes) in TRAININGS {
        let g = Golden::open(bytes);
        let got = train(&g, Precision::F64, Backend::Definition);
        let want = wanted(&g, &got);
        assert_eq!(got.len(), 11);
        for (k, (got, want)) in got.iter().zip(&want).enumerate() {
            compare(&format!("{name}, batch {k}"), got, want, EXACT);
        }
    }
}

/// Returns weight `i` of a run: rounded to f32 in run 0, up to one unit in the last place away in others.
fn nudged(w: f64, run: u32, i: usize) -> f64 {
    let rounded = w as f32;
    let near = [rounded.next_down(), rounded, rounded.next_up()];
    let which = philox::Key::new(7, run, [0, 0]).draw(i as u64)[0] % 3;
    if run == 0 { w } else { near[which as usize].into() }
}

/// In f32, ten steps of training amplify rounding by an amount that no formula gives but the plain path
/// shows, if it runs several times from weights that differ in their last bit. The fast path may be off by
/// twice the worst error so far (errors carry over from batch to batch) of these runs, which is the rule of
/// `testing::allowance`. A diverged plain path must not allow everything, so the allowance itself must stay
/// below one step of Adam, which moves an element by the learning rate: a wrong step is caught.
///
/// The typical error says more, but that of one training depends on chance, too: from one plain run to the
/// next it differs by up to six times (TGAT). The mean over all trainings does not.
#[test]
fn ten_batches_on_the_fast_path_follow_the_fixture_as_closely_as_the_plain_path_does() {
    let mut errors: BTreeMap<String, f64> = BTreeMap::new();
    for (name, bytes) in TRAININGS {
        let g = Golden::open(bytes);
        let mut runs: Vec<(String, Vec<Results>)> = [1, 2]
            .map(|threads| {
                let device = Device::cpu(threads).unwrap();
                let fast = device.install(|| train(&g, Precision::F32, Backend::Cpu));
                (format!("{threads} threads"), fast)
            })
            .into();
        if let Some(test_device) = device(0) {
            for chip in if test_device.emulated { &["h100", "a100"][..] } else { &["a GPU"] } {
                test_device.matrix_units(chip);
                let backend = Backend::Cuda(test_device.gpu.clone());
                runs.push((format!("kernels on {chip}"), train(&g, Precision::F32, backend)));
            }
        }
        for (how, error) in check_runs(name, &g, runs) {
            *errors.entry(how).or_default() += error.ln() / TRAININGS.len() as f64;
        }
    }
    for (how, error) in errors {
        let mean = error.exp();
        println!("{how}: on average {mean:.2} times as far from the fixtures as the plain path");
        assert!(mean < FARTHER, "{how}: on average {mean:.2} times as far as the plain path");
    }
}

/// Checks training `at` of [`TRAININGS`] on a backend.
pub fn check_training(at: usize, how: &str, backend: Backend) {
    let (name, bytes) = TRAININGS[at];
    let g = Golden::open(bytes);
    let run = train(&g, Precision::F32, backend);
    check_runs(name, &g, vec![(how.into(), run)]);
}

/// Checks runs on the fast path, each with what it ran on. Returns their typical errors.
fn check_runs(name: &str, g: &Golden, runs: Vec<(String, Vec<Results>)>) -> Vec<(String, f64)> {
    let plain: Vec<Vec<Results>> = (0..PLAIN_RUNS)
        .map(|run| train_from(g, Precision::F32, Backend::Definition, |i, w| nudged(w, run, i)))
        .collect();
    let want = wanted(g, &plain[0]);
    let of_plain: Vec<f64> = plain.iter().map(|run| typical(run, &plain, &want)).collect();
    let least = of_plain.iter().copied().fold(f64::INFINITY, f64::min);
    let most_typical = FARTHER * of_plain.iter().copied().fold(0.0, f64::max) / least;
    let mut errors = Vec::new();
    for (how, fast) in runs {
        let typical = typical(&fast, &plain, &want);
        println!("{name}, {how}: typically {typical:.2} times as far from the fixture as the plain path");
        assert!(
            typical < most_typical,
            "{name}, {how}: typically {typical:.2} times as far as the plain path"
        );
        errors.push((how.clone(), typical));
        // The largest error among some hundred numbers depends on chance, the more so if sums have an
        // order of their own, as on fast paths: after cancellation it may be three times as large.
        let mut allowed = 0.0f64;
        for (k, (want, fast)) in want.iter().zip(&fast).enumerate() {
            allowed = plain.iter().map(|run| allowance(&run[k], want)).fold(allowed, f64::max);
            assert!(
                allowed < g.fact("learning_rate"),
                "{name}, batch {k}: the plain path is off by {allowed:e}"
            );
            compare(&format!("{name}, {how}, batch {k}"), fast, want, 3.0 * allowed);
        }
    }
    errors
}

/// Returns the error of `found` as a multiple of the mean error of the plain runs: the median over all values
/// of all batches. Errors below one ulp count as one ulp.
fn typical(found: &[Results], plain: &[Vec<Results>], want: &[Results]) -> f64 {
    let mut ratios = Vec::new();
    for (batch, (found, want)) in found.iter().zip(want).enumerate() {
        for (i, (found, want)) in found.iter().zip(want).enumerate() {
            let ulp = f64::from(f32::EPSILON) * largest(&want.2);
            let off = |values: &[f64]| error(values, &want.2).max(ulp);
            if want.1 && ulp > 0.0 {
                let errors = plain.iter().map(|run| off(&run[batch][i].2));
                ratios.push(off(&found.2) * plain.len() as f64 / errors.sum::<f64>());
            }
        }
    }
    ratios.sort_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}

/// Runs `record` in f64, and in f32 on the plain, fast and kernel paths. Compares the values that it returns,
/// after `cut`, with those that `expected` reads from the fixture.
pub fn follow(
    g: &Golden,
    record: impl Fn(&mut Tape, &mut Store, &Golden) -> Vec<(String, Var)>,
    expected: impl Fn(&Golden, &str) -> Vec<f64>,
    cut: impl Fn(&str, Vec<f64>) -> Vec<f64>,
) {
    let run = |precision, backend| -> Results {
        let mut store = Store::new(precision);
        let mut t = Tape::new(&store);
        let named = record(&mut t, &mut store, g);
        let keep: Vec<Var> = named.iter().map(|n| n.1).collect();
        let mut program = Program::new(&t, &keep, precision, backend).expect("room");
        program.run(&mut store).unwrap();
        named.into_iter().map(|(n, v)| (n.clone(), true, cut(&n, reals(&program, v, &store)))).collect()
    };
    let exact = run(Precision::F64, Backend::Definition);
    let want: Results = exact.iter().map(|(n, real, _)| (n.clone(), *real, expected(g, n))).collect();
    compare("f64", &exact, &want, EXACT);
    let plain = run(Precision::F32, Backend::Definition);
    compare("fast f32", &run(Precision::F32, Backend::Cpu), &want, allowance(&plain, &want));
    if let Some(test_device) = device(0) {
        let found = run(Precision::F32, Backend::Cuda(test_device.gpu.clone()));
        compare("kernels", &found, &want, allowance(&plain, &want));
    }
}

#[test]
fn an_attention_layer_and_its_gradients_equal_the_plain_form() {
    let g = Golden::open(include_bytes!("../../../tests/golden/attention.safetensors"));
    let record = |t: &mut Tape, store: &mut Store, g: &Golden| {
        let mut p = Parameters::new(store, 0, 0.0).unwrap();
        let time = TimeEncoding::new(&mut p, store, 4, TimeStart::Learned).unwrap();
        let drop = DropRate { p: 0.0, seed: 0, salt: 0 };
        let layer = Attention::new(&mut p, store, 0, 5, 6, 3, 4, g.fact("heads"), drop).unwrap();
        for (name, id) in p.iter() {
            store.write(id, &g.real(name)).unwrap();
        }
        let real = |t: &mut Tape, store: &mut Store, name: &str, rows, cols, values: &[f64]| {
            let id = store.values(name, Spec::real(Rows::fixed(rows), cols), values).unwrap();
            t.stored(id).unwrap()
        };
        let ids = |t: &mut Tape, store: &mut Store, name: &str, cols| {
            let id = store.values(name, Spec::ids(Rows::fixed(6), cols), &g.ids(name)).unwrap();
            t.stored(id).unwrap()
        };
        let h = real(t, store, "h", 9, 5, &g.real("h"));
        let edge = real(t, store, "edge_features", 10, 3, &g.real("edge_features"));
        let gaps: Vec<f64> = g.ints("dt").into_iter().map(|dt| dt.max(0) as f64).collect();
        let dt = real(t, store, "dt", 6, 4, &gaps);
        let (root, row) = (ids(t, store, "root", 1), ids(t, store, "neighbour", 4));
        let (event, count) = (ids(t, store, "edge", 4), ids(t, store, "count", 1));
        let times = store.zeros("time", Spec { cols: 4, ..Spec::times(Rows::fixed(6)) }).unwrap();
        let near = Neighbors { node: row, event, dt, time: t.stored(times).unwrap(), count };
        let looked = AttentionInputs { h, learn_h: true, roots: h, root, row, near, edge, drop_now: None };
        let out = layer.record(t, &time, looked).unwrap();
        let dout = real(t, store, "dout", 6, 6, &g.real("dout"));
        let grads = t.backward_many(&[(out, dout)]).unwrap();
        let mut named = vec![("out".to_owned(), out), ("dh".to_owned(), grads[&h])];
        let gradient = |(name, id): (&str, BufferId)| (format!("grad.{name}"), grads[&t.stored(id).unwrap()]);
        named.extend(p.iter().map(gradient));
        assert_eq!(named.len(), 2 + 13, "every parameter has a gradient");
        named
    };
    follow(&g, record, |g, name| g.real(name), |_, v| v);
}

/// Compares a memory update with a recurrent cell. The cell's input `x` takes the place of the mail's edge
/// features: after the columns of both memories, whose weights are zero here, and before a time encoding
/// whose weight is zero. No gradient flows into memory and mails, so `dx` and `dh` are not compared.
fn follow_cell<C: Cell>(bytes: &'static [u8]) {
    const ROWS: usize = 5;
    const D: usize = 4;
    const F: usize = 7;
    const WIDE: usize = 2 * D + F + 1;
    let g = Golden::open(bytes);
    assert_eq!((g.fact::<usize>("rows"), g.fact::<usize>("width"), g.fact::<usize>("inputs")), (ROWS, D, F));
    let record = |t: &mut Tape, store: &mut Store, g: &Golden| {
        fn put<T: Element>(t: &mut Tape, store: &mut Store, rows: usize, values: &[T]) -> Var {
            let spec = Spec { dtype: T::DTYPE, rows: Rows::fixed(rows), cols: values.len() / rows };
            let id = store.values(format!("input {}", t.len()), spec, values).unwrap();
            t.stored(id).unwrap()
        }
        let mut w_x = vec![0.0; C::GATES * D * WIDE];
        for (wide, narrow) in w_x.chunks_exact_mut(WIDE).zip(g.real("w_x").chunks_exact(F)) {
            wide[2 * D..2 * D + F].copy_from_slice(narrow);
        }
        let unique = put(t, store, ROWS, &[0u32, 1, 2, 3, 4]);
        let state = MemoryVars {
            memory: put(t, store, ROWS, &g.real("h")),
            memory_time: put(t, store, ROWS, &[0i64; ROWS]),
            mail: put(t, store, ROWS, &[0.5f64; ROWS * D]),
            mail_event: put(t, store, ROWS, &[0u32; ROWS]),
            mail_time: put(t, store, ROWS, &[3i64; ROWS]),
            edge: put(t, store, ROWS, &g.real("x")),
            gathered: false,
        };
        let weights = CellVars {
            time_w: put(t, store, 1, &[1.0f64]),
            time_b: put(t, store, 1, &[0.0f64]),
            w_x: put(t, store, C::GATES * D, &w_x),
            w_h: put(t, store, C::GATES * D, &g.real("w_h")),
            b_x: put(t, store, 1, &g.real("b_x")),
            b_h: put(t, store, 1, &g.real("b_h")),
        };
        let (out, _) =
            t.memory_update::<C>(unique, state, weights, FeatureRow::Node, Gaps::unlimited(1.0)).unwrap();
        let dout = put(t, store, ROWS, &g.real("dout"));
        let grads = t.backward_many(&[(out, dout)]).unwrap();
        let CellVars { w_x, w_h, b_x, b_h, .. } = weights;
        let weight_grads = [("dw_x", w_x), ("dw_h", w_h), ("db_x", b_x), ("db_h", b_h)];
        let mut named = vec![("out".to_owned(), out)];
        named.extend(weight_grads.map(|(name, w)| (name.to_owned(), grads[&w])));
        named
    };
    let cut = |name: &str, values: Vec<f64>| match name {
        "dw_x" => values.chunks_exact(WIDE).flat_map(|row| row[2 * D..2 * D + F].to_vec()).collect(),
        _ => values,
    };
    follow(&g, record, |g, name| g.real(name), cut);
}

#[test]
fn the_memory_update_and_its_gradients_equal_a_gru_cell() {
    follow_cell::<Gru>(include_bytes!("../../../tests/golden/gru.safetensors"));
}

#[test]
fn the_memory_update_and_its_gradients_equal_an_rnn_cell() {
    follow_cell::<Rnn>(include_bytes!("../../../tests/golden/rnn.safetensors"));
}

#[test]
#[cfg_attr(not(all(feature = "emu", kernels_compiled)), ignore = "wants --features emu and nvcc")]
fn training_by_ptx_follows_the_fixtures_of_jodie_dyrep_and_apan() {
    let Some(on) = device(0).filter(|on| on.emulated) else { return };
    on.code("ptx");
    // Those of TGN and TGAT amplify rounding by chance the most.
    for at in [6, 7, 8] {
        check_training(at, "PTX", Backend::Cuda(on.gpu.clone()));
    }
}
