//! The latest events of nodes, from the caller's own arrays.
use crate::{
    error::{Error, ErrorKind, Result},
    ops::{
        Call, Tape,
        sample_neighbors::{Entry, History, SampleNeighbors, Sampling, Strategy, TcsrVars},
    },
    runtime::{Gaps, NONE, Rows, Spec, Store, check_room},
};

/// The events of each node in time order (a T-CSR): what neighbours are sampled from.
///
/// # Examples
/// ```
/// use tgnn::ops::functions::EventLists;
/// let events = EventLists::new(&[0, 0, 1], &[1, 2, 2], &[10, 20, 30], 3)?;
/// assert_eq!(events.len(), 3);
/// let refused = EventLists::new(&[0, 0], &[1, 2], &[20, 10], 3).unwrap_err();
/// assert_eq!(refused.to_string(), "events: event 1 is earlier than the one before it");
/// # Ok::<(), tgnn::error::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct EventLists {
    /// `[nodes + 1]`: the index of each list's first entry.
    pub(crate) offsets: Vec<i64>,
    /// The lists; within a list event ids ascend and times never decrease.
    pub(crate) entries: Vec<Entry>,
    /// `[events, 2]`: the rank of each event in the lists of its source and of its destination.
    pub(crate) position: Vec<u32>,
}

impl EventLists {
    /// Returns `offsets`, of `[nodes + 1]`; the entries of list `v`, which lie from `offsets[v]` to
    /// `offsets[v + 1]`, with event ids ascending; and `position`, of `[events, 2]`: the rank of each event
    /// in the lists of its source and of its destination.
    pub fn into_parts(self) -> (Vec<i64>, Vec<Entry>, Vec<u32>) {
        (self.offsets, self.entries, self.position)
    }
    /// Lists the events `(src, dst, time)` of nodes below `nodes`, in time order. An event is in the lists of
    /// both ends; a self-loop is in its node's list once. Takes 16 bytes per entry.
    ///
    /// # Errors
    /// `Data` if the arrays differ in length, a node is not below `nodes`, or an event is earlier than the
    /// one before it; the message names the first such event. `OutOfMemory` if there are too many nodes.
    pub fn new(src: &[u32], dst: &[u32], time: &[i64], nodes: usize) -> Result<Self> {
        let bad = |what: String| Err(Error::new(ErrorKind::Data, format!("events: {what}")));
        let n = src.len();
        if dst.len() != n || time.len() != n {
            return bad(format!("{n} sources, {} destinations and {} times", dst.len(), time.len()));
        }
        if n >= NONE as usize || nodes > NONE as usize {
            return bad(format!("{n} events of {nodes} nodes, want fewer than {NONE} of each"));
        }
        let ends = || src.iter().zip(dst);
        if let Some(i) = ends().position(|(&s, &d)| s.max(d) as usize >= nodes) {
            return bad(format!("event {i} is of nodes {} and {}, of {nodes}", src[i], dst[i]));
        }
        if let Some(i) = time.windows(2).position(|t| t[0] > t[1]) {
            return bad(format!("event {} is earlier than the one before it", i + 1));
        }
        let bytes = nodes * (size_of::<i64>() + size_of::<u32>()) + n * (2 * size_of::<Entry>() + 8);
        let remedy = "renumber the nodes from 0, as np.unique(..., return_inverse=True) does";
        check_room(&format!("the events of {nodes} nodes"), bytes, remedy)?;
        let mut offsets = vec![0i64; nodes + 1];
        for (&s, &d) in ends() {
            offsets[s as usize + 1] += 1;
            if s != d {
                offsets[d as usize + 1] += 1;
            }
        }
        for v in 0..nodes {
            offsets[v + 1] += offsets[v];
        }
        let mut entries = vec![Entry::default(); offsets[nodes] as usize];
        let mut position = vec![0; 2 * n];
        let mut filled = vec![0u32; nodes];
        for (i, (&s, &d)) in ends().enumerate() {
            let mut append = |v: u32, other: u32| {
                let rank = filled[v as usize];
                let index = offsets[v as usize] as usize + rank as usize;
                entries[index] = Entry { time: time[i], node: other, event: i as u32 };
                filled[v as usize] += 1;
                rank
            };
            position[2 * i] = append(s, d);
            position[2 * i + 1] = if s == d { position[2 * i] } else { append(d, s) };
        }
        Ok(EventLists { offsets, entries, position })
    }
    /// Adds the lists to `store`, for sampling on `tape` by [`Tape::sample_neighbors`].
    ///
    /// # Errors
    /// As [`Tape::input`].
    pub fn stored(&self, tape: &mut Tape, store: &mut Store) -> Result<TcsrVars> {
        let (offsets, events) = (Spec::times(Rows::fixed(self.offsets.len())), Rows::fixed(self.len()));
        let (spec, entries) = (Entry::spec(self.entries.len()), bytemuck::cast_slice(&self.entries));
        Ok(TcsrVars {
            offsets: tape.input(store, "event list offsets", offsets, &self.offsets)?,
            entries: tape.input::<i64>(store, "event list entries", spec, entries)?,
            position: tape.input(store, "event list positions", Spec::ids(events, 2), &self.position)?,
        })
    }
    /// Returns the index of the first entry of each list, `[nodes + 1]`.
    pub fn offsets(&self) -> &[i64] {
        &self.offsets
    }
    /// Returns the entries of all lists; within a list event ids ascend and times never decrease.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }
    /// Returns the number of events.
    pub fn len(&self) -> usize {
        self.position.len() / 2
    }
    /// Whether there are no events.
    pub fn is_empty(&self) -> bool {
        self.position.is_empty()
    }
}

