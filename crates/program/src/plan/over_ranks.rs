//! What the ranks of a run keep, how they divide training, and what they have sent, for people.
use tgnn::{
    error::Result,
    runtime::{Device, comm::Channel},
};
use tgnn_data::text::grouped;
use tgnn_training::{
    plan::{Plan, RankFeatures, RankMemory},
    task::{Summary, TrafficRecord},
};

/// Returns lines on what the ranks of a device keep and how they divide training; none for a single rank.
///
/// # Errors
/// `Usage` if the plan does not fit the number of ranks.
pub fn described(device: &Device, plan: &Plan) -> Result<Vec<String>> {
    let Some(ranks) = device.ranks() else { return Ok(Vec::new()) };
    let over = plan.ranks.unwrap_or_default();
    let kind = ranks.channel(Channel::Control).describe();
    let memory = match over.memory {
        RankMemory::Replicated => "replicated",
        RankMemory::Partitioned => "partitioned",
        RankMemory::Cached => "partitioned, with copies",
    };
    let features = match over.features {
        Some(RankFeatures::Partitioned) => ", features partitioned",
        _ => "",
    };
    let parallel = over.parallel.for_ranks(ranks.size())?;
    let turns = parallel.takes_turns().then(|| format!("          {}", parallel.describe()));
    let kept = format!("ranks     {}, {kind}, node memory {memory}{features}", ranks.size());
    Ok([kept].into_iter().chain(turns).collect())
}

/// Returns lines on what the ranks have sent.
pub fn sent(s: &Summary) -> Vec<String> {
    let Some(ranks) = &s.ranks else { return Vec::new() };
    let sent = |of: &[TrafficRecord]| {
        let kinds: Vec<String> = of.iter().map(|t| format!("{} {}", megabytes(t.bytes), t.kind)).collect();
        if kinds.is_empty() { "nothing".to_owned() } else { kinds.join(", ") }
    };
    let in_training =
        (!s.epochs.is_empty()).then(|| format!("sent      in training {}", sent(&ranks.traffic)));
    let head = if in_training.is_some() { "" } else { "sent" };
    let tested = !ranks.evaluation_traffic.is_empty();
    let in_evaluation =
        tested.then(|| format!("{head:<10}in evaluation {}", sent(&ranks.evaluation_traffic)));
    in_training.into_iter().chain(in_evaluation).collect()
}

/// Formats a number of bytes.
fn megabytes(bytes: u64) -> String {
    match bytes as f64 / 1e6 {
        few if few < 10.0 => format!("{few:.2} MB"),
        many => format!("{} MB", grouped(many as u64)),
    }
}
