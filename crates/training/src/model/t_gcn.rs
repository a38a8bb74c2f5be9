//! T-GCN: a GRU along the steps of a group, whose gates are graph convolutions of input and state.
//!
//! Source: Zhao et al., "T-GCN: a temporal graph convolutional network for traffic prediction", 2020, with
//! separate products of input and state: `A {x | h} W = A x W + A h U`. Cells are stacked: each reads the
//! state of the cell below at the same step. A vertex that is absent from a step keeps its state.
use super::{
    LayerInput, ProductOrder, SnapshotModel, SnapshotModelConfig, SnapshotTables, SwappedLayers,
    gcn::{GcnConfig, no_steps},
    snapshot::snapshot_section,
};
use tgnn::{
    autograd::{Parameters, ScaledInit},
    error::Result,
    ops::{Tape, epilogue::Activation::Identity, next_group::Group},
    runtime::*,
};

/// A T-GCN; `layers` counts the stacked cells.
#[derive(Clone, Debug)]
pub struct TGcn(pub GcnConfig);

impl SnapshotModelConfig for TGcn {
    fn section(&self) -> (&'static str, &GcnConfig) {
        ("t-gcn", &self.0)
    }
    fn describe(&self) -> String {
        format!(
            "{} gru cells of {} with graph convolutions, order {}",
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
        let cell = |k: usize| {
            let from = if k == 0 { data.width } else { d };
            Cell::new(p, store, &format!("cell.{}", k + 1), from, d, orders.of_layer(k, data, from, d))
        };
        Ok(Box::new(Cells { cells: (0..self.0.layers).map(cell).collect::<Result<_>>()? }))
    }
}

struct Cells {
    cells: Vec<Cell>,
}

impl SnapshotModel for Cells {
    fn embed(
        &self,
        t: &mut Tape,
        data: &SnapshotTables,
        group: &Group,
        exchanged: &SwappedLayers,
    ) -> Result<Var> {
        let mut states = vec![None; self.cells.len()];
        for index in 0..group.length {
            t.begin(Some(snapshot_section(index)));
            let present = data.present(t, group, index)?;
            let mut below = LayerInput::Given;
            for (k, (cell, state)) in self.cells.iter().zip(&mut states).enumerate() {
                let order = exchanged.in_snapshot(cell.order, index, k);
                let h = cell.record(t, data, (group, index), below, *state, present, order)?;
                (*state, below) = (Some(h), LayerInput::Below(h));
            }
        }
        states.last().copied().flatten().ok_or_else(|| no_steps("t-gcn"))
    }
}

/// One cell: `r, z = sig(A u W_rz + A h U_rz + b_rz)`, `c = tanh(A u W_c + A (r h) U_c + b_c)`,
/// `h' = z h + (1 - z) c`.
struct Cell {
    /// W, U and b of the gates r and z.
    gates: [BufferId; 3],
    /// W, U and b of the candidate c.
    candidate: [BufferId; 3],
    order: ProductOrder,
}

impl Cell {
    fn new(
        p: &mut Parameters,
        store: &mut Store,
        name: &str,
        from: usize,
        d: usize,
        order: ProductOrder,
    ) -> Result<Self> {
        let mut add = |part: &str, rows, cols| {
            let bias = part.starts_with("b_");
            let start = if bias { ScaledInit::Constant(0.0) } else { ScaledInit::FanIn(d) };
            p.add(store, &format!("{name}.{part}"), rows, cols, start)
        };
        let gates = [add("w_rz", 2 * d, from)?, add("u_rz", 2 * d, d)?, add("b_rz", 1, 2 * d)?];
        let candidate = [add("w_c", d, from)?, add("u_c", d, d)?, add("b_c", 1, d)?];
        Ok(Cell { gates, candidate, order })
    }
    /// Appends the cell for the step at `index` of the group, with its products in this order, for input `u`
    /// and state `h`; returns the new state.
    #[allow(clippy::too_many_arguments)]
    fn record(
        &self,
        t: &mut Tape,
        data: &SnapshotTables,
        (group, index): (&Group, usize),
        u: LayerInput,
        h: Option<Var>,
        present: Var,
        order: ProductOrder,
    ) -> Result<Var> {
        let [w, u_rz, b] = t.stored_all(self.gates)?;
        let [w_c, u_c, b_c] = t.stored_all(self.candidate)?;
        let (at, graph) = ((group, index), data.graph.vars(t)?);
        let u = match order {
            ProductOrder::AggregateFirst => u.aggregated(t, data, at)?,
            ProductOrder::TransformFirst => u.plain(t, data, at)?,
        };
        // The pre-activation of a gate or of the candidate, in either order of the products.
        let preactivation = |t: &mut Tape, w: Var, state: Option<(Var, Var)>, b: Var| match order {
            ProductOrder::AggregateFirst => match state {
                Some((s, w_state)) => {
                    let s = t.spmm(graph, s, (group.steps, index), None, Identity)?;
                    t.linear_sum((u, w), (s, w_state), b)
                }
                None => t.linear(u, w, Some(b), None, Identity),
            },
            ProductOrder::TransformFirst => {
                let mut sum = t.linear(u, w, None, None, Identity)?;
                if let Some((s, w_state)) = state {
                    sum = t.linear(s, w_state, None, Some(sum), Identity)?;
                }
                t.spmm(graph, sum, (group.steps, index), Some(b), Identity)
            }
        };
        let pre = preactivation(t, w, h.map(|h| (h, u_rz)), b)?;
        let (z, reset) = t.gru_gates(pre, h)?;
        let pre = preactivation(t, w_c, reset.map(|s| (s, u_c)), b_c)?;
        t.gru_state(z, pre, h, Some(present))
    }
}
