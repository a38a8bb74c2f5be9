//! What ranks did in a pass, and what the same would take on another machine.
use super::{CostModel, Durations, Machine, PassSchedule, Timeline, simulate};
use crate::{
    autograd::{NodeInfo, Span},
    error::{Error, ErrorKind, Result},
    ops::Cost,
    runtime::comm::{Sent, SentByKind},
};
use std::collections::HashMap;

/// What one rank did in a pass: for each run and node, bytes and operations at live row counts; and what each
/// collective sent. Both follow from the data alone, whatever the machine.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    costs: HashMap<(usize, usize), Cost>,
    sent: HashMap<(usize, usize), Sent>,
}

impl Recording {
    /// Returns the recording of a pass, given the runs of its nodes and the collectives of the rank.
    ///
    /// # Errors
    /// `Comm` if there are not as many collectives as runs of nodes that communicate.
    pub fn new(spans: &[Span], collectives: SentByKind) -> Result<Self> {
        let mut in_order: Vec<&Span> = spans.iter().collect();
        in_order.sort_by_key(|s| (s.step, s.node));
        let mut collectives = collectives.map(Vec::into_iter);
        let mut recording = Recording::default();
        for s in in_order {
            recording.costs.insert((s.step, s.node), s.cost);
            if let Some(kind) = s.node_info.traffic {
                let Some(sent) = collectives[kind as usize].next() else {
                    return Err(Error::new(ErrorKind::Comm, format!("{} sent nothing", s.node_info.op)));
                };
                recording.sent.insert((s.step, s.node), sent);
            }
        }
        Ok(recording)
    }
    /// Returns the bytes that the rank sent.
    pub fn sent_bytes(&self) -> u64 {
        self.sent.values().flat_map(|sent| &sent.bytes).sum()
    }
}

/// The durations of recorded nodes on a machine.
struct OnMachine<'a> {
    recordings: &'a [Recording],
    costs: &'a CostModel,
    machine: &'a Machine,
}

impl Durations for OnMachine<'_> {
    fn seconds(&self, rank: usize, run: usize, node: usize, info: &NodeInfo) -> f64 {
        let cost = self.recordings[rank].costs.get(&(run, node)).copied().unwrap_or_default();
        self.costs.seconds(&NodeInfo { cost, ..*info }, 0.0)
    }
    fn collective_seconds(&self, run: usize, node: usize, _: &NodeInfo) -> Vec<f64> {
        let nothing = Sent::default();
        let sent = self.recordings.iter().map(|r| r.sent.get(&(run, node)).unwrap_or(&nothing));
        self.machine.seconds_of(&sent.collect::<Vec<_>>())
    }
}

/// Predicts the timelines of the ranks that did what `recordings` hold, one for each rank, on another machine
/// with the given costs of ops.
pub fn predict_ranks(
    pass: &PassSchedule,
    recordings: &[Recording],
    costs: &CostModel,
    machine: &Machine,
) -> Vec<Timeline> {
    simulate(pass, recordings.len(), costs, &OnMachine { recordings, costs, machine })
}
