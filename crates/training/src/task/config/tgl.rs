//! Translates TGL's configuration files.
//!
//! TGL describes a run in YAML (`config/*.yml` of amazon-research/tgl; Zhou et al., VLDB 2022) with the keys
//! `sampling`, `memory`, `gnn` and `train`, each a list with one element. Its models have these counterparts:
//!
//! | TGL | model |
//! | --- | --- |
//! | memory `node`, updated by `gru` or `rnn`; `transformer_attention` | `tgn` |
//! | memory `node`, updated by `rnn`; `identity` with `time_transform: JODIE` | `jodie` |
//! | memory `node`, updated by `transformer` from mails to neighbours; `identity` | `apan` |
//! | memory `none`; `transformer_attention` without snapshots | `tgat` |
use serde::Deserialize;
use tgnn::error::{Error, Result};
use tgnn_data::text::shown;
use toml::{Table, Value};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Yaml {
    sampling: Vec<Sampling>,
    memory: Vec<Memory>,
    gnn: Vec<Gnn>,
    train: Vec<Train>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Sampling {
    layer: Option<i64>,
    neighbor: Vec<i64>,
    strategy: Option<Strategy>,
    prop_time: bool,
    history: i64,
    duration: f64,
    /// Ignored: does not change results.
    #[serde(rename = "num_thread")]
    _threads: Option<i64>,
    no_sample: bool,
    no_neg: bool,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling {
            layer: None,
            neighbor: Vec::new(),
            strategy: None,
            prop_time: false,
            history: 1,
            duration: 0.0,
            _threads: None,
            no_sample: false,
            no_neg: false,
        }
    }
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Strategy {
    Recent,
    Uniform,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Memory {
    r#type: MemoryKind,
    dim_out: Option<i64>,
    dim_time: Option<i64>,
    deliver_to: Option<Deliver>,
    mail_combine: Option<Combine>,
    memory_update: Option<Update>,
    attention_head: Option<i64>,
    mailbox_size: Option<i64>,
    combine_node_feature: Option<bool>,
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum MemoryKind {
    Node,
    None,
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Deliver {
    #[serde(rename = "self")]
    Own,
    Neighbors,
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Combine {
    Last,
    Mean,
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Update {
    Gru,
    Rnn,
    Transformer,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Gnn {
    arch: Arch,
    layer: Option<i64>,
    att_head: Option<i64>,
    dim_time: Option<i64>,
    dim_out: Option<i64>,
    combine: Option<String>,
    time_transform: Option<String>,
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Arch {
    TransformerAttention,
    Identity,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Train {
    epoch: Option<i64>,
    batch_size: Option<i64>,
    reorder: Option<i64>,
    lr: Option<f64>,
    dropout: Option<f64>,
    att_dropout: Option<f64>,
    #[serde(default)]
    combine_neighs: bool,
    /// Ignored: does not change results.
    #[serde(rename = "all_on_gpu")]
    _place: Option<bool>,
}

/// Translates a configuration of TGL. Returns our configuration, and a note on every setting that has no
/// counterpart.
///
/// The table has `model`, `protocol = "tgl"`, `epochs`, `batch`, `learning_rate`, `chunks` (TGL's `reorder`),
/// and a section with the name of the model. Keys that are missing in the YAML are left out.
///
/// # Errors
/// `Usage`, with line and column, for an unknown key, a missing key or an invalid value; `Usage`, with the
/// name of the key, for a model without a counterpart.
///
/// ```
/// let yaml = "
/// sampling: [{layer: 1, neighbor: [10], strategy: recent}]
/// memory: [{type: node, memory_update: gru, mail_combine: last, dim_time: 100, dim_out: 100}]
/// gnn: [{arch: transformer_attention, layer: 1, att_head: 2, dim_time: 100, dim_out: 100}]
/// train: [{epoch: 100, batch_size: 600, lr: 0.0001, dropout: 0.2}]";
/// let (config, notes) = tgnn_training::task::tgl::translate(yaml)?;
/// assert_eq!((config["model"].as_str(), config["tgn"]["heads"].as_integer()), (Some("tgn"), Some(2)));
/// assert!(notes.is_empty());
/// # Ok::<(), tgnn::error::Error>(())
/// ```
pub fn translate(yaml: &str) -> Result<(Table, Vec<String>)> {
    let yaml: Yaml = serde_saphyr::from_str(yaml).map_err(|e| {
        let (line, column) = e.location().map_or((0, 0), |l| (l.line(), l.column()));
        let message = e.without_snippet().to_string();
        // `at` adds the position to the error, so it is cut off here; the lines after the first one are an
        // illustration.
        let what = message.lines().next().and_then(|text| text.split(" at line ").next()).unwrap_or_default();
        let source = yaml.lines().nth((line as usize).saturating_sub(1)).unwrap_or_default();
        Error::usage(format!("{}: {}", shown(source.trim().as_bytes()), what.trim()))
            .at(line, column)
            .remedy("give a configuration of TGL")
    })?;
    Translation {
        sampling: one(&yaml.sampling, "sampling")?,
        memory: one(&yaml.memory, "memory")?,
        gnn: one(&yaml.gnn, "gnn")?,
        train: one(&yaml.train, "train")?,
        section: Table::new(),
        notes: Vec::new(),
    }
    .run()
}

/// Returns the only element of `list`.
fn one<'a, T>(list: &'a [T], name: &str) -> Result<&'a T> {
    match list {
        [one] => Ok(one),
        _ => Err(Error::usage(format!("`{name}` is a list of {} elements", list.len()))
            .remedy("give a list with one element")),
    }
}

/// The parts of TGL's configuration, and the translation so far.
struct Translation<'a> {
    sampling: &'a Sampling,
    memory: &'a Memory,
    gnn: &'a Gnn,
    train: &'a Train,
    /// The section of the model.
    section: Table,
    notes: Vec<String>,
}

impl Translation<'_> {
    fn run(mut self) -> Result<(Table, Vec<String>)> {
        let model = self.model()?;
        match model {
            "tgat" => self.attention(self.gnn.dim_time)?,
            "tgn" => {
                self.memory();
                self.attention(self.memory.dim_time)?;
                let updater = if self.memory.memory_update == Some(Update::Rnn) { "rnn" } else { "gru" };
                self.put("updater", Some(updater));
                if self.gnn.dim_time != self.memory.dim_time {
                    self.note("gnn.dim_time differs from memory.dim_time, which is used for both");
                }
            }
            // TGL's `identity` has neither a width nor dropout.
            "jodie" => {
                self.put("memory", self.memory.dim_out);
                self.put("time", self.memory.dim_time);
            }
            _ => {
                self.memory();
                self.put("time", self.memory.dim_time);
                self.put("heads", self.memory.attention_head);
                self.put("mails", self.memory.mailbox_size);
                self.neighbors()?;
            }
        }
        if model != "jodie" {
            self.put("dropout", self.train.dropout);
        }
        self.leftovers(model);
        let mut config = Table::new();
        put(&mut config, "model", Some(model));
        put(&mut config, "protocol", Some("tgl"));
        put(&mut config, "epochs", self.train.epoch);
        put(&mut config, "batch", self.train.batch_size);
        put(&mut config, "learning_rate", self.train.lr);
        put(&mut config, "chunks", self.train.reorder);
        config.insert(model.into(), Value::Table(self.section));
        Ok((config, self.notes))
    }

    /// Returns the name of the model that TGL's settings describe.
    fn model(&self) -> Result<&'static str> {
        let unsupported = |what: String| {
            Err(Error::usage(format!("{what} has no counterpart"))
                .remedy("translate a TGN, JODIE, APAN or TGAT"))
        };
        if self.sampling.history != 1 || self.sampling.duration != 0.0 || self.gnn.combine.is_some() {
            return unsupported(
                "a model of snapshots (sampling.history, sampling.duration, gnn.combine)".into(),
            );
        }
        let (memory, to) = (self.memory, self.memory.deliver_to.unwrap_or(Deliver::Own));
        let jodie = match self.gnn.time_transform.as_deref() {
            None => false,
            Some("JODIE") => true,
            Some(other) => return unsupported(format!("gnn.time_transform `{other}`")),
        };
        let model = match (memory.r#type, memory.memory_update, self.gnn.arch) {
            (MemoryKind::None, _, Arch::TransformerAttention) => "tgat",
            (MemoryKind::Node, Some(Update::Gru | Update::Rnn), Arch::TransformerAttention) => "tgn",
            (MemoryKind::Node, Some(Update::Rnn), Arch::Identity) if jodie => "jodie",
            (MemoryKind::Node, Some(Update::Transformer), Arch::Identity) => "apan",
            (MemoryKind::Node, None, _) => {
                return Err(
                    Error::usage("memory.memory_update is missing").remedy("give gru, rnn or transformer")
                );
            }
            _ => return unsupported("this pair of memory.memory_update and gnn.arch".into()),
        };
        if memory.r#type == MemoryKind::Node && (to == Deliver::Neighbors) != (model == "apan") {
            return unsupported(format!("memory.deliver_to of this kind for {model}"));
        }
        if model != "apan" && memory.mailbox_size.is_some_and(|n| n > 1) {
            return unsupported(format!("memory.mailbox_size above 1 for {model}"));
        }
        if jodie != (model == "jodie") {
            return unsupported(format!("gnn.time_transform for {model}"));
        }
        Ok(model)
    }

    /// Translates the settings of the node memory.
    fn memory(&mut self) {
        self.put("memory", self.memory.dim_out);
        let combiner = self.memory.mail_combine.map(|c| match c {
            Combine::Last => "last",
            Combine::Mean => "mean",
        });
        self.put("combiner", combiner);
    }

    /// Translates the settings of the attention layers, whose time encoding has width `time`.
    fn attention(&mut self, time: Option<i64>) -> Result<()> {
        self.put("time", time);
        self.put("embedding", self.gnn.dim_out.or(self.memory.dim_out));
        self.put("heads", self.gnn.att_head);
        self.put("layers", self.gnn.layer);
        if self.gnn.layer.or(self.sampling.layer) != self.sampling.layer.or(self.gnn.layer) {
            return Err(Error::usage("sampling.layer and gnn.layer differ").remedy("give both the same"));
        }
        self.neighbors()?;
        let strategy = self.sampling.strategy.map(|s| match s {
            Strategy::Recent => "recent",
            Strategy::Uniform => "uniform",
        });
        self.put("sampling", strategy);
        Ok(())
    }

    /// Translates the number of sampled neighbours.
    fn neighbors(&mut self) -> Result<()> {
        let neighbors = self.sampling.neighbor.first().copied();
        if self.sampling.neighbor.iter().any(|&n| Some(n) != neighbors) {
            return Err(Error::usage(format!(
                "sampling.neighbor {:?} has no counterpart",
                self.sampling.neighbor
            ))
            .remedy("give the same number for every layer"));
        }
        self.put("neighbors", neighbors);
        Ok(())
    }

    /// Translates the remaining settings; adds a note on those that change results in TGL and have no key
    /// here.
    fn leftovers(&mut self, model: &str) {
        if self.train.att_dropout.is_some_and(|rate| Some(rate) != self.train.dropout) {
            self.note("train.att_dropout differs from train.dropout, which is used for both");
        }
        if self.sampling.prop_time && model == "tgat" {
            self.put("neighbor_time", Some("query"));
        }
        if !self.sampling.prop_time && model == "tgn" && self.sampling.layer.is_some_and(|layers| layers > 1)
        {
            self.note("sampling.prop_time: here, neighbours are embedded at the time of the query");
        }
        if self.sampling.no_neg && model != "apan" {
            self.note("sampling.no_neg: here, negatives have neighbours");
        }
        if self.sampling.no_sample && model != "jodie" {
            self.note("sampling.no_sample: here, neighbours are sampled");
        }
        if self.memory.combine_node_feature == Some(false) && model == "tgn" {
            self.put("node_features", Some(false));
        }
        if self.gnn.arch == Arch::Identity && self.gnn.dim_out.is_some_and(|d| Some(d) != self.memory.dim_out)
        {
            self.note("gnn.dim_out differs from memory.dim_out, which is used for both");
        }
        if model == "apan" && self.sampling.strategy == Some(Strategy::Uniform) {
            self.note("sampling.strategy: here, mails go to the most recent neighbours");
        }
        if model == "jodie" && self.memory.mail_combine == Some(Combine::Mean) {
            self.note("memory.mail_combine: here, the last mail of a batch counts");
        }
        if self.train.combine_neighs {
            self.note("train.combine_neighs has no counterpart");
        }
    }

    fn note(&mut self, text: &str) {
        self.notes.push(text.to_owned());
    }

    fn put(&mut self, key: &str, value: Option<impl Into<Value>>) {
        put(&mut self.section, key, value);
    }
}

/// Adds `key` to `table` if there is a value.
fn put(table: &mut Table, key: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        table.insert(key.into(), value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Five configurations in TGL's styles: block lists with one element, Python's booleans, comments, quotes.
    const TGN: &str = "\
sampling:
  - layer: 1
    neighbor:
      - 10
    strategy: 'recent'
    prop_time: False
    history: 1
    duration: 0
    num_thread: 32
memory:
  - type: 'node'
    dim_time: 100
    deliver_to: 'self'
    mail_combine: 'last'
    memory_update: 'gru'
    mailbox_size: 1
    combine_node_feature: True
    dim_out: 64
gnn:
  - arch: 'transformer_attention'
    layer: 1
    att_head: 2
    dim_time: 100
    dim_out: 100
train:
  - epoch: 100
    batch_size: 600 # of every GPU
    reorder: 16
    lr: 0.0001
    dropout: 0.2
    att_dropout: 0.2
    all_on_gpu: True";
    const JODIE: &str = "\
sampling: [{no_sample: True, history: 1}]
memory: [{type: node, dim_time: 100, deliver_to: self, mail_combine: last, memory_update: rnn, mailbox_size: 1,
          combine_node_feature: True, dim_out: 100}]
gnn: [{arch: identity, time_transform: JODIE}]
train: [{epoch: 100, batch_size: 600, lr: 0.0001, dropout: 0.1, all_on_gpu: True}]";
    const APAN: &str = "\
sampling: [{layer: 1, neighbor: [10], strategy: recent, prop_time: False, history: 1, duration: 0, no_neg: True}]
memory: [{type: node, dim_time: 100, deliver_to: neighbors, mail_combine: last, memory_update: transformer,
          attention_head: 2, mailbox_size: 10, combine_node_feature: False, dim_out: 100}]
gnn: [{arch: identity}]
train: [{epoch: 100, batch_size: 600, lr: 0.0001, dropout: 0.1, att_dropout: 0.1}]";
    const TGAT: &str = "\
sampling: [{layer: 2, neighbor: [10, 10], strategy: uniform, prop_time: False, history: 1, duration: 0}]
memory: [{type: none, dim_out: 0}]
gnn: [{arch: transformer_attention, layer: 2, att_head: 2, dim_time: 100, dim_out: 100}]
train: [{epoch: 100, batch_size: 600, lr: 0.0001, dropout: 0.1, att_dropout: 0.3}]";
    const DYSAT: &str = "\
sampling: [{layer: 2, neighbor: [10, 10], strategy: uniform, prop_time: True, history: 3, duration: 10000}]
memory: [{type: none, dim_out: 0}]
gnn: [{arch: transformer_attention, layer: 2, att_head: 2, dim_time: 0, dim_out: 100, combine: rnn}]
train: [{epoch: 50, batch_size: 600, lr: 0.0001, dropout: 0.1, att_dropout: 0.1}]";

    fn section(yaml: &str) -> (Table, Vec<String>) {
        translate(yaml).unwrap()
    }

    #[test]
    fn tgn_has_a_counterpart_for_every_key() {
        let wanted: Table = toml::from_str(
            "model = 'tgn'\nprotocol = 'tgl'\nepochs = 100\nbatch = 600\nlearning_rate = 1e-4\nchunks = 16\n[tgn]\n\
             memory = 64\ncombiner = 'last'\ntime = 100\nembedding = 100\nheads = 2\nlayers = 1\nneighbors = 10\n\
             sampling = 'recent'\nupdater = 'gru'\ndropout = 0.2",
        )
        .unwrap();
        assert_eq!(section(TGN), (wanted, vec![]));
    }

    #[test]
    fn every_translation_is_a_valid_configuration() {
        for yaml in [TGN, JODIE, APAN, TGAT] {
            let config = crate::task::Config::of_table(&section(yaml).0).unwrap();
            config.validate().unwrap();
            assert_eq!((config.batch, config.protocol), (600, crate::task::Protocol::Tgl));
        }
    }

    #[test]
    fn settings_without_a_counterpart_are_noted() {
        for (yaml, said) in [
            (JODIE.replace("last", "mean"), "memory.mail_combine: here, the last mail"),
            (JODIE.replace("identity,", "identity, dim_out: 50,"), "gnn.dim_out differs"),
            (APAN.replace("recent", "uniform"), "sampling.strategy: here, mails go to"),
            (TGN.replace("layer: 1", "layer: 2"), "sampling.prop_time: here, neighbours are embedded"),
        ] {
            let notes = section(&yaml).1;
            assert!(notes.len() == 1 && notes[0].starts_with(said), "{notes:?}");
        }
    }

    #[test]
    fn jodie_apan_and_tgat_are_recognised_by_their_settings() {
        let (config, notes) = section(JODIE);
        let wanted = "memory = 100\ntime = 100";
        assert_eq!(config["jodie"], Value::Table(toml::from_str(wanted).unwrap()));
        assert_eq!((config["model"].as_str(), notes.len()), (Some("jodie"), 0));
        let (config, notes) = section(APAN);
        let wanted = "memory = 100\ncombiner = 'last'\ntime = 100\nheads = 2\nmails = 10\nneighbors = 10\n\
                      dropout = 0.1";
        assert_eq!(config["apan"], Value::Table(toml::from_str(wanted).unwrap()));
        assert_eq!((config["model"].as_str(), notes.len()), (Some("apan"), 0));
        let (config, notes) = section(TGAT);
        let wanted = "time = 100\nembedding = 100\nheads = 2\nlayers = 2\nneighbors = 10\nsampling = 'uniform'\n\
                      dropout = 0.1";
        assert_eq!(config["tgat"], Value::Table(toml::from_str(wanted).unwrap()));
        assert_eq!(notes, ["train.att_dropout differs from train.dropout, which is used for both"]);
        let (config, _) = section(&TGAT.replace("prop_time: False", "prop_time: True"));
        assert_eq!(config["tgat"]["neighbor_time"].as_str(), Some("query"));
    }

    #[test]
    fn models_without_a_counterpart_are_refused_with_the_name_of_the_key() {
        for (yaml, said) in [
            (DYSAT.to_owned(), "a model of snapshots"),
            (
                TGN.replace("'self'", "'neighbors'"),
                "memory.deliver_to of this kind for tgn has no counterpart",
            ),
            (TGN.replace("mailbox_size: 1\n", "mailbox_size: 4\n"), "memory.mailbox_size above 1 for tgn"),
            (TGN.replace("      - 10\n", "      - 10\n      - 5\n"), "sampling.neighbor [10, 5]"),
            (
                TGN.replace("  - layer: 1\n    n", "  - layer: 2\n    n"),
                "sampling.layer and gnn.layer differ",
            ),
            (JODIE.replace("rnn", "gru"), "this pair of memory.memory_update and gnn.arch"),
            (JODIE.replace("JODIE}", "LSTM}"), "gnn.time_transform `LSTM`"),
            (JODIE.replace("memory_update: rnn, ", ""), "memory.memory_update is missing"),
            (TGAT.replace("[{epoch", "[{}, {epoch"), "`train` is a list of 2 elements"),
        ] {
            let e = translate(&yaml).unwrap_err().to_string();
            assert!(e.starts_with(said) && e.contains("; "), "{e}");
        }
    }

    #[test]
    fn an_unknown_key_a_wrong_value_and_broken_yaml_are_reported_with_line_and_column() {
        for (yaml, place, said) in [
            (TGN.replace("strategy", "strategie"), (5, 5), "strategie"),
            (TGN.replace("'gru'", "'lstm'"), (15, 20), "lstm"),
            (TGN.replace("att_head: 2", "att_head: two"), (22, 15), "`att_head: two`: invalid"),
            (TGN.replace("train:\n", "trains:\n"), (25, 1), "trains"),
            (TGN.replace("gnn:\n", "gnn: {\n"), (19, 6), "sequence"),
        ] {
            let e = translate(&yaml).unwrap_err();
            let text = e.to_string();
            assert_eq!(e.position(), Some(place), "{text}");
            assert!(text.contains(said) && !text.contains('\n'), "{text}");
        }
        assert!(translate("").is_err());
    }
}
