//! The log of accesses to node memory: which rank has read and written which copy of it, in which order.
//!
//! DistTGL has a process for each memory copy that serialises these accesses (section 3.3): with two ranks a
//! batch and two groups of them, (R0 R1)(W0 W1)(R2 R3)(W2 W3)(R0 R1)... Here the order follows from the
//! steps, and the log shows it.
use super::Timeline;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt::Write as _, ops::Range};
use tgnn::{autograd::Stage, ops::next_turn::Turns};

/// What a rank does with the node memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum AccessKind {
    /// Reads the rows that a step needs.
    Read,
    /// Writes the rows of a batch.
    Write,
}

/// An access of a rank to the node memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Access {
    /// Step of the pass, from 0.
    pub step: usize,
    /// Copy of the memory.
    pub copy: usize,
    /// Rank.
    pub rank: usize,
    /// Read or write.
    pub kind: AccessKind,
    /// Batch within the pass.
    pub batch: usize,
    /// Number of steps before in which the rank has trained on the batch. In all of them it reads the memory
    /// as it was in the first one, which alone writes.
    pub repeat: usize,
    /// Begin of the stage in which the rank accesses the memory, in seconds since its pass began. Stages of
    /// different lanes and ranks may overlap although their accesses do not.
    pub begin: f64,
    /// End of that stage.
    pub end: f64,
}

/// Returns the accesses of a rank in a pass over `batches`, in the order of the steps, from the `timeline` of
/// the pass. `gathers` says whether steps gather the rows of node memory that they read, as
/// those do that read older memory, or read them in place.
pub fn accesses(
    timeline: &Timeline,
    rank: usize,
    turns: Turns,
    batches: Range<usize>,
    gathers: bool,
) -> Vec<Access> {
    let mut times: BTreeMap<(usize, AccessKind), [f64; 2]> = BTreeMap::new();
    for span in timeline.spans() {
        let kind = match span.node_info.stage {
            Stage::Dispatch | Stage::FetchMemory => AccessKind::Read,
            Stage::UpdateMemory if !span.node_info.tag.backward && !gathers => AccessKind::Read,
            Stage::Aggregate | Stage::WriteMemory => AccessKind::Write,
            _ => continue,
        };
        let [begin, end] = times.entry((span.step, kind)).or_insert([span.start, span.end]);
        (*begin, *end) = (begin.min(span.start), end.max(span.end));
    }
    let access = |((step, kind), [begin, end]): ((usize, AccessKind), [f64; 2])| {
        let turn = turns.at(batches.start + step, batches.clone());
        let batch = turn.batch.filter(|_| kind == AccessKind::Read || turn.slot == 0)?;
        Some(Access { step, copy: turns.copy, rank, kind, batch, repeat: turn.slot, begin, end })
    };
    times.into_iter().filter_map(access).collect()
}

/// Returns the log of the accesses of all ranks as CSV: copy by copy, in each one step by step, and in a step
/// the reads before the writes.
pub fn access_log(mut accesses: Vec<Access>) -> String {
    accesses.sort_by_key(|a| (a.copy, a.step, a.kind, a.rank));
    let mut out = String::from("copy,step,access,rank,batch,repeat,begin,end\n");
    for Access { step, copy, rank, kind, batch, repeat, begin, end } in accesses {
        let kind = match kind {
            AccessKind::Read => "R",
            AccessKind::Write => "W",
        };
        let _ = writeln!(out, "{copy},{step},{kind},{rank},{batch},{repeat},{begin:.6},{end:.6}");
    }
    out
}
