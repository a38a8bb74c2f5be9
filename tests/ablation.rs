//! Memory and attention each earn their place.
use crate::{models, properties::run};
use tgnn::{
    data::{SynthOptions, synth},
    model::ModelName,
    task::Config,
};

#[test]
fn measure() {
    let env = |name: &str, or: f64| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(or);
    for seed in 1..=(env("SEEDS", 2.0) as u64) {
        let options = SynthOptions {
            events: env("EVENTS", 6000.0) as usize,
            sources: env("SOURCES", 100.0) as usize,
            destinations: env("DESTS", 60.0) as usize,
            edge_features: env("EDGE", 8.0) as usize,
            node_features: env("NODE", 16.0) as usize,
            signal: env("SIGNAL", 1.0),
            reminders: env("REM", 0.0),
            groups: env("GROUPS", 6.0) as usize,
            repeat: env("REPEAT", 0.8),
            exponent: env("EXPONENT", 0.5),
            seed,
            ..SynthOptions::default()
        };
        let events = synth(&options).unwrap();
        let mut line = String::new();
        for (name, model, layers) in [
            ("tgn", ModelName::Tgn, 1),
            ("memory only", ModelName::Tgn, 0),
            ("attention only", ModelName::Tgat, 1),
        ] {
            let mut c = Config {
                seed,
                epochs: env("EPOCHS", 4.0) as usize,
                batch: env("BATCH", 50.0) as usize,
                learning_rate: env("LR", 2e-3),
                ..models::of(model, env("WIDTH", 24.0) as usize)
            };
            (c.tgn.layers, c.tgat.layers) = (layers, layers);
            (c.tgn.neighbors, c.tgat.neighbors) = (env("K", 5.0) as usize, env("K", 5.0) as usize);
            let s = run(&c, &events, None, false).unwrap();
            let t = s.test.unwrap().transductive;
            line += &format!("{name} {:.4} ", t.ap.unwrap());
        }
        println!("{line}");
    }
}
