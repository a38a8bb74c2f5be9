//! What to try if a baseline that learns nothing scores higher than the model.
use tgnn_training::{
    model::{ModelName, StaticMode},
    task::{Config, Summary, TaskName},
};

/// Returns lines that say so, for a run with configuration `c`; none if the model is ahead of every baseline.
pub fn lines(s: &Summary, c: &Config) -> Vec<String> {
    let Some((name, baseline, own)) = s.better_baseline() else { return Vec::new() };
    let mut tries = Vec::new();
    // A test of a checkpoint has no epochs.
    let (epochs, best) = (s.epochs.last().map_or(0, |last| last.epoch), s.best_epoch.unwrap_or(0));
    if epochs > 0 && !s.stopped_early && 5 * best >= 4 * epochs {
        tries.push(format!("more epochs, since the last ones were the best: --epochs {}", 3 * epochs));
    }
    if s.task == TaskName::Property {
        if c.property.rows > 20 {
            let rows = (c.property.rows / 4).max(10);
            tries.push(format!("fewer label rows a step, and so more steps: --set property.rows={rows}"));
        }
    } else if s.data.snapshots.is_none() && s.batch > 20 {
        tries.push(format!("smaller batches: --batch {}", (s.batch / 4).max(10)));
    }
    let has_rows = c.model == ModelName::Static || c.static_mode() != StaticMode::Off;
    if s.data.snapshots.is_none() && s.data.edge_features == 0 && !has_rows {
        tries.push("rows that tell nodes apart: --set static.mode=pretrained".to_owned());
    }
    tries.push("another model: `tgnn-bench models`".to_owned());
    let known = match s.past.as_deref() {
        _ if s.strictly_earlier.is_none() => "",
        Some("time") => " by all strictly earlier events",
        _ => " by the events of earlier batches",
    };
    vec![
        format!(
            "below     {} has {own:.4}; `{name}`, which learns nothing, has {baseline:.4}{known}",
            s.model
        ),
        format!("          try {}", tries.join("; ")),
    ]
}
