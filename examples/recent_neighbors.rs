//! The most recent neighbours of nodes, from one's own arrays of sources, destinations and times.
use tgnn::{
    error::Result,
    ops::functions::{EventLists, RecentSlots, recent_neighbors},
    runtime::NONE,
};

fn main() -> Result<()> {
    // Who met whom, and when; in time order.
    let (src, dst) = ([0, 1, 0, 2, 0], [1, 2, 2, 3, 3]);
    let time = [100, 200, 300, 400, 500];
    let events = EventLists::new(&src, &dst, &time, 4)?;

    // Whom did nodes 0, 2 and 3 meet last before these times? Two answers each.
    let (nodes, times, k) = ([0, 2, 3], [500, 450, 400], 2);
    let (mut node, mut event) = ([0; 6], [0; 6]);
    let (mut dt, mut count) = ([0.0; 6], [0; 3]);
    let slots = RecentSlots { node: &mut node, event: &mut event, dt: &mut dt, count: &mut count };
    recent_neighbors(&events, &nodes, &times, k, slots)?;

    for (i, v) in nodes.iter().enumerate() {
        println!("node {v} before {}: {} neighbours", times[i], count[i]);
        for slot in k * i..k * i + count[i] as usize {
            println!("  node {} in event {}, {} ticks earlier", node[slot], event[slot], dt[slot]);
        }
    }
    // An event at the very time of the query is not in its past.
    assert_eq!(node, [2, 1, 3, 0, NONE, NONE]);
    assert_eq!((event[0], dt[0], count), (2, 200.0, [2, 2, 0]));
    Ok(())
}
