//! Layers: parameters together with the ops that use them.
use serde::{Deserialize, Serialize};
use std::fmt;
use tgnn::{
    autograd::{Parameters, ScaledInit},
    error::Result,
    ops::{
        Tape,
        epilogue::{Activation, DropRate},
        sample_neighbors::Neighbors,
        temporal_attention::AttentionVars,
    },
    runtime::*,
};

/// The time encoding Phi(dt) = cos(w dt + b).
#[derive(Debug)]
pub struct TimeEncoding {
    /// Width of the encoding.
    pub width: usize,
    /// `[1, t]` frequencies.
    pub w: BufferId,
    /// `[1, t]` phases.
    pub b: BufferId,
    /// The input of [`Self::at_zero`]: if learned, `[1, 1]` of 0; if fixed, `[1, t]` of Phi(0) itself, which
    /// is all ones because b = 0.
    now: BufferId,
    learned: bool,
}

/// Initial frequencies and phases, and whether they are learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimeStart {
    /// w falls from 1 to 1e-9 in equal ratios, b = 0; not learned, as in GraphMixer (Cong et al. 2023). An
    /// optimiser's step would move every frequency by about its step size, a thousand times a slow frequency,
    /// and so turn it into noise.
    Fixed,
    /// Initialised as `Fixed` but learned, as in TGN and TGL.
    Learned,
    /// Both initialised uniformly in [-1, 1) and learned, as in PyTorch Geometric.
    Random,
}

impl fmt::Display for TimeStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TimeStart::Fixed => "fixed",
            TimeStart::Learned => "learned",
            TimeStart::Random => "random",
        })
    }
}

impl TimeEncoding {
    /// Adds `time.w` and `time.b`, as parameters if they are learned.
    pub fn new(p: &mut Parameters, store: &mut Store, width: usize, start: TimeStart) -> Result<Self> {
        let init = match start {
            TimeStart::Random => ScaledInit::FanIn(1),
            TimeStart::Fixed | TimeStart::Learned => ScaledInit::Constant(0.0),
        };
        let spec = Spec::real(Rows::fixed(1), width);
        let mut add = |name| match start {
            TimeStart::Fixed => store.zeros(name, spec),
            TimeStart::Learned | TimeStart::Random => p.add(store, name, 1, width, init),
        };
        let (w, b) = (add("time.w")?, add("time.b")?);
        if start != TimeStart::Random {
            let last = width.saturating_sub(1).max(1) as f64;
            let decades: Vec<f64> = (0..width).map(|i| 10f64.powf(-9.0 * i as f64 / last)).collect();
            store.write(w, &decades)?;
        }
        let learned = start != TimeStart::Fixed;
        let now = store.zeros("no time", Spec::real(Rows::fixed(1), if learned { 1 } else { width }))?;
        if !learned {
            store.write(now, &vec![1.0f64; width])?;
        }
        Ok(TimeEncoding { width, w, b, now, learned })
    }
    /// Returns `w` and `b` as values.
    pub fn vars(&self, t: &mut Tape) -> Result<(Var, Var)> {
        Ok((t.stored(self.w)?, t.stored(self.b)?))
    }
    /// Returns Phi(0), `[1, t]`.
    fn at_zero(&self, t: &mut Tape) -> Result<Var> {
        let (w, b) = self.vars(t)?;
        let now = t.stored(self.now)?;
        if self.learned { t.time_encode(now, w, b) } else { Ok(now) }
    }
}

/// A temporal attention layer: `LayerNorm(ReLU(drop(W_o {attention | h_root} + b_o)))`, with its heads side
/// by side. The layer ends as in TGL; the papers of TGAT and TGN end it with an MLP with one hidden layer.
///
/// Queries come from `{h_root | Phi(0)}`, keys and values from `{h_j | e_j | Phi(t - t_j)}`. Both projections
/// are absorbed (see [`temporal_attention`](tgnn::ops::temporal_attention)). Keys have no bias, because the
/// softmax cancels it.
#[derive(Debug)]
pub struct Attention {
    heads: usize,
    width: usize,
    drop: DropRate,
    w_q: BufferId,
    w_q_time: BufferId,
    b_q: BufferId,
    w_k: BufferId,
    w_v: BufferId,
    b_v: BufferId,
    w_o: BufferId,
    w_o_root: BufferId,
    b_o: BufferId,
    gain: BufferId,
    bias: BufferId,
}

