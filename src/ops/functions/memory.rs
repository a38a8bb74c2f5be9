//! TGN's memory update with a GRU, on tables of the caller.
use super::table_rows;
use crate::{
    error::{Error, ErrorKind, Result, ensure},
    ops::{
        Call,
        gru_memory::Gru,
        memory_update::{FeatureRow, MemoryUpdate, MemoryUpdateGrad},
    },
    runtime::Gaps,
};
use std::collections::HashSet;

/// Node memory and mails of v nodes.
#[derive(Clone, Copy, Debug)]
pub struct MemoryTables<'a> {
    /// `[v, d]`: node memory.
    pub memory: &'a [f32],
    /// `[v]`: times of the last updates, in ticks.
    pub memory_time: &'a [i64],
    /// `[v, d]`: the memory of the partner in each node's mail.
    pub mail: &'a [f32],
    /// `[v]`: the event of each node's mail, a row of `edge`; [`NONE`](crate::runtime::NONE) without a mail.
    pub mail_event: &'a [u32],
    /// `[v]`: times of the mails, in ticks.
    pub mail_time: &'a [i64],
    /// `[e, f]`: features of the events.
    pub edge: &'a [f32],
    /// Width f of `edge`; 0 without features.
    pub edge_width: usize,
}

/// Weights of the update, for messages `{s | s_partner | e | Phi(dt)}` of width `c = 2 d + f + t`; those of
/// the GRU are as in PyTorch's `GRUCell`.
#[derive(Clone, Copy, Debug)]
pub struct GruWeights<'a> {
    /// `[t]`: frequencies of the time encoding `Phi(dt) = cos(w dt + b)`.
    pub time_w: &'a [f32],
    /// `[t]`: phases of the time encoding.
    pub time_b: &'a [f32],
    /// `[3 d, c]`: weights of the message.
    pub w_x: &'a [f32],
    /// `[3 d, d]`: weights of the state.
    pub w_h: &'a [f32],
    /// `[3 d]`: biases of the message.
    pub b_x: &'a [f32],
    /// `[3 d]`: biases of the state.
    pub b_h: &'a [f32],
}

/// The new memory of n nodes, and what the backward pass reads.
#[derive(Clone, Debug)]
pub struct UpdatedMemory {
    /// `[n, d]`: the new memory; that of a node without a mail is unchanged.
    pub memory: Vec<f32>,
    /// `[n]`: time of the mail, or of the last update if there is no mail.
    pub time: Vec<i64>,
    /// Widths of the weights.
    widths: Widths,
    /// The rows with a mail, their messages, gates and gaps.
    rows: Vec<u32>,
    messages: Vec<f32>,
    gates: Vec<f32>,
    dt: Vec<f32>,
}

/// Gradients of [`GruWeights`], with the same names and shapes.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // documented there
pub struct GruGrads {
    pub time_w: Vec<f32>,
    pub time_b: Vec<f32>,
    pub w_x: Vec<f32>,
    pub w_h: Vec<f32>,
    pub b_x: Vec<f32>,
    pub b_h: Vec<f32>,
}

/// Widths of memory (d), edge features (f) and time encoding (t).
#[derive(Clone, Copy, Debug, PartialEq)]
struct Widths {
    d: usize,
    f: usize,
    t: usize,
}

impl Widths {
    /// Returns the width of a message.
    fn message(self) -> usize {
        2 * self.d + self.f + self.t
    }
}

impl GruWeights<'_> {
    /// Returns the widths, for edge features of width `f`.
    ///
    /// # Errors
    /// `Shape` if a weight has another length than these say; it is named.
    fn widths(&self, f: usize) -> Result<Widths> {
        let (op, n) = ("gru_memory", self.b_h.len());
        ensure!(op, n > 0 && n.is_multiple_of(3), "b_h has {n} elements, want 3 d for memory of width d");
        let widths = Widths { d: n / 3, f, t: self.time_w.len() };
        let Widths { d, t, .. } = widths;
        let c = d.saturating_mul(2).saturating_add(f).saturating_add(t);
        for (name, has, rows, cols) in [
            ("w_h", self.w_h.len(), 3 * d, d),
            ("b_x", self.b_x.len(), 1, 3 * d),
            ("time_b", self.time_b.len(), 1, t),
            ("w_x", self.w_x.len(), 3 * d, c),
        ] {
            let want = rows.saturating_mul(cols);
            ensure!(
                op,
                has == want,
                "{name} has {has} elements, want {want} for [{rows}, {cols}]: memory has width {d}, the time \
                 encoding {t}, and edge features {f}"
            );
        }
        Ok(widths)
    }
}

