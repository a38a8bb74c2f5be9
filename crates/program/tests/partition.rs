//! Partitions of node memory: their limits, their costs against plain counts and against the best of all
//! partitions, their files, and the command.
use crate::support::program::{done, json, refused, write_npy};
use proptest::prelude::*;
use std::{collections::BTreeMap, collections::BTreeSet, fs};
use tgnn::ops::sample_neighbors::History;
use tgnn_data::{Events, Split, SynthOptions};
use tgnn_training::plan::partition::*;

const SLACK: f64 = 0.1;

/// Returns the cost of a partitioner's result.
fn cost(demand: &Demand, by: Partitioner) -> u64 {
    Traffic::count(demand, &by.partition(demand, SLACK).unwrap()).unwrap().cost()
}

/// Returns streams of several kinds: bundled, even, popular, not bipartite, mostly repeats, tiny.
fn streams() -> Vec<Events> {
    let base = SynthOptions { events: 12_000, sources: 900, destinations: 200, ..SynthOptions::default() };
    let synth = |options: SynthOptions| tgnn_data::synth(&options).unwrap();
    vec![
        tgnn_data::bundled().unwrap(),
        synth(base.clone()),
        synth(SynthOptions { exponent: 0.0, ..base.clone() }),
        synth(SynthOptions { exponent: 2.0, ..base.clone() }),
        synth(SynthOptions { destinations: 0, ..base.clone() }),
        synth(SynthOptions { repeat: 0.99, sources: 100, ..base.clone() }),
        synth(SynthOptions { repeat: 0.0, events: 500, ..base }),
    ]
}

fn training(events: &Events, options: &DemandOptions) -> Demand {
    let train = Split::by_time(events, 0.7, 0.15).unwrap().train;
    Demand::count(events, train, options).unwrap()
}

#[test]
fn re_flex_bicut_costs_no_more_than_range_or_interval_on_any_data_set() {
    for events in streams() {
        for ranks in [2, 4, 8] {
            for (neighbors, recipients) in [(10, 0), (0, 0), (0, 10)] {
                let options = DemandOptions { ranks, neighbors, recipients, ..DemandOptions::default() };
                let demand = training(&events, &options);
                let three = [Partitioner::ReFlexBiCut, Partitioner::Range, Partitioner::Interval];
                let [ours, range, interval] = three.map(|by| cost(&demand, by));
                assert!(ours <= range.min(interval), "{}, {ranks}: {ours} {range} {interval}", events.name);
            }
        }
    }
}

