//! What is predicted of a step: its edges, its vertices' classes, its vertices' values; the heads, the losses, the figures.
use super::{Config, TaskName, snapshot_split::SnapshotSplit};
use crate::{
    autograd::{
        Parameters,
        ScaledInit::{Constant, FanIn},
    },
    data::Snapshots,
    error::{Error, ErrorKind, Result},
    model::SnapshotTables,
    ops::{
        Section, Tape,
        epilogue::Activation::{Identity, Relu},
        next_group::Group,
    },
    runtime::*,
};
use std::{ops::Range, sync::Arc};

/// Sets the draws of training and of evaluation apart.
const TRAIN: u32 = 0x7274;
const EVALUATE: u32 = 0x7665;

/// What the items of a step are, and what there is to know of them.
pub(super) enum Goal {
    /// Its edges, each to be told from `negatives` other pairs of its source.
    Links {
        ends: [BufferId; 2],
        negatives: usize,
        unseen: Vec<bool>,
        candidates: BufferId,
        head: [BufferId; 5],
    },
    /// Vertices with a class.
    Classes { vertex: BufferId, class: BufferId, known: Vec<u32>, head: [BufferId; 4] },
    /// Vertices with values; a difference of 1 is `unit` of the data's.
    Values { vertex: BufferId, want: BufferId, known: Vec<f32>, unit: f64, head: [BufferId; 2] },
}

/// See the [module](self).
pub(super) struct Objective {
    pub(super) kind: Goal,
    /// Where the items of each step begin.
    pub(super) offsets: Vec<usize>,
    offset_table: BufferId,
    /// The first item of the pass.
    base: BufferId,
    /// Most items of a step.
    capacity: usize,
    /// A row for each item of the longest part, and what a row holds.
    pub(super) scores: BufferId,
    pub(super) columns: usize,
    results: Vec<BufferId>,
    seed: u64,
}

fn lacks(snapshots: &Snapshots, what: &str, remedy: &str) -> Error {
    Error::new(ErrorKind::Data, format!("{} has no {what}", snapshots.name)).remedy(remedy.to_owned())
}

impl Objective {
    /// How the names of the heads' parameters begin.
    pub const HEADS: &[&str] = &["decoder.", "class_head.", "value_head."];

