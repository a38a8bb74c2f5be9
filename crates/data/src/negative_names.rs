//! How files of negatives name nodes.
use super::{Events, GivenNegatives, scalar::Scalar, text::grouped};
use std::{collections::HashMap, path::Path};
use tgnn::error::{Error, Result};

/// The remedy for negatives that do not fit the events.
pub(super) const REMEDY: &str = "fetch or write the negatives that belong to these events";

impl GivenNegatives {
    /// Returns the number of a node that belongs to the event being read.
    pub(super) fn node(&self, file: &Path, names: &Names, node: Scalar) -> Result<u32> {
        let known = node.whole().and_then(|n| names.node(u64::try_from(n).ok()?));
        known.ok_or_else(|| {
            let event = grouped((self.first + self.events()) as u64);
            let what =
                format!("event {event} has the negative {}, which is not a node of the events", node.text());
            Error::data(file, what).remedy(REMEDY)
        })
    }
}

/// A map from the node ids of a file to node numbers.
pub(super) enum Names {
    /// The ids are the node numbers, below this bound.
    Same(usize),
    /// The node numbers by id.
    Known(HashMap<u64, u32>),
}

impl Names {
    /// Maps the original ids. If a source and a destination share an id, the id means the destination.
    pub(super) fn new(events: &Events) -> Self {
        match &events.ids {
            None => Names::Same(events.nodes),
            Some(ids) => Names::Known(ids.numbers().unwrap_or_default().iter().copied().zip(0..).collect()),
        }
    }

    /// Returns the node number of an id.
    fn node(&self, name: u64) -> Option<u32> {
        match self {
            Names::Same(nodes) => u32::try_from(name).ok().filter(|&n| (n as usize) < *nodes),
            Names::Known(nodes) => nodes.get(&name).copied(),
        }
    }
}
