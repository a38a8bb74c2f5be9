//! Node numbers by original id, for a stream that goes on after training.
use super::Events;
use std::collections::HashMap;

/// Maps original ids to node numbers, and numbers nodes that the data set does not have.
#[derive(Debug)]
pub struct NodeNames {
    /// Node numbers by id: of the sources and of the destinations if these share ids, else of all nodes in
    /// the first map. `None` if a node's id is its number.
    by_id: Option<[HashMap<u64, u32>; 2]>,
    /// Whether sources and destinations share ids, and so have separate maps.
    separate: bool,
    /// Number of nodes of the data set.
    known: usize,
    /// Maximum number of nodes.
    capacity: usize,
    /// The nodes that [`added`](Self::added) returns.
    new: Vec<[u64; 2]>,
}

impl NodeNames {
    /// Maps the ids in `events`, then numbers the `new` nodes, which an earlier map [`added`](Self::added).
    /// All node numbers are below `capacity`.
    pub fn new(events: &Events, capacity: usize, new: &[[u64; 2]]) -> Self {
        let first = events.first_destination.map_or(events.nodes, |f| f as usize);
        let (mut separate, mut by_id) = (false, None);
        if let Some(ids) = &events.ids {
            let (sources, destinations) = ids.original().split_at(first);
            let number_by_id = |ids: &[u64], first: usize| -> HashMap<u64, u32> {
                ids.iter().zip(first as u32..).map(|(&id, v)| (id, v)).collect()
            };
            let mut maps = [number_by_id(sources, 0), number_by_id(destinations, first)];
            separate = destinations.iter().any(|id| maps[0].contains_key(id));
            if !separate {
                let destinations = std::mem::take(&mut maps[1]);
                maps[0].extend(destinations);
            }
            by_id = Some(maps);
        }
        let mut names = NodeNames { by_id, separate, known: events.nodes, capacity, new: Vec::new() };
        for &[id, side] in new {
            names.number(id, side == 1);
        }
        names
    }
    /// Returns the number of the node `id`, as a source or as a destination. An unknown id gets the next free
    /// number; `None` if the capacity is used up.
    pub fn number(&mut self, id: u64, destination: bool) -> Option<u32> {
        let Some(by_id) = &mut self.by_id else {
            return u32::try_from(id).ok().filter(|&v| (v as usize) < self.capacity);
        };
        let side = usize::from(destination && self.separate);
        if let Some(&v) = by_id[side].get(&id) {
            return Some(v);
        }
        let v = self.known + self.new.len();
        if v >= self.capacity {
            return None;
        }
        by_id[side].insert(id, v as u32);
        self.new.push([id, side as u64]);
        Some(v as u32)
    }
    /// Returns the nodes that the data set does not have, in the order of their numbers: the original id, and
    /// 1 for a destination if sources and destinations share ids, else 0.
    pub fn added(&self) -> &[[u64; 2]] {
        &self.new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Ids;

    fn events(ids: Option<Vec<u64>>) -> Events {
        let mut events = crate::data::bundled().unwrap();
        events.src = events.src.iter().map(|v| v % 2).collect();
        events.dst = events.dst.iter().map(|v| 2 + v % 2).collect();
        (events.nodes, events.first_destination, events.ids) = (4, Some(2), ids.map(Ids::new));
        events
    }

    #[test]
    fn ids_that_are_node_numbers_are_nodes_below_the_capacity() {
        let mut names = NodeNames::new(&events(None), 6, &[]);
        assert_eq!([3, 5, 6, u64::MAX].map(|id| names.number(id, false)), [Some(3), Some(5), None, None]);
        assert!(names.added().is_empty());
    }

    #[test]
    fn new_ids_get_the_next_numbers_up_to_the_capacity_and_are_found_again() {
        let stream = events(Some(vec![10, 20, 30, 40]));
        let mut names = NodeNames::new(&stream, 6, &[]);
        let found = [(40, true), (30, false), (7, false), (8, true), (7, true), (9, false)];
        let found = found.map(|(id, destination)| names.number(id, destination));
        assert_eq!(found, [Some(3), Some(2), Some(4), Some(5), Some(4), None]);
        assert_eq!(names.added(), [[7, 0], [8, 0]]);
        let mut again = NodeNames::new(&stream, 7, names.added());
        assert_eq!([again.number(8, false), again.number(9, false)], [Some(5), Some(6)]);
    }

    #[test]
    fn an_id_of_a_source_and_a_destination_is_two_nodes() {
        let mut names = NodeNames::new(&events(Some(vec![1, 2, 1, 3])), 6, &[]);
        let found = [(1, false), (1, true), (3, false), (3, true)].map(|(id, d)| names.number(id, d));
        assert_eq!(found, [Some(0), Some(2), Some(4), Some(3)]);
        assert_eq!(names.added(), [[3, 0]]);
    }
}