    /// Adds tables and the head's parameters, for embeddings of `d`.
    pub fn new(
        config: &Config,
        snapshots: &Snapshots,
        split: &SnapshotSplit,
        d: usize,
        p: &mut Parameters,
        store: &mut Store,
    ) -> Result<Self> {
        let (steps, v) = (snapshots.len(), snapshots.nodes);
        let ids = |n| Spec::ids(Rows::fixed(n), 1);
        let mut offsets = vec![0usize];
        let mut vertex: Vec<u32> = Vec::new();
        // Vertices of each step that `known` finds.
        let mut listed = |known: &dyn Fn(usize) -> bool| {
            for s in 0..steps {
                vertex.extend((0..v as u32).filter(|&i| known(s * v + i as usize)));
                offsets.push(vertex.len());
            }
            (std::mem::take(&mut vertex), std::mem::take(&mut offsets))
        };
        let longest = |offsets: &[usize]| {
            let of = |r: &Range<usize>| offsets[r.end] - offsets[r.start];
            of(&split.val).max(of(&split.test))
        };
        let (kind, offsets, columns) = match config.task {
            TaskName::Link => {
                let negatives = config.group.negatives;
                let columns = 1 + negatives;
                let rows = longest(&snapshots.offsets);
                check_room("candidates", 8 * rows * columns, "take fewer negatives: group.negatives")?;
                let mut end =
                    |name, ids_of: &Vec<u32>| store.table(name, ids(ids_of.len()), Arc::new(ids_of.clone()));
                let ends = [end("edge src", &snapshots.src)?, end("edge dst", &snapshots.dst)?];
                let candidates = store.zeros("candidates", Spec::ids(Rows::fixed(rows), columns))?;
                let mut add = |name: &str, rows, cols| {
                    // Biases begin at zero, as those of the peers that results are held against.
                    let start = if name.starts_with("b") { Constant(0.0) } else { FanIn(d) };
                    p.add(store, &format!("decoder.{name}"), rows, cols, start)
                };
                let head = [
                    add("w_src", d, d)?,
                    add("w_dst", d, d)?,
                    add("b", 1, d)?,
                    add("w_out", 1, d)?,
                    add("b_out", 1, 1)?,
                ];
                let unseen = unseen(snapshots, split);
                (
                    Goal::Links { ends, negatives, unseen, candidates, head },
                    snapshots.offsets.clone(),
                    columns,
                )
            }
            TaskName::Node => {
                let classes = snapshots.classes.as_ref().ok_or_else(|| {
                    lacks(
                        snapshots,
                        "classes of vertices",
                        "take a data set with labels: --set snapshots.classes=true",
                    )
                })?;
                let (vertex, offsets) = listed(&|at| classes[at] != NONE);
                let count = classes.iter().filter(|&&c| c != NONE).max().map_or(0, |&c| c as usize + 1);
                if count < 2 {
                    return Err(lacks(
                        snapshots,
                        "two classes to tell apart",
                        "take a data set with more labels",
                    ));
                }
                let known: Vec<u32> = classes.iter().copied().filter(|&c| c != NONE).collect();
                let vertex = store.table("labelled vertices", ids(vertex.len()), Arc::new(vertex))?;
                let class = store.table("classes", ids(known.len()), Arc::new(known.clone()))?;
                let width = config.classify.width;
                let mut add = |name: &str, rows, cols, n| {
                    p.add(store, &format!("class_head.{name}"), rows, cols, FanIn(n))
                };
                let head = [
                    add("w_1", width, d, d)?,
                    add("b_1", 1, width, d)?,
                    add("w_out", count, width, width)?,
                    add("b_out", 1, count, width)?,
                ];
                (Goal::Classes { vertex, class, known, head }, offsets, count)
            }
            TaskName::Regression => {
                let targets = snapshots.targets.as_ref().ok_or_else(|| {
                    lacks(
                        snapshots,
                        "values to be predicted",
                        "take a series, such as PyTorch Geometric Temporal's JSON",
                    )
                })?;
                let columns = targets.cols();
                let (vertex, offsets) = listed(&|at| targets.row(at).iter().any(|x| !x.is_nan()));
                let rows = (0..steps).flat_map(|s| std::iter::repeat(s).zip(offsets[s]..offsets[s + 1]));
                let known: Vec<f32> =
                    rows.flat_map(|(s, i)| targets.row(s * v + vertex[i] as usize).iter().copied()).collect();
                let want = store.table(
                    "values",
                    Spec::real(Rows::fixed(vertex.len()), columns),
                    Arc::new(known.clone()),
                )?;
                let vertex = store.table("vertices with values", ids(vertex.len()), Arc::new(vertex))?;
                let mut add = |name: &str, rows, cols| {
                    p.add(store, &format!("value_head.{name}"), rows, cols, FanIn(d))
                };
                let head = [add("w", columns, d)?, add("b", 1, columns)?];
                (Goal::Values { vertex, want, known, unit: snapshots.target_unit, head }, offsets, columns)
            }
            TaskName::Edge => {
                return Err(
                    Error::usage("snapshots have no task `edge`").remedy("give link, node or regression")
                );
            }
        };
        let rows = longest(&offsets);
        check_room("scores", 4 * rows * columns, "take fewer snapshots")?;
        let capacity = offsets.windows(2).map(|w| w[1] - w[0]).max().unwrap_or(0);
        let table: Vec<u32> = offsets.iter().map(|&o| o as u32).collect();
        let offset_table = store.table("item offsets", ids(table.len()), Arc::new(table))?;
        let scores = store.zeros("scores", Spec::real(Rows::fixed(rows), columns))?;
        let base = store.zeros("base", Spec::count())?;
        let mut results = vec![scores];
        if let Goal::Links { candidates, .. } = kind {
            results.push(candidates);
        }
        Ok(Objective {
            kind,
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
    /// What is read back after an evaluation.
    pub fn results(&self) -> &[BufferId] {
        &self.results
    }
    /// Says which steps a pass predicts.
    pub fn begin(&self, store: &mut Store, targets: Range<usize>) -> Result<()> {
        store.write(self.base, &[self.offsets[targets.start.min(self.offsets.len() - 1)] as u32])
    }
    /// Appends the prediction of a group's target from the embeddings of the vertices; when training its loss, else the scores
    /// of its items are written down.
    pub fn record(
        &self,
        t: &mut Tape,
        store: &Store,
        data: &SnapshotTables,
        group: &Group,
        z: Var,
        train: bool,
    ) -> Result<Option<Var>> {
        t.begin(Some(Section { index: group.length, name: "prediction" }));
        let [offsets, base] = t.stored_all(store, [self.offset_table, self.base])?;
        let items = t.step_items(offsets, group.target, base, self.capacity)?;
        let of = |t: &mut Tape, id: BufferId| {
            let table = t.stored(store, id)?;
            t.gather_rows(table, items.item)
        };
        let (logits, loss) = match &self.kind {
            Goal::Links { ends, negatives, candidates, head, .. } => {
                let [w_src, w_dst, b, w_out, b_out] = t.stored_all(store, *head)?;
                let [from, to] = t.stored_all(store, *ends)?;
                let (m, salt) = if train { (1, TRAIN) } else { (*negatives, EVALUATE) };
                let step = (offsets, group.target);
                let drawn =
                    t.draw_non_edges([from, to], step, items, group.now, data.nodes, m, self.seed, salt)?;
                let src = t.gather_rows(from, items.item)?;
                let p = t.linear(z, w_src, None, None, Identity)?;
                let q = t.linear(z, w_dst, None, None, Identity)?;
                let logits = t.pair_logits([p, q], [b, w_out, b_out], src, drawn)?;
                if !train {
                    let table = t.stored(store, *candidates)?;
                    t.write_rows(table, items.rank, drawn)?;
                }
                (logits, train.then(|| t.bce_loss(logits)))
            }
            Goal::Classes { vertex, class, head, .. } => {
                let [w_1, b_1, w_out, b_out] = t.stored_all(store, *head)?;
                let vertex = of(t, *vertex)?;
                let z = t.gather_rows(z, vertex)?;
                let hidden = t.linear(z, w_1, Some(b_1), None, Relu)?;
                let logits = t.linear(hidden, w_out, Some(b_out), None, Identity)?;
                let class = of(t, *class)?;
                (logits, train.then(|| t.label_loss(logits, class, 1.0)))
            }
            Goal::Values { vertex, want, head, .. } => {
                let [w, b] = t.stored_all(store, *head)?;
                let vertex = of(t, *vertex)?;
                let z = t.gather_rows(z, vertex)?;
                let values = t.linear(z, w, Some(b), None, Identity)?;
                let want = of(t, *want)?;
                (values, train.then(|| t.squared_loss(values, want)))
            }
        };
        if !train {
            let table = t.stored(store, self.scores)?;
            t.write_rows(table, items.rank, logits)?;
        }
        loss.transpose()
    }
}

/// Whether an end of each edge has no edge in training, not even in the history of its steps.
fn unseen(snapshots: &Snapshots, split: &SnapshotSplit) -> Vec<bool> {
    let mut seen = vec![false; snapshots.nodes];
    for i in 0..snapshots.offsets[split.train.end] {
        seen[snapshots.src[i] as usize] = true;
        seen[snapshots.dst[i] as usize] = true;
    }
    let ends = snapshots.src.iter().zip(&snapshots.dst);
    ends.map(|(&u, &v)| !(seen[u as usize] && seen[v as usize])).collect()
}
