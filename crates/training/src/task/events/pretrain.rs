//! Pretrains static node memory, before the model that reads it is trained.
use super::EventTask;
use crate::{
    model::{ModelName, StaticConfig, StaticMode},
    task::{
        config::{ClassifyConfig, Config, NegativeKind, OptimizerConfig, TaskName},
        training::{Task, TaskCore, Watch},
    },
};
use tgnn::{
    error::Result,
    runtime::{BufferId, Device},
};
use tgnn_data::Events;

/// Fills the static memory `rows` of a task by [`pretrain`], if the configuration asks for it and no
/// checkpoint has filled it.
pub(super) fn fill(
    config: &Config,
    events: &Events,
    core: &mut TaskCore,
    rows: Option<BufferId>,
    watch: &mut dyn Watch,
) -> Result<()> {
    let Some(id) = rows.filter(|_| config.static_mode() == StaticMode::Pretrained) else { return Ok(()) };
    if core.store.read::<f32>(id)?.iter().all(|&x| x == 0.0) {
        let rows = pretrain(config, events, &core.device.clone(), watch)?;
        core.store.write(id, &rows)?;
    }
    Ok(())
}

/// Pretrains the static memory by link prediction on the training events: trains the model `static` for
/// `static.epochs` epochs. Returns the rows, `[nodes, static.width]`; nodes without a training event get
/// zeros.
///
/// # Errors
/// Those of [`train`](super::train).
pub fn pretrain(
    config: &Config,
    events: &Events,
    device: &Device,
    watch: &mut dyn Watch,
) -> Result<Vec<f32>> {
    let c = &config.static_memory;
    let config = Config {
        model: ModelName::Static,
        task: TaskName::Link,
        negatives: NegativeKind::Random,
        classify: ClassifyConfig::default(),
        chunks: 1,
        // Rows that do not change with time need no order of events: ranks share each batch.
        plan: "auto".into(),
        epochs: c.epochs,
        batch: c.batch,
        learning_rate: c.learning_rate,
        optimizer: OptimizerConfig::default(),
        ..config.clone()
    };
    let mut task = EventTask::new(&config, events, device.clone())?;
    for epoch in 1..=c.epochs {
        task.train_epoch(epoch as u32 - 1, &mut |p| watch.progress("static", epoch, p))?;
    }
    let rows = task.core.parameters.iter().find(|p| p.0 == StaticConfig::ROWS).map(|p| p.1);
    let ids: Vec<_> = rows.into_iter().collect();
    task.core.store.fetch(&ids)?;
    let mut rows = ids.first().map_or(Ok(&[][..]), |&id| task.core.store.read::<f32>(id))?.to_vec();
    for (row, seen) in rows.chunks_exact_mut(c.width).zip(events.nodes_in(task.split.train.clone())) {
        if !seen {
            row.fill(0.0);
        }
    }
    Ok(rows)
}