/// Counts the rows of pairs of node and rank as the documentation defines them, with sets and full scans.
fn plain_count(events: &Events, end: usize, o: &DemandOptions) -> BTreeMap<(u32, usize), u64> {
    let recent = |node: u32, event: usize, first: usize, k: usize| -> Vec<u32> {
        let of_node = |&e: &usize| {
            (events.src[e] == node || events.dst[e] == node) && events.time[e] < events.time[event]
        };
        let other = |e: usize| if events.src[e] == node { events.dst[e] } else { events.src[e] };
        let last = if o.history == History::Time { event } else { first };
        (0..last).rev().filter(of_node).take(k).map(other).collect()
    };
    let mut rows = BTreeMap::new();
    for start in (0..end).step_by(o.batch) {
        let length = o.batch.min(end - start);
        let mut writer = BTreeMap::new();
        for rank in 0..o.ranks {
            let mut needed = BTreeSet::new();
            for event in start + length * rank / o.ranks..start + length * (rank + 1) / o.ranks {
                for root in [events.src[event], events.dst[event]] {
                    needed.insert(root);
                    needed.extend(recent(root, event, start, o.neighbors));
                    writer.insert(root, rank);
                    writer.extend(recent(root, event, start, o.recipients).into_iter().map(|v| (v, rank)));
                }
            }
            needed.into_iter().for_each(|node| *rows.entry((node, rank)).or_default() += 1);
        }
        writer.into_iter().for_each(|pair| *rows.entry(pair).or_default() += 1);
    }
    rows
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn the_demand_and_the_traffic_are_those_of_a_plain_count(
        events in 1usize..160, sources in 2usize..12, destinations in 0usize..8, gap in 0.0..2.0f64,
        ranks in 1usize..6, batch in 1usize..60, neighbors in 0usize..4, recipients in 0usize..4, seed: u64,
        by_batch: bool,
    ) {
        // Short gaps give events of equal times.
        let stream = SynthOptions {
            events, sources, destinations, mean_gap: gap.max(0.01), edge_features: 0, groups: 1, seed,
            ..SynthOptions::default()
        };
        let stream = tgnn_data::synth(&stream).unwrap();
        let history = if by_batch { History::Batch } else { History::Time };
        let options = DemandOptions {
            ranks, batch, neighbors, recipients, history, negatives: false, ..DemandOptions::default()
        };
        let demand = Demand::count(&stream, 0..events, &options).unwrap();
        let plain = plain_count(&stream, events, &options);
        let listed = (0..stream.nodes).flat_map(|node| {
            demand.of_node(node).iter().map(move |e| ((node as u32, e.rank as usize), u64::from(e.rows)))
        });
        prop_assert!(listed.eq(plain.iter().map(|(pair, rows)| (*pair, *rows))));

        let partition = Partitioner::ReFlexBiCut.partition(&demand, SLACK).unwrap();
        let traffic = Traffic::count(&demand, &partition).unwrap();
        let owner = |node: u32| partition.rank_of()[node as usize] as usize;
        let rows = |from: usize, to: usize| -> u64 {
            plain.iter().filter(|((v, r), _)| owner(*v) == from && *r == to).map(|(_, n)| n).sum()
        };
        let cut = |part: usize| -> u64 {
            let crosses = |v: u32, r: usize| (owner(v) == part) != (r == part);
            plain.iter().filter(|((v, r), _)| crosses(*v, *r)).map(|(_, n)| n).sum()
        };
        for rank in 0..ranks {
            prop_assert!((0..ranks).all(|to| traffic.rows(rank, to) == rows(rank, to)));
            prop_assert_eq!(traffic.costs()[rank], cut(rank));
        }
        prop_assert_eq!(traffic.cost(), (0..ranks).map(cut).max().unwrap());
    }

    #[test]
    fn a_partition_keeps_its_limits_and_its_maps_are_a_bijection(
        nodes in 0usize..40, ranks in 1usize..12, slack in 0.0..0.6f64,
        rows in proptest::collection::vec((0usize..12, 0usize..40, 0u32..50), 0..120),
    ) {
        let rows: Vec<_> = rows.into_iter().filter(|&(r, v, _)| r < ranks && v < nodes).collect();
        let demand = Demand::new(nodes, ranks, &rows).unwrap();
        let most = (nodes as f64 / ranks as f64 * (1.0 + slack)) as usize + 1;
        for &by in Partitioner::ALL {
            let p = by.partition(&demand, slack).unwrap();
            prop_assert_eq!(p.clone(), by.partition(&demand, slack).unwrap());
            prop_assert_eq!((p.rank_of().len(), p.row_of().len(), p.ranks()), (nodes, nodes, ranks));
            prop_assert_eq!((0..ranks).map(|rank| p.nodes_of(rank).len()).sum::<usize>(), nodes);
            for rank in 0..ranks {
                let own = p.nodes_of(rank);
                prop_assert!(own.len() <= most && (nodes < ranks || !own.is_empty()), "{by}");
                prop_assert_eq!(p.node(rank, own.len()), None);
                for (row, &node) in own.iter().enumerate() {
                    prop_assert_eq!(p.node(rank, row), Some(node));
                    let at = (p.rank_of()[node as usize], p.row_of()[node as usize]);
                    prop_assert_eq!(at, (rank as u32, row as u32));
                }
            }
            prop_assert!(p.nodes_of(ranks).is_empty() && p.nodes_of(usize::MAX).is_empty());
        }
    }
}

/// Returns the least cost of all partitions that keep the limits.
fn least(demand: &Demand) -> u64 {
    let (nodes, ranks) = (demand.nodes(), demand.ranks());
    let most = (nodes as f64 / ranks as f64 * (1.0 + SLACK)) as usize + 1;
    let mut least = u64::MAX;
    for code in 0..ranks.pow(nodes as u32) {
        let owners: Vec<u32> = (0..nodes as u32).map(|v| (code / ranks.pow(v) % ranks) as u32).collect();
        let count = |rank: u32| owners.iter().filter(|r| **r == rank).count();
        if (0..ranks as u32).all(|rank| (1..=most).contains(&count(rank)) || nodes < ranks) {
            let partition = Partition::new(owners, ranks).unwrap();
            least = least.min(Traffic::count(demand, &partition).unwrap().cost());
        }
    }
    least
}

