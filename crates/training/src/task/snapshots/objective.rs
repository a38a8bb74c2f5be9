//! The objectives of snapshot tasks: edges of a step, or classes or values of its vertices, with their heads
//! and losses.
use super::SnapshotSplit;
use crate::{
    model::{LinkHead, SnapshotTables},
    task::config::{Config, TaskName},
};
use std::{ops::Range, sync::Arc};
use tgnn::{
    autograd::{
        Parameters,
        ScaledInit::{Constant, FanIn},
    },
    error::{Error, ErrorKind, Result},
    ops::{
        Section, Tape,
        epilogue::Activation::{Identity, Relu},
        next_group::Group,
    },
    runtime::*,
};
use tgnn_data::{ClassTable, Snapshots};

/// Salts of the random draws of training and of evaluation.
const TRAIN: u32 = 0x7274;
const EVALUATE: u32 = 0x7665;

/// The kind of items to predict, with their tables and the parameters of the head. An item is an edge or a
/// vertex of a step.
pub(super) enum Goal {
    /// The step's edges, each to be told apart from `negatives` other pairs with the same source.
    Links { ends: [BufferId; 2], negatives: usize, unseen: Vec<bool>, candidates: BufferId, head: LinkHead },
    /// Vertices with a class.
    Classes { vertex: BufferId, class: BufferId, known: Vec<u32>, table: ClassTable, head: [BufferId; 4] },
    /// Vertices with target values; a difference of 1 between values is `unit` in the units of the data.
    Values { vertex: BufferId, want: BufferId, known: Vec<f32>, unit: f64, head: [BufferId; 2] },
}

/// The objective of a task: the items to predict and the table of their scores.
pub(super) struct Objective {
    pub(super) goal: Goal,
    /// The first item of each step; one more entry than there are steps.
    pub(super) offsets: Vec<usize>,
    offset_table: BufferId,
    /// The first item of the pass.
    base: BufferId,
    /// Maximum number of items of a step.
    capacity: usize,
    /// One row for each item of the longest part.
    pub(super) scores: BufferId,
    /// Width of a row of `scores`.
    pub(super) columns: usize,
    /// Buffers to copy to the host after an evaluation.
    results: Vec<BufferId>,
    pub(super) seed: u64,
}

/// A goal, with the first item of each step and the number of scores of an item.
struct Items {
    goal: Goal,
    offsets: Vec<usize>,
    columns: usize,
}

/// The inputs from which goals are built.
struct Builder<'a> {
    config: &'a Config,
    snapshots: &'a Snapshots,
    classes: ClassTable,
    split: &'a SnapshotSplit,
    /// Width of the embeddings.
    width: usize,
    parameters: &'a mut Parameters,
    store: &'a mut Store,
}

/// Returns the error for snapshots that lack `what`.
fn lacks(snapshots: &Snapshots, what: &str, remedy: &str) -> Error {
    Error::new(ErrorKind::Data, format!("{} has no {what}", snapshots.name)).remedy(remedy.to_owned())
}

fn ids(n: usize) -> Spec {
    Spec::ids(Rows::fixed(n), 1)
}

