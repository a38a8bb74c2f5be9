//! Event models that are written outside of the crate, from its public parts, and wrap none of its models.
use crate::support::trainings::small;
use tgnn::{
    autograd::{Parameters, ScaledInit},
    error::{ErrorKind, Result},
    ops::{
        Tape, epilogue::Activation, next_batch::Batch, sample_neighbors::Strategy, write_memory::Combiner,
    },
    runtime::*,
};
use tgnn_data::{Events, Features};
use tgnn_training::{
    model::*,
    task::{
        self, After, Checkpoint, Config, CustomModel, EventTask, NewEvent, Predictor, PredictorOptions,
        RunOptions, Summary, TaskName,
    },
};

/// What a model of this file reads.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reads {
    /// A learned row per node.
    Rows,
    /// Recent neighbours, with features of edges and nodes.
    Neighbors,
    /// The same, but it says that it reads so many.
    NeighborsInSecret(usize),
    /// State of its own: the last embedding of every node.
    Last,
    /// The crate's node memory.
    Memory,
    /// A row per node, of half the width that it says.
    Narrow,
    /// A row per node of the batch's first query.
    Few,
    /// Nothing: it has no width.
    Nothing,
}

const WIDTH: usize = 8;
const NEIGHBORS: usize = 3;

impl ModelConfig for Reads {
    fn validate(&self) -> Result<()> {
        Ok(())
    }
    fn gap_quantile(&self) -> f64 {
        1.0
    }
    fn width(&self) -> usize {
        if *self == Reads::Nothing { 0 } else { WIDTH }
    }
    fn recent_events(&self) -> Result<usize> {
        Ok(match *self {
            Reads::Neighbors => NEIGHBORS,
            Reads::NeighborsInSecret(said) => said,
            _ => 0,
        })
    }
    fn describe(&self) -> String {
        format!("{self:?}")
    }
    fn build(
        &self,
        p: &mut Parameters,
        store: &mut Store,
        data: &EventTables,
        _: u64,
    ) -> Result<Box<dyn EventModel>> {
        let d = WIDTH;
        let rows = p.add(store, "rows", data.nodes, d, ScaledInit::Normal)?;
        let mut add = |name, cols| p.add(store, name, d, cols, ScaledInit::FanIn(cols));
        Ok(match self {
            Reads::Rows | Reads::Nothing => Box::new(Rowwise { rows }),
            Reads::Narrow => Box::new(Rowwise { rows: add("half", d / 2)? }),
            Reads::Few => Box::new(Few { rows }),
            Reads::Neighbors | Reads::NeighborsInSecret(_) => Box::new(Neighborly {
                rows,
                near: add("near", d)?,
                edge: add("edge", data.features.edge_width)?,
                node: add("node", data.features.node_width)?,
            }),
            Reads::Last => {
                let w = add("w", d)?;
                Box::new(Last { rows, w, last: store.zeros("last", Spec::real(Rows::fixed(data.nodes), d))? })
            }
            Reads::Memory => {
                let time = TimeEncoding::new(p, store, d, TimeStart::Fixed)?;
                let kind = CellKind::Gru;
                let memory = NodeMemory::new(p, store, data, &time, d, kind, Combiner::Last, true)?;
                Box::new(Remembering { time, memory })
            }
        })
    }
}

struct Rowwise {
    rows: BufferId,
}
impl EventModel for Rowwise {
    fn embed(&self, t: &mut Tape, _: &EventTables, q: &Queries) -> Result<Embeddings> {
        let rows = t.stored(self.rows)?;
        Ok(Embeddings::new(t.gather_rows(rows, q.node)?))
    }
}

struct Few {
    rows: BufferId,
}
impl EventModel for Few {
    fn embed(&self, t: &mut Tape, _: &EventTables, q: &Queries) -> Result<Embeddings> {
        let (rows, event) = (t.stored(self.rows)?, q.event);
        Ok(Embeddings::new(t.gather_rows(rows, event)?))
    }
}

struct Neighborly {
    rows: BufferId,
    near: BufferId,
    edge: BufferId,
    node: BufferId,
}
impl EventModel for Neighborly {
    fn embed(&self, t: &mut Tape, data: &EventTables, q: &Queries) -> Result<Embeddings> {
        let [rows, near_w, edge_w, node_w] = t.stored_all([self.rows, self.near, self.edge, self.node])?;
        let (tcsr, how) = (data.tcsr(t)?, data.sampling(NEIGHBORS, Strategy::Recent));
        let near = t.sample_neighbors(tcsr, (q.node, q.time), (q.event, q.now), q.stride, how)?;
        let unique = data.unique(t, q.node, &[near.node], q.classes())?;
        let own = t.gather_rows(rows, q.node)?;
        let others = t.gather_rows(rows, near.node)?;
        let others = t.mean_rows(others, NEIGHBORS, Some(near.count))?;
        let mut z = t.linear(others, near_w, None, Some(own), Activation::Identity)?;
        let edge = data.edge_if(t, true)?;
        let (edge, events) = data.edge_rows(t, edge, vec![near.event])?;
        let features = t.gather_rows(edge, events[0])?;
        let features = t.mean_rows(features, NEIGHBORS, Some(near.count))?;
        z = t.linear(features, edge_w, None, Some(z), Activation::Identity)?;
        if let Some(table) = data.features.node {
            let features = data.node_rows(t, table, unique.node)?;
            let features = t.gather_rows(features, unique.psi[0])?;
            z = t.linear(features, node_w, None, Some(z), Activation::Tanh)?;
        }
        Ok(Embeddings::new(z))
    }
}

