//! Graph convolution: `act(A X W + b)` in a step of snapshots, with either product first.
//!
//! Source: Kipf and Welling 2017. Both orders give the same result up to rounding (BLAD, section 6.3).
use super::{SnapshotTables, VertexInputs, config::Check};
use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc};
use tgnn::{
    autograd::{Parameters, ScaledInit},
    error::{Error, ErrorKind, Result},
    ops::{
        Tape,
        epilogue::Activation,
        next_group::Group,
        spmm::{AdjacencyVars, GraphVars, LongRows, Most},
    },
    runtime::*,
};
use tgnn_data::{Adjacency, Neighbors};

/// One direction of an adjacency in a store: `begin`, `len`, `col`, the slices of its long rows, and optional
/// weights.
#[derive(Debug)]
struct Side {
    ids: [BufferId; 5],
    weight: Option<BufferId>,
    most: Most,
}

impl Side {
    fn new(store: &mut Store, side: &str, n: &Neighbors, nodes: usize) -> Result<Self> {
        let mut ids = |name, values: Vec<u32>, cols: usize| {
            let spec = Spec::ids(Rows::fixed(values.len() / cols), cols);
            store.table(format!("{side} {name}"), spec, Arc::new(values))
        };
        let long = LongRows::new(&n.len, nodes);
        let ids = [
            ids("begin", n.begin.clone(), 1)?,
            ids("len", n.len.clone(), 1)?,
            ids("col", n.col.clone(), 1)?,
            ids("first slices", long.first, 1)?,
            ids("slices", long.slices, 4)?,
        ];
        let reals = |w: &Vec<f32>| {
            store.table(format!("{side} weight"), Spec::real(Rows::fixed(w.len()), 1), Arc::new(w.clone()))
        };
        Ok(Side { ids, weight: n.weight.as_ref().map(reals).transpose()?, most: long.most })
    }
    fn vars(&self, t: &mut Tape) -> Result<AdjacencyVars> {
        let [begin, len, col, first, slices] = t.stored_all(self.ids)?;
        let weight = self.weight.map(|id| t.stored(id)).transpose()?;
        Ok(AdjacencyVars { begin, len, col, weight, slices: [first, slices], most: self.most })
    }
}

fn contradicts<T>(what: fmt::Arguments<'_>) -> Result<T> {
    Err(Error::new(ErrorKind::Data, format!("an adjacency contradicts itself: {what}")))
}

/// Refuses tables of the wrong length, rows that end beyond the pool, and neighbours that are no vertices.
fn check(side: &str, n: &Neighbors, adjacency: &Adjacency) -> Result<()> {
    let (rows, pool) = (adjacency.scale.len(), n.col.len());
    if [&n.begin, &n.len].iter().any(|table| table.len() != rows) {
        return contradicts(format_args!(
            "{side} has {} and {} rows, not {rows}",
            n.begin.len(),
            n.len.len()
        ));
    }
    if let Some(w) = n.weight.as_ref().filter(|w| w.len() != pool) {
        return contradicts(format_args!("{side} has {} weights of {pool} neighbours", w.len()));
    }
    let beyond = |(&begin, &len): (&u32, &u32)| u64::from(begin) + u64::from(len) > pool as u64;
    if let Some(row) = n.begin.iter().zip(&n.len).position(beyond) {
        return contradicts(format_args!("{side} row {row} ends beyond {pool} neighbours"));
    }
    if let Some(v) = n.col.iter().find(|&&v| v as usize >= adjacency.nodes) {
        return contradicts(format_args!("{side} has neighbour {v} of {} vertices", adjacency.nodes));
    }
    Ok(())
}

/// The adjacency of all steps, in a store.
#[derive(Debug)]
pub struct GraphTables {
    nodes: usize,
    from: Side,
    to: Option<Side>,
    scale: BufferId,
}

