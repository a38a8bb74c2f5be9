//! A node's inputs beside its memory: node features and static memory.
use super::EventTables;
use tgnn::{
    autograd::{Parameters, ScaledInit},
    error::{Error, Result},
    ops::{Tape, epilogue::Activation, unique::UniqueNodes},
    runtime::*,
};

/// Adds `W x_v + b` to `h` for each node table in use: node features, static memory.
///
/// Source: node features as in TGL; static node memory as in DistTGL (Zhou et al. 2023), section 3.1.
#[derive(Debug)]
pub struct NodeInputs(Vec<Projection>);

#[derive(Debug)]
struct Projection {
    rows: BufferId,
    w: BufferId,
    b: BufferId,
}

impl NodeInputs {
    /// Adds the parameters `node.w`, `node.b` and `static.w`, `static.b` for the tables that exist; `d` is
    /// the width of the rows to which the projections are added.
    pub fn new(
        p: &mut Parameters,
        store: &mut Store,
        data: &EventTables,
        d: usize,
        features: bool,
    ) -> Result<Self> {
        let features = data.features.node.filter(|_| features).map(|rows| ("node", rows));
        let tables = features.into_iter().chain(data.static_memory.map(|rows| ("static", rows)));
        let projection = |(name, rows)| {
            let n = store.spec(rows).cols;
            let mut add = |part: &str, out, cols| {
                p.add(store, &format!("{name}.{part}"), out, cols, ScaledInit::FanIn(n))
            };
            Ok(Projection { rows, w: add("w", d, n)?, b: add("b", 1, d)? })
        };
        Ok(NodeInputs(tables.map(projection).collect::<Result<_>>()?))
    }
    /// Appends the projections of `node`, `[n]`, and adds them to `h`, `[n, d]`, if given.
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs, or if there is neither `h` nor a table.
    pub fn record(&self, t: &mut Tape, data: &EventTables, node: Var, h: Option<Var>) -> Result<Var> {
        let mut h = h;
        for Projection { rows, w, b } in &self.0 {
            let (w, b) = (t.stored(*w)?, t.stored(*b)?);
            let features = data.node_rows(t, *rows, node)?;
            h = Some(t.linear(features, w, Some(b), h, Activation::Identity)?);
        }
        h.ok_or_else(|| Error::shape("inputs", "no node features and no static memory"))
    }
    /// Whether there is no table.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Appends the projections of each root's row plus the mean of its neighbours' rows, and adds them to
    /// `h`, `[n, d]`. `unique` are the unique nodes of the roots and of their neighbours, `count` the
    /// neighbours of each root.
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs, or if `unique` lists no neighbours.
    pub fn record_around(
        &self,
        t: &mut Tape,
        data: &EventTables,
        unique: &UniqueNodes,
        count: Var,
        h: Var,
    ) -> Result<Var> {
        let mut h = h;
        for Projection { rows, w, b } in &self.0 {
            let [own, near, ..] = unique.psi[..] else {
                return Err(Error::shape("inputs", "no list of neighbours"));
            };
            let (w, b) = (t.stored(*w)?, t.stored(*b)?);
            let rows = data.node_rows(t, *rows, unique.node)?;
            let (own_rows, near_rows) = (t.gather_rows(rows, own)?, t.gather_rows(rows, near)?);
            let mean = t.mean_rows(near_rows, t.spec(near).cols, Some(count))?;
            let around = t.add(own_rows, mean)?;
            h = t.linear(around, w, Some(b), Some(h), Activation::Identity)?;
        }
        Ok(h)
    }
}
