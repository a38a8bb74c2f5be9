//! Graph convolution: `act(A X W + b)` of a step of snapshots, in either order.
//!
//! Source: Kipf and Welling 2017; both orders give the same (BLAD, section 6.3).
use super::{SnapshotTables, VertexInputs, config::Check};
use crate::{
    autograd::{Parameters, ScaledInit},
    data::{Adjacency, Neighbors},
    error::{Error, ErrorKind, Result},
    ops::{
        Tape,
        epilogue::Activation,
        next_group::Group,
        spmm::{AdjacencyVars, GraphVars, LongRows, Most},
    },
    runtime::*,
};
use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc};

/// One direction of an adjacency in a store: `begin`, `len`, `col`, and the slices of its long rows.
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
        let long = LongRows::of(&n.len, nodes);
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
    fn vars(&self, t: &mut Tape, store: &Store) -> Result<AdjacencyVars> {
        let [begin, len, col, first, slices] = t.stored_all(store, self.ids)?;
        let weight = self.weight.map(|id| t.stored(store, id)).transpose()?;
        Ok(AdjacencyVars { begin, len, col, weight, slices: [first, slices], most: self.most })
    }
}

fn contradicts<T>(what: fmt::Arguments<'_>) -> Result<T> {
    Err(Error::new(ErrorKind::Data, format!("an adjacency contradicts itself: {what}")))
}

/// Refuses neighbours that are no vertices, or no entries of the pool.
fn check(side: &str, n: &Neighbors, of: &Adjacency) -> Result<()> {
    let (rows, pool) = (of.scale.len(), n.col.len());
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
    if let Some(v) = n.col.iter().find(|&&v| v as usize >= of.nodes) {
        return contradicts(format_args!("{side} has neighbour {v} of {} vertices", of.nodes));
    }
    Ok(())
}

/// The adjacency of all steps in a store.
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
    /// Data where it contradicts itself: what reads it relies on it.
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
    /// `[steps nodes, 1]` f32: `degree^-1/2`, 0 for a vertex that is not there.
    pub fn scale(&self) -> BufferId {
        self.scale
    }
    /// All of it as values.
    pub fn vars(&self, t: &mut Tape, store: &Store) -> Result<GraphVars> {
        let adjacency = self.from.vars(t, store)?;
        let transpose = self.to.as_ref().map_or(Ok(adjacency), |to| to.vars(t, store))?;
        Ok(GraphVars { adjacency, transpose, scale: t.stored(store, self.scale)?, vertices: self.nodes })
    }
}

/// What a layer reads.
#[derive(Clone, Copy, Debug)]
pub enum LayerInput {
    /// What the vertices of the step are known by.
    Given,
    /// `[nodes, f]` of the layer below.
    Below(Var),
}

/// Which product of a layer comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// `(A X) W`
    AggregateFirst,
    /// `A (X W)`
    TransformFirst,
}

impl Order {
    /// The cheaper one: rows are aggregated where they are narrower.
    pub fn of_widths(from: usize, to: usize) -> Self {
        if from <= to { Order::AggregateFirst } else { Order::TransformFirst }
    }
}

/// Layers that do their products in the other order than theirs, in some of a group's snapshots: exact but for rounding (BLAD, section
/// 6.3).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Exchanged {
    /// Snapshots of a group that are the first few.
    pub first: usize,
    /// Of the first few, and of the others: whether each layer is exchanged. None is where nothing is said.
    pub layers: [Vec<bool>; 2],
}

impl Exchanged {
    /// The order of a layer in the snapshot at `place` of a group, where its own is `order`.
    pub fn order(&self, order: Order, place: usize, layer: usize) -> Order {
        let layers = &self.layers[usize::from(place >= self.first)];
        match (layers.get(layer).copied().unwrap_or(false), order) {
            (false, order) => order,
            (true, Order::AggregateFirst) => Order::TransformFirst,
            (true, Order::TransformFirst) => Order::AggregateFirst,
        }
    }
}

/// Sizes and choices of a model that is made of graph convolutions: a section of a run's configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GcnConfig {
    /// Width of every layer, of its state where it has one, and of the embeddings.
    pub width: usize,
    /// Layers.
    pub layers: usize,
    /// Which product of a graph convolution comes first: `aggregate`, `transform`, or the cheaper one, `auto`; for all layers,
    /// or a word for each with commas between.
    pub order: String,
}

impl Default for GcnConfig {
    fn default() -> Self {
        GcnConfig { width: 64, layers: 2, order: "auto".into() }
    }
}

/// What a configuration says of the order in every layer: the key `order`.
pub struct Orders(Vec<Option<Order>>);

