//! Small streams of events, and short trainings on them.
use std::{path::Path, sync::Arc};
use tgnn::ops::write_memory::Combiner;
use tgnn::runtime::Device;
use tgnn_data::{Events, SynthOptions, synth};
use tgnn_training::{
    model::{ModelName, StaticMode, TgnConfig},
    task::{self, Config, Protocol, RunOptions, Summary},
};

/// Returns a stream with these edges at these times, without features.
pub fn stream(nodes: usize, ends: &[(usize, usize)], time: Vec<i64>) -> Events {
    let events = Events {
        name: "made".into(),
        src: Arc::new(ends.iter().map(|e| (e.0 % nodes) as u32).collect()),
        dst: Arc::new(ends.iter().map(|e| (e.1 % nodes) as u32).collect()),
        time: time.into(),
        label: None,
        label_names: None,
        classes: None,
        node_labels: None,
        nodes,
        first_destination: None,
        ticks_per_second: 2.0,
        encoding: None,
        tables: tgnn_data::Encodings::default(),
        time_format: tgnn_data::TimeFormat::Seconds,
        origin: 0,
        ids: None,
        edge_features: None,
        node_features: None,
        lines: None,
        notes: Vec::new(),
    };
    events.validate("made").unwrap();
    events
}

/// Returns a synthetic stream.
pub fn small(events: usize) -> Events {
    let options =
        SynthOptions { events, sources: 60, destinations: 20, edge_features: 4, ..SynthOptions::default() };
    synth(&options).unwrap()
}

/// Returns the configuration of a short training.
pub fn config(epochs: usize, width: usize) -> Config {
    let tgn =
        TgnConfig { memory: width, time: width, embedding: width, neighbors: 5, ..TgnConfig::default() };
    let (batch, protocol, settle) = (100, Protocol::Dyglib, false);
    Config { epochs, batch, eval_batch: batch, protocol, threads: 1, settle, tgn, ..Config::default() }
}

/// Trains, with `out` as the folder of the run.
pub fn run(
    config: &Config,
    events: &Events,
    out: Option<&Path>,
    resume: bool,
) -> tgnn::error::Result<Summary> {
    let options =
        RunOptions { out: out.map(Into::into), resume, command: "test".into(), ..RunOptions::default() };
    task::train(config, events, &Device::cpu(config.threads)?, &options, &mut ())
}

/// Returns the results of a run, without its times.
pub fn found(s: &Summary) -> String {
    let epochs: Vec<_> = s.epochs.iter().map(|e| (e.epoch, e.train_loss.to_bits(), e.val)).collect();
    format!("{epochs:?} {:?} {:?} {:?} {}", s.best_epoch, s.test, s.test_by_memory, s.parameters)
}

/// Returns all models of events, in the order of their list.
pub fn event_models() -> impl Iterator<Item = ModelName> {
    ModelName::ALL.iter().copied().filter(|model| !model.reads_snapshots())
}

/// Returns the same configuration with narrow models, which read few neighbours and mails. Keys are found by
/// their names, so that a new model is small by being in the list.
pub fn narrowed(c: &Config, width: usize, neighbors: usize, mails: usize) -> Config {
    let widths = ["memory", "time", "embedding", "width"].map(|key| (key, width));
    let keys = widths.into_iter().chain([("neighbors", neighbors), ("mails", mails)]);
    let mut table: toml::Table = c.to_toml().unwrap().parse().unwrap();
    for section in event_models().map(ModelName::section) {
        let section = table[section].as_table_mut().unwrap();
        for (key, n) in keys.clone() {
            if let Some(value) = section.get_mut(key) {
                *value = toml::Value::Integer(n as i64);
            }
        }
    }
    Config::of_table(&table).unwrap()
}

/// Returns a narrow configuration of a model.
pub fn small_config(model: ModelName, width: usize) -> Config {
    let mut c = narrowed(&Config { model, ..config(2, width) }, width, 4, 4);
    (c.static_memory.width, c.static_memory.epochs, c.static_memory.batch) = (6, 2, 150);
    c
}

/// Returns every model of events, then those with choices that change their structure.
pub fn every_model(width: usize) -> Vec<(&'static str, Config)> {
    let with = |model, change: fn(&mut Config)| {
        let mut c = small_config(model, width);
        change(&mut c);
        c
    };
    let mut models: Vec<_> = event_models().map(|model| (model.name(), small_config(model, width))).collect();
    models.extend([
        ("tgn of three layers", with(ModelName::Tgn, |c| (c.tgn.layers, c.tgn.neighbors) = (3, 2))),
        ("tgn without attention", with(ModelName::Tgn, |c| c.tgn.layers = 0)),
        ("apan, mean mails", with(ModelName::Apan, |c| c.apan.combiner = Combiner::Mean)),
        ("jodie, static memory", with(ModelName::Jodie, |c| c.static_memory.mode = StaticMode::Trained)),
        ("dyrep, static memory", with(ModelName::DyRep, |c| c.static_memory.mode = StaticMode::Trained)),
        ("tgat, static memory", with(ModelName::Tgat, |c| c.static_memory.mode = StaticMode::Pretrained)),
        (
            "graph-mixer, static memory",
            with(ModelName::GraphMixer, |c| c.static_memory.mode = StaticMode::Trained),
        ),
    ]);
    models
}
