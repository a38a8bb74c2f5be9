//! WD-GCN: graph convolutions in every step, then an LSTM along the steps of a group.
//!
//! Source: Manessi et al., "Dynamic graph convolutional networks", 2020. The same weights serve all vertices
//! and all steps. A vertex that is absent from a step keeps its state.
use super::{
    Gcn, LayerInput, SnapshotModel, SnapshotModelConfig, SnapshotTables, SwappedLayers,
    gcn::{GcnConfig, no_steps},
    snapshot::snapshot_section,
};
use tgnn::{
    autograd::{Parameters, ScaledInit},
    error::Result,
    ops::{
        Tape,
        epilogue::Activation::{Identity, Relu},
        next_group::Group,
    },
    runtime::*,
};

/// A WD-GCN; `layers` counts the graph convolutions below the LSTM.
#[derive(Clone, Debug)]
pub struct WdGcn(pub GcnConfig);

impl SnapshotModelConfig for WdGcn {
    fn section(&self) -> (&'static str, &GcnConfig) {
        ("wd-gcn", &self.0)
    }
    fn describe(&self) -> String {
        format!(
            "{} graph convolutions and an lstm of {}, order {}",
            self.0.layers, self.0.width, self.0.order
        )
    }
    fn build(
        &self,
        p: &mut Parameters,
        store: &mut Store,
        data: &SnapshotTables,
    ) -> Result<Box<dyn SnapshotModel>> {
        let (d, orders) = (self.0.width, self.orders()?);
        let convolution = |k: usize| {
            let from = if k == 0 { data.width } else { d };
            Gcn::new(p, store, &format!("gcn.{}", k + 1), from, d, orders.of_layer(k, data, from, d))
        };
        let layers = (0..self.0.layers).map(convolution).collect::<Result<_>>()?;
        let mut add =
            |name: &str, rows, cols| p.add(store, &format!("lstm.{name}"), rows, cols, ScaledInit::FanIn(d));
        let lstm =
            [add("w_x", 4 * d, d)?, add("w_h", 4 * d, d)?, add("b_x", 1, 4 * d)?, add("b_h", 1, 4 * d)?];
        Ok(Box::new(ConvolvedLstm { layers, lstm }))
    }
}

struct ConvolvedLstm {
    layers: Vec<Gcn>,
    lstm: [BufferId; 4],
}

impl SnapshotModel for ConvolvedLstm {
    fn embed(
        &self,
        t: &mut Tape,
        data: &SnapshotTables,
        group: &Group,
        exchanged: &SwappedLayers,
    ) -> Result<Var> {
        let [w_x, w_h, b_x, b_h] = t.stored_all(self.lstm)?;
        let b = t.add(b_x, b_h)?;
        let mut state = None;
        for index in 0..group.length {
            t.begin(Some(snapshot_section(index)));
            let mut below = LayerInput::Given;
            for (k, layer) in self.layers.iter().enumerate() {
                let order = exchanged.in_snapshot(layer.order, index, k);
                below = LayerInput::Below(layer.record(t, data, (group, index), below, order, Relu)?);
            }
            let LayerInput::Below(x) = below else { continue };
            let pre = match state {
                Some((h, _)) => t.linear_sum((x, w_x), (h, w_h), b)?,
                None => t.linear(x, w_x, Some(b), None, Identity)?,
            };
            let present = data.present(t, group, index)?;
            state = Some(t.lstm_cell(pre, state, Some(present))?);
        }
        state.map(|s| s.0).ok_or_else(|| no_steps("wd-gcn"))
    }
}
