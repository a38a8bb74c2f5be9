//! Node property prediction: the labels of nodes at times, from the events before.
mod programs;
mod task;
mod walk;

pub use task::PropertyTask;

use self::walk::Walk;
use crate::task::Config;
use tgnn::error::{Error, ErrorKind};
use tgnn_data::{Events, Split};

/// Returns the numbers of label rows and of steps of an epoch that trains on the labels of `events`; 0
/// without labels.
pub(in crate::task) fn label_steps(config: &Config, events: &Events, split: &Split) -> [usize; 2] {
    let Some(labels) = &events.node_labels else { return [0, 0] };
    let walk = Walk::new(&events.time, labels, split, config.property.rows);
    [walk.stops[0].iter().map(|stop| stop.rows.len()).sum(), walk.steps(0)]
}

/// The error for events without labels of nodes.
fn unlabelled(events: &Events) -> Error {
    Error::new(ErrorKind::Data, format!("{} has no labels of nodes", events.name))
        .remedy("give a table of them with --labels FILE, or take a folder of TGB such as tgbn_genre")
}
