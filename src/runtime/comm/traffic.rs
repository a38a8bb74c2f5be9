//! Counters of what a rank sends to the others.
use super::Comm;
use crate::error::Result;
use std::{
    ops::Range,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

/// What bytes between ranks are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TrafficKind {
    /// Ids and counts by which ranks tell one another which rows to send.
    Routes,
    /// Rows of node memory and mails, from their owners to the ranks that compute with them.
    Dispatch,
    /// Gradients of dispatched rows, on their way back.
    DispatchGradients,
    /// New node memory and mails, to their owners.
    Aggregation,
    /// New node memory and mails, to the rank of the next batch.
    HandOver,
    /// Rows of feature tables.
    Features,
    /// Gradients of parameters.
    Gradients,
}

impl TrafficKind {
    /// All kinds.
    pub const ALL: [TrafficKind; 7] = [
        TrafficKind::Routes,
        TrafficKind::Dispatch,
        TrafficKind::DispatchGradients,
        TrafficKind::Aggregation,
        TrafficKind::HandOver,
        TrafficKind::Features,
        TrafficKind::Gradients,
    ];
    /// Returns the name of the kind in tables and records.
    pub fn name(self) -> &'static str {
        match self {
            TrafficKind::Routes => "routes",
            TrafficKind::Dispatch => "dispatch",
            TrafficKind::DispatchGradients => "dispatch gradients",
            TrafficKind::Aggregation => "aggregation",
            TrafficKind::HandOver => "hand-over",
            TrafficKind::Features => "features",
            TrafficKind::Gradients => "gradients",
        }
    }
}

/// What one collective sends from a rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Bytes to each of the ranks that take part, all or those of a group
    /// ([`Ranks::split`](super::Ranks::split)); 0 to the rank itself.
    pub bytes: Vec<u64>,
    /// Number of messages to each other rank, of which each waits for the one before.
    pub rounds: usize,
}

impl Sent {
    /// Returns the ranks, of `ranks` ranks, that take part in a collective of `rank`: all, or those of its
    /// group, which follow one another.
    pub fn group(&self, rank: usize, ranks: usize) -> Range<usize> {
        match self.bytes.len() {
            0 => 0..ranks,
            size => rank / size * size..(rank / size * size + size).min(ranks),
        }
    }
}

/// Collectives of a rank in the order of the program, by kind.
pub type SentByKind = [Vec<Sent>; TrafficKind::ALL.len()];

/// A counter for each kind of traffic.
type Counters = [AtomicU64; TrafficKind::ALL.len()];

/// Bytes and rows that this rank has sent to other ranks, by kind. What a rank keeps is not counted.
#[derive(Debug, Default)]
pub struct Traffic {
    bytes: Counters,
    rows: Counters,
    /// Whether what is sent now is for a pass that evaluates.
    evaluates: AtomicBool,
    /// Rows and bytes that were sent for such passes, among those above.
    evaluation: [Counters; 2],
    is_recording: AtomicBool,
    recorded: Mutex<SentByKind>,
}

impl Traffic {
    /// Adds `rows` rows of `bytes` bytes in total.
    pub fn add(&self, kind: TrafficKind, rows: usize, bytes: usize) {
        let all = [&self.rows, &self.bytes];
        let evaluation = self.evaluates.load(Relaxed).then_some(&self.evaluation);
        for counters in
            all.into_iter().zip([rows, bytes]).chain(evaluation.into_iter().flatten().zip([rows, bytes]))
        {
            counters.0[kind as usize].fetch_add(counters.1 as u64, Relaxed);
        }
    }
    /// Says whether what follows is sent for a pass that evaluates or one that trains.
    pub fn evaluates(&self, evaluates: bool) {
        self.evaluates.store(evaluates, Relaxed);
    }
    /// Starts to record every collective of the host; see [`recorded`](Self::recorded).
    pub fn record(&self) {
        *self.recorded.lock().unwrap_or_else(PoisonError::into_inner) = SentByKind::default();
        self.is_recording.store(true, Relaxed);
    }
    /// Stops recording. Returns the collectives since [`record`](Self::record).
    pub fn recorded(&self) -> SentByKind {
        self.is_recording.store(false, Relaxed);
        std::mem::take(&mut *self.recorded.lock().unwrap_or_else(PoisonError::into_inner))
    }
    /// Adds a collective to the record, if there is one. `bytes_to` returns the bytes to a rank out of
    /// `size`; those to `rank` itself do not count.
    pub(crate) fn add_to_record(
        &self,
        kind: TrafficKind,
        (rank, size): (usize, usize),
        rounds: usize,
        bytes_to: impl Fn(usize) -> usize,
    ) {
        if self.is_recording.load(Relaxed) {
            let bytes = (0..size).map(|to| if to == rank { 0 } else { bytes_to(to) as u64 }).collect();
            let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
            recorded[kind as usize].push(Sent { bytes, rounds });
        }
    }
    /// Returns the bytes of a kind.
    pub fn bytes(&self, kind: TrafficKind) -> u64 {
        self.bytes[kind as usize].load(Relaxed)
    }
    /// Returns the rows of a kind.
    pub fn rows(&self, kind: TrafficKind) -> u64 {
        self.rows[kind as usize].load(Relaxed)
    }
    /// Returns the counters of all ranks together: for each kind, the rows and the bytes, as sent in passes
    /// that train, and in those that evaluate. Collective.
    ///
    /// # Errors
    /// As the calls of [`Comm`].
    pub fn of_all(&self, comm: &dyn Comm) -> Result<[Vec<(TrafficKind, u64, u64)>; 2]> {
        let [rows, bytes] = &self.evaluation;
        let evaluation = |kind: TrafficKind| [rows, bytes].map(|of| of[kind as usize].load(Relaxed));
        let training = |kind: TrafficKind| {
            let [rows, bytes] = evaluation(kind);
            [self.rows(kind) - rows, self.bytes(kind) - bytes]
        };
        Ok([sum_of_all(comm, training)?, sum_of_all(comm, evaluation)?])
    }
    /// Sets all counters to zero.
    pub fn clear(&self) {
        let all = [&self.bytes, &self.rows].into_iter().chain(&self.evaluation);
        all.flatten().for_each(|counter| counter.store(0, Relaxed));
    }
}

/// Adds up what all ranks have sent: for each kind, the rows and the bytes. Collective.
fn sum_of_all(
    comm: &dyn Comm,
    own: impl Fn(TrafficKind) -> [u64; 2],
) -> Result<Vec<(TrafficKind, u64, u64)>> {
    let own: Vec<u64> = TrafficKind::ALL.iter().flat_map(|&kind| own(kind)).collect();
    let mut all = vec![0u64; comm.size() * own.len()];
    let counts = vec![size_of_val(own.as_slice()); comm.size()];
    comm.all_gather(bytemuck::cast_slice(&own), bytemuck::cast_slice_mut(&mut all), &counts)?;
    let sum = |at: usize| all.iter().skip(at).step_by(own.len()).sum();
    Ok(TrafficKind::ALL.iter().enumerate().map(|(at, &kind)| (kind, sum(2 * at), sum(2 * at + 1))).collect())
}
