//! Heads of classification, on inputs that determine the classes.
use crate::support::devices::device;
use tgnn::{
    autograd::{Parameters, Program},
    error::{ErrorKind, Result},
    ops::{Backend, Tape, next_batch::Batch},
    runtime::*,
};
use tgnn_data::{Events, SynthOptions, synth};
use tgnn_training::{
    model::{EdgeHead, EventTables, NodeHead},
    task::Scores,
};

const BATCH: usize = 100;
/// Roots per event, without negatives.
const STRIDE: usize = 2;

/// Generates a stream whose node features reveal the types that determine the classes.
fn stream() -> Events {
    synth(&SynthOptions {
        events: 3_000,
        sources: 60,
        destinations: 40,
        edge_features: 0,
        node_features: 16,
        classes: 16,
        labels: 2,
        signal: 1.0,
        ..SynthOptions::default()
    })
    .unwrap()
}

enum Head {
    Node(NodeHead),
    Edge(EdgeHead),
}
impl Head {
    fn record(&self, t: &mut Tape, z: Var, batch: &Batch) -> Result<Var> {
        match self {
            Head::Node(head) => head.record(t, z, batch, STRIDE),
            Head::Edge(head) => head.record(t, z, batch, STRIDE),
        }
    }
}

/// Trains a head for some epochs, with node features in place of embeddings. Returns the losses of all steps,
/// and the scores of the first and the last epoch; every event is scored before its batch is learned.
fn train(
    events: &Events,
    backend: Backend,
    epochs: u32,
    head: impl Fn(&mut Parameters, &mut Store, usize, usize) -> Head,
) -> (Vec<f32>, [Scores; 2]) {
    let sets = events.class_labels().unwrap();
    let mut store = Store::new(Precision::F32);
    let tables = EventTables::new(&mut store, events).unwrap();
    let spec = Spec::ids(Rows::fixed(events.len()), sets.most());
    let labels = store.table("classes", spec, sets.table()).unwrap();
    let mut parameters = Parameters::new(&mut store, 1, 0.01).unwrap();
    let head = head(&mut parameters, &mut store, events.node_width(), sets.count());
    let mut t = Tape::new(&store);
    let batch = tables.next_batch(&mut t, BATCH).unwrap();
    let (node, _) = t.roots(batch.src, batch.dst, batch.time, None).unwrap();
    let features = t.stored(tables.features.node.unwrap()).unwrap();
    let z = t.gather_rows(features, node).unwrap();
    let logits = head.record(&mut t, z, &batch).unwrap();
    let labels = t.stored(labels).unwrap();
    let labels = t.gather_rows(labels, batch.event).unwrap();
    let loss = t.label_loss(logits, labels, 1.0).unwrap();
    parameters.minimize(&mut t, loss).unwrap();
    let mut program = Program::new(&t, &[loss, logits], Precision::F32, backend).expect("room");
    let (mut losses, mut scores) = (Vec::new(), Vec::new());
    for epoch in 0..epochs {
        tables.seek(&mut store, epoch, 0..events.len(), 0).unwrap();
        let mut scored = Vec::new();
        for _ in 0..events.len().div_ceil(BATCH) {
            program.run(&mut store).unwrap();
            losses.push(program.read::<f32>(loss, &store).unwrap()[0]);
            scored.extend(program.read::<f32>(logits, &store).unwrap());
        }
        assert_eq!(scored.len(), events.len() * sets.count());
        let rows = scored.chunks_exact(sets.count()).zip((0..events.len()).map(|i| sets.get(i)));
        scores.push(Scores::of_classes(rows));
    }
    (losses, [scores[0], scores[scores.len() - 1]])
}

fn node_head(p: &mut Parameters, store: &mut Store, d: usize, classes: usize) -> Head {
    Head::Node(NodeHead::new(p, store, d, 32, classes).unwrap())
}
fn edge_head(p: &mut Parameters, store: &mut Store, d: usize, classes: usize) -> Head {
    Head::Edge(EdgeHead::new(p, store, d, 32, classes).unwrap())
}

