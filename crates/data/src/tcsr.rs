//! Temporal adjacency: the events of each node in time order.
use super::Events;
use tgnn::{
    error::Result,
    ops::{functions::EventLists, sample_neighbors::Entry},
    runtime::{NONE, check_room},
};

/// T-CSR: the lists of every node's events, each in time order, concatenated.
///
/// An event is in the list of its source and in the list of its destination; a self-loop is in its node's
/// list once. The lists are built in two linear passes and take 16 bytes per entry.
#[derive(Clone, Debug, PartialEq)]
pub struct Tcsr {
    /// `[nodes + 1]`: the index of each list's first entry.
    pub offsets: Vec<i64>,
    /// The lists; within a list event ids ascend and times never decrease.
    pub entries: Vec<Entry>,
    /// `[events, 2]`: the rank of each event in the lists of its source and of its destination.
    pub position: Vec<u32>,
}

impl Tcsr {
    /// Builds the adjacency of all events of a stream.
    ///
    /// # Errors
    /// Data if the events are not valid ([`Events::validate`]); out of memory if the lists do not fit.
    pub fn new(events: &Events) -> Result<Self> {
        events.validate(&events.name)?;
        let bytes = size_of::<i64>() * (events.nodes + 1) + (2 * size_of::<Entry>() + 8) * events.len();
        check_room("lists of the nodes' events", bytes, "use fewer events, or number the nodes densely")?;
        let lists = EventLists::new(&events.src, &events.dst, &events.time, events.nodes)?;
        let (offsets, entries, position) = lists.into_parts();
        Ok(Tcsr { offsets, entries, position })
    }

    /// Returns the latest `slots` events of every node, as entries of shape `[nodes, slots]`. The events are
    /// in time order and have their indices as ids. Within a row events ascend; empty slots follow, with
    /// [`NONE`] as their event.
    pub fn latest([src, dst]: [&[u32]; 2], time: &[i64], nodes: usize, slots: usize) -> Vec<Entry> {
        let mut lists = vec![Entry { event: NONE, ..Entry::default() }; nodes * slots];
        let mut filled = vec![0; nodes];
        for (i, &time) in time.iter().enumerate().rev() {
            let (s, d) = (src[i], dst[i]);
            let mut prepend = |v: u32, other: u32| {
                let filled = &mut filled[v as usize];
                if *filled < slots {
                    *filled += 1;
                    let index = (v as usize + 1) * slots - *filled;
                    lists[index] = Entry { time, node: other, event: i as u32 };
                }
            };
            prepend(s, d);
            if s != d {
                prepend(d, s);
            }
        }
        // The rows were filled from the end; moves the events before the empty slots.
        for (list, filled) in lists.chunks_exact_mut(slots.max(1)).zip(filled) {
            list.rotate_left(slots - filled);
        }
        lists
    }
}