impl GraphTables {
    /// Puts `adjacency` into `store`.
    ///
    /// # Errors
    /// `Data` if `adjacency` contradicts itself: the ops that read the tables rely on their being consistent.
    pub fn new(store: &mut Store, adjacency: &Adjacency) -> Result<Self> {
        let nodes = adjacency.nodes;
        let rows = nodes.checked_mul(adjacency.steps);
        if rows != Some(adjacency.scale.len()) {
            let (steps, found) = (adjacency.steps, adjacency.scale.len());
            return contradicts(format_args!("{steps} steps of {nodes} vertices have {found} scales"));
        }
        check("from", &adjacency.from, adjacency)?;
        adjacency.to.as_ref().map_or(Ok(()), |to| check("to", to, adjacency))?;
        let from = Side::new(store, "from", &adjacency.from, nodes)?;
        let to = adjacency.to.as_ref().map(|to| Side::new(store, "to", to, nodes)).transpose()?;
        let rows = Spec::real(Rows::fixed(adjacency.scale.len()), 1);
        let scale = store.table("scale", rows, Arc::new(adjacency.scale.clone()))?;
        Ok(GraphTables { nodes, from, to, scale })
    }
    /// Returns `[steps nodes, 1]` f32: `degree^-1/2`, or 0 for an absent vertex.
    pub fn scale(&self) -> BufferId {
        self.scale
    }
    /// Returns the tables as values.
    pub fn vars(&self, t: &mut Tape) -> Result<GraphVars> {
        let adjacency = self.from.vars(t)?;
        let transpose = self.to.as_ref().map_or(Ok(adjacency), |to| to.vars(t))?;
        let scale = t.stored(self.scale)?;
        Ok(GraphVars { adjacency, transpose, scale, vertices: self.nodes, columns: None })
    }
}

/// The input of a layer.
#[derive(Clone, Copy, Debug)]
pub enum LayerInput {
    /// The vertex inputs of the step, for the first layer.
    Given,
    /// `[nodes, f]`: the output of the layer below.
    Below(Var),
}

/// The order of a layer's two products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProductOrder {
    /// `(A X) W`
    AggregateFirst,
    /// `A (X W)`
    TransformFirst,
}

impl ProductOrder {
    /// Returns the cheaper order, which aggregates the narrower rows.
    pub fn of_widths(from: usize, to: usize) -> Self {
        if from <= to { ProductOrder::AggregateFirst } else { ProductOrder::TransformFirst }
    }
}

/// Layers whose products swap order in some of a group's snapshots. The result is exact up to rounding (BLAD,
/// section 6.3).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SwappedLayers {
    /// Number of snapshots that count as the first ones of a group.
    pub first: usize,
    /// Whether each layer is exchanged: in the first snapshots, then in the others. A missing entry means no.
    pub layers: [Vec<bool>; 2],
}

impl SwappedLayers {
    /// Returns the order of a layer in the snapshot at `index` of a group; `order` is the layer's own.
    pub fn in_snapshot(&self, order: ProductOrder, index: usize, layer: usize) -> ProductOrder {
        let layers = &self.layers[usize::from(index >= self.first)];
        match (layers.get(layer).copied().unwrap_or(false), order) {
            (false, order) => order,
            (true, ProductOrder::AggregateFirst) => ProductOrder::TransformFirst,
            (true, ProductOrder::TransformFirst) => ProductOrder::AggregateFirst,
        }
    }
}

/// Sizes and choices of a model made of graph convolutions: a section of a run's configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GcnConfig {
    /// Width of every layer, of the recurrent state if the model has one, and of the embeddings.
    pub width: usize,
    /// Number of layers.
    pub layers: usize,
    /// The first product of a graph convolution: `aggregate`, `transform`, or `auto` for the cheaper one.
    /// Either one word for all layers, or one word per layer, separated by commas.
    pub order: String,
}

impl Default for GcnConfig {
    fn default() -> Self {
        GcnConfig { width: 64, layers: 2, order: "auto".into() }
    }
}

/// The configured order of every layer, from the key `order`; `None` means the cheaper one.
#[derive(Debug)]
pub struct LayerOrders(Vec<Option<ProductOrder>>);

impl LayerOrders {
    /// Reads `config` of `section`: one word for all layers, or one per layer, separated by commas. Also
    /// checks the width and the number of layers.
    pub fn of_section(section: &'static str, config: &GcnConfig) -> Result<Self> {
        let (check, &GcnConfig { width, layers, order: ref words }) = (Check(section), config);
        check.sizes(&[("width", width)])?;
        check.size("layers", layers, 8)?;
        let parse = |word: &str| match word.trim() {
            "auto" => Some(None),
            "aggregate" => Some(Some(ProductOrder::AggregateFirst)),
            "transform" => Some(Some(ProductOrder::TransformFirst)),
            _ => None,
        };
        let parsed: Option<Vec<Option<ProductOrder>>> = words.split(',').map(parse).collect();
        match parsed {
            Some(one) if one.len() == 1 => return Ok(LayerOrders(vec![one[0]; layers])),
            Some(each) if each.len() == layers => return Ok(LayerOrders(each)),
            _ => {}
        }
        let valid = format!("auto, aggregate or transform, or {layers} of these with commas between");
        check.bad("order", format_args!("`{words}`"), &valid)
    }
    /// Returns the order of a layer that maps rows of width `from` to width `to`. Without a configured order
    /// it is the cheaper one; the first layer aggregates first if its inputs were aggregated in advance.
    pub fn of_layer(&self, layer: usize, data: &SnapshotTables, from: usize, to: usize) -> ProductOrder {
        let in_advance = layer == 0 && data.aggregated.is_some();
        let cheaper =
            if in_advance { ProductOrder::AggregateFirst } else { ProductOrder::of_widths(from, to) };
        self.0.get(layer).copied().flatten().unwrap_or(cheaper)
    }
    /// Whether the first layer reads inputs that were aggregated in advance, if there are any.
    pub fn aggregates_once(&self) -> bool {
        self.0.first() != Some(&Some(ProductOrder::TransformFirst))
    }
}

