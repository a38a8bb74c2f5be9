//! The order in which a pass visits events and label rows.
//!
//! A label row is predicted after all events before its time and before all others. So a pass updates the
//! memory by the events up to a *stop*, predicts the rows of the stop, and goes on. A row belongs to the part
//! of the first event that is later than its time, as in TGB: a row that no later event follows belongs to
//! none.
use std::ops::Range;
use tgnn_data::{NodeLabels, Split};

/// Label rows that see the same events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stop {
    /// The number of events that they see: those before it.
    pub events: usize,
    pub rows: Range<usize>,
    /// The steps that predict them.
    pub steps: Range<usize>,
}

/// The stops of the three parts.
#[derive(Debug)]
pub(super) struct Walk {
    /// Part `p` visits the events `bounds[p]..bounds[p + 1]`.
    pub bounds: [usize; 4],
    /// The stops of the training, the validation and the test part.
    pub stops: [Vec<Stop>; 3],
    /// Step `s` predicts the rows `rows[s]..rows[s + 1]`.
    pub rows: Vec<u32>,
    /// For each step, the number of events that its rows see.
    pub history: Vec<u32>,
    /// Number of label rows that belong to no part.
    pub left_out: usize,
}

impl Walk {
    /// Plans the passes over events at these times and these labels, with at most `most` rows a step.
    pub fn new(time: &[i64], labels: &NodeLabels, split: &Split, most: usize) -> Self {
        let mut walk = Walk {
            bounds: [0; 4],
            stops: Default::default(),
            rows: vec![0],
            history: Vec::new(),
            left_out: 0,
        };
        let place = |row: &usize| {
            let at = labels.times()[*row];
            let later = time.partition_point(|&t| t <= at);
            let part = [&split.train, &split.val, &split.test].iter().position(|part| later < part.end);
            (time.partition_point(|&t| t < at), part)
        };
        let rows: Vec<usize> = (0..labels.len()).collect();
        for same in rows.chunk_by(|a, b| place(a) == place(b)) {
            let (events, part) = place(&same[0]);
            let rows = same[0]..same[0] + same.len();
            match part {
                Some(part) => walk.push(part, events, rows, most),
                None => walk.left_out += rows.len(),
            }
        }
        let first = |part: usize| walk.stops[part].first().map_or(usize::MAX, |stop| stop.events);
        let train = split.train.end.min(first(1)).min(first(2));
        let val = split.val.end.min(first(2)).max(train);
        walk.bounds = [0, train, val, time.len()];
        walk
    }

    /// Appends a stop, whose rows are divided evenly among as few steps as possible.
    fn push(&mut self, part: usize, events: usize, rows: Range<usize>, most: usize) {
        let (n, first) = (rows.len().div_ceil(most.max(1)), self.history.len());
        for step in 1..=n {
            self.rows.push((rows.start + rows.len() * step / n) as u32);
            self.history.push(events as u32);
        }
        self.stops[part].push(Stop { events, rows, steps: first..first + n });
    }

    /// Returns the stops of a part with its first `most` steps.
    pub fn limited(&self, part: usize, most: usize) -> Vec<Stop> {
        let stops = &self.stops[part];
        let first = stops.first().map_or(0, |stop| stop.steps.start);
        let past = first.saturating_add(most);
        let cut = |stop: &Stop| {
            let steps = stop.steps.start..stop.steps.end.min(past);
            (!steps.is_empty()).then(|| Stop {
                events: stop.events,
                rows: stop.rows.start..self.rows[steps.end] as usize,
                steps,
            })
        };
        stops.iter().map_while(cut).collect()
    }

    /// Returns the number of steps of a part.
    pub fn steps(&self, part: usize) -> usize {
        self.stops[part].iter().map(|stop| stop.steps.len()).sum()
    }

    /// Returns the largest number of rows of a step, and of a stop.
    pub fn largest(&self) -> (usize, usize) {
        let step = self.rows.windows(2).map(|rows| (rows[1] - rows[0]) as usize).max();
        let stop = self.stops.iter().flatten().map(|stop| stop.rows.len()).max();
        (step.unwrap_or(0), stop.unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tgnn_data::{Events, NodeLabel, ReadOptions};

    fn walk(time: Vec<i64>, rows: &[i64], most: usize) -> Walk {
        let n = time.len();
        let events = Events::new("made", vec![0; n], vec![1; n], time).unwrap();
        let label = |(node, &time): (u32, &i64)| NodeLabel { time, node, class: 0, weight: 1.0 };
        let labels = NodeLabels::new(1, (0..).zip(rows).map(label).collect()).unwrap();
        let split = Split::by_time(&events, 0.5, 0.25).unwrap();
        Walk::new(&events.time, &labels, &split, most)
    }

    fn stop(events: usize, rows: Range<usize>, steps: Range<usize>) -> Stop {
        Stop { events, rows, steps }
    }

    #[test]
    fn a_row_sees_the_events_strictly_before_it_and_belongs_to_the_part_of_the_next_one() {
        // Events 0 to 4 train, 5 and 6 validate, 7 to 9 test.
        let w = walk((0..10).map(|t| 10 * t).collect(), &[-5, 20, 20, 25, 29, 40, 41, 65, 90, 95], 10);
        let train = [stop(0, 0..1, 0..1), stop(2, 1..3, 1..2), stop(3, 3..5, 2..3)];
        assert_eq!(w.stops[0], train);
        // At the time of the last training event: the event after it validates.
        assert_eq!(w.stops[1], [stop(4, 5..6, 3..4), stop(5, 6..7, 4..5)]);
        assert_eq!(w.stops[2], [stop(7, 7..8, 5..6)]);
        assert_eq!((w.bounds, w.left_out), ([0, 4, 7, 10], 2));
        assert_eq!((w.history.as_slice(), w.steps(0)), (&[0, 2, 3, 4, 5, 7][..], 3));
    }

    #[test]
    fn many_rows_are_divided_evenly_among_steps() {
        let w = walk(vec![0, 1, 2, 3], &[1; 11], 5);
        assert_eq!((w.rows.as_slice(), w.largest()), (&[0, 3, 7, 11][..], (4, 11)));
        assert_eq!(w.limited(1, 2), [stop(1, 0..7, 0..2)]);
        assert_eq!(w.limited(1, usize::MAX), w.stops[1]);
        assert!(w.limited(0, 1).is_empty());
    }

    #[test]
    fn label_times_fall_into_the_same_parts_as_by_the_loop_of_tgbs_examples() {
        let text = std::fs::read_to_string("../../tests/golden/tgb_nodes.json").unwrap();
        let golden: serde_json::Value = serde_json::from_str(&text).unwrap();
        for set in ["trade", "genre", "reddit", "token"] {
            let path = format!("../../tests/golden/foreign/tgbn_{set}");
            let e = tgnn_data::load(&path, &ReadOptions::default()).unwrap();
            let (labels, split) = (e.node_labels.as_ref().unwrap(), Split::by_time(&e, 0.7, 0.15).unwrap());
            let w = Walk::new(&e.time, labels, &split, 1000);
            for (part, name) in ["train", "val", "test"].into_iter().enumerate() {
                let rows = w.stops[part].iter().flat_map(|stop| stop.rows.clone());
                let mut times: Vec<i64> = rows.map(|row| labels.times()[row] + e.origin).collect();
                times.dedup();
                let want = &golden["sets"][set]["parts"][name]["times"];
                assert_eq!(times, serde_json::from_value::<Vec<i64>>(want.clone()).unwrap(), "{set} {name}");
            }
        }
    }
}
