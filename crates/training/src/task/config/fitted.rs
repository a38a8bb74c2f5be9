//! Sizes of training that follow from the data, where the user sets none.
use super::{Config, TaskName};
use crate::{model::StaticMode, task::events::label_steps};
use tgnn::error::Result;
use tgnn_data::{Events, Split, text::counted};

/// Training events from which on the defaults are those of published runs: batches of 200 events.
const LARGE: usize = 20_000;
/// Steps that an epoch has at least, if the batch is fitted.
const STEPS: usize = 100;
/// Steps of a run: about as many as ten epochs of Wikipedia have.
const ENOUGH: usize = 5_000;
/// Largest number of epochs.
const MOST_EPOCHS: usize = 100;
/// Steps without a better validation score after which a fitted run stops: epochs of few steps improve
/// slowly, and the scores of few events vary.
const PATIENT: usize = 2_000;
/// Bounds of the same in epochs.
const PATIENCE: [usize; 2] = [10, 30];

impl Config {
    /// Sets the key `task` to `property` if nodes have labels, and `batch`, `eval_batch`, `epochs`,
    /// `patience`, `static.mode` and `property.rows` by the numbers of training events and of label rows, as
    /// far as `is_given` says that the user has set none of them. Returns what it has set and why, for the
    /// user; `None` if nothing changed.
    ///
    /// Few events get small batches and many epochs, which end early if validation does not improve, and a
    /// predictor of links or of labels of nodes gets pre-trained rows of its nodes. Few label rows are
    /// divided among many steps. From 100,000 training events on, nothing changes. `benches/defaults.py`
    /// holds the result against EdgeBank.
    ///
    /// # Errors
    /// Those of [`Split::by_time`].
    pub fn fit_to(&mut self, events: &Events, is_given: impl Fn(&str) -> bool) -> Result<Option<String>> {
        let published = Split::fractions(&events.name);
        let mut changes = Vec::new();
        if published != [self.data.train, self.data.val] && !is_given("data.train") && !is_given("data.val") {
            [self.data.train, self.data.val] = published;
            changes.push(format!("data.train {} and data.val {}, as published", published[0], published[1]));
        }
        if events.node_labels.is_some() && self.task == TaskName::Link && !is_given("task") {
            self.task = TaskName::Property;
            changes.push("task property, because nodes have labels (--task link predicts events)".to_owned());
        }
        let split = self.split(events)?;
        let training = split.train.len();
        if training < LARGE {
            let fitted = (training / STEPS / 10 * 10).clamp(10, 200);
            if !is_given("batch") {
                self.batch = fitted;
                changes.push(format!("batch {fitted}"));
            }
            if !is_given("eval_batch") && self.task != TaskName::Property {
                self.eval_batch = fitted;
                changes.push(format!("eval_batch {fitted}"));
            }
        }
        if self.task == TaskName::Property && !is_given("property.rows") {
            let [rows, steps] = label_steps(self, events, &split);
            let fitted = (rows / STEPS / 10 * 10).max(10);
            if steps < STEPS && fitted < self.property.rows {
                self.property.rows = fitted;
                changes.push(format!("property.rows {fitted}"));
            }
        }
        let steps = match self.task {
            TaskName::Property => label_steps(self, events, &split)[1],
            _ => training.div_ceil(self.batch.max(1)),
        }
        .max(1);
        let epochs = ENOUGH.div_ceil(steps).clamp(10, MOST_EPOCHS);
        if epochs > self.epochs && !is_given("epochs") {
            self.epochs = epochs;
            changes.push(format!("at most {epochs} epochs"));
            if !is_given("patience") && self.evaluate {
                self.patience = PATIENT.div_ceil(steps).clamp(PATIENCE[0], PATIENCE[1]);
                changes.push(format!("patience {}", self.patience));
            }
        }
        let by_nodes = matches!(self.task, TaskName::Link | TaskName::Property);
        if training < LARGE && by_nodes && self.custom_model.is_none() && !is_given("static.mode") {
            self.static_memory.mode = StaticMode::Pretrained;
            changes.push("pre-trained rows (static.mode)".to_owned());
        }
        let events = counted(training as u64, "training event");
        Ok((!changes.is_empty()).then(|| format!("{events}: {}", changes.join(", "))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tgnn_data::{NodeLabel, NodeLabels};

    fn fitted(events: usize, given: &[&str]) -> (Config, Option<String>) {
        let ends = |n: u32| (0..events as u32).map(|i| i % n).collect();
        let times = (0..events as i64).collect();
        let events = Events::new("made", ends(7), ends(5), times).unwrap();
        let mut config = Config::default();
        let note = config.fit_to(&events, |key| given.contains(&key)).unwrap();
        (config, note)
    }

    #[test]
    fn few_events_get_small_batches_and_more_epochs_and_many_keep_the_published_ones() {
        let sizes = |events| {
            let (c, _) = fitted(events, &[]);
            (c.batch, c.epochs, c.patience, c.static_mode() == StaticMode::Pretrained)
        };
        assert_eq!(sizes(100), (10, 100, 30, true));
        assert_eq!(sizes(1_000), (10, 72, 29, true));
        assert_eq!(sizes(3_000), (20, 48, 20, true));
        assert_eq!(sizes(15_000), (100, 48, 20, true));
        assert_eq!(sizes(60_000), (200, 24, 10, false));
        assert_eq!(sizes(200_000), (200, 10, 0, false));
    }

    #[test]
    fn labels_of_nodes_are_the_task_and_few_of_them_make_small_steps() {
        let mut events = Events::new("made", vec![0; 3_000], vec![1; 3_000], (0..3_000).collect()).unwrap();
        let label = |i: i64| NodeLabel { time: i / 50 * 50, node: (i % 50) as u32, class: 0, weight: 1.0 };
        events.nodes = 50;
        events.node_labels = Some(NodeLabels::new(1, (0..3_000).map(label).collect()).unwrap());
        let fitted = |given: &[&str]| {
            let mut config = Config::default();
            let note = config.fit_to(&events, |key| given.contains(&key)).unwrap().unwrap();
            (config, note)
        };
        // 42 times of 50 rows train: 2,100 rows in steps of 20, three a time.
        let (c, note) = fitted(&[]);
        assert_eq!((c.task, c.property.rows, c.batch, c.epochs), (TaskName::Property, 20, 20, 40));
        assert!(note.contains("task property") && note.contains("property.rows 20"), "{note}");
        assert_eq!(c.static_mode(), StaticMode::Pretrained);
        assert_eq!(fitted(&["property.rows"]).0.property.rows, 2000);
        assert_eq!(fitted(&["task"]).0.task, TaskName::Link);
    }

    #[test]
    fn what_the_user_gives_stays() {
        let (c, note) = fitted(3_000, &["batch", "eval_batch", "epochs", "patience", "static.mode"]);
        assert_eq!(
            (c.batch, c.epochs, c.patience, c.static_mode(), note),
            (200, 10, 0, StaticMode::Off, None)
        );
        let (c, note) = fitted(3_000, &["batch", "static.mode"]);
        assert_eq!((c.batch, c.epochs), (200, 100));
        assert_eq!(note.unwrap(), "2,100 training events: eval_batch 20, at most 100 epochs, patience 30");
    }
}