/// A layer: `act(A X W^T + b)`, with W as in PyTorch's `Linear`. Parameters `<name>.w` `[out, in]` and
/// `<name>.b` `[1, out]`.
#[derive(Debug)]
pub struct Gcn {
    w: BufferId,
    b: BufferId,
    /// The layer's own order of its products.
    pub order: ProductOrder,
}

impl Gcn {
    /// Adds the parameters.
    pub fn new(
        p: &mut Parameters,
        store: &mut Store,
        name: &str,
        from: usize,
        to: usize,
        order: ProductOrder,
    ) -> Result<Self> {
        let mut add = |part: &str, rows, cols| {
            p.add(store, &format!("{name}.{part}"), rows, cols, ScaledInit::FanIn(from))
        };
        Ok(Gcn { w: add("w", to, from)?, b: add("b", 1, to)?, order })
    }
    /// Appends the layer for the step at `index` of the group, with its products in this `order`; returns
    /// `[nodes, out]`.
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs.
    pub fn record(
        &self,
        t: &mut Tape,
        data: &SnapshotTables,
        (group, index): (&Group, usize),
        input: LayerInput,
        order: ProductOrder,
        act: Activation,
    ) -> Result<Var> {
        let [w, b] = t.stored_all([self.w, self.b])?;
        convolve(t, data, (group, index), input, (w, Some(b)), order, act)
    }
}

/// Appends `act(A X W^T + b)` for weights that are values, such as those that a GRU evolves.
///
/// # Errors
/// `Shape` if an op refuses its inputs.
pub fn convolve(
    t: &mut Tape,
    data: &SnapshotTables,
    (group, index): (&Group, usize),
    input: LayerInput,
    (w, b): (Var, Option<Var>),
    order: ProductOrder,
    act: Activation,
) -> Result<Var> {
    let at = (group, index);
    match order {
        ProductOrder::AggregateFirst => {
            let x = input.aggregated(t, data, at)?;
            t.linear(x, w, b, None, act)
        }
        ProductOrder::TransformFirst => {
            let x = input.plain(t, data, at)?;
            let x = t.linear(x, w, None, None, Activation::Identity)?;
            let graph = data.graph.vars(t)?;
            t.spmm(graph, x, (group.steps, index), b, act)
        }
    }
}

impl LayerInput {
    /// Returns `[nodes, f]`: X in the step at `index` of the group.
    pub(super) fn plain(
        self,
        t: &mut Tape,
        data: &SnapshotTables,
        (group, index): (&Group, usize),
    ) -> Result<Var> {
        match self {
            LayerInput::Given => data.inputs(t, group, index),
            LayerInput::Below(x) => Ok(x),
        }
    }
    /// Returns `[nodes, f]`: A X in the step at `index` of the group.
    pub(super) fn aggregated(
        self,
        t: &mut Tape,
        data: &SnapshotTables,
        (group, index): (&Group, usize),
    ) -> Result<Var> {
        match self {
            LayerInput::Given => data.aggregated(t, group, index),
            LayerInput::Below(x) => {
                let graph = data.graph.vars(t)?;
                t.spmm(graph, x, (group.steps, index), None, Activation::Identity)
            }
        }
    }
}

/// Returns the error of a model that is given a group without steps.
pub(super) fn no_steps(model: &'static str) -> Error {
    Error::shape(model, "a group has no step")
}

impl SnapshotTables {
    /// Returns `[nodes, width]`: A X in the step at `index` of the group, gathered from a table if it was
    /// computed in advance.
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs.
    pub fn aggregated(&self, t: &mut Tape, group: &Group, index: usize) -> Result<Var> {
        if let Some(id) = self.aggregated {
            let (table, rows) = (t.stored(id)?, self.present(t, group, index)?);
            return t.gather_rows(table, rows);
        }
        let graph = self.graph.vars(t)?;
        let (VertexInputs::Vertices(id) | VertexInputs::Steps(id)) = self.inputs;
        let x = t.stored(id)?;
        t.spmm(graph, x, (group.steps, index), None, Activation::Identity)
    }
}
