//! Static node memory: a learned row a node, which no event changes.
//!
//! As a model of its own it embeds a node as its row, whatever the time: link prediction on the training events then is the
//! static task that DistTGL trains such rows by. Another model adds them, projected, to its rows
//! ([`NodeInputs`](super::NodeInputs)), as they are or learned together with it.
//! Source: DistTGL (Zhou et al. 2023), section 3.1.
use super::{Embedded, EventModel, EventTables, ModelConfig, Queries, config::Check};
use crate::{
    autograd::{Parameters, ScaledInit},
    error::Result,
    ops::Tape,
    runtime::*,
};
use serde::{Deserialize, Serialize};

/// Whether a model has static memory, and how the rows are learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StaticMode {
    /// There is none.
    Off,
    /// Learned before, on the static task, and kept.
    Pretrained,
    /// Learned with the model.
    Trained,
}

/// Static memory, and the model that is nothing else.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StaticConfig {
    /// Whether other models have it.
    pub mode: StaticMode,
    /// Width of the rows.
    pub width: usize,
    /// Passes over the training events before the model's own.
    pub epochs: usize,
    /// Events a step of these.
    pub batch: usize,
    /// Step size of Adam in these.
    pub learning_rate: f64,
}

impl Default for StaticConfig {
    fn default() -> Self {
        StaticConfig { mode: StaticMode::Off, width: 100, epochs: 10, batch: 2000, learning_rate: 0.01 }
    }
}

impl StaticConfig {
    /// Name of the rows.
    pub const ROWS: &'static str = "static.rows";

    /// Adds the rows to the parameters.
    fn learned(
        &self,
        p: &mut Parameters,
        store: &mut Store,
        nodes: usize,
        start: ScaledInit,
    ) -> Result<BufferId> {
        p.add(store, Self::ROWS, nodes, self.width, start)
    }
    /// The rows that another model has: zeros, to be learned with it or to be filled with what was learned before.
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
    fn embed(&self, t: &mut Tape, store: &Store, data: &EventTables, q: &Queries) -> Result<Embedded> {
        let stamp = data.stamp(t, store)?;
        let unique = t.unique(stamp, q.node, &[], q.classes())?;
        let rows = t.stored(store, self.0)?;
        let z = t.gather_rows(rows, q.node)?;
        Ok(Embedded { z, unique, memory: None })
    }
}
