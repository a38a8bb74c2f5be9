//! Data that breaks its invariants, made by callers in Rust, is refused.
use std::sync::Arc;
use tgnn::{
    error::ErrorKind,
    runtime::{Device, Precision, Store},
};
use tgnn_data::{Adjacency, Events, Neighbors, Split, SynthOptions, Tcsr, synth};
use tgnn_training::{
    model::GraphTables,
    task::{Config, EventTask},
};

fn events() -> Events {
    synth(&SynthOptions { events: 300, ..SynthOptions::default() }).unwrap()
}

#[test]
fn events_that_break_their_invariants_do_not_reach_training() {
    type Damage = fn(&mut Events);
    let damages: [(&str, Damage); 4] = [
        ("the source of event 7 is", |e| Arc::make_mut(&mut e.src)[7] = u32::MAX - 1),
        ("the destination of event 8 is", |e| Arc::make_mut(&mut e.dst)[8] = e.nodes as u32),
        ("is earlier than the one before it", |e| Arc::make_mut(&mut e.time)[9] = -5),
        ("299 values of time for 300 events", |e| Arc::make_mut(&mut e.time).truncate(299)),
    ];
    for (text, damage) in damages {
        let mut bad = events();
        damage(&mut bad);
        let device = Device::cpu(1).unwrap();
        let refused = [
            EventTask::new(&Config::default(), &bad, device).map(|_| ()),
            Split::by_time(&bad, 0.7, 0.15).map(|_| ()),
            Tcsr::new(&bad).map(|_| ()),
        ];
        for got in refused {
            let e = got.expect_err(text);
            assert_eq!(e.kind(), ErrorKind::Data);
            assert!(e.to_string().contains(text), "{e}");
        }
    }
}

#[test]
fn an_adjacency_that_contradicts_itself_is_refused_where_it_is_stored() {
    let row = |begin: u32, len: u32| (vec![0, begin], vec![1, len]);
    let stored = |(begin, len): (Vec<u32>, Vec<u32>), col: Vec<u32>, scale: usize| {
        let from = Neighbors { begin, len, col, weight: None };
        let adjacency = Adjacency { nodes: 2, steps: 1, from, to: None, scale: vec![1.0; scale] };
        GraphTables::new(&mut Store::new(Precision::F32), &adjacency).map_err(|e| e.kind()).map(drop)
    };
    assert_eq!(stored(row(1, 2), vec![0, 0, 1], 2), Ok(()));
    for (rows, col, scale) in [
        (row(2, 2), vec![0, 0, 1], 2),
        (row(u32::MAX, 2), vec![0, 0, 1], 2),
        (row(1, 2), vec![0, 0, 2], 2),
        (row(1, 2), vec![0, 0, 1], 3),
        ((vec![0], vec![1, 2]), vec![0, 0, 1], 2),
    ] {
        assert_eq!(stored(rows, col, scale), Err(ErrorKind::Data));
    }
}
