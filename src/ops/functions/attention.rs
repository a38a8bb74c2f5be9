//! Attention over temporal neighbours, on rows of the caller.
use super::table_rows;
use crate::{
    error::{Result, ensure},
    ops::{
        Call,
        group_slots::GroupSlots,
        temporal_attention::{TemporalAttention, TemporalAttentionGrad},
    },
    runtime::Rows,
};

/// n roots with up to k neighbours each. The raw row of a neighbour is `z = {h | e | Phi(dt)}`, of width
/// `c = d + f + t`. Other sizes follow from lengths: n from `count`, k from `row`, and t from `time_w`.
#[derive(Clone, Copy, Debug)]
pub struct AttentionRows<'a> {
    /// Number H of heads.
    pub heads: usize,
    /// Width p of a head: scores are divided by its square root.
    pub head_width: usize,
    /// Width d of `h`.
    pub width: usize,
    /// Width f of `edge`; 0 without features.
    pub edge_width: usize,
    /// `[n, H c]`: the query of each root and head, multiplied by the transposed key weights, `W_k^T q`.
    pub query: &'a [f32],
    /// `[u, d]`: embeddings of the neighbours.
    pub h: &'a [f32],
    /// `[n, k]`: row of each neighbour in `h`, such as its position in a list of the unique neighbours.
    pub row: &'a [u32],
    /// `[n, k]`: row of each neighbour's event in `edge`.
    pub event: &'a [u32],
    /// `[n, k]`: time from the neighbour's event to the root, in the unit of `time_w`: seconds by convention.
    pub dt: &'a [f32],
    /// `[n]`: slots in use, which come first.
    pub count: &'a [u32],
    /// `[e, f]`: edge features.
    pub edge: &'a [f32],
    /// `[t]`: frequencies of the time encoding `Phi(dt) = cos(w dt + b)`.
    pub time_w: &'a [f32],
    /// `[t]`: phases of the time encoding.
    pub time_b: &'a [f32],
}

/// The mixed rows of n roots.
#[derive(Clone, Debug)]
pub struct AttentionOutput {
    /// `[n, H c]`: `sum_j a_j z_j` for each head; zeros for a root without neighbours.
    pub mix: Vec<f32>,
    /// `[n, H]`: `sum_j a_j`: 1, or 0 for a root without neighbours.
    pub sum: Vec<f32>,
    /// `[n, H k]`: the weights a, which the backward pass reads.
    pub weight: Vec<f32>,
}

/// Gradients of the fields of [`AttentionRows`] with these names.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // documented there
pub struct AttentionGrads {
    pub query: Vec<f32>,
    pub h: Vec<f32>,
    pub time_w: Vec<f32>,
    pub time_b: Vec<f32>,
}

/// Maximum number of heads.
const MOST_HEADS: usize = 1 << 10;

/// Sizes, and the lists of roots: each has a query of its own.
struct Layout {
    n: usize,
    k: usize,
    c: usize,
    starts: Vec<u32>,
}

impl AttentionRows<'_> {
    fn layout(&self) -> Result<Layout> {
        let (op, n, heads) = ("temporal_attention", self.count.len(), self.heads);
        ensure!(op, (1..=MOST_HEADS).contains(&heads), "{heads} heads, want 1 to {MOST_HEADS}");
        ensure!(op, n < u32::MAX as usize, "{n} roots are too many");
        let (d, f, t) = (self.width, self.edge_width, self.time_w.len());
        let c = d.saturating_add(f).saturating_add(t);
        let (has, want) = (self.query.len(), c.saturating_mul(heads).saturating_mul(n));
        ensure!(
            op,
            has == want,
            "query has {has} elements, want {want}: {n} roots of {heads} heads, and rows of h of width {d}, edge \
             features of width {f}, and a time encoding of width {t}"
        );
        let k = self.row.len().checked_div(n).unwrap_or(0);
        Ok(Layout { n, k, c, starts: (0..=n as u32).collect() })
    }
    /// Starts a call of `op` with the inputs of the forward pass. `order` lists all roots, and root i has
    /// query i.
    fn call<'a>(&'a self, op: &'a dyn crate::ops::DynOp, l: &'a Layout) -> Result<Call<'a>> {
        let (t, slots) = (self.time_w.len(), [l.n, l.k]);
        Call::new(op)
            .input(self.query, [l.n, self.heads.saturating_mul(l.c)])?
            .input(&l.starts, [l.n + 1, 1])?
            .input(self.h, [table_rows(self.h.len(), self.width, self.row), self.width])?
            .input(self.row, slots)?
            .input(self.event, slots)?
            .input(self.dt, slots)?
            .input(self.count, [l.n, 1])?
            .input(self.edge, [table_rows(self.edge.len(), self.edge_width, self.event), self.edge_width])?
            .input(self.time_w, [1, t])?
            .input(self.time_b, [1, t])?
            .input(&l.starts[..l.n], [l.n, 1])?
            .input(&l.starts[..l.n], [l.n, 1])
    }
}

