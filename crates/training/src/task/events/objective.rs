//! The objectives of event tasks: links or classes, with their tables and metrics.
use super::candidates::Candidates;
use crate::{
    model::{HeadKind, Negatives},
    task::{
        config::{Config, TaskName},
        evaluation::Scores,
    },
};
use tgnn::{
    error::{Error, Result},
    ops::Tape,
    runtime::*,
};
use tgnn_data::{ClassTable, Classes, Events, Part, Split, text::grouped};

/// Salt of the draws of training negatives.
const TRAINING_NEGATIVES: u32 = 0x7261;

/// Logit that makes the loss of a decision 0 if the answer is no.
const CERTAIN_NO: f32 = -1e4;

/// What a task predicts of an event.
pub(super) enum Objective {
    /// The event among its candidates.
    Links(Candidates),
    /// The classes of the event, or of its source, and what they stand for.
    Classes(Classes, ClassTable),
}

/// The classes of events as the recorded programs read them.
#[derive(Clone, Copy)]
pub(super) struct LabelTables {
    /// `[events, most classes of an event]` u32.
    pub classes: BufferId,
    /// What leaves out the events without a label; `None` if all have one.
    pub unlabelled: Option<Unlabelled>,
}

/// What leaves the events without a label out of the loss.
#[derive(Clone, Copy)]
pub(super) struct Unlabelled {
    /// `[events, 1]` u32: 1 for an event without a label, else 0.
    row: BufferId,
    /// `[2, classes]` f32: what the logits of such events are multiplied by, and then added to them.
    factor_and_offset: [BufferId; 2],
    /// Training events per training event with a label, so that the loss is a mean over those.
    scale: f32,
}

impl LabelTables {
    /// Appends the loss of a batch of the given events.
    pub fn loss(&self, t: &mut Tape, logits: Var, event: Var, positive_weight: f32) -> Result<Var> {
        let labels = t.stored(self.classes)?;
        let labels = t.gather_rows(labels, event)?;
        let Some(Unlabelled { row, factor_and_offset, scale }) = self.unlabelled else {
            return t.label_loss(logits, labels, positive_weight);
        };
        let (row, tables) = (t.stored(row)?, t.stored_all(factor_and_offset)?);
        let row = t.gather_rows(row, event)?;
        let of_event = t.gather_all_rows(&tables, row)?;
        let logits = t.mul(logits, of_event[0])?;
        let logits = t.add(logits, of_event[1])?;
        let loss = t.label_loss(logits, labels, positive_weight)?;
        t.scale(loss, scale)
    }
}

