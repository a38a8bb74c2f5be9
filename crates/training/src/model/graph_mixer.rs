//! GraphMixer: MLP-Mixer blocks over a node's most recent events; no attention, no memory.
//!
//! Source: Cong et al., "Do we really need complicated model architectures for temporal networks?", 2023, as
//! DyGLib implements it. The link encoder maps what is known of each recent event, edge features and a time
//! encoding with fixed frequencies, to a token, mixes the tokens and takes their mean. The node encoder adds
//! a node's own features and the mean of its recent neighbours' features. Unlike in DyGLib both encoders read
//! the same neighbours, the latest event is the first token, and the node encoder may also read static
//! memory.
use super::{
    Embeddings, EventModel, EventTables, ModelConfig, NodeInputs, Queries, TimeEncoding, TimeStart,
    config::Check,
};
use serde::{Deserialize, Serialize};
use tgnn::{
    autograd::{Parameters, ScaledInit},
    error::Result,
    ops::{
        Tape,
        epilogue::{Activation, DropRate},
        mix_tokens::MixerVars,
        sample_neighbors::Strategy,
    },
    runtime::*,
};
use tgnn_data::text::counted;

/// Sizes and choices of a GraphMixer model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GraphMixerConfig {
    /// Width of the time encoding.
    pub time: usize,
    /// Width of the tokens.
    pub width: usize,
    /// Width of the embeddings.
    pub embedding: usize,
    /// See [`ModelConfig::gap_quantile`].
    pub gap_quantile: f64,
    /// Mixer blocks, 1 to 4.
    pub layers: usize,
    /// Most recent neighbours per root: the tokens.
    pub neighbors: usize,
    /// Hidden units of the network that mixes tokens, as a multiple of `neighbors`.
    pub token_expansion: f64,
    /// Hidden units of the network that mixes channels, as a multiple of `width`.
    pub channel_expansion: f64,
    /// Dropout probability behind both layers of these networks.
    pub dropout: f32,
    /// Whether edge features are used, if the data has any.
    pub edge_features: bool,
    /// Whether node features are used, if the data has any.
    pub node_features: bool,
}

impl Default for GraphMixerConfig {
    fn default() -> Self {
        GraphMixerConfig {
            time: 100,
            width: 100,
            embedding: 100,
            gap_quantile: 0.99,
            layers: 2,
            neighbors: 20,
            token_expansion: 0.5,
            channel_expansion: 4.0,
            dropout: 0.1,
            edge_features: true,
            node_features: true,
        }
    }
}

const CHECK: Check = Check("graph-mixer");

/// Returns `expansion` times `width`, rounded down, but at least 1.
fn hidden(expansion: f64, width: usize) -> usize {
    ((expansion * width as f64) as usize).max(1)
}

impl ModelConfig for GraphMixerConfig {
    fn validate(&self) -> Result<()> {
        CHECK.sizes(&[("time", self.time), ("width", self.width), ("embedding", self.embedding)])?;
        CHECK.size("layers", self.layers, 4)?;
        CHECK.size("neighbors", self.neighbors, 1024)?;
        CHECK.expansion("token_expansion", self.token_expansion)?;
        CHECK.expansion("channel_expansion", self.channel_expansion)?;
        CHECK.dropout(self.dropout)?;
        CHECK.gap_quantile(self.gap_quantile)
    }
    fn gap_quantile(&self) -> f64 {
        self.gap_quantile
    }
    fn recent_events(&self) -> Result<usize> {
        Ok(self.neighbors)
    }
    fn partitions_features(&self) -> bool {
        true
    }
    #[allow(clippy::misnamed_getters)] // the width of the embeddings, not that of the tokens
    fn width(&self) -> usize {
        self.embedding
    }
    fn describe(&self) -> String {
        format!(
            "fixed time {}, width {}, embedding {},\n{} of {} tokens x {}, channels x {}, dropout {}",
            self.time,
            self.width,
            self.embedding,
            counted(self.layers as u64, "mixer block"),
            self.neighbors,
            self.token_expansion,
            self.channel_expansion,
            self.dropout
        )
    }
    fn build(
        &self,
        p: &mut Parameters,
        store: &mut Store,
        data: &EventTables,
        seed: u64,
    ) -> Result<Box<dyn EventModel>> {
        self.validate()?;
        let time = TimeEncoding::new(p, store, self.time, TimeStart::Fixed)?;
        let (k, d) = (self.neighbors, self.width);
        let input =
            affine(p, store, ["input.w", "input.b"], data.edge_width_if(self.edge_features) + self.time, d)?;
        let mixers = (0..self.layers).map(|l| {
            let drop = |salt| DropRate { p: self.dropout, seed, salt: 0xE0 + 4 * l as u32 + salt };
            let name = |mixes: &str| format!("embed.{l}.{mixes}");
            Ok(Mixer {
                tokens: FeedForward::new(p, store, &name("token"), k, self.token_expansion, drop(0))?,
                channels: FeedForward::new(p, store, &name("channel"), d, self.channel_expansion, drop(2))?,
            })
        });
        let mixers = mixers.collect::<Result<_>>()?;
        let output = affine(p, store, ["output.w", "output.b"], d, self.embedding)?;
        let nodes = NodeInputs::new(p, store, data, self.embedding, self.node_features)?;
        Ok(Box::new(GraphMixer { config: self.clone(), time, input, mixers, output, nodes }))
    }
}

