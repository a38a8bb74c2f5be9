//! Attention over sampled neighbours and their neighbours.
use super::{
    EventTables, Queries,
    layers::{Attention, AttentionInputs, TimeEncoding},
};
use tgnn::{
    autograd::Parameters,
    error::Result,
    ops::{
        Tape,
        epilogue::DropRate,
        expand_targets::Targets,
        sample_neighbors::{Neighbors, Strategy},
        unique::UniqueNodes,
    },
    runtime::*,
};

/// Attention layers, the first over rows of the unique nodes, and the sampling of their neighbours. Without
/// layers the embeddings are those rows, and nothing is sampled.
#[derive(Debug)]
pub struct AttentionStack {
    layers: Vec<Attention>,
    learn_below: bool,
    neighbors: usize,
    strategy: Strategy,
    at_events: bool,
}

/// Widths and choices of an [`AttentionStack`].
#[derive(Clone, Copy, Debug)]
pub struct StackConfig {
    /// Number of layers. With 0, the embeddings are the rows themselves.
    pub layers: usize,
    /// Width of the rows below the first layer.
    pub below: usize,
    /// Whether gradients flow into the rows below the first layer; not if they are data.
    pub learn_below: bool,
    /// Width of the embeddings.
    pub width: usize,
    /// Width of the edge features.
    pub edge: usize,
    /// Attention heads.
    pub heads: usize,
    /// Dropout probability of attention weights and of the layers' outputs.
    pub dropout: f32,
    /// Neighbours sampled per root, and per neighbour.
    pub neighbors: usize,
    /// Sampling strategy.
    pub strategy: Strategy,
    /// Whether a layer embeds neighbours for the layer above at the times of their events; else at the time
    /// of the query.
    pub at_events: bool,
    /// Seed of the dropout.
    pub seed: u64,
}

/// The sampled neighbours, one level per layer: those of the queries for the last layer, then neighbours of
/// neighbours for the layers below.
#[derive(Debug)]
pub struct Neighborhood {
    near: Vec<Neighbors>,
    /// What each level after the first embeds: the targets of the level above and their neighbours.
    targets: Vec<Targets>,
    /// Edge features of the neighbours' events.
    seen: Var,
}

impl AttentionStack {
    /// Adds the parameters `embed.0.*`, `embed.1.*` and so on.
    pub fn new(p: &mut Parameters, store: &mut Store, time: &TimeEncoding, c: &StackConfig) -> Result<Self> {
        let layers = (0..c.layers)
            .map(|l| {
                let below = if l == 0 { c.below } else { c.width };
                let drop = DropRate { p: c.dropout, seed: c.seed, salt: 0xD0 + 2 * l as u32 };
                Attention::new(p, store, l, below, c.width, c.edge, time.width, c.heads, drop)
            })
            .collect::<Result<_>>()?;
        let StackConfig { learn_below, neighbors, strategy, at_events, .. } = *c;
        Ok(AttentionStack { layers, learn_below, neighbors, strategy, at_events })
    }
    /// Appends the sampling of every level, and the unique nodes of all levels; `edge` holds the edge
    /// features by event.
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs.
    pub fn sample(
        &self,
        t: &mut Tape,
        data: &EventTables,
        q: &Queries,
        edge: Var,
    ) -> Result<(Neighborhood, UniqueNodes)> {
        if self.layers.is_empty() {
            let unique = data.unique(t, q.node, &[], q.classes())?;
            return Ok((Neighborhood { near: Vec::new(), targets: Vec::new(), seen: edge }, unique));
        }
        let how = data.sampling(self.neighbors, self.strategy);
        let (tcsr, batch) = (data.tcsr(t)?, (q.event, q.now));
        let mut near = vec![t.sample_neighbors(tcsr, (q.node, q.time), batch, q.stride, how)?];
        let mut targets: Vec<Targets> = Vec::new();
        let (mut node, mut time) = (q.node, q.time);
        while near.len() < self.layers.len() {
            let above = near[near.len() - 1];
            let event_time = self.at_events.then_some(above.time);
            let below = t.expand_targets((node, time), above.node, event_time)?;
            (node, time) = (below.node, below.time);
            near.push(t.sample_neighbors(tcsr, (node, time), batch, 0, how)?);
            targets.push(below);
        }
        // The last targets include all nodes of the levels above them.
        let others: Vec<Var> =
            targets.last().map(|l| l.node).into_iter().chain([near[near.len() - 1].node]).collect();
        let unique = if targets.is_empty() {
            data.unique(t, q.node, &others, q.classes())?
        } else {
            // Targets find their rows by node, so every node needs one row, over ranks, too.
            let stamp = data.stamp(t)?;
            t.unique(stamp, q.node, &others, q.classes())?
        };
        let neighbor_events = near.iter().map(|n| n.event).collect();
        let (seen, events) = data.edge_rows(t, edge, neighbor_events)?;
        near.iter_mut().zip(events).for_each(|(near, event)| near.event = event);
        Ok((Neighborhood { near, targets, seen }, unique))
    }
    /// Appends the layers over rows `h` of the unique nodes; returns the embeddings of the queries.
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs.
    pub fn record(
        &self,
        t: &mut Tape,
        time: &TimeEncoding,
        n: &Neighborhood,
        unique: &UniqueNodes,
        h: Var,
        drop_now: Option<Var>,
    ) -> Result<Var> {
        let levels = n.near.len();
        if levels == 0 {
            return t.gather_rows(h, unique.psi[0]);
        }
        let mut h = h;
        for (l, (layer, near)) in self.layers.iter().zip(n.near.iter().rev()).enumerate() {
            let learn_h = l > 0 || self.learn_below;
            let look = |h, roots, root, row, near| AttentionInputs {
                h,
                learn_h,
                roots,
                root,
                row,
                near,
                edge: n.seen,
                drop_now,
            };
            // The targets that the layer below has embedded.
            let below = (l > 0).then(|| n.targets[levels - 1 - l]);
            let looked = match below {
                None if levels == 1 => {
                    let roots = t.prefix_rows(h, unique.root_rows)?;
                    look(h, roots, unique.psi[0], unique.psi[1], *near)
                }
                None => look(h, h, unique.psi[1], unique.psi[2], *near),
                Some(below) => {
                    let roots = t.gather_rows(h, below.root_row)?;
                    look(h, roots, below.identity, below.neighbor_row, *near)
                }
            };
            h = layer.record(t, time, looked)?;
        }
        Ok(h)
    }
}
