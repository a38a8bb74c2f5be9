//! Static node memory: one learned row per node, which no event changes.
//!
//! As a model of its own it embeds a node as its row, independent of time. Trained on link prediction over
//! the training events, this is the static task on which DistTGL pre-trains such rows. Other models add the
//! projected rows to their own ([`NodeInputs`](super::NodeInputs)), either fixed or learned together with the
//! model.
//!
//! Source: DistTGL (Zhou et al. 2023), section 3.1.
use super::{Embeddings, EventModel, EventTables, ModelConfig, Queries, config::Check};
use serde::{Deserialize, Serialize};
use tgnn::{
    autograd::{Parameters, ScaledInit},
    error::Result,
    ops::Tape,
    runtime::*,
};

/// Whether a model has static memory, and how its rows are learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StaticMode {
    /// No static memory.
    Off,
    /// Learned in advance on the static task, then fixed.
    Pretrained,
    /// Learned together with the model.
    Trained,
}

/// Static memory for other models, and the model that consists of it alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StaticConfig {
    /// Use of static memory by other models.
    pub mode: StaticMode,
    /// Width of the rows.
    pub width: usize,
    /// Epochs of pre-training over the training events.
    pub epochs: usize,
    /// Events per step of pre-training.
    pub batch: usize,
    /// Adam's step size in pre-training.
    pub learning_rate: f64,
}

impl Default for StaticConfig {
    fn default() -> Self {
        StaticConfig { mode: StaticMode::Off, width: 100, epochs: 10, batch: 2000, learning_rate: 0.01 }
    }
}

impl StaticConfig {
    /// Name of the rows in the store.
    pub const ROWS: &'static str = "static.rows";

    /// Adds the rows as parameters.
    fn learned(
        &self,
        p: &mut Parameters,
        store: &mut Store,
        nodes: usize,
        start: ScaledInit,
    ) -> Result<BufferId> {
        p.add(store, Self::ROWS, nodes, self.width, start)
    }
    /// Adds the rows for another model: zeros, to be learned with the model or to be overwritten with
    /// pre-trained rows. `None` if static memory is off.
    pub fn add(&self, p: &mut Parameters, store: &mut Store, nodes: usize) -> Result<Option<BufferId>> {
        Ok(match self.mode {
            StaticMode::Off => None,
            StaticMode::Pretrained => {
                Some(store.zeros(Self::ROWS, Spec::real(Rows::fixed(nodes), self.width))?)
            }
            StaticMode::Trained => Some(self.learned(p, store, nodes, ScaledInit::Constant(0.0))?),
        })
    }
}

impl ModelConfig for StaticConfig {
    fn validate(&self) -> Result<()> {
        let check = Check("static");
        check.size("width", self.width, 4096)?;
        check.size("epochs", self.epochs, 1000)?;
        check.size("batch", self.batch, 1 << 20)?;
        check.positive("learning_rate", self.learning_rate)
    }
    fn gap_quantile(&self) -> f64 {
        1.0
    }
    fn partitions_features(&self) -> bool {
        true // it reads none
    }
    fn width(&self) -> usize {
        self.width
    }
    fn describe(&self) -> String {
        format!("rows of {}, whatever the time", self.width)
    }
    fn build(
        &self,
        p: &mut Parameters,
        store: &mut Store,
        data: &EventTables,
        _: u64,
    ) -> Result<Box<dyn EventModel>> {
        self.validate()?;
        let rows = self.learned(p, store, data.nodes, ScaledInit::FanIn(self.width))?;
        Ok(Box::new(StaticRows(rows)))
    }
}

struct StaticRows(BufferId);

impl EventModel for StaticRows {
    fn embed(&self, t: &mut Tape, _: &EventTables, q: &Queries) -> Result<Embeddings> {
        let rows = t.stored(self.0)?;
        Ok(Embeddings::new(t.gather_rows(rows, q.node)?))
    }
}