#[test]
fn on_small_graphs_re_flex_bicut_mostly_finds_the_best_of_all_partitions() {
    use tgnn::runtime::philox::Key;
    let (mut equal, mut cases, mut worst) = (0, 0, 1.0f64);
    for seed in 0..120 {
        let key = Key::new(seed, 0, [0, 0]);
        let draw = |i: usize, below: u32| key.below(i as u64, below);
        let ranks = 2 + draw(0, 2) as usize;
        let nodes = ranks + draw(1, if ranks == 2 { 9 } else { 5 }) as usize;
        let (heaviest, sparse) = ([3, 20, 200][draw(2, 3) as usize], draw(3, 3));
        let rows = (0..ranks * nodes).filter(|&i| draw(1000 + i, 3) >= sparse);
        let rows: Vec<_> = rows.map(|i| (i % ranks, i / ranks, draw(4 + i, heaviest))).collect();
        let demand = Demand::new(nodes, ranks, &rows).unwrap();
        let (best, found) = (least(&demand), cost(&demand, Partitioner::ReFlexBiCut));
        assert!(demand.lower_bound() <= best && best <= found, "{} {best} {found}", demand.lower_bound());
        cases += 1;
        equal += usize::from(found == best);
        worst = worst.max(found as f64 / best.max(1) as f64);
    }
    assert!(worst <= 1.05 && equal * 20 >= cases * 19, "{equal} of {cases} equal, at worst {worst:.3}");
}

#[test]
fn a_part_without_events_and_ranks_beyond_the_nodes_are_no_problem() {
    let events = Events::new("one", vec![0], vec![2], vec![5]).unwrap();
    for (ranks, by) in [1, 2, 8].into_iter().flat_map(|n| Partitioner::ALL.iter().map(move |by| (n, by))) {
        let demand = Demand::count(&events, 0..0, &DemandOptions { ranks, ..Default::default() }).unwrap();
        assert_eq!(demand.batches(), 0);
        let partition = by.partition(&demand, SLACK).unwrap();
        let traffic = Traffic::count(&demand, &partition).unwrap();
        assert_eq!((traffic.cost(), traffic.total(), traffic.imbalance()), (0, 0, 1.0));
        assert_eq!(partition.rank_of().len(), 3);
    }
    let one = tgnn_data::bundled().unwrap();
    let demand = training(&one, &DemandOptions { ranks: 1, ..Default::default() });
    assert!(Partitioner::ALL.iter().all(|&by| cost(&demand, by) == 0));
}

#[test]
fn negatives_add_rows_of_destinations_and_sampled_batches_estimate_all() {
    let events = tgnn_data::bundled().unwrap();
    let all = DemandOptions { ranks: 4, neighbors: 0, negatives: false, ..Default::default() };
    let [without, with] =
        [false, true].map(|negatives| training(&events, &DemandOptions { negatives, ..all }));
    let sum = |demand: &Demand| (0..events.nodes).map(|v| demand.total(v)).sum::<u64>();
    assert!(sum(&with) > sum(&without));
    for node in 0..8_227 {
        assert_eq!(with.of_node(node), without.of_node(node), "node {node} is a source");
    }
    let some = training(&events, &DemandOptions { max_batches: 100, ..all });
    assert_eq!((some.batches(), without.batches()), (100, 552));
    let ratio = sum(&some) as f64 / 100.0 / (sum(&without) as f64 / 552.0);
    assert!((0.95..1.05).contains(&ratio), "{ratio}");
}

#[test]
fn a_partition_is_read_as_it_was_written_and_a_wrong_file_is_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("partition.npy");
    let partition = Partition::new(vec![2, 0, 1, 1, 0], 3).unwrap();
    partition.write(&path).unwrap();
    assert_eq!(Partition::read(&path, 5, 3).unwrap(), partition);
    let refused = |nodes, ranks| Partition::read(&path, nodes, ranks).unwrap_err().to_string();
    let wrong = [
        ((6, 3), "partition: 5 ranks for 6 nodes; make a partition of this data set"),
        (
            (5, 2),
            "partition: made for 3 ranks, and there are 2 ranks; train with as many ranks, or make it for these by \
             `tgnn-bench partition --ranks`",
        ),
        ((5, 4), "partition: rank 3 of 4 ranks owns no node; make a partition for this number of ranks"),
    ];
    for ((nodes, ranks), text) in wrong {
        assert_eq!(refused(nodes, ranks), format!("{}: {text}", path.display()));
    }
    assert_eq!(refused(5, 0), "0 ranks; give 1 to 1024 ranks");
    assert!(partition.write(&path).unwrap_err().to_string().contains("partition.npy: cannot create"));
    // Any type of whole numbers will do.
    write_npy(&path, "<i8", 5, 1, &[2i64, 0, 1, 1, 0]);
    assert_eq!(Partition::read(&path, 5, 3).unwrap(), partition);
    let cases: [(&[i64], &str); 2] = [
        (
            &[0, -1, 1],
            "partition: node 1 has `-1`, which is not a rank; write ranks from 0, as whole numbers",
        ),
        (&[0, 1 << 40, 1], "partition: node 1 has `1099511627776`, which is not a rank"),
    ];
    for (values, text) in cases {
        write_npy(&path, "<i8", 3, 1, values);
        assert!(refused(3, 2).contains(text), "{}", refused(3, 2));
    }
    write_npy(&path, "<f4", 2, 2, &[0f32; 4]);
    assert!(refused(4, 2).ends_with(
        "partition.npy: partition: an array of shape [2, 2]; write a vector with one rank for each node"
    ));
    fs::write(&path, "0\n1\n").unwrap();
    assert!(refused(2, 2).contains("this is not a .npy file"));
    fs::remove_file(&path).unwrap();
    assert!(refused(2, 2).contains("partition.npy: cannot open"));
}

