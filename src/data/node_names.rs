//! Numbers of nodes by the ids that the data set had for them, in a stream that goes on.
use super::Events;
use std::collections::HashMap;

/// Finds nodes by their original ids, and numbers those that a data set does not have.
pub struct NodeNames {
    /// Of sources and of destinations, where these are numbered apart; else the first is of both. None where a node's id is
    /// its number.
    by_id: Option<[HashMap<u64, u32>; 2]>,
    apart: bool,
    /// Of the data set.
    known: usize,
    room: usize,
    new: Vec<[u64; 2]>,
}

impl NodeNames {
    /// The names in `events`, then the `new` ones, in numbers below `room`.
    pub fn new(events: &Events, room: usize, new: &[[u64; 2]]) -> Self {
        let first = events.first_destination.map_or(events.nodes, |f| f as usize);
        let (mut apart, mut by_id) = (false, None);
        if let Some(ids) = &events.ids {
            let (sources, destinations) = ids.original().split_at(first);
            let of = |ids: &[u64], from: usize| -> HashMap<u64, u32> {
                ids.iter().zip(from as u32..).map(|(&id, v)| (id, v)).collect()
            };
            let mut maps = [of(sources, 0), of(destinations, first)];
            apart = destinations.iter().any(|id| maps[0].contains_key(id));
            if !apart {
                let destinations = std::mem::take(&mut maps[1]);
                maps[0].extend(destinations);
            }
            by_id = Some(maps);
        }
        let mut names = NodeNames { by_id, apart, known: events.nodes, room, new: Vec::new() };
        for &[id, side] in new {
            names.number(id, side == 1);
        }
        names
    }
    /// The number of the node `id`, as a source or as a destination; a new one where there is none and there is room.
    pub fn number(&mut self, id: u64, destination: bool) -> Option<u32> {
        let Some(by_id) = &mut self.by_id else {
            return u32::try_from(id).ok().filter(|&v| (v as usize) < self.room);
        };
        let side = usize::from(destination && self.apart);
        if let Some(&v) = by_id[side].get(&id) {
            return Some(v);
        }
        let v = self.known + self.new.len();
        if v >= self.room {
            return None;
        }
        by_id[side].insert(id, v as u32);
        self.new.push([id, side as u64]);
        Some(v as u32)
    }
    /// Nodes that the data set does not have, in the order of their numbers: original id, and 1 where sources and destinations
    /// are numbered apart and it is a destination.
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
    fn where_ids_are_numbers_those_below_the_room_are_nodes() {
        let mut names = NodeNames::new(&events(None), 6, &[]);
        assert_eq!([3, 5, 6, u64::MAX].map(|id| names.number(id, false)), [Some(3), Some(5), None, None]);
        assert!(names.added().is_empty());
    }

    #[test]
    fn new_ids_get_the_next_numbers_while_there_is_room_and_are_found_again() {
        let of = events(Some(vec![10, 20, 30, 40]));
        let mut names = NodeNames::new(&of, 6, &[]);
        let found = [(40, true), (30, false), (7, false), (8, true), (7, true), (9, false)];
        let found = found.map(|(id, destination)| names.number(id, destination));
        assert_eq!(found, [Some(3), Some(2), Some(4), Some(5), Some(4), None]);
        assert_eq!(names.added(), [[7, 0], [8, 0]]);
        let mut again = NodeNames::new(&of, 7, names.added());
        assert_eq!([again.number(8, false), again.number(9, false)], [Some(5), Some(6)]);
    }

    #[test]
    fn an_id_that_is_a_source_and_a_destination_is_two_nodes() {
        let mut names = NodeNames::new(&events(Some(vec![1, 2, 1, 3])), 6, &[]);
        let found = [(1, false), (1, true), (3, false), (3, true)].map(|(id, d)| names.number(id, d));
        assert_eq!(found, [Some(0), Some(2), Some(4), Some(3)]);
        assert_eq!(names.added(), [[3, 0]]);
    }
}
