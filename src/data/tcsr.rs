//! Temporal adjacency: each node's events in order.
use super::Events;

/// T-CSR: the events of every node, in order of time, one after another.
///
/// An event stands in the list of its source and in that of its destination; a self-loop stands once. Built in two
/// linear passes; 16 bytes an entry.
#[derive(Clone, Debug, PartialEq)]
pub struct Tcsr {
    /// `[nodes + 1]`: where each node's list begins.
    pub offsets: Vec<i64>,
    /// Other end of each entry.
    pub node: Vec<u32>,
    /// Event id of each entry, ascending within a list.
    pub event: Vec<u32>,
    /// Time of each entry, in ticks, never decreasing within a list.
    pub time: Vec<i64>,
    /// `[events, 2]`: rank of the event in the lists of its source and of its destination.
    pub position: Vec<u32>,
}

impl Tcsr {
    /// The adjacency of all events of a stream.
    pub fn of(events: &Events) -> Self {
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
        let entries = offsets[events.nodes] as usize;
        let (mut node, mut event, mut time) = (vec![0; entries], vec![0; entries], vec![0; entries]);
        let mut position = vec![0; 2 * events.len()];
        let mut filled = vec![0u32; events.nodes];
        for (i, (&s, &d)) in ends().enumerate() {
            let mut append = |v: u32, other: u32| {
                let rank = filled[v as usize];
                let at = offsets[v as usize] as usize + rank as usize;
                (node[at], event[at], time[at]) = (other, i as u32, events.time[i]);
                filled[v as usize] += 1;
                rank
            };
            position[2 * i] = append(s, d);
            position[2 * i + 1] = if s == d { position[2 * i] } else { append(d, s) };
        }
        Tcsr { offsets, node, event, time, position }
    }
}
