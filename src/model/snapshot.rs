//! Models of snapshots: what they read, and what they are.
use super::gcn::{Exchanged, GcnConfig, GraphTables, Orders};
use crate::{
    autograd::Parameters,
    data::{Adjacency, Snapshots},
    error::{Error, Result},
    ops::{Section, Tape, next_group::Group},
    runtime::*,
};
use std::sync::Arc;

/// What the vertices of a step are known by.
#[derive(Clone, Copy, Debug)]
pub enum VertexInputs {
    /// `[nodes, f]`: rows that do not change, learned or given.
    Vertices(BufferId),
    /// `[steps nodes, f]`: a row per step and vertex.
    Steps(BufferId),
}

/// The section of the step that holds the snapshot at `index` of a group.
pub(super) fn snapshot_section(index: usize) -> Section {
    Section { index, name: "snapshot" }
}

/// Snapshots in a store: what every model reads, and the cursor.
pub struct SnapshotTables {
    /// Vertices.
    pub nodes: usize,
    /// Steps.
    pub steps: usize,
    /// The adjacency of all steps, and its transpose.
    pub graph: GraphTables,
    /// What vertices are known by.
    pub inputs: VertexInputs,
    /// Its width.
    pub width: usize,
    /// `[steps nodes, f]`: the inputs, aggregated in each step, where that was done before: they are no parameters.
    pub aggregated: Option<BufferId>,
    /// `[g]` u32: the targets of the pass, then `NONE`.
    pub order: BufferId,
    /// `[1, 2]` u32: epoch, and groups done in the pass.
    pub clock: BufferId,
}

impl SnapshotTables {
    /// Name of the rows of vertices that are learned.
    pub const ROWS: &'static str = "vertices.rows";

    /// Puts the adjacency and the features into `store`. Where there are no features, rows of `learned` numbers become
    /// parameters of the model.
    ///
    /// # Errors
    /// Data where there are more vertices in all steps than 32 bits can number.
    pub fn new(
        store: &mut Store,
        p: &mut Parameters,
        data: &Snapshots,
        adjacency: &Adjacency,
        learned: usize,
    ) -> Result<Self> {
        let (v, steps) = (data.nodes, data.len());
        if v * steps >= NONE as usize {
            let what = format!("{v} vertices in {steps} steps are more than 2^32 rows");
            return Err(Error::data(&data.name, what).remedy("take longer steps, or fewer vertices"));
        }
        let graph = GraphTables::new(store, adjacency)?;
        let (inputs, width) = match &data.features {
            Some(f) => {
                // Few rows serve all steps: they are not worth 16 bits.
                let f = if data.features_change() { f.clone() } else { f.kept_as(StoredAs::F32)? };
                let (width, rows) = (f.cols(), Rows::fixed(f.rows()));
                let spec = Spec { dtype: f.kept().dtype(), rows, cols: width };
                let id = store.table("vertex features", spec, Arc::new(f))?;
                let inputs =
                    if data.features_change() { VertexInputs::Steps(id) } else { VertexInputs::Vertices(id) };
                (inputs, width)
            }
            None => {
                let start = crate::autograd::ScaledInit::FanIn(learned);
                (VertexInputs::Vertices(p.add(store, Self::ROWS, v, learned, start)?), learned)
            }
        };
        let order = store.zeros("order", Spec::ids(Rows::fixed(steps), 1))?;
        let clock = store.zeros("clock", Spec::ids(Rows::fixed(1), 2))?;
        Ok(SnapshotTables { nodes: v, steps, graph, inputs, width, aggregated: None, order, clock })
    }
    /// Sets the cursor before the first of `targets`, in `epoch`.
    ///
    /// # Panics
    /// When there are more targets than steps.
    pub fn seek(&self, store: &mut Store, epoch: u32, targets: &[u32]) -> Result<()> {
        let mut order = vec![NONE; self.steps];
        order[..targets.len()].copy_from_slice(targets);
        store.write(self.order, &order)?;
        store.write(self.clock, &[epoch, 0])
    }
    /// Appends the next group, of `length` steps.
    ///
    /// # Errors
    /// `Shape`, as the op's.
    pub fn next_group(&self, t: &mut Tape, store: &Store, length: usize) -> Result<Group> {
        let [order, clock] = t.stored_all(store, [self.order, self.clock])?;
        t.next_group(order, clock, length)
    }
    /// `[nodes]` u32: rows of the vertices that are there in the step at `place` of the group, of tables of steps and
    /// vertices, or `NONE`.
    ///
    /// # Errors
    /// `Shape`, as the op's.
    pub fn present(&self, t: &mut Tape, store: &Store, group: &Group, place: usize) -> Result<Var> {
        let scale = t.stored(store, self.graph.scale())?;
        t.step_rows(group.steps, place, self.nodes, Some(scale))
    }
    /// `[nodes, width]`: what vertices are known by in the step at `place` of the group.
    ///
    /// # Errors
    /// `Shape`, as the ops'.
    pub fn inputs(&self, t: &mut Tape, store: &Store, group: &Group, place: usize) -> Result<Var> {
        match self.inputs {
            VertexInputs::Steps(id) => {
                let (table, rows) = (t.stored(store, id)?, self.present(t, store, group, place)?);
                t.gather_rows(table, rows)
            }
            VertexInputs::Vertices(id) => Ok(t.stored(store, id)?),
        }
    }
}

/// A model of snapshots: parameters in a store. It keeps nothing from group to group.
pub trait SnapshotModel: Send + Sync {
    /// Appends the embeddings of all vertices after the last step of a group, `[nodes, width]`. Steps that the group lacks
    /// change nothing: a vertex's state, where there is one, goes on as it was, and so it does where the vertex is not there.
    /// `exchanged` says where products come in another order than the model's.
    ///
    /// # Errors
    /// `Shape`, as the ops'.
    fn embed(
        &self,
        t: &mut Tape,
        store: &Store,
        data: &SnapshotTables,
        group: &Group,
        exchanged: &Exchanged,
    ) -> Result<Var>;
}

/// A model of snapshots that may be built.
pub trait SnapshotModelConfig: Sync {
    /// Its section of a run's configuration, and what stands there.
    fn section(&self) -> (&'static str, &GcnConfig);
    /// A line or two for people.
    fn describe(&self) -> String;
    /// The model for these snapshots: adds parameters to the store.
    ///
    /// # Errors
    /// Usage where the configuration contradicts itself.
    fn build(
        &self,
        p: &mut Parameters,
        store: &mut Store,
        data: &SnapshotTables,
    ) -> Result<Box<dyn SnapshotModel>>;
    /// Checks every value that can be wrong.
    ///
    /// # Errors
    /// Usage, naming the key and what it may be.
    fn validate(&self) -> Result<()> {
        self.orders().map(drop)
    }
    /// Width of the embeddings.
    fn width(&self) -> usize {
        self.section().1.width
    }
    /// Whether a layer reads inputs that were aggregated once for all epochs, where they are no parameters.
    fn aggregates_once(&self) -> bool {
        self.orders().is_ok_and(|o| o.aggregates_once())
    }
    /// Which product comes first in each layer.
    ///
    /// # Errors
    /// As [`validate`](Self::validate).
    fn orders(&self) -> Result<Orders> {
        let (section, config) = self.section();
        Orders::of_section(section, config)
    }
}
