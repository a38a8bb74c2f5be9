use super::{super::pairs::tests::any_stream, super::pairs::undirected, *};
use proptest::prelude::*;
use tgnn_data::Events;

/// What a query knows, as the definitions have it.
#[derive(Clone, Copy)]
struct Query<'a> {
    events: &'a Events,
    ordered: bool,
    /// Number of known events, which are the first ones.
    known: usize,
    /// The number of each event's batch.
    batches: &'a [u32],
    /// The event at which the query is.
    event: usize,
}

/// The score of a pair by a rule, from the definition, with a decay of PopTrack.
fn naive(rule: Rule, decay: usize, query: Query<'_>, pair: Pair) -> f64 {
    let Query { events, ordered, known, batches, event } = query;
    let now = events.time[event];
    let number = |i: usize| if ordered { i as f64 } else { f64::from(batches[i]) };
    let of_pair = |i: &usize| undirected([events.src[*i], events.dst[*i]]) == undirected(pair);
    let has = |v: u32| move |i: &usize| [events.src[*i], events.dst[*i]].contains(&v);
    let latest = |with: &dyn Fn(&usize) -> bool| (0..known).rev().find(|i| with(i));
    let count = |with: &dyn Fn(&usize) -> bool| (0..known).filter(|i| with(i)).count() as f64;
    let by = |by: Option<By>, with: &dyn Fn(&usize) -> bool| match by {
        None => 0.0,
        Some(By::Recency) => latest(with).map_or(0.0, |i| number(i) + 1.0),
        Some(By::Popularity) => count(with),
    };
    match rule {
        Rule::Counts { local, global } => 1e6 * by(local, &of_pair) + by(global, &has(pair[1])),
        Rule::PopTrack => {
            let worth = |i: usize| DECAYS[decay].powi((batches[event] - batches[i]) as i32);
            (0..known).filter(|&i| events.dst[i] == pair[1]).map(worth).sum()
        }
        Rule::BothEnds => {
            let first = |i: usize| (0..=i).find(|&first| batches[first] == batches[i]).unwrap();
            let time_of = |i: usize| events.time[if ordered { i } else { first(i) }];
            let time = |v: u32| latest(&has(v)).map_or(events.time[0] - 1, time_of);
            -pair.iter().map(|&v| ((1 + now - time(v)) as f64).ln()).sum::<f64>()
        }
        Rule::CoMemory => {
            let span = known.checked_sub(1).map_or(0, |last| events.time[last] - events.time[0]) as f64;
            let window = 0.15 * span.max(1.0);
            let own = (0..known).rev().filter(|&i| events.src[i] == pair[0]).take(RECENT);
            let age = |i: usize| (now - events.time[i]) as f64;
            let worth = |i: usize| (-age(i) / window).exp() / (1.0 + (-count(&has(events.dst[i]))).exp());
            let c = count(&of_pair);
            own.filter(|&i| age(i) <= window).map(worth).sum::<f64>() + 0.8 * c / (1.0 + c)
        }
    }
}