/// An objective, with the inputs of the recorded programs.
pub(super) struct Target {
    pub objective: Objective,
    pub head: HeadKind,
    /// Negatives of training, and of evaluation.
    pub negatives: [Negatives; 2],
    /// The classes, if the task predicts classes.
    pub labels: Option<LabelTables>,
    /// What the user should know, each with a one-word label.
    pub remarks: Vec<(&'static str, String)>,
}

impl Target {
    /// Creates the target of a configuration, for batches of `batch` events.
    ///
    /// # Errors
    /// `Data` if the data lack what the task learns from; `Usage` if the task does not fit the model.
    pub fn new(
        config: &Config,
        events: &Events,
        (split, classes): (&Split, Option<&ClassTable>),
        batch: usize,
        store: &mut Store,
    ) -> Result<Self> {
        match (config.task, classes) {
            (TaskName::Link, _) => Self::links(config, events, split, batch, store),
            (_, Some(table)) => Self::classes(config, events, (split, table), store),
            (TaskName::Regression, None) => {
                Err(Error::usage(format!("{} predicts no values of nodes", config.model_name()))
                    .remedy("give task=link, node or edge, or a model of snapshots"))
            }
            (_, None) => Err(Error::usage("labels of nodes are predicted at their times, not by event")
                .remedy("use task=link, node or edge here")),
        }
    }
    fn links(
        config: &Config,
        events: &Events,
        split: &Split,
        batch: usize,
        store: &mut Store,
    ) -> Result<Self> {
        let mut table = |name, pool: &[u32]| store.values(name, Spec::ids(Rows::fixed(pool.len()), 1), pool);
        let pool = config.protocol.pool(events);
        let id = table("negatives", &pool)?;
        let training_pool = config.protocol.training_pool(events, split);
        let training_id =
            if training_pool == pool { id } else { table("training negatives", &training_pool)? };
        let candidates = Candidates::new(config, events, split, batch, store, (pool, id))?;
        let training = Negatives::Drawn { pool: training_id, per_event: 1, salt: TRAINING_NEGATIVES };
        let negatives = [training, candidates.negatives()];
        Ok(Target {
            objective: Objective::Links(candidates),
            head: HeadKind::Links,
            negatives,
            labels: None,
            remarks: vec![],
        })
    }
    fn classes(
        config: &Config,
        events: &Events,
        (split, table): (&Split, &ClassTable),
        store: &mut Store,
    ) -> Result<Self> {
        let classes = events.classes_by(table)?.into_owned();
        let (width, count) = (config.classify.width, classes.count());
        let head = match config.task {
            TaskName::Node => HeadKind::Nodes { width, classes: count },
            _ => HeadKind::Edges { width, classes: count },
        };
        let spec = Spec::ids(Rows::fixed(events.len()), classes.most());
        let unlabelled = unlabelled(events, &classes, split, store)?;
        let labels =
            Some(LabelTables { classes: store.table("classes", spec, classes.table())?, unlabelled });
        let remarks = remarks(events, &classes, (split, table));
        let objective = Objective::Classes(classes, table.clone());
        Ok(Target { objective, head, negatives: [Negatives::None; 2], labels, remarks })
    }
}

/// Adds the tables that leave out the events without a label, if there are some.
fn unlabelled(
    events: &Events,
    classes: &Classes,
    split: &Split,
    store: &mut Store,
) -> Result<Option<Unlabelled>> {
    if !classes.lack_labels() {
        return Ok(None);
    }
    let labelled = split.train.clone().filter(|&event| classes.is_labelled(event)).count();
    if labelled == 0 {
        return Err(Error::data(&events.name, "no event of the training part has a label")
            .remedy("label some, or train on a larger part (data.train)"));
    }
    let rows: Vec<u32> = (0..events.len()).map(|event| (!classes.is_labelled(event)).into()).collect();
    let width = classes.count();
    let mut table = |name, [labelled, unlabelled]: [f32; 2]| {
        let values = [vec![labelled; width], vec![unlabelled; width]].concat();
        store.values(name, Spec::real(Rows::fixed(2), width), &values)
    };
    let factor_and_offset =
        [table("factors of logits", [1.0, 0.0])?, table("offsets of logits", [0.0, CERTAIN_NO])?];
    Ok(Some(Unlabelled {
        row: store.values("unlabelled", Spec::ids(Rows::fixed(rows.len()), 1), &rows)?,
        factor_and_offset,
        scale: split.train.len() as f32 / labelled as f32,
    }))
}

/// Returns what the user should know of the classes.
fn remarks(
    events: &Events,
    classes: &Classes,
    (split, table): (&Split, &ClassTable),
) -> Vec<(&'static str, String)> {
    let mut remarks = vec![("classes", table.to_string())];
    let without = (0..events.len()).filter(|&event| !classes.is_labelled(event)).count();
    if without > 0 {
        let [without, all] = [without, events.len()].map(|n| grouped(n as u64));
        let what =
            format!("{without} of {all} events have no label: the model sees them, no score counts them");
        remarks.push(("note", what));
    }
    remarks.extend(events.note_of_no_label(Some(table)).map(|note| ("note", note)));
    let seen = |events: std::ops::Range<usize>| {
        let mut seen = vec![false; table.names().len()];
        for event in events.filter(|&event| classes.is_labelled(event)) {
            match (table, classes.get(event)) {
                (ClassTable::Decision(_), set) => seen[set.len()] = true,
                (_, set) => set.iter().for_each(|&class| seen[class as usize] = true),
            }
        }
        seen
    };
    let (early, late) = (seen(split.train.clone()), seen(split.train.end..events.len()));
    let names: Vec<(String, bool, bool)> =
        table.names().into_iter().zip(early).zip(late).map(|((name, a), b)| (name, a, b)).collect();
    let which = |early, late| {
        let names = names.iter().filter(|(_, a, b)| (*a, *b) == (early, late)).map(|(name, ..)| name.clone());
        Some(names.collect::<Vec<_>>()).filter(|names| !names.is_empty()).map(|names| listed(&names))
    };
    let unlearned = which(false, true).map(|names| format!("classes only after the training part: {names}"));
    // Only the table of an earlier version, or of other data, has such classes.
    let absent = which(false, false).map(|names| {
        format!("classes without an event, which every score counts as easy to rule out: {names}")
    });
    remarks.extend(unlearned.into_iter().chain(absent).map(|note| ("note", note)));
    remarks
}

/// Lists names, at most ten of them.
fn listed(names: &[String]) -> String {
    const MOST: usize = 10;
    let more = if names.len() > MOST { ", …" } else { "" };
    format!("{}{more}", names[..names.len().min(MOST)].join(", "))
}

impl Objective {
    /// Returns what the classes stand for, if these are predicted.
    pub fn class_table(&self) -> Option<&ClassTable> {
        match self {
            Objective::Classes(_, table) => Some(table),
            Objective::Links(_) => None,
        }
    }
    /// Returns the number of scores of an event: one per candidate, or one per class.
    pub fn columns(&self, store: &Store) -> usize {
        match self {
            Objective::Links(candidates) => candidates.columns(store),
            Objective::Classes(classes, _) => classes.count(),
        }
    }
    /// Computes the metrics of a part, whose first event is `first`, from a table of scores with `columns`
    /// columns. If there is a `mask`, only events for which it is true count.
    pub fn measure(
        &self,
        table: &[f32],
        columns: usize,
        part: Part,
        first: usize,
        mask: Option<&[bool]>,
    ) -> Scores {
        match self {
            Objective::Links(candidates) => candidates.measure(table, columns, part, mask),
            Objective::Classes(classes, _) => {
                let rows = table.chunks_exact(columns).enumerate();
                let counts = |i: usize| mask.is_none_or(|m| m[i]) && classes.is_labelled(first + i);
                let picked = rows.filter(|(i, _)| counts(*i));
                Scores::of_classes(picked.map(|(i, row)| (row, classes.get(first + i))))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tgnn::{autograd::Program, ops::Backend};

    /// Returns the loss of three events, and the gradients of their logits; the labels are those of the first
    /// and the last event, and `middle`.
    fn learned(middle: f32) -> (f32, Vec<f32>) {
        let mut events = Events::new("test", vec![0; 4], vec![1; 4], vec![0, 1, 2, 3]).unwrap();
        events.label = Some(vec![1.0, middle, 0.0, 2.0]);
        let classes = events.class_labels().unwrap().into_owned();
        let split = Split { train: 0..3, val: 3..4, test: 4..4, unseen: Vec::new() };
        let mut store = Store::new(Precision::F32);
        let spec = Spec::ids(Rows::fixed(4), classes.most());
        let labels = LabelTables {
            classes: store.table("classes", spec, classes.table()).unwrap(),
            unlabelled: unlabelled(&events, &classes, &split, &mut store).unwrap(),
        };
        let mut t = Tape::new(&store);
        let values = [0.5f32, -1.0, 2.0, 3.0, 80.0, -3.0, -2.0, 0.0, 1.0];
        let logits = t.input(&mut store, "logits", Spec::real(Rows::fixed(3), 3), &values).unwrap();
        let event = t.input(&mut store, "event", Spec::ids(Rows::fixed(3), 1), &[0u32, 1, 2]).unwrap();
        let one = t.input(&mut store, "one", Spec::real(Rows::fixed(1), 1), &[1.0f32]).unwrap();
        let loss = labels.loss(&mut t, logits, event, 2.0).unwrap();
        let gradient = t.backward(loss, one, &[logits]).unwrap()[0];
        let mut program = Program::new(&t, &[loss, gradient], Precision::F32, Backend::Cpu).unwrap();
        program.run(&mut store).unwrap();
        let read = |var| program.read::<f32>(var, &store).unwrap().to_vec();
        (read(loss)[0], read(gradient))
    }

    #[test]
    fn an_event_without_a_label_has_no_loss_and_no_gradient_and_the_mean_is_over_the_others() {
        let (_, all) = learned(2.0);
        let (loss, some) = learned(f32::NAN);
        assert_eq!(some[3..6], [0.0; 3]);
        // The mean is over two events instead of three.
        let scaled = |part: &[f32]| part.iter().map(|x| 1.5 * x).collect::<Vec<_>>();
        for (got, want) in [(&some[..3], scaled(&all[..3])), (&some[6..], scaled(&all[6..]))] {
            assert!(got.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-6), "{got:?}, not {want:?}");
        }
        let softplus = |x: f64| x.exp().ln_1p();
        let positive = 2.0 * (softplus(1.0) + softplus(2.0));
        let negative = softplus(0.5) + softplus(2.0) + softplus(0.0) + softplus(1.0);
        assert!((f64::from(loss) - (positive + negative) / 6.0).abs() < 1e-6, "{loss}");
    }
}