/// Adds the weights and the bias of a linear map under these names.
fn affine(
    p: &mut Parameters,
    store: &mut Store,
    [w, b]: [&str; 2],
    from: usize,
    to: usize,
) -> Result<[BufferId; 2]> {
    let init = ScaledInit::FanIn(from);
    Ok([p.add(store, w, to, from, init)?, p.add(store, b, 1, to, init)?])
}

/// `drop(W_2 drop(GELU(W_1 LayerNorm(x) + b_1)) + b_2)`, over rows or columns.
struct FeedForward {
    norm: [BufferId; 2],
    first: [BufferId; 2],
    second: [BufferId; 2],
    drop: DropRate,
}

impl FeedForward {
    /// Adds the parameters `<name>_norm_gain` and so on, for rows of `width`.
    fn new(
        p: &mut Parameters,
        store: &mut Store,
        name: &str,
        width: usize,
        expansion: f64,
        drop: DropRate,
    ) -> Result<Self> {
        let names = |w: &str, b: &str| [format!("{name}_{w}"), format!("{name}_{b}")];
        let [gain, bias] = names("norm_gain", "norm_bias");
        let norm = [
            p.add(store, &gain, 1, width, ScaledInit::Constant(1.0))?,
            p.add(store, &bias, 1, width, ScaledInit::Constant(0.0))?,
        ];
        let hidden = hidden(expansion, width);
        let ([w_1, b_1], [w_2, b_2]) = (names("w_1", "b_1"), names("w_2", "b_2"));
        let first = affine(p, store, [&w_1, &b_1], width, hidden)?;
        let second = affine(p, store, [&w_2, &b_2], hidden, width)?;
        Ok(FeedForward { norm, first, second, drop })
    }
    /// Appends the network over the rows of `x`.
    fn record(&self, t: &mut Tape, x: Var, drop_now: Option<Var>) -> Result<Var> {
        let [[gain, bias], [w_1, b_1], [w_2, b_2]] =
            [t.stored_all(self.norm)?, t.stored_all(self.first)?, t.stored_all(self.second)?];
        let drop = |salt| drop_now.map(|now| (DropRate { salt: self.drop.salt + salt, ..self.drop }, now));
        let normal = t.layer_norm(x, gain, bias)?;
        let up = t.linear(normal, w_1, Some(b_1), None, Activation::Identity)?;
        let up = t.gelu(up, drop(0))?;
        t.linear(up, w_2, Some(b_2), None, Activation::Identity.then_drop(drop(1)))
    }
}

/// A block of the MLP-Mixer (Tolstikhin et al. 2021).
struct Mixer {
    tokens: FeedForward,
    channels: FeedForward,
}

impl Mixer {
    /// Appends the block over `x`, `[n k, d]`: k tokens of d channels for each root.
    fn record(&self, t: &mut Tape, x: Var, drop_now: Option<Var>) -> Result<Var> {
        let FeedForward { norm, first, second, drop } = self.tokens;
        let [norm, first, second] = [t.stored_all(norm)?, t.stored_all(first)?, t.stored_all(second)?];
        let x = t.mix_tokens(x, MixerVars { norm, first, second }, drop_now.map(|now| (drop, now)))?;
        let mixed = self.channels.record(t, x, drop_now)?;
        t.add(x, mixed)
    }
}

struct GraphMixer {
    config: GraphMixerConfig,
    time: TimeEncoding,
    input: [BufferId; 2],
    mixers: Vec<Mixer>,
    output: [BufferId; 2],
    nodes: NodeInputs,
}

impl EventModel for GraphMixer {
    fn embed(&self, t: &mut Tape, data: &EventTables, q: &Queries) -> Result<Embeddings> {
        let k = self.config.neighbors;
        let how = data.sampling(k, Strategy::Recent);
        let tcsr = data.tcsr(t)?;
        let mut near = t.sample_neighbors(tcsr, (q.node, q.time), (q.event, q.now), q.stride, how)?;
        let others: &[Var] = if self.nodes.is_empty() { &[] } else { &[near.node] };
        let unique = data.unique(t, q.node, others, q.classes())?;
        let edge = data.edge_if(t, self.config.edge_features)?;
        let (edge, events) = data.edge_rows(t, edge, vec![near.event])?;
        near.event = events[0];

        let time = self.time.vars(t)?;
        let known = t.slot_features(&near, edge, time)?;
        let [w, b] = t.stored_all(self.input)?;
        let mut x = t.linear(known, w, Some(b), None, Activation::Identity)?;
        for mixer in &self.mixers {
            x = mixer.record(t, x, q.drop_now())?;
        }
        let link = t.mean_rows(x, k, None)?;
        let [w, b] = t.stored_all(self.output)?;
        let z = t.linear(link, w, Some(b), None, Activation::Identity)?;
        let z = self.nodes.record_around(t, data, &unique, near.count, z)?;
        Ok(Embeddings::new(z))
    }
}