impl Builder<'_> {
    fn links(self) -> Result<Items> {
        let (snapshots, width) = (self.snapshots, self.width);
        let negatives = self.config.group.negatives;
        let columns = 1 + negatives;
        let rows = most_items(self.split, &snapshots.offsets);
        check_room("candidates", 8 * rows * columns, "take fewer negatives: group.negatives")?;
        let mut end = |name, ends: &[u32]| self.store.table(name, ids(ends.len()), Arc::new(ends.to_vec()));
        let ends = [end("edge src", &snapshots.src)?, end("edge dst", &snapshots.dst)?];
        let candidates = self.store.zeros("candidates", Spec::ids(Rows::fixed(rows), columns))?;
        // Biases start at zero, as in the implementations that results are compared with.
        let head = LinkHead::new(self.parameters, self.store, width, width, Some(Constant(0.0)))?;
        let unseen = unseen(snapshots, self.split);
        let goal = Goal::Links { ends, negatives, unseen, candidates, head };
        Ok(Items { goal, offsets: snapshots.offsets.clone(), columns })
    }
    fn classes(self) -> Result<Items> {
        if self.snapshots.classes.is_none() {
            let remedy = "take a data set with labels: --set snapshots.classes=true";
            return Err(lacks(self.snapshots, "classes of vertices", remedy));
        }
        let (table, classes) = (self.classes.clone(), self.snapshots.classes_by(&self.classes)?);
        let (vertex, offsets) = vertices_where(self.snapshots, |at| classes[at] != NONE);
        let known: Vec<u32> = classes.iter().copied().filter(|&class| class != NONE).collect();
        let count = table.count();
        if count < 2 {
            let remedy = "take a data set with more labels";
            return Err(lacks(self.snapshots, "two classes to tell apart", remedy));
        }
        let vertex = self.store.table("labelled vertices", ids(vertex.len()), Arc::new(vertex))?;
        let class = self.store.table("classes", ids(known.len()), Arc::new(known.clone()))?;
        let (width, hidden) = (self.width, self.config.classify.width);
        let mut add = |name: &str, rows, cols, fan_in| {
            self.parameters.add(self.store, &format!("class_head.{name}"), rows, cols, FanIn(fan_in))
        };
        let head = [
            add("w_1", hidden, width, width)?,
            add("b_1", 1, hidden, width)?,
            add("w_out", count, hidden, hidden)?,
            add("b_out", 1, count, hidden)?,
        ];
        Ok(Items { goal: Goal::Classes { vertex, class, known, table, head }, offsets, columns: count })
    }
    fn values(self) -> Result<Items> {
        let snapshots = self.snapshots;
        let targets = snapshots.targets.as_ref().ok_or_else(|| {
            let remedy = "take a series, such as PyTorch Geometric Temporal's JSON";
            lacks(snapshots, "values to be predicted", remedy)
        })?;
        let (width, columns) = (self.width, targets.cols());
        let (vertex, offsets) = vertices_where(snapshots, |at| targets.row(at).iter().any(|x| !x.is_nan()));
        let items = (0..snapshots.len()).flat_map(|s| std::iter::repeat(s).zip(offsets[s]..offsets[s + 1]));
        let row = |(s, item): (usize, usize)| targets.row(s * snapshots.nodes + vertex[item] as usize);
        let known: Vec<f32> = items.flat_map(|at| row(at).iter().copied()).collect();
        let spec = Spec::real(Rows::fixed(vertex.len()), columns);
        let want = self.store.table("values", spec, Arc::new(known.clone()))?;
        let vertex = self.store.table("vertices with values", ids(vertex.len()), Arc::new(vertex))?;
        let mut add = |name: &str, rows, cols| {
            self.parameters.add(self.store, &format!("value_head.{name}"), rows, cols, FanIn(width))
        };
        let head = [add("w", columns, width)?, add("b", 1, columns)?];
        let goal = Goal::Values { vertex, want, known, unit: snapshots.target_unit, head };
        Ok(Items { goal, offsets, columns })
    }
}

/// Returns the number of items of the larger of the validation and the test part.
fn most_items(split: &SnapshotSplit, offsets: &[usize]) -> usize {
    let items = |steps: &Range<usize>| offsets[steps.end] - offsets[steps.start];
    items(&split.val).max(items(&split.test))
}

/// Returns the vertices of each step that `known` accepts, and the position at which each step's vertices
/// begin. `known` takes the row index `step * nodes + vertex`.
fn vertices_where(snapshots: &Snapshots, known: impl Fn(usize) -> bool) -> (Vec<u32>, Vec<usize>) {
    let (mut vertices, mut offsets): (Vec<u32>, Vec<usize>) = (Vec::new(), vec![0]);
    for s in 0..snapshots.len() {
        vertices.extend((0..snapshots.nodes as u32).filter(|&v| known(s * snapshots.nodes + v as usize)));
        offsets.push(vertices.len());
    }
    (vertices, offsets)
}

impl Objective {
    /// The prefixes of the names of the heads' parameters.
    pub const HEADS: &[&str] = &["decoder.", "class_head.", "value_head."];