proptest! {
    #[test]
    fn rules_rank_by_the_events_that_a_query_knows(
        events in any_stream(), from in 1usize..60, batch in 1usize..100, m in 1usize..5,
        ordered in any::<bool>(), by_time in any::<bool>(), validated in 0usize..60,
    ) {
        let part = from.min(events.len())..events.len();
        let before = [0..part.start / 2, part.start / 2..part.start];
        let nodes = events.nodes;
        let negatives = |event: usize| {
            (0..m).map(move |j| [((event + j * j) % nodes) as u32, ((3 * event + j) % nodes) as u32])
        };
        let list = |event: usize, list: &mut Vec<Pair>| list.extend(negatives(event));
        let mut batches = Vec::new();
        for range in before.iter().cloned().chain([part.clone()]) {
            let first = batches.last().map_or(0, |last| last + 1);
            batches.extend((0..range.len()).map(|i| first + (i / batch) as u32));
        }
        let [trained, val] = before.clone();
        let starts = batch_starts(&[trained, val.clone(), part.clone()], batch);
        // Only the first events of the validation part may be scored.
        let val = val.start..val.end.min(val.start + validated);
        let rules = Rules {
            batches: Batches { events: &events, starts: &starts, ordered },
            metrics: Metrics::Ranks,
            val: ScoredPart { events: val, negatives: &list },
            test: ScoredPart { events: part.clone(), negatives: &list },
        };
        let history = if by_time { History::Time } else { History::Batch };
        let mut past = Past::new(rules.batches, history, rules.test.candidates(rules.batches));
        let walked = |_| Ok(());
        rules.best_decay(&mut past, &walked).unwrap();
        let rankings = rules.by_all(&mut past, 3, &walked).unwrap();
        let all = Rule::all();
        prop_assert_eq!(rankings.ranks.len(), all.len() * part.len());
        for (event, ranks) in part.clone().zip(rankings.ranks.chunks(all.len())) {
            let known = match by_time {
                true => (0..event).filter(|&i| events.time[i] < events.time[event]).count(),
                false => event - (event - part.start) % batch,
            };
            let query = Query { events: &events, ordered, known, batches: &batches, event };
            for (rule, &rank) in all.iter().zip(ranks) {
                let score = |pair| naive(*rule, 3, query, pair);
                let own = score([events.src[event], events.dst[event]]);
                // Sums in another order differ in their last bits.
                let near = |a: f64, b: f64| (a - b).abs() <= 1e-12 * (a.abs() + b.abs());
                let [mut least, mut most] = [1.0, 1.0];
                for other in negatives(event).map(score) {
                    if near(other, own) { most += 1.0 } else if other > own { least += 1.0; most += 1.0 }
                }
                prop_assert!(least <= rank && rank <= most, "{:?}: event {event} has rank {rank}, not {least} to {most}", rule);
                let exact = !matches!(rule, Rule::PopTrack | Rule::CoMemory | Rule::BothEnds);
                prop_assert!(!exact || rank == (least + most) / 2.0, "{:?}: event {event}", rule);
            }
        }
    }
}

/// Returns the scores of the rules on events 3 to 5 of a small stream, which have one negative each.
fn scores(metrics: Metrics) -> Vec<(String, TestScores)> {
    let events =
        Events::new("made", vec![0, 0, 1, 0, 1, 0], vec![2, 3, 3, 2, 3, 2], (0..6).collect()).unwrap();
    let negatives = |_: usize, list: &mut Vec<Pair>| list.push([0, 3]);
    let part = |events| ScoredPart { events, negatives: &negatives };
    let batches = Batches { events: &events, starts: &[0, 3, 4, 5], ordered: true };
    let rules = Rules { batches, metrics, val: part(0..0), test: part(3..6) };
    rules.scores(History::Batch, &[true; 3], &|_| Ok(())).unwrap()
}

#[test]
fn a_single_negative_gives_the_curves_of_all_pairs() {
    let by_curves = scores(Metrics::Curves);
    let names: Vec<&str> = by_curves.iter().map(|rule| rule.0.as_str()).collect();
    assert_eq!(names[0], "local recency");
    assert_eq!(names[4], "local recency, then global recency");
    assert_eq!(names[8..], ["PopTrack", "t-CoMem", "recency of both ends"]);
    let recency = by_curves[0].1.transductive;
    // Events have 1, 3 and 4; negatives 2 each.
    assert_eq!(recency.auc, Some(2.0 / 3.0));
    assert_eq!(recency.mrr, None);
    // The event that scores below its negative has rank 2.
    let both = scores(Metrics::Both)[0].1;
    assert_eq!((both.transductive.auc, both.transductive.mrr), (Some(2.0 / 3.0), Some(2.5 / 3.0)));
}

#[test]
fn a_walk_ends_with_the_error_of_who_is_told_of_it() {
    use tgnn::error::{Error, ErrorKind};
    let events = Events::new("made", vec![0; 4], vec![1; 4], (0..4).collect()).unwrap();
    let none = |_: usize, _: &mut Vec<Pair>| ();
    let part = |events| ScoredPart { events, negatives: &none };
    let batches = Batches { events: &events, starts: &[0, 2], ordered: true };
    let rules = Rules { batches, metrics: Metrics::Ranks, val: part(0..0), test: part(2..4) };
    let stopped =
        rules.scores(History::Time, &[true; 2], &|_| Err(Error::new(ErrorKind::Interrupted, "stop")));
    assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Interrupted);
}
