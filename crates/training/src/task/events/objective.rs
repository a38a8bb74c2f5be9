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
    runtime::*,
};
use tgnn_data::{Classes, Events, Part, Split};

/// Salt of the draws of training negatives.
const TRAINING_NEGATIVES: u32 = 0x7261;

/// What a task predicts of an event.
pub(super) enum Objective {
    /// The event among its candidates.
    Links(Candidates),
    /// The classes of the event, or of its source.
    Classes(Classes),
}

/// An objective, with the inputs of the recorded programs.
pub(super) struct Target {
    pub objective: Objective,
    pub head: HeadKind,
    /// Negatives of training, and of evaluation.
    pub negatives: [Negatives; 2],
    /// `[events, most classes of an event]` u32: the classes, if the task predicts classes.
    pub labels: Option<BufferId>,
}

impl Target {
    /// Creates the target of a configuration, for batches of `batch` events.
    ///
    /// # Errors
    /// `Data` if the data lack what the task learns from; `Usage` if the task does not fit the model.
    pub fn new(
        config: &Config,
        events: &Events,
        split: &Split,
        batch: usize,
        store: &mut Store,
    ) -> Result<Self> {
        match config.task {
            TaskName::Link => Self::links(config, events, split, batch, store),
            TaskName::Node | TaskName::Edge => Self::classes(config, events, store),
            TaskName::Regression => {
                Err(Error::usage(format!("{} predicts no values of nodes", config.model_name()))
                    .remedy("give task=link, node or edge, or a model of snapshots"))
            }
            TaskName::Property => {
                Err(Error::usage("labels of nodes are predicted at their times, not by event")
                    .remedy("use task=link, node or edge here"))
            }
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
        Ok(Target { objective: Objective::Links(candidates), head: HeadKind::Links, negatives, labels: None })
    }
    fn classes(config: &Config, events: &Events, store: &mut Store) -> Result<Self> {
        let classes = events.class_labels()?.into_owned();
        let (width, count) = (config.classify.width, classes.count());
        let head = match config.task {
            TaskName::Node => HeadKind::Nodes { width, classes: count },
            _ => HeadKind::Edges { width, classes: count },
        };
        let spec = Spec::ids(Rows::fixed(events.len()), classes.most());
        let labels = Some(store.table("classes", spec, classes.table())?);
        Ok(Target { objective: Objective::Classes(classes), head, negatives: [Negatives::None; 2], labels })
    }
}

impl Objective {
    /// Returns the number of scores of an event: one per candidate, or one per class.
    pub fn columns(&self, store: &Store) -> usize {
        match self {
            Objective::Links(candidates) => candidates.columns(store),
            Objective::Classes(classes) => classes.count(),
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
            Objective::Classes(classes) => {
                let rows = table.chunks_exact(columns).enumerate();
                let picked = rows.filter(|(i, _)| mask.is_none_or(|m| m[*i]));
                Scores::of_classes(picked.map(|(i, row)| (row, classes.get(first + i))))
            }
        }
    }
}