#[test]
fn a_head_learns_the_classes_that_its_sides_of_the_embeddings_determine() {
    let events = stream();
    for (head, name, f1, auc) in [
        (node_head as fn(&mut Parameters, &mut Store, usize, usize) -> Head, "node", 0.5, 0.95),
        (edge_head, "edge", 0.99, 0.999),
    ] {
        let (losses, [first, last]) = train(&events, Backend::Cpu, 10, head);
        assert!(losses[0] > 0.6 && losses[losses.len() - 1] < 0.5 * losses[0], "{name}: {losses:?}");
        assert!(last.f1 > Some(f1) && last.f1 > first.f1, "{name}: {first:?}, then {last:?}");
        assert!(last.auc > Some(auc) && last.accuracy.is_none(), "{name}: {last:?}");
    }
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu, or a GPU and TGNN_TEST_DEVICE=cuda")]
fn a_head_learns_the_same_on_a_device_as_on_the_cpu() {
    let Some(on) = device(0) else { return };
    let events = synth(&SynthOptions {
        events: 2 * BATCH + 7,
        sources: 9,
        destinations: 0,
        edge_features: 0,
        node_features: 8,
        classes: 5,
        ..SynthOptions::default()
    })
    .unwrap();
    for head in [node_head, edge_head] {
        let (want, _) = train(&events, Backend::Cpu, 1, head);
        let (got, _) = train(&events, Backend::Cuda(on.gpu.clone()), 1, head);
        assert!(want.iter().zip(&got).all(|(a, b)| (a - b).abs() < 1e-5 * a), "{got:?}, not {want:?}");
    }
}

#[test]
fn a_label_beyond_the_classes_and_a_loss_that_is_not_finite_are_faults_with_their_row() {
    let test_device = device(0);
    let cuda = test_device.as_ref().map(|d| Backend::Cuda(d.gpu.clone()));
    let backends = [Some(Backend::Definition), Some(Backend::Cpu), cuda];
    for backend in backends.into_iter().flatten() {
        let fault = |logits: [f32; 6], labels: [u32; 2]| {
            let mut store = Store::new(Precision::F32);
            let mut t = Tape::new(&store);
            let logits = store.values("logits", Spec::real(Rows::fixed(2), 3), &logits).unwrap();
            let labels = store.values("labels", Spec::ids(Rows::fixed(2), 1), &labels).unwrap();
            let (logits, labels) = (t.stored(logits).unwrap(), t.stored(labels).unwrap());
            let loss = t.label_loss(logits, labels, 1.0).unwrap();
            let mut program = Program::new(&t, &[loss], Precision::F32, backend.clone()).expect("room");
            program.run(&mut store).err().map(|e| (e.kind(), e.to_string()))
        };
        let finite = [0.5, -1.0, 2.0, 0.0, 3.0, -4.0];
        assert_eq!(fault(finite, [2, NONE]), None);
        let (kind, text) = fault(finite, [0, 3]).unwrap();
        assert!(kind == ErrorKind::Data && text.starts_with("label_loss: row 1"), "{backend:?}: {text}");
        let mut not_finite = finite;
        not_finite[4] = f32::INFINITY;
        let (kind, text) = fault(not_finite, [0, 2]).unwrap();
        assert!(
            kind == ErrorKind::Diverged && text.starts_with("label_loss: row 1 is inf"),
            "{backend:?}: {text}"
        );
        not_finite[2] = f32::NAN;
        let (kind, text) = fault(not_finite, [NONE, 1]).unwrap();
        assert!(
            kind == ErrorKind::Diverged && text.starts_with("label_loss: row 0 is NaN"),
            "{backend:?}: {text}"
        );
    }
}

#[test]
fn a_loss_with_mismatched_rows_or_a_bad_weight_is_refused() {
    let mut store = Store::new(Precision::F32);
    let mut t = Tape::new(&store);
    let logits = store.zeros("logits", Spec::real(Rows::fixed(2), 3)).unwrap();
    let [two, three] = [2, 3].map(|n| store.zeros("labels", Spec::ids(Rows::fixed(n), 1)).unwrap());
    let [logits, two, three] = t.stored_all([logits, two, three]).unwrap();
    assert!(t.label_loss(logits, two, 20.0).is_ok());
    assert!(t.label_loss(logits, three, 1.0).is_err());
    for weight in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        assert!(t.label_loss(logits, two, weight).is_err(), "{weight}");
    }
    assert!(t.root_rows(two, 2, 1).is_ok() && t.root_rows(two, 2, 2).is_err());
}