impl Orders {
    /// Of a section: a word for all layers, or a word each, with commas between. Checks the numbers, too.
    pub fn of_section(section: &'static str, config: &GcnConfig) -> Result<Self> {
        let (check, &GcnConfig { width, layers, order: ref words }) = (Check(section), config);
        check.sizes(&[("width", width)])?;
        check.size("layers", layers, 8)?;
        let one = |word: &str| match word.trim() {
            "auto" => Some(None),
            "aggregate" => Some(Some(Order::AggregateFirst)),
            "transform" => Some(Some(Order::TransformFirst)),
            _ => None,
        };
        let said: Option<Vec<Option<Order>>> = words.split(',').map(one).collect();
        match said {
            Some(one) if one.len() == 1 => return Ok(Orders(vec![one[0]; layers])),
            Some(each) if each.len() == layers => return Ok(Orders(each)),
            _ => {}
        }
        let want = format!("auto, aggregate or transform, or {layers} of these with commas between");
        check.bad("order", format_args!("`{words}`"), &want)
    }
    /// That of a layer that makes rows of `from` numbers ones of `to`, and may transform first what it aggregates: the
    /// cheaper one, where nothing is said.
    pub fn of(&self, layer: usize, data: &SnapshotTables, from: usize, to: usize) -> Order {
        let done = layer == 0 && data.aggregated.is_some();
        let cheaper = if done { Order::AggregateFirst } else { Order::of_widths(from, to) };
        self.0.get(layer).copied().flatten().unwrap_or(cheaper)
    }
    /// Whether the first layer reads inputs that were aggregated before, where they were.
    pub fn aggregates_once(&self) -> bool {
        self.0.first() != Some(&Some(Order::TransformFirst))
    }
}

/// A layer: `act(A X W^T + b)`, W as PyTorch's `Linear`, parameters `<name>.w` `[out, in]` and `<name>.b` `[1, out]`.
pub struct Gcn {
    w: BufferId,
    b: BufferId,
    /// Which product comes first.
    pub order: Order,
}

impl Gcn {
    /// Adds the parameters.
    pub fn new(
        p: &mut Parameters,
        store: &mut Store,
        name: &str,
        from: usize,
        to: usize,
        order: Order,
    ) -> Result<Self> {
        let mut add = |what: &str, rows, cols| {
            p.add(store, &format!("{name}.{what}"), rows, cols, ScaledInit::FanIn(from))
        };
        Ok(Gcn { w: add("w", to, from)?, b: add("b", 1, to)?, order })
    }
    /// Appends the layer for the step at `place` of the group, in this order; returns `[nodes, out]`.
    ///
    /// # Errors
    /// `Shape`, as the ops'.
    #[allow(clippy::too_many_arguments)]
    pub fn record(
        &self,
        t: &mut Tape,
        store: &Store,
        data: &SnapshotTables,
        (group, place): (&Group, usize),
        input: LayerInput,
        order: Order,
        act: Activation,
    ) -> Result<Var> {
        let [w, b] = t.stored_all(store, [self.w, self.b])?;
        convolve(t, store, data, (group, place), input, (w, Some(b)), order, act)
    }
}

/// Appends `act(A X W^T + b)` for weights that are values, such as those that a GRU evolves.
///
/// # Errors
/// `Shape`, as the ops'.
#[allow(clippy::too_many_arguments)]
pub fn convolve(
    t: &mut Tape,
    store: &Store,
    data: &SnapshotTables,
    (group, place): (&Group, usize),
    input: LayerInput,
    (w, b): (Var, Option<Var>),
    order: Order,
    act: Activation,
) -> Result<Var> {
    let at = (group, place);
    match order {
        Order::AggregateFirst => {
            let x = input.aggregated(t, store, data, at)?;
            t.linear(x, w, b, None, act)
        }
        Order::TransformFirst => {
            let x = input.plain(t, store, data, at)?;
            let x = t.linear(x, w, None, None, Activation::Identity)?;
            let graph = data.graph.vars(t, store)?;
            t.spmm(graph, x, (group.steps, place), b, act)
        }
    }
}

impl LayerInput {
    /// `[nodes, f]`: X of the step at `place` of the group.
    pub(super) fn plain(
        self,
        t: &mut Tape,
        store: &Store,
        data: &SnapshotTables,
        (group, place): (&Group, usize),
    ) -> Result<Var> {
        match self {
            LayerInput::Given => data.inputs(t, store, group, place),
            LayerInput::Below(x) => Ok(x),
        }
    }
    /// `[nodes, f]`: A X.
    pub(super) fn aggregated(
        self,
        t: &mut Tape,
        store: &Store,
        data: &SnapshotTables,
        (group, place): (&Group, usize),
    ) -> Result<Var> {
        match self {
            LayerInput::Given => data.aggregated(t, store, group, place),
            LayerInput::Below(x) => {
                let graph = data.graph.vars(t, store)?;
                t.spmm(graph, x, (group.steps, place), None, Activation::Identity)
            }
        }
    }
}

/// What a model says that is given a group without steps.
pub(super) fn no_steps(model: &'static str) -> Error {
    Error::shape(model, "a group has no step")
}

impl SnapshotTables {
    /// `[nodes, width]`: A X of the step at `place` of the group, where that was done before a row of a table.
    ///
    /// # Errors
    /// `Shape`, as the ops'.
    pub fn aggregated(&self, t: &mut Tape, store: &Store, group: &Group, place: usize) -> Result<Var> {
        if let Some(id) = self.aggregated {
            let (table, rows) = (t.stored(store, id)?, self.present(t, store, group, place)?);
            return t.gather_rows(table, rows);
        }
        let graph = self.graph.vars(t, store)?;
        let (VertexInputs::Vertices(id) | VertexInputs::Steps(id)) = self.inputs;
        let x = t.stored(store, id)?;
        t.spmm(graph, x, (group.steps, place), None, Activation::Identity)
    }
}
