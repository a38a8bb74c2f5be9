//! Small snapshots.
use tgnn::runtime::philox::Key;
use tgnn_data::{Features, Snapshots};
use tgnn_training::{model::ModelName, task::Config};

/// Returns snapshots with these edges, in which all vertices are always present, without features.
pub fn of_edges(nodes: usize, steps: &[Vec<(u32, u32)>]) -> Snapshots {
    let (mut offsets, mut edges) = (vec![0], Vec::new());
    for step in steps {
        let mut step = step.clone();
        step.sort_unstable();
        step.dedup();
        edges.extend(step);
        offsets.push(edges.len());
    }
    let (src, dst) = edges.into_iter().unzip();
    let labels = (0..steps.len()).map(|s| format!("step {s}")).collect();
    let snapshots = Snapshots {
        name: "made".into(),
        nodes,
        offsets,
        src,
        dst,
        weight: None,
        labels,
        present: None,
        features: None,
        targets: None,
        target_unit: 1.0,
        classes: None,
        encoding: None,
        class_values: None,
        ids: None,
        notes: vec![],
    };
    snapshots.validate("made").unwrap();
    snapshots
}

/// Number of groups of vertices.
const GROUPS: usize = 6;

/// Returns snapshots in which vertices of group g have edges to vertices of group g + 1 in even steps, and of
/// group g + 2 in odd ones, drawn again in each step. The groups and the previous step determine the next
/// step; remembered pairs predict little.
pub fn turning(nodes: usize, steps: usize, edges: usize) -> Snapshots {
    let key = Key::new(5, 5, [0, 0]);
    let edges_of_step = |s: usize| {
        (0..nodes * edges).map(move |i| {
            let (u, draw) = (i / edges, key.draw((s * nodes * edges + i) as u64)[0] as usize);
            let group = (u + 1 + s % 2) % GROUPS;
            (u as u32, (draw % (nodes / GROUPS) * GROUPS + group) as u32)
        })
    };
    let edges: Vec<Vec<_>> = (0..steps).map(|s| edges_of_step(s).collect()).collect();
    let mut data = of_edges(nodes, &edges);
    let one_hot = (0..nodes * GROUPS).map(|i| if i / GROUPS % GROUPS == i % GROUPS { 1.0 } else { 0.0 });
    data.features = Some(Features::from_vec(nodes, GROUPS, one_hot.collect()).unwrap());
    data
}

/// Returns the configuration of a short training.
pub fn config(model: ModelName, width: usize) -> Config {
    let mut c = Config { model, epochs: 2, threads: 1, learning_rate: 1e-2, ..Config::default() };
    (c.group.length, c.group.negatives, c.snapshots.directed, c.snapshots.width) = (3, 5, true, width);
    (c.wd_gcn.width, c.t_gcn.width, c.evolve_gcn.width) = (width, width, width);
    c
}
