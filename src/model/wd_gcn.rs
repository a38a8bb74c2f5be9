//! WD-GCN: graph convolutions of every step, an LSTM along the steps of a group.
//!
//! Source: Manessi et al., "Dynamic graph convolutional networks", 2020. The same weights serve all vertices and all steps; a
//! vertex that is not there in a step keeps its state.
use super::{
    Gcn, LayerInput, SnapshotModel, SnapshotModelConfig, SnapshotTables,
    gcn::{Orders, no_steps},
};
use crate::{
    autograd::{Parameters, ScaledInit},
    error::Result,
    ops::{
        Tape,
        epilogue::Activation::{Identity, Relu},
        next_group::Group,
    },
    runtime::*,
};
use serde::{Deserialize, Serialize};

/// Sizes and choices of a WD-GCN.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WdGcnConfig {
    /// Width of every layer, of the LSTM's state and of the embeddings.
    pub width: usize,
    /// Graph convolutions below the LSTM.
    pub layers: usize,
    /// Which product of a graph convolution comes first: `aggregate`, `transform`, or the cheaper one, `auto`; for all layers,
    /// or a word for each with commas between.
    pub order: String,
}

impl Default for WdGcnConfig {
    fn default() -> Self {
        WdGcnConfig { width: 64, layers: 2, order: "auto".into() }
    }
}

impl WdGcnConfig {
    fn orders(&self) -> Result<Orders> {
        Orders::of_section("wd-gcn", self.width, self.layers, &self.order)
    }
}

impl SnapshotModelConfig for WdGcnConfig {
    fn validate(&self) -> Result<()> {
        self.orders().map(drop)
    }
    fn width(&self) -> usize {
        self.width
    }
    fn aggregates_once(&self) -> bool {
        self.orders().is_ok_and(|o| o.aggregates_once())
    }
    fn describe(&self) -> String {
        format!("{} graph convolutions and an lstm of {}, order {}", self.layers, self.width, self.order)
    }
    fn build(
        &self,
        p: &mut Parameters,
        store: &mut Store,
        data: &SnapshotTables,
    ) -> Result<Box<dyn SnapshotModel>> {
        let (d, orders) = (self.width, self.orders()?);
        let layer = |k: usize| {
            let from = if k == 0 { data.width } else { d };
            Gcn::new(p, store, &format!("gcn.{}", k + 1), from, d, orders.of(k, data, from, d))
        };
        let layers = (0..self.layers).map(layer).collect();
        let mut add =
            |name: &str, rows, cols| p.add(store, &format!("lstm.{name}"), rows, cols, ScaledInit::FanIn(d));
        let lstm = [add("w_x", 4 * d, d), add("w_h", 4 * d, d), add("b_x", 1, 4 * d), add("b_h", 1, 4 * d)];
        Ok(Box::new(WdGcn { layers, lstm }))
    }
}

struct WdGcn {
    layers: Vec<Gcn>,
    lstm: [BufferId; 4],
}

impl SnapshotModel for WdGcn {
    fn embed(&self, t: &mut Tape, store: &Store, data: &SnapshotTables, group: &Group) -> Result<Var> {
        let [w_x, w_h, b_x, b_h] = self.lstm.map(|id| t.stored(store, id));
        let b = t.add(b_x, b_h)?;
        let mut state = None;
        for place in 0..group.length {
            let mut below = LayerInput::Given;
            for layer in &self.layers {
                below = LayerInput::Below(layer.record(t, store, data, (group, place), below, Relu)?);
            }
            let LayerInput::Below(x) = below else { continue };
            let mut pre = t.linear(x, w_x, Some(b), None, Identity)?;
            if let Some((h, _)) = state {
                pre = t.linear(h, w_h, None, Some(pre), Identity)?;
            }
            let present = data.present(t, store, group, place)?;
            state = Some(t.lstm_cell(pre, state, Some(present))?);
        }
        state.map(|s| s.0).ok_or_else(|| no_steps("wd-gcn"))
    }
}
