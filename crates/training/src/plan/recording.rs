//! What ranks did in a pass, and what the same would take on another machine.
use super::{CostModel, Durations, Machine, NodeLinks, PassSchedule, Timeline, simulate};
use std::{collections::HashMap, ops::Range};
use tgnn::{
    autograd::{NodeInfo, Span},
    error::{Error, ErrorKind, Result},
    ops::Cost,
    runtime::comm::{Sent, SentByKind},
};

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

/// Returns the links between the ranks of one node that fit best to a pass, given what each rank sent and
/// when: `seconds = messages * seconds_per_message + bytes / bytes_per_second` by least squares over the
/// collectives. A collective lasts as long as on the rank that has reached it last, that is the shortest time
/// of all ranks.
pub fn fit_links(ranks: &[(&Recording, &Timeline)]) -> NodeLinks {
    let mut shortest: HashMap<(usize, usize), f64> = HashMap::new();
    for span in ranks.iter().flat_map(|rank| rank.1.spans()).filter(|s| s.node_info.traffic.is_some()) {
        let seconds = shortest.entry((span.step, span.node)).or_insert(f64::INFINITY);
        *seconds = seconds.min(span.end - span.start);
    }
    let [mut messages_squared, mut both, mut bytes_squared] = [0.0; 3];
    let [mut messages_seconds, mut bytes_seconds] = [0.0; 2];
    for (at, seconds) in shortest {
        let sent = || ranks.iter().filter_map(|rank| rank.0.sent.get(&at));
        let most = |of: &dyn Fn(&Sent) -> f64| sent().map(of).fold(0.0, f64::max);
        let messages = most(&|sent| (sent.rounds * sent.bytes.len().saturating_sub(1)) as f64);
        let bytes = most(&|sent| sent.bytes.iter().sum::<u64>() as f64);
        messages_squared += messages * messages;
        both += messages * bytes;
        bytes_squared += bytes * bytes;
        messages_seconds += messages * seconds;
        bytes_seconds += bytes * seconds;
    }
    let determinant = messages_squared * bytes_squared - both * both;
    let solved = |numerator: f64| if determinant > 0.0 { numerator / determinant } else { 0.0 };
    let per_message = solved(messages_seconds * bytes_squared - bytes_seconds * both);
    let per_byte = solved(bytes_seconds * messages_squared - messages_seconds * both);
    // One of the two can be 0, neither can be negative.
    let (seconds_per_message, per_byte) = if per_byte <= 0.0 {
        ((messages_seconds / f64::max(messages_squared, 1.0)).max(0.0), 0.0)
    } else if per_message < 0.0 {
        (0.0, bytes_seconds / f64::max(bytes_squared, 1.0))
    } else {
        (per_message, per_byte)
    };
    NodeLinks { devices: ranks.len(), bytes_per_second: 1.0 / f64::max(per_byte, 1e-15), seconds_per_message }
}

/// The durations of recorded nodes on a machine.
struct OnMachine<'a> {
    recordings: &'a [Recording],
    costs: &'a CostModel,
    machine: &'a Machine,
}

impl Durations for OnMachine<'_> {
    fn seconds(&self, rank: usize, run: usize, node: usize, info: &NodeInfo) -> f64 {
        // A node that has not run takes no time on any machine.
        let cost = self.recordings[rank].costs.get(&(run, node));
        cost.map_or(0.0, |&cost| self.costs.seconds(&NodeInfo { cost, ..*info }, 0.0))
    }
    fn group(&self, rank: usize, run: usize, node: usize, ranks: usize) -> Range<usize> {
        self.recordings[rank].sent.get(&(run, node)).map_or(0..ranks, |sent| sent.group(rank, ranks))
    }
    fn collective_seconds(&self, run: usize, node: usize, _: &NodeInfo) -> Vec<f64> {
        let nothing = Sent::default();
        let sent = self.recordings.iter().map(|r| r.sent.get(&(run, node)).unwrap_or(&nothing));
        self.machine.seconds_of(&sent.collect::<Vec<_>>())
    }
}

/// Predicts the timelines of the ranks that did what `recordings` hold by the schedules `passes`, one each
/// for every rank, on another machine with the given costs of ops.
pub fn predict_ranks(
    passes: &[PassSchedule],
    recordings: &[Recording],
    costs: &CostModel,
    machine: &Machine,
) -> Vec<Timeline> {
    simulate(passes, costs, &OnMachine { recordings, costs, machine })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tgnn::{
        autograd::{Resource, Stage},
        ops::{OpKind, Tag},
        runtime::comm::TrafficKind,
    };

    #[test]
    fn links_are_fitted_to_the_shortest_times_of_collectives() {
        let node_info = NodeInfo {
            op: "exchange_rows",
            kind: OpKind::Comm,
            resource: Resource::Links,
            stage: Stage::Dispatch,
            tag: Tag::default(),
            lane: 0,
            cost: Cost::default(),
            traffic: Some(TrafficKind::Dispatch),
            cols: 1,
        };
        // Two ranks; each collective takes 2 s a message and 0.5 s a byte, and the first rank waits for 3 s.
        let sizes: [u64; 3] = [0, 10, 4];
        let ranks = [3.0, 0.0].map(|waits| {
            let span = |(step, &bytes): (usize, &u64)| {
                let seconds = waits + 2.0 + 0.5 * bytes as f64;
                Span {
                    node_info,
                    node: 0,
                    step,
                    start: 100.0 * step as f64,
                    end: 100.0 * step as f64 + seconds,
                    cost: Cost::default(),
                }
            };
            let spans: Vec<Span> = sizes.iter().enumerate().map(span).collect();
            let mut sent = SentByKind::default();
            sent[TrafficKind::Dispatch as usize] =
                sizes.iter().map(|&bytes| Sent { bytes: vec![bytes, 0], rounds: 1 }).collect();
            (Recording::new(&spans, sent).unwrap(), Timeline::new(spans))
        });
        let links = fit_links(&ranks.each_ref().map(|rank| (&rank.0, &rank.1)));
        assert!((links.seconds_per_message - 2.0).abs() < 1e-9, "{links:?}");
        assert!((links.bytes_per_second - 2.0).abs() < 1e-9, "{links:?}");
        // A pass without collectives says nothing: links cost nothing.
        let nothing = fit_links(&[]);
        assert!(nothing.seconds_per_message == 0.0 && nothing.bytes_per_second > 1e12, "{nothing:?}");
    }
}
