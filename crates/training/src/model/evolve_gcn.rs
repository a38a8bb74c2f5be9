//! EvolveGCN: graph convolutions whose weights are the state of a GRU along the steps of a group.
//!
//! `Q' = GRU(X, Q)`, layer `relu(A h Q'^T)`. In EvolveGCN-O, `X = Q`: the GRU reads the weights alone. In
//! EvolveGCN-H, X has one row for each row of Q: the layer's inputs of the vertices with the greatest scores.
//!
//! Source: Pareja et al., "EvolveGCN: evolving graph convolutional networks for dynamic graphs", 2020. The
//! paper's update gate is one minus ours, which is the same model up to the sign of that gate's weights.
use super::{
    LayerInput, ProductOrder, SnapshotModel, SnapshotModelConfig, SnapshotTables, SwappedLayers, convolve,
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

/// EvolveGCN, O or H.
#[derive(Clone, Debug)]
pub struct EvolveGcn {
    /// Sizes and choices.
    pub config: GcnConfig,
    /// H if set: the GRU reads a summary of the vertices. Else O: it reads the weights alone.
    pub summarised: bool,
}

impl EvolveGcn {
    /// EvolveGCN-O.
    pub fn o(config: GcnConfig) -> Self {
        EvolveGcn { config, summarised: false }
    }
    /// EvolveGCN-H.
    pub fn h(config: GcnConfig) -> Self {
        EvolveGcn { config, summarised: true }
    }
}

impl SnapshotModelConfig for EvolveGcn {
    fn section(&self) -> (&'static str, &GcnConfig) {
        ("evolve-gcn", &self.config)
    }
    fn describe(&self) -> String {
        let GcnConfig { width, layers, order } = &self.config;
        let gru_inputs = if self.summarised { "weights and vertices" } else { "weights" };
        format!("{layers} graph convolutions of {width}, evolved by a gru of {gru_inputs}, order {order}")
    }
    fn build(
        &self,
        p: &mut Parameters,
        store: &mut Store,
        data: &SnapshotTables,
    ) -> Result<Box<dyn SnapshotModel>> {
        let (d, orders) = (self.config.width, self.orders()?);
        let layer = |k: usize| {
            let from = if k == 0 { data.width } else { d };
            let order = orders.of_layer(k, data, from, d);
            Layer::new(p, store, &format!("evolve.{}", k + 1), from, d, self.summarised, order)
        };
        Ok(Box::new(Evolving { layers: (0..self.config.layers).map(layer).collect::<Result<_>>()? }))
    }
}

struct Evolving {
    layers: Vec<Layer>,
}

impl SnapshotModel for Evolving {
    fn embed(
        &self,
        t: &mut Tape,
        data: &SnapshotTables,
        group: &Group,
        exchanged: &SwappedLayers,
    ) -> Result<Var> {
        let weights = self.layers.iter().map(|l| t.stored(l.start));
        let mut weights: Vec<Var> = weights.collect::<Result<_>>()?;
        let mut z = None;
        for index in 0..group.length {
            t.begin(Some(snapshot_section(index)));
            let at = (group, index);
            let mut below = Some(LayerInput::Given);
            for (k, layer) in self.layers.iter().enumerate() {
                let read = below;
                below = None;
                let q = layer.evolve(t, data, at, read, weights[k])?;
                weights[k] = q;
                // The output of a layer in an earlier step is read only by the summary of the layer above it.
                let last = index + 1 == group.length;
                let summed = layer.summary.is_some() && k + 1 < self.layers.len();
                if let (Some(input), true) = (read, last || summed) {
                    let order = exchanged.in_snapshot(layer.order, index, k);
                    let h = convolve(t, data, at, input, (q, None), order, Relu)?;
                    (z, below) = (Some(h), Some(LayerInput::Below(h)));
                }
            }
        }
        z.ok_or_else(|| no_steps("evolve-gcn"))
    }
}

/// One layer's GRU: `r, z = sig(X W_rz^T + Q U_rz^T + b_rz)`, `c = tanh(X W_c^T + (r Q) U_c^T + b_c)`,
/// `Q' = z Q + (1 - z) c`.
struct Layer {
    start: BufferId,
    /// W, U and b of the gates r and z.
    gates: [BufferId; 3],
    /// W, U and b of the candidate c.
    candidate: [BufferId; 3],
    /// The vector p that scores vertices for the summary; `None` in EvolveGCN-O.
    summary: Option<BufferId>,
    /// Rows of Q.
    rows: usize,
    order: ProductOrder,
}

impl Layer {
    fn new(
        p: &mut Parameters,
        store: &mut Store,
        name: &str,
        from: usize,
        d: usize,
        summarised: bool,
        order: ProductOrder,
    ) -> Result<Self> {
        let mut add = |part: &str, rows, cols| {
            p.add(store, &format!("{name}.{part}"), rows, cols, ScaledInit::FanIn(from))
        };
        let start = add("start", d, from)?;
        let gates = [add("w_rz", 2 * from, from)?, add("u_rz", 2 * from, from)?, add("b_rz", d, 2 * from)?];
        let candidate = [add("w_c", from, from)?, add("u_c", from, from)?, add("b_c", d, from)?];
        let summary = summarised.then(|| add("p", 1, from)).transpose()?;
        Ok(Layer { start, gates, candidate, summary, rows: d, order })
    }
    /// Appends the GRU's step at `index` of the group for the weights `q` of a layer that reads `input`.
    /// Returns the new weights; they equal `q` if the group lacks this step.
    fn evolve(
        &self,
        t: &mut Tape,
        data: &SnapshotTables,
        (group, index): (&Group, usize),
        input: Option<LayerInput>,
        q: Var,
    ) -> Result<Var> {
        let [w, u, b] = t.stored_all(self.gates)?;
        let [w_c, u_c, b_c] = t.stored_all(self.candidate)?;
        let x = match self.summary.zip(input) {
            Some((p, input)) => {
                let (rows, p) = (input.plain(t, data, (group, index))?, t.stored(p)?);
                let present = data.present(t, group, index)?;
                t.top_rows(rows, p, present, self.rows)?
            }
            None => q,
        };
        let pre = t.linear(q, u, None, Some(b), Identity)?;
        let pre = t.linear(x, w, None, Some(pre), Identity)?;
        let (z, reset) = t.gru_gates(pre, Some(q))?;
        let mut pre = t.linear(x, w_c, None, Some(b_c), Identity)?;
        if let Some(reset) = reset {
            pre = t.linear(reset, u_c, None, Some(pre), Identity)?;
        }
        let exists = t.step_rows(group.steps, index, self.rows, None)?;
        t.gru_state(z, pre, Some(q), Some(exists))
    }
}