/// Updates the memory of `nodes` from their mails: `s' = GRU({s | s_partner | e | Phi(t_mail - t_s)}, s)`.
/// Widths follow from lengths: d from `b_h`, and t from `time_w`. `seconds_per_tick` converts gaps
/// for the time encoding.
///
/// # Errors
/// `Shape` if the lengths do not fit together; `Data` if a node is listed twice, or a node or an event is
/// outside of its table.
///
/// # Examples
/// ```
/// use tgnn::{ops::functions::*, runtime::NONE};
/// // Two nodes with memory of width 1; node 0 has a mail at time 30. No edge features.
/// let tables = MemoryTables {
///     memory: &[4.0, 6.0], memory_time: &[5, 7], mail: &[9.0, 0.0], mail_event: &[0, NONE],
///     mail_time: &[30, 0], edge: &[], edge_width: 0,
/// };
/// let (w_x, zeros) = ([0.0; 9], [0.0; 3]);
/// let (time_w, time_b) = (&[0.0], &[0.0]);
/// let weights = GruWeights { time_w, time_b, w_x: &w_x, w_h: &zeros, b_x: &zeros, b_h: &zeros };
/// let updated = gru_memory(&[0, 1], tables, weights, 1.0)?;
/// // The gate z is a half and the candidate 0; node 1 is unchanged.
/// assert_eq!((&updated.memory[..], &updated.time[..]), (&[2.0, 6.0][..], &[30, 7][..]));
/// let grads = gru_memory_grad(&updated, weights, &[1.0, 1.0])?;
/// assert_eq!(grads.b_x, [0.0, 1.0, 0.5]); // of the gates r, z and n
/// # Ok::<(), tgnn::error::Error>(())
/// ```
pub fn gru_memory(
    nodes: &[u32],
    tables: MemoryTables<'_>,
    weights: GruWeights<'_>,
    seconds_per_tick: f32,
) -> Result<UpdatedMemory> {
    let (widths, n) = (weights.widths(tables.edge_width)?, nodes.len());
    let (Widths { d, f, t }, c, v) = (widths, widths.message(), tables.memory.len() / widths.d);
    let mut listed = HashSet::with_capacity(n);
    if let Some(twice) = nodes.iter().find(|&&node| !listed.insert(node)) {
        return Err(Error::new(ErrorKind::Data, format!("gru_memory: node {twice} is listed twice")));
    }
    let op = MemoryUpdate::<Gru>::new(FeatureRow::Event, false, Gaps::unlimited(seconds_per_tick));
    let (mut memory, mut time, mut count) = (vec![0.0; n * d], vec![0i64; n], [0u32]);
    let (mut rows, mut dt) = (vec![0u32; n], vec![0.0; n]);
    let (mut messages, mut gates) = (vec![0.0; n * c], vec![0.0; n * 4 * d]);
    Call::new(&op)
        .input(nodes, [n, 1])?
        .input(tables.memory, [v, d])?
        .input(tables.memory_time, [v, 1])?
        .input(tables.mail, [v, d])?
        .input(tables.mail_event, [v, 1])?
        .input(tables.mail_time, [v, 1])?
        .input(tables.edge, [table_rows(tables.edge.len(), f, tables.mail_event), f])?
        .input(weights.time_w, [1, t])?
        .input(weights.time_b, [1, t])?
        .input(weights.w_x, [3 * d, c])?
        .input(weights.w_h, [3 * d, d])?
        .input(weights.b_x, [1, 3 * d])?
        .input(weights.b_h, [1, 3 * d])?
        .output(&mut memory)?
        .output(&mut time)?
        .output(&mut count)?
        .output(&mut rows)?
        .output(&mut messages)?
        .output(&mut gates)?
        .output(&mut dt)?
        .run()?;
    let m = count[0] as usize;
    rows.truncate(m);
    messages.truncate(m * c);
    gates.truncate(m * 4 * d);
    dt.truncate(m);
    Ok(UpdatedMemory { memory, time, widths, rows, messages, gates, dt })
}

/// Computes the gradients of the weights of [`gru_memory`], given the gradient `dmemory`, `[n, d]`, of the
/// new memory. No gradient flows into the tables.
///
/// # Errors
/// `Shape` if the lengths do not fit together.
pub fn gru_memory_grad(
    updated: &UpdatedMemory,
    weights: GruWeights<'_>,
    dmemory: &[f32],
) -> Result<GruGrads> {
    let (widths, m, n) = (weights.widths(updated.widths.f)?, updated.rows.len(), updated.time.len());
    let (was, same) = (updated.widths, widths == updated.widths);
    ensure!("gru_memory", same, "the weights have widths {widths:?}, and those of the update had {was:?}");
    let (Widths { d, t, .. }, c) = (widths, widths.message());
    let zeros = |n: usize| vec![0.0; n];
    let mut g = GruGrads {
        time_w: zeros(t),
        time_b: zeros(t),
        w_x: zeros(3 * d * c),
        w_h: zeros(3 * d * d),
        b_x: zeros(3 * d),
        b_h: zeros(3 * d),
    };
    Call::new(&MemoryUpdateGrad::<Gru>::default())
        .input(&updated.rows, [m, 1])?
        .input(&updated.messages, [m, c])?
        .input(&updated.gates, [m, 4 * d])?
        .input(&updated.dt, [m, 1])?
        .input(weights.time_w, [1, t])?
        .input(weights.time_b, [1, t])?
        .input(weights.w_x, [3 * d, c])?
        .input(weights.w_h, [3 * d, d])?
        .input(dmemory, [n, d])?
        .output(&mut g.time_w)?
        .output(&mut g.time_b)?
        .output(&mut g.w_x)?
        .output(&mut g.w_h)?
        .output(&mut g.b_x)?
        .output(&mut g.b_h)?
        .run()?;
    Ok(g)
}