    /// Adds the tables and the head's parameters, for embeddings of `width`.
    ///
    /// # Errors
    /// `Data` if the snapshots lack what is to be predicted; `Usage` if snapshots have no such task;
    /// `OutOfMemory`.
    pub fn new(
        config: &Config,
        (snapshots, classes): (&Snapshots, ClassTable),
        split: &SnapshotSplit,
        width: usize,
        parameters: &mut Parameters,
        store: &mut Store,
    ) -> Result<Self> {
        let builder = Builder { config, snapshots, classes, split, width, parameters, store: &mut *store };
        let Items { goal, offsets, columns } = match config.task {
            TaskName::Link => builder.links()?,
            TaskName::Node => builder.classes()?,
            TaskName::Regression => builder.values()?,
            TaskName::Edge | TaskName::Property => {
                let e = Error::usage(format!("snapshots have no task `{}`", config.task.name()));
                return Err(e.remedy("give link, node or regression"));
            }
        };
        let rows = most_items(split, &offsets);
        check_room("scores", 4 * rows * columns, "take fewer snapshots")?;
        let capacity = offsets.windows(2).map(|w| w[1] - w[0]).max().unwrap_or(0);
        let table: Vec<u32> = offsets.iter().map(|&o| o as u32).collect();
        let offset_table = store.table("item offsets", ids(table.len()), Arc::new(table))?;
        let scores = store.zeros("scores", Spec::real(Rows::fixed(rows), columns))?;
        let base = store.zeros("base", Spec::count())?;
        let mut results = vec![scores];
        if let Goal::Links { candidates, .. } = goal {
            results.push(candidates);
        }
        Ok(Objective {
            goal,
            offsets,
            offset_table,
            base,
            capacity,
            scores,
            columns,
            results,
            seed: config.seed,
        })
    }
    /// Returns what the classes stand for, if these are predicted.
    pub fn class_table(&self) -> Option<&ClassTable> {
        match &self.goal {
            Goal::Classes { table, .. } => Some(table),
            Goal::Links { .. } | Goal::Values { .. } => None,
        }
    }
    /// Returns the buffers to copy to the host after an evaluation.
    pub fn results(&self) -> &[BufferId] {
        &self.results
    }
    /// Prepares a pass that predicts the steps of `targets`.
    pub fn begin(&self, store: &mut Store, targets: Range<usize>) -> Result<()> {
        store.write(self.base, &[self.offsets[targets.start.min(self.offsets.len() - 1)] as u32])
    }
    /// Appends the prediction of a group's target from the embeddings `z` of the vertices. In training,
    /// returns the loss; else writes the scores of the items to the table of scores and returns `None`.
    pub fn record(
        &self,
        t: &mut Tape,
        data: &SnapshotTables,
        group: &Group,
        z: Var,
        train: bool,
    ) -> Result<Option<Var>> {
        t.begin(Some(Section { index: group.length, name: "prediction" }));
        let [offsets, base] = t.stored_all([self.offset_table, self.base])?;
        let items = t.step_items(offsets, group.target, base, self.capacity)?;
        let by_item = |t: &mut Tape, id: BufferId| {
            let table = t.stored(id)?;
            t.gather_rows(table, items.item)
        };
        let (logits, loss) = match &self.goal {
            Goal::Links { ends, negatives, candidates, head, .. } => {
                let [from, to] = t.stored_all(*ends)?;
                let (m, salt) = if train { (1, TRAIN) } else { (*negatives, EVALUATE) };
                let step = (offsets, group.target);
                let drawn =
                    t.draw_non_edges([from, to], step, items, group.now, data.nodes, m, self.seed, salt)?;
                let src = t.gather_rows(from, items.item)?;
                let logits = head.record_pairs(t, z, src, drawn)?;
                if !train {
                    let table = t.stored(*candidates)?;
                    t.write_rows(table, items.rank, drawn)?;
                }
                (logits, train.then(|| t.bce_loss(logits)))
            }
            Goal::Classes { vertex, class, head, .. } => {
                let [w_1, b_1, w_out, b_out] = t.stored_all(*head)?;
                let vertex = by_item(t, *vertex)?;
                let z = t.gather_rows(z, vertex)?;
                let hidden = t.linear(z, w_1, Some(b_1), None, Relu)?;
                let logits = t.linear(hidden, w_out, Some(b_out), None, Identity)?;
                let class = by_item(t, *class)?;
                (logits, train.then(|| t.label_loss(logits, class, 1.0)))
            }
            Goal::Values { vertex, want, head, .. } => {
                let [w, b] = t.stored_all(*head)?;
                let vertex = by_item(t, *vertex)?;
                let z = t.gather_rows(z, vertex)?;
                let values = t.linear(z, w, Some(b), None, Identity)?;
                let want = by_item(t, *want)?;
                (values, train.then(|| t.squared_loss(values, want)))
            }
        };
        if !train {
            let table = t.stored(self.scores)?;
            t.write_rows(table, items.rank, logits)?;
        }
        loss.transpose()
    }
}

/// Returns for each edge whether one of its ends has no edge in the steps before the end of the training
/// part.
fn unseen(snapshots: &Snapshots, split: &SnapshotSplit) -> Vec<bool> {
    let mut seen = vec![false; snapshots.nodes];
    for i in 0..snapshots.offsets[split.train.end] {
        seen[snapshots.src[i] as usize] = true;
        seen[snapshots.dst[i] as usize] = true;
    }
    let ends = snapshots.src.iter().zip(&snapshots.dst);
    ends.map(|(&u, &v)| !(seen[u as usize] && seen[v as usize])).collect()
}