struct Last {
    rows: BufferId,
    w: BufferId,
    last: BufferId,
}
impl EventModel for Last {
    fn state(&self) -> Vec<BufferId> {
        vec![self.last]
    }
    fn reset(&self, store: &mut Store) -> Result<()> {
        store.clear(self.last)
    }
    fn embed(&self, t: &mut Tape, data: &EventTables, q: &Queries) -> Result<Embeddings> {
        let [rows, w, last] = t.stored_all([self.rows, self.w, self.last])?;
        let unique = data.unique(t, q.node, &[], q.classes())?;
        let (rows, last) = (t.gather_rows(rows, unique.node)?, t.gather_rows(last, unique.node)?);
        let new = t.linear(last, w, None, Some(rows), Activation::Tanh)?;
        let z = t.gather_rows(new, unique.psi[0])?;
        let mut embedded = Embeddings::new(z);
        (embedded.unique, embedded.kept) = (Some(unique), vec![z]);
        Ok(embedded)
    }
    fn write(&self, t: &mut Tape, _: &EventTables, _: &Batch, _: usize, e: &Embeddings) -> Result<()> {
        let (last, unique) = (t.stored(self.last)?, e.unique_nodes()?);
        t.write_latest(last, (unique.node, unique.phi), e.kept[0])
    }
}

struct Remembering {
    time: TimeEncoding,
    memory: NodeMemory,
}
impl EventModel for Remembering {
    fn state(&self) -> Vec<BufferId> {
        self.memory.state()
    }
    fn mail_event(&self) -> Option<BufferId> {
        Some(self.memory.mail_event())
    }
    fn reset(&self, store: &mut Store) -> Result<()> {
        self.memory.reset(store)
    }
    fn embed(&self, t: &mut Tape, data: &EventTables, q: &Queries) -> Result<Embeddings> {
        let unique = data.unique(t, q.node, &[], q.classes())?;
        let updated = self.memory.update(t, data, &self.time, &unique, q.batch.as_ref())?;
        let z = t.gather_rows(updated.memory, unique.psi[0])?;
        Ok(Embeddings::new(z).with_memory(unique, updated))
    }
    fn write(
        &self,
        t: &mut Tape,
        data: &EventTables,
        batch: &Batch,
        stride: usize,
        e: &Embeddings,
    ) -> Result<()> {
        self.memory.write(t, data, batch, stride, e)
    }
}

/// Events with features and labels.
fn events() -> Events {
    let mut events = small(300);
    events.node_features = Some(Features::random(events.nodes, 2, 1));
    events.label = Some(events.src.iter().map(|v| f32::from(u8::from(v % 2 == 0))).collect());
    events
}

fn config(reads: Reads, task: TaskName) -> Config {
    let custom_model = Some(CustomModel::new(format!("{reads:?}"), reads));
    Config { epochs: 1, task, custom_model, ..crate::support::trainings::config(1, WIDTH) }
}

fn trained(config: &Config, out: &std::path::Path, resume: bool) -> Summary {
    let options =
        RunOptions { out: Some(out.into()), resume, command: "test".into(), ..RunOptions::default() };
    task::train(config, &events(), &Device::cpu(1).unwrap(), &options, &mut ()).unwrap()
}

#[test]
fn a_model_from_outside_trains_for_every_task_and_its_checkpoint_tests_and_embeds_as_it_did() {
    let dir = tempfile::tempdir().unwrap();
    for (i, task) in [TaskName::Link, TaskName::Node, TaskName::Edge].into_iter().enumerate() {
        for reads in [Reads::Rows, Reads::Neighbors, Reads::Last, Reads::Memory] {
            let (config, out) = (config(reads, task), dir.path().join(format!("{reads:?}{i}")));
            let summary = trained(&config, &out, false);
            assert_eq!(summary.model, format!("{reads:?}"));
            let (checkpoint, device) = (Checkpoint::at(&out), Device::cpu(1).unwrap());
            let again =
                task::evaluate(&checkpoint, &config, &events(), &device, "test", false, &mut ()).unwrap();
            assert_eq!(again.test, summary.test, "{reads:?} {task:?}");
            let times = [1 << 30; 2];
            let embedded =
                task::embed(&checkpoint, &config, &events(), &device, After::Validation, &[0, 3], &times);
            let (width, z) = embedded.unwrap();
            assert_eq!((width, z.len()), (WIDTH, 2 * WIDTH));
            assert!(z.iter().all(|x| x.is_finite()) && z[..WIDTH] != z[WIDTH..], "{reads:?} {task:?}: {z:?}");
        }
    }
}

