//! Models of snapshots: the tables that they read, and their traits.
use super::gcn::{GcnConfig, GraphTables, LayerOrders, SwappedLayers};
use std::sync::Arc;
use tgnn::{
    autograd::Parameters,
    error::{Error, Result},
    ops::{Section, Tape, next_group::Group},
    runtime::*,
};
use tgnn_data::{Adjacency, Snapshots};

/// The inputs of the vertices in a step.
#[derive(Clone, Copy, Debug)]
pub enum VertexInputs {
    /// `[nodes, f]`: rows that are the same in every step, learned or given.
    Vertices(BufferId),
    /// `[steps nodes, f]`: one row per step and vertex.
    Steps(BufferId),
}

/// Returns the section of a step that holds the snapshot at `index` of a group.
pub(super) fn snapshot_section(index: usize) -> Section {
    Section { index, name: "snapshot" }
}

/// Snapshots in a store: the tables that every model reads, and the cursor.
#[derive(Debug)]
pub struct SnapshotTables {
    /// Number of vertices.
    pub nodes: usize,
    /// Number of steps.
    pub steps: usize,
    /// The adjacency of all steps, and its transpose.
    pub graph: GraphTables,
    /// Inputs of the vertices.
    pub inputs: VertexInputs,
    /// Width of the inputs.
    pub width: usize,
    /// `[steps nodes, f]`: the inputs aggregated in each step, if this was computed in advance; only for
    /// inputs that are no parameters.
    pub aggregated: Option<BufferId>,
    /// `[g]` u32: the targets of the pass, followed by `NONE`.
    pub order: BufferId,
    /// `[1, 2]` u32: epoch, and number of groups done in the pass.
    pub clock: BufferId,
}

impl SnapshotTables {
    /// Name of the learned rows of the vertices.
    pub const ROWS: &'static str = "vertices.rows";

    /// Puts the adjacency and the features into `store`. Without features, rows of width `learned` become
    /// parameters of the model.
    ///
    /// # Errors
    /// `Data` if all steps together have more vertices than 32 bits can number.
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
                // The few rows that serve all steps are not worth storing in 16 bits.
                let f = if data.features_change() { f.clone() } else { f.stored_as(StoredAs::F32)? };
                let (width, rows) = (f.cols(), Rows::fixed(f.rows()));
                let spec = Spec { dtype: f.kept().dtype(), rows, cols: width };
                let id = store.table("vertex features", spec, Arc::new(f))?;
                let inputs =
                    if data.features_change() { VertexInputs::Steps(id) } else { VertexInputs::Vertices(id) };
                (inputs, width)
            }
            None => {
                let start = tgnn::autograd::ScaledInit::FanIn(learned);
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
    /// Panics if there are more targets than steps.
    pub fn seek(&self, store: &mut Store, epoch: u32, targets: &[u32]) -> Result<()> {
        let mut order = vec![NONE; self.steps];
        order[..targets.len()].copy_from_slice(targets);
        store.write(self.order, &order)?;
        store.write(self.clock, &[epoch, 0])
    }
    /// Appends the next group of `length` steps.
    ///
    /// # Errors
    /// `Shape` if the op refuses its inputs.
    pub fn next_group(&self, t: &mut Tape, length: usize) -> Result<Group> {
        let [order, clock] = t.stored_all([self.order, self.clock])?;
        t.next_group(order, clock, length)
    }
    /// Returns `[nodes]` u32: for each vertex its row in tables of steps and vertices, in the step at `index`
    /// of the group; `NONE` if the vertex is absent.
    ///
    /// # Errors
    /// `Shape` if the op refuses its inputs.
    pub fn present(&self, t: &mut Tape, group: &Group, index: usize) -> Result<Var> {
        let scale = t.stored(self.graph.scale())?;
        t.step_rows(group.steps, index, self.nodes, Some(scale))
    }
    /// Returns `[nodes, width]`: the inputs of the vertices in the step at `index` of the group.
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs.
    pub fn inputs(&self, t: &mut Tape, group: &Group, index: usize) -> Result<Var> {
        match self.inputs {
            VertexInputs::Steps(id) => {
                let (table, rows) = (t.stored(id)?, self.present(t, group, index)?);
                t.gather_rows(table, rows)
            }
            VertexInputs::Vertices(id) => Ok(t.stored(id)?),
        }
    }
}

/// A model of snapshots, with its parameters in a store. It keeps no state from group to group.
pub trait SnapshotModel: Send + Sync {
    /// Appends the embeddings of all vertices after the last step of a group, `[nodes, width]`. A vertex
    /// keeps its recurrent state, if the model has one, in steps that the group lacks and in steps from which
    /// the vertex is absent. `exchanged` selects the products whose order differs from the model's.
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs.
    fn embed(
        &self,
        t: &mut Tape,
        data: &SnapshotTables,
        group: &Group,
        exchanged: &SwappedLayers,
    ) -> Result<Var>;
}

/// The configuration of a snapshot model, which builds the model.
pub trait SnapshotModelConfig: Sync {
    /// Returns the name of the model's section in a run's configuration, and its contents.
    fn section(&self) -> (&'static str, &GcnConfig);
    /// Describes the model for people, in a line or two.
    fn describe(&self) -> String;
    /// Builds the model for these snapshots: adds its parameters to the store.
    ///
    /// # Errors
    /// `Usage` if the configuration contradicts itself.
    fn build(
        &self,
        p: &mut Parameters,
        store: &mut Store,
        data: &SnapshotTables,
    ) -> Result<Box<dyn SnapshotModel>>;
    /// Checks every value that can be wrong.
    ///
    /// # Errors
    /// `Usage`, naming the key and its valid values.
    fn validate(&self) -> Result<()> {
        self.orders().map(drop)
    }
    /// Returns the width of the embeddings.
    fn width(&self) -> usize {
        self.section().1.width
    }
    /// Whether a layer can read inputs aggregated once for all epochs, provided the inputs are no parameters.
    fn aggregates_once(&self) -> bool {
        self.orders().is_ok_and(|o| o.aggregates_once())
    }
    /// Returns the configured order of the products of each layer.
    ///
    /// # Errors
    /// As [`validate`](Self::validate).
    fn orders(&self) -> Result<LayerOrders> {
        let (section, config) = self.section();
        LayerOrders::of_section(section, config)
    }
}