#[test]
fn wrong_demands_and_options_are_refused() {
    let events = tgnn_data::bundled().unwrap();
    let refused = |change: fn(&mut DemandOptions)| {
        let mut options = DemandOptions::default();
        change(&mut options);
        Demand::count(&events, 0..100, &options).unwrap_err().to_string()
    };
    assert_eq!(refused(|o| o.ranks = 0), "0 ranks; give 1 to 1024 ranks");
    assert_eq!(refused(|o| o.batch = 0), "batches of 0 events, or 0 batches; give 1 or more");
    assert_eq!(refused(|o| o.recipients = 5000), "5000 neighbours; give at most 4096");
    assert!(Demand::count(&events, 0..157_475, &DemandOptions::default()).is_err());
    assert!(Demand::new(2, 2, &[(2, 0, 1)]).is_err() && Demand::new(2, 2, &[(0, 2, 1)]).is_err());
    assert!(Demand::new(1, 1, &[(0, 0, u32::MAX), (0, 0, 1)]).is_err());
    let demand = Demand::new(3, 2, &[]).unwrap();
    for slack in [-0.1, f64::NAN, f64::INFINITY] {
        assert!(Partitioner::Range.partition(&demand, slack).is_err());
    }
    assert!(Traffic::count(&demand, &Partition::new(vec![0; 2], 1).unwrap()).is_err());
    assert!(
        "best".parse::<Partitioner>().unwrap_err().to_string().contains("re-flex-bicut, range or interval")
    );
}

#[test]
fn the_command_compares_partitioners_and_writes_the_chosen_partition() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let words = ["partition", "--ranks", "4", "--max-batches", "50", "--batch", "600"];
    let text = done(dir, &words).out;
    assert!(text.contains("\n  data            110,232 training events, 9,227 nodes\n"), "{text}");
    assert!(text.contains("50 of 184 batches of 600 events") && text.contains("┌────"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100 && line.trim_end() == line), "{text}");
    let more = ["--json", "--by", "interval", "--out", "p.npy"];
    let numbers = json(&done(dir, &[&words[..], &more].concat()).out);
    let partition = Partition::read(&dir.join("p.npy"), 9_227, 4).unwrap();
    assert!((0..9_227).all(|node| partition.rank_of()[node] == node as u32 % 4));
    assert_eq!((&numbers["chosen"], &numbers["batches"]), (&"interval".into(), &50.into()));
    let costs: Vec<u64> =
        numbers["partitioners"].as_array().unwrap().iter().map(|p| p["cost"].as_u64().unwrap()).collect();
    assert!(costs[0] <= costs[1].min(costs[2]) && numbers["lower_bound"].as_u64().unwrap() <= costs[0]);
    for ranks in ["1", "2", "9", "16", "64"] {
        let text = done(dir, &["partition", "--ranks", ranks, "--max-batches", "5"]).out;
        assert!(text.lines().all(|line| line.chars().count() <= 110), "{text}");
    }
    refused(dir, &[&words[..], &more].concat(), 2, &["p.npy exists", "give a new file (--out)"]);
    refused(dir, &["partition", "--ranks", "2", "--out", "p.csv"], 2, &["p.csv", "let the name end in .npy"]);
    refused(dir, &["partition", "--ranks", "0"], 2, &["0 ranks; give 1 to 1024 ranks"]);
    refused(dir, &["partition"], 2, &["--ranks"]);
    refused(dir, &["partition", "--ranks", "2", "--by", "best"], 2, &["re-flex-bicut, range or interval"]);
    refused(dir, &["partition", "--ranks", "2", "--slack", "-1"], 2, &["slack -1; give a number, 0 or more"]);
    refused(dir, &["partition", "--ranks", "2", "--data", "none.csv"], 10, &["none.csv: cannot open"]);
    refused(dir, &["partition", "--ranks", "2", "--out", "no/p.npy"], 10, &["no/p.npy: cannot create"]);
}