#[test]
fn a_resumed_run_of_a_model_from_outside_has_the_bits_of_one_that_went_through() {
    let dir = tempfile::tempdir().unwrap();
    for reads in [Reads::Neighbors, Reads::Last] {
        let [whole, parts] = ["whole", "parts"].map(|name| dir.path().join(format!("{reads:?} {name}")));
        let of = |epochs| Config { epochs, ..config(reads, TaskName::Link) };
        let want = trained(&of(2), &whole, false).test;
        trained(&of(1), &parts, false);
        assert_eq!(trained(&of(2), &parts, true).test, want, "{reads:?}");
    }
}

#[test]
fn a_predictor_of_a_model_from_outside_embeds_as_the_run_does_and_remembers_what_arrives() {
    let (dir, events, device) = (tempfile::tempdir().unwrap(), events(), Device::cpu(1).unwrap());
    for reads in [Reads::Rows, Reads::Neighbors, Reads::Last, Reads::Memory] {
        let (config, out) = (config(reads, TaskName::Link), dir.path().join(format!("{reads:?}")));
        trained(&config, &out, false);
        let checkpoint = Checkpoint::at(&out);
        let options = PredictorOptions { batch: 2, ..PredictorOptions::default() };
        let mut predictor = Predictor::open(&checkpoint, &config, &device, &options).unwrap();
        let now = predictor.latest().unwrap() + 1;
        let (nodes, times) = ([0, 3, 70], [now; 3]);
        let found = predictor.embed(&nodes, &times).unwrap();
        let want = task::embed(&checkpoint, &config, &events, &device, After::Stream, &nodes, &times);
        assert_eq!(found, want.unwrap().1, "{reads:?}");
        // An event of the first node changes its embedding if the model remembers events.
        let features = events.edge_features.as_ref().unwrap().row(0);
        predictor.advance(&[NewEvent { src: 0, dst: 70, time: now, features }]).unwrap();
        let later = predictor.embed(&nodes, &[now + 1; 3]).unwrap();
        assert_eq!(later[..WIDTH] != found[..WIDTH], reads != Reads::Rows, "{reads:?}");
        assert!(later[WIDTH..2 * WIDTH] == found[WIDTH..2 * WIDTH] || reads == Reads::Last, "{reads:?}");
        let saved = dir.path().join(format!("{reads:?} saved"));
        predictor.save(&saved, &[]).unwrap();
        let mut reopened = Predictor::open(&Checkpoint::at(&saved), &config, &device, &options).unwrap();
        assert_eq!(reopened.embed(&nodes, &[now + 1; 3]).unwrap(), later, "{reads:?}");
    }
}

#[test]
fn a_model_that_reads_neighbours_must_say_so_before_a_stream_forgets_them() {
    let dir = tempfile::tempdir().unwrap();
    let none = config(Reads::NeighborsInSecret(0), TaskName::Link);
    let e = EventTask::new(&none, &events(), Device::cpu(1).unwrap()).map(|_| ()).unwrap_err();
    assert_eq!(
        (e.kind(), e.to_string()),
        (
            ErrorKind::Usage,
            "the model reads neighbours, and its recent_events says that it reads none; return their number from \
             ModelConfig::recent_events"
                .into()
        )
    );
    let (config, out) = (config(Reads::NeighborsInSecret(1), TaskName::Link), dir.path().join("run"));
    trained(&config, &out, false);
    let (device, options) = (Device::cpu(1).unwrap(), PredictorOptions::default());
    let e = Predictor::open(&Checkpoint::at(&out), &config, &device, &options).unwrap_err();
    assert_eq!(
        (e.kind(), e.to_string()),
        (
            ErrorKind::Usage,
            "the model reads 3 neighbours of a node, and its recent_events says 1; return 3 from \
             ModelConfig::recent_events"
                .into()
        )
    );
}

#[test]
fn embeddings_of_another_width_or_number_than_the_model_says_are_refused_before_training() {
    for (reads, kind, texts) in [
        (Reads::Narrow, ErrorKind::Shape, ["embed: the model gives F32 [<=", ", 4], want F32 [<="]),
        (Reads::Few, ErrorKind::Shape, ["embed: the model gives F32 [<=100, 8]", ", want F32 [<=300, 8]"]),
        (Reads::Nothing, ErrorKind::Usage, ["the model has width 0 and gap_quantile 1", "give a width of 1"]),
    ] {
        let config = config(reads, TaskName::Link);
        let options = RunOptions { command: "test".into(), ..RunOptions::default() };
        let e = task::train(&config, &events(), &Device::cpu(1).unwrap(), &options, &mut ()).unwrap_err();
        assert_eq!(e.kind(), kind, "{e}");
        assert!(texts.iter().all(|text| e.to_string().contains(text)), "{e}");
    }
}