/// Where [`recent_neighbors`] writes: `n` rows of `k` slots, and their counts.
#[derive(Debug)]
pub struct RecentSlots<'a> {
    /// `[n, k]`: the other ends of the events, latest first; [`NONE`] in unused slots.
    pub node: &'a mut [u32],
    /// `[n, k]`: the events, as indices in the caller's arrays; [`NONE`] in unused slots.
    pub event: &'a mut [u32],
    /// `[n, k]`: ticks from the event to the query, rounded to f32; 0 in unused slots.
    pub dt: &'a mut [f32],
    /// `[n]`: number of slots in use, which come first.
    pub count: &'a mut [u32],
}

/// Finds the `k` latest events of every queried node that are strictly earlier than the query's time. A query
/// for [`NONE`] has none.
///
/// ```
/// use tgnn::ops::functions::{EventLists, RecentSlots, recent_neighbors};
/// let events = EventLists::new(&[0, 0, 1], &[1, 2, 2], &[10, 20, 30], 3)?;
/// let (mut node, mut event, mut dt, mut count) = ([0; 2], [0; 2], [0.0; 2], [0; 1]);
/// let slots = RecentSlots { node: &mut node, event: &mut event, dt: &mut dt, count: &mut count };
/// recent_neighbors(&events, &[0], &[25], 2, slots)?; // node 0 at time 25
/// assert_eq!((node, event, dt, count), ([2, 1], [1, 0], [5.0, 15.0], [2]));
/// # Ok::<(), tgnn::error::Error>(())
/// ```
///
/// # Errors
/// `Shape` if the lengths of queries and slots do not fit together; `Data` if a query is for another node
/// than those of the lists.
pub fn recent_neighbors(
    events: &EventLists,
    node: &[u32],
    time: &[i64],
    k: usize,
    slots: RecentSlots<'_>,
) -> Result<()> {
    let n = node.len();
    let gaps = Gaps::unlimited(1.0);
    let op =
        SampleNeighbors::new(Sampling { k, strategy: Strategy::Recent, history: History::Time, gaps }, 0);
    // Without positions, the search for the end of the history begins at the end of a list.
    let batch = [events.len() as u32];
    Call::new(&op)
        .input(&events.offsets, [events.offsets.len(), 1])?
        .input(bytemuck::cast_slice::<Entry, i64>(&events.entries), [events.entries.len(), 2])?
        .input::<u32>(&[], [0, 2])?
        .input(node, [n, 1])?
        .input(time, [n, 1])?
        .input(&batch, [1, 1])?
        .input(&[0u32; 2], [1, 2])?
        .output(slots.node)?
        .output(slots.event)?
        .output(slots.dt)?
        .ignore()?
        .output(slots.count)?
        .run()
}