/// The inputs of an attention layer.
#[derive(Clone, Copy, Debug)]
pub struct AttentionInputs {
    /// Embeddings of the layer below.
    pub h: Var,
    /// Whether gradients flow into `h`; not if it holds data.
    pub learn_h: bool,
    /// Embeddings of the unique roots. Everything that depends on the root's node alone is computed once per
    /// row.
    pub roots: Var,
    /// Each root's row of `roots`.
    pub root: Var,
    /// Each neighbour's row of `h`.
    pub row: Var,
    /// The neighbours' events and time gaps.
    pub near: Neighbors,
    /// Edge features; the neighbours' `event` are row indices into them.
    pub edge: Var,
    /// Clock of the dropout; `None` when evaluating.
    pub drop_now: Option<Var>,
}

impl Attention {
    /// Adds the parameters `embed.<layer>.*`: inputs of width `d_in`, outputs of `width`, edge features of
    /// width `f`, time encodings of width `t`.
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        p: &mut Parameters,
        store: &mut Store,
        layer: usize,
        d_in: usize,
        width: usize,
        f: usize,
        t: usize,
        heads: usize,
        drop: DropRate,
    ) -> Result<Self> {
        use ScaledInit::{Constant, FanIn};
        let c = d_in + f + t;
        let mut add =
            |name: &str, rows, cols, init| p.add(store, &format!("embed.{layer}.{name}"), rows, cols, init);
        Ok(Attention {
            heads,
            width,
            drop,
            w_q: add("w_q", width, d_in, FanIn(d_in + t))?,
            w_q_time: add("w_q_time", width, t, FanIn(d_in + t))?,
            b_q: add("b_q", 1, width, FanIn(d_in + t))?,
            w_k: add("w_k", width, c, FanIn(c))?,
            w_v: add("w_v", width, c, FanIn(c))?,
            b_v: add("b_v", 1, width, FanIn(c))?,
            w_o: add("w_o", width, width, FanIn(width + d_in))?,
            w_o_root: add("w_o_root", width, d_in, FanIn(width + d_in))?,
            b_o: add("b_o", 1, width, FanIn(width + d_in))?,
            gain: add("norm_gain", 1, width, Constant(1.0))?,
            bias: add("norm_bias", 1, width, Constant(0.0))?,
        })
    }
    /// Appends the layer; returns `[n, width]`, one row per root.
    ///
    /// # Errors
    /// `Shape` if an op refuses its inputs.
    pub fn record(&self, t: &mut Tape, time: &TimeEncoding, l: AttentionInputs) -> Result<Var> {
        let mut stored = |id| t.stored(id);
        let (w_q, w_q_time, b_q) = (stored(self.w_q)?, stored(self.w_q_time)?, stored(self.b_q)?);
        let (w_k, w_v, b_v) = (stored(self.w_k)?, stored(self.w_v)?, stored(self.b_v)?);
        let (w_o, w_o_root, b_o) = (stored(self.w_o)?, stored(self.w_o_root)?, stored(self.b_o)?);
        let (gain, bias) = (stored(self.gain)?, stored(self.bias)?);
        let phi_zero = time.at_zero(t)?;
        let (query, skip) = t.linear_pair(l.roots, (w_q, b_q), (phi_zero, w_q_time), (w_o_root, b_o))?;
        let absorbed = t.head_up(query, w_k, self.heads)?;
        let grouped = t.group_roots(l.root, l.near.count, t.spec(absorbed).rows)?;

        let (time_w, time_b) = time.vars(t)?;
        let near = AttentionVars {
            query: absorbed,
            roots: grouped,
            h: l.h,
            learn_h: l.learn_h,
            row: l.row,
            event: l.near.event,
            dt: l.near.dt,
            count: l.near.count,
            edge: l.edge,
            time_w,
            time_b,
        };
        let drop = |salt| l.drop_now.map(|now| (DropRate { salt: self.drop.salt + salt, ..self.drop }, now));
        let (mix, sum) = t.temporal_attention(near, self.heads, self.width / self.heads, drop(0))?;
        let attended = t.head_down(mix, w_v, Some((b_v, sum)), self.heads)?;
        let attended = t.linear(attended, w_o, None, None, Activation::Identity)?;
        // ReLU and dropout commute: a dropout multiplies by non-negative numbers.
        let (order, relu) = ((grouped.order, grouped.position), Activation::Relu.then_drop(drop(1)));
        t.ungroup_norm(attended, order, skip, l.root, relu, (gain, bias))
    }
}
