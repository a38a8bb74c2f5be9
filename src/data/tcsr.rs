//! Temporal adjacency: each node's events in order.
use super::Events;
use crate::{
    error::Result,
    ops::sample_neighbors::Entry,
    runtime::{NONE, check_room},
};

/// T-CSR: the events of every node, in order of time, one after another.
///
/// An event stands in the list of its source and in that of its destination; a self-loop stands once. Built in two
/// linear passes; 16 bytes an entry.
#[derive(Clone, Debug, PartialEq)]
pub struct Tcsr {
    /// `[nodes + 1]`: where each node's list begins.
    pub offsets: Vec<i64>,
    /// The lists: events ascend within one, and times do not descend.
    pub entries: Vec<Entry>,
    /// `[events, 2]`: rank of the event in the lists of its source and of its destination.
    pub position: Vec<u32>,
}

impl Tcsr {
    /// The adjacency of all events of a stream.
    ///
    /// # Errors
    /// Data where the events break a promise ([`Events::validate`]).
    pub fn of(events: &Events) -> Result<Self> {
        events.validate(&events.name)?;
        let bytes = size_of::<i64>() * (events.nodes + 1) + (2 * size_of::<Entry>() + 8) * events.len();
        check_room(
            "lists of the nodes' events",
            bytes,
            "take fewer events, or number the nodes without gaps",
        )?;
        let mut offsets = vec![0i64; events.nodes + 1];
        let ends = || events.src.iter().zip(&events.dst);
        for (&s, &d) in ends() {
            offsets[s as usize + 1] += 1;
            if s != d {
                offsets[d as usize + 1] += 1;
            }
        }
        for v in 0..events.nodes {
            offsets[v + 1] += offsets[v];
        }
        let mut entries = vec![Entry::default(); offsets[events.nodes] as usize];
        let mut position = vec![0; 2 * events.len()];
        let mut filled = vec![0u32; events.nodes];
        for (i, (&s, &d)) in ends().enumerate() {
            let mut append = |v: u32, other: u32| {
                let rank = filled[v as usize];
                let at = offsets[v as usize] as usize + rank as usize;
                entries[at] = Entry { time: events.time[i], node: other, event: i as u32 };
                filled[v as usize] += 1;
                rank
            };
            position[2 * i] = append(s, d);
            position[2 * i + 1] = if s == d { position[2 * i] } else { append(d, s) };
        }
        Ok(Tcsr { offsets, entries, position })
    }

    /// The latest `slots` events of every node among the first `events` of a stream: lists of `slots` entries each, ascending,
    /// the event of an empty slot being [`NONE`], and behind it all empty.
    pub fn latest(stream: &Events, events: usize, slots: usize) -> Vec<Entry> {
        let mut lists = vec![Entry { event: NONE, ..Entry::default() }; stream.nodes * slots];
        let mut filled = vec![0; stream.nodes];
        for i in (0..events).rev() {
            let (s, d) = (stream.src[i], stream.dst[i]);
            let mut put = |v: u32, other: u32| {
                let filled = &mut filled[v as usize];
                if *filled < slots {
                    *filled += 1;
                    let at = (v as usize + 1) * slots - *filled;
                    lists[at] = Entry { time: stream.time[i], node: other, event: i as u32 };
                }
            };
            put(s, d);
            if s != d {
                put(d, s);
            }
        }
        for (list, filled) in lists.chunks_exact_mut(slots.max(1)).zip(filled) {
            list.rotate_left(slots - filled);
        }
        lists
    }
}