/// Computes `mix_h = sum_j a_hj z_j` with `a_h = softmax_j(q_h . z_j / sqrt(p))`. Values follow from the
/// mixed rows: `W_v mix + b_v sum`; see `docs/attention.md`.
///
/// # Errors
/// `Shape` if the lengths do not fit together; `Data` if a row or an event of a slot in use is outside of its
/// table, or a count is above k.
///
/// # Examples
/// ```
/// use tgnn::ops::functions::{AttentionRows, temporal_attention, temporal_attention_grad};
/// // One root with two neighbours, whose rows are {h | cos 0} = {1 | 1} and {3 | 1}.
/// let (h, dt, time) = ([1.0, 3.0], [0.0; 2], [0.0]);
/// let rows = AttentionRows {
///     heads: 1, head_width: 1, width: 1, edge_width: 0, query: &[0.0, 0.0], h: &h, row: &[0, 1],
///     event: &[0, 0], dt: &dt, count: &[2], edge: &[], time_w: &time, time_b: &time,
/// };
/// let out = temporal_attention(&rows)?;
/// assert_eq!((out.mix, out.sum), (vec![2.0, 1.0], vec![1.0])); // the scores are equal
/// let grads = temporal_attention_grad(&rows, &out.weight, &[1.0, 0.0], &[0.0])?;
/// assert_eq!(grads.h, [0.5, 0.5]);
/// # Ok::<(), tgnn::error::Error>(())
/// ```
pub fn temporal_attention(rows: &AttentionRows<'_>) -> Result<AttentionOutput> {
    let (l, heads) = (rows.layout()?, rows.heads);
    let mut out = AttentionOutput {
        mix: vec![0.0; l.n * heads * l.c],
        sum: vec![0.0; l.n * heads],
        weight: vec![0.0; l.n * heads * l.k],
    };
    let op = TemporalAttention::new(heads, rows.head_width, None, true);
    let call = rows.call(&op, &l)?;
    call.output(&mut out.mix)?.output(&mut out.sum)?.output(&mut out.weight)?.run()?;
    Ok(out)
}

/// Computes the gradients of [`temporal_attention`], given its `weight` and the gradients of `mix` and `sum`.
///
/// # Errors
/// As `temporal_attention`.
pub fn temporal_attention_grad(
    rows: &AttentionRows<'_>,
    weight: &[f32],
    dmix: &[f32],
    dsum: &[f32],
) -> Result<AttentionGrads> {
    let (l, heads, d) = (rows.layout()?, rows.heads, rows.width);
    // The slots by row of h, so that the gradient of a row is summed in a fixed order. Empty rows have none.
    let table = rows.h.len().checked_div(d).unwrap_or(0);
    let (mut starts, mut slots, mut listed) = (vec![0u32; table + 1], vec![0u32; l.n * l.k], [0u32]);
    if d > 0 {
        Call::new(&GroupSlots::new(Rows::fixed(table), true))
            .input(rows.row, [l.n, l.k])?
            .input(rows.count, [l.n, 1])?
            .input(&l.starts[..l.n], [l.n, 1])?
            .output(&mut starts)?
            .output(&mut slots)?
            .output(&mut listed)?
            .run()?;
    }
    slots.truncate(listed[0] as usize);
    let mut g = AttentionGrads {
        query: vec![0.0; rows.query.len()],
        h: vec![0.0; rows.h.len()],
        time_w: vec![0.0; rows.time_w.len()],
        time_b: vec![0.0; rows.time_b.len()],
    };
    let op = TemporalAttentionGrad::new(TemporalAttention::new(heads, rows.head_width, None, d > 0));
    let mut call = rows
        .call(&op, &l)?
        .input(weight, [l.n, heads * l.k])?
        .input(dmix, [l.n, heads * l.c])?
        .input(dsum, [l.n, heads])?;
    if d > 0 {
        call = call.input(&starts, [table + 1, 1])?.input(&slots, [slots.len(), 1])?;
    }
    call = call.output(&mut g.query)?.output(&mut g.time_w)?.output(&mut g.time_b)?;
    if d > 0 {
        call = call.output(&mut g.h)?;
    }
    call.run()?;
    Ok(g)
}
