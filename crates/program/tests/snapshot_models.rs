//! Models of snapshots: comparison with PyTorch, and edge cases.
use crate::{
    golden::{Golden, follow},
    support::devices::{device, drawn},
};
use std::collections::BTreeSet;
use tgnn::{
    autograd::{Lanes, Parameters, Program, Sums},
    ops::{Backend, Tape},
    runtime::*,
};
use tgnn_data::{Adjacency, Features, Snapshots};
use tgnn_training::model::{
    EvolveGcn, GcnConfig, SnapshotModelConfig, SnapshotTables, SwappedLayers, TGcn, VertexInputs, WdGcn,
};

const MODELS: [(&str, &[u8]); 4] = [
    ("wd_gcn", include_bytes!("../../../tests/golden/wd_gcn.safetensors")),
    ("t_gcn", include_bytes!("../../../tests/golden/t_gcn.safetensors")),
    ("evolve_gcn_o", include_bytes!("../../../tests/golden/evolve_gcn_o.safetensors")),
    ("evolve_gcn_h", include_bytes!("../../../tests/golden/evolve_gcn_h.safetensors")),
];

/// Returns a configuration with two layers of `width`.
fn config(model: &str, width: usize, order: &str) -> Box<dyn SnapshotModelConfig> {
    let (layers, order) = (2, order.to_owned());
    match model {
        "wd_gcn" => Box::new(WdGcn(GcnConfig { width, layers, order })),
        "t_gcn" => Box::new(TGcn(GcnConfig { width, layers, order })),
        _ => {
            let config = GcnConfig { width, layers, order };
            Box::new(EvolveGcn { config, summarised: model == "evolve_gcn_h" })
        }
    }
}

/// Returns snapshots of `steps` steps and `nodes` vertices; edges are (step, source, destination).
fn snapshots(
    steps: usize,
    nodes: usize,
    edges: &[(usize, u32, u32)],
    features: Option<Features>,
) -> Snapshots {
    let edges: BTreeSet<_> = edges.iter().copied().collect();
    Snapshots {
        name: "snapshots".into(),
        nodes,
        offsets: (0..=steps).map(|s| edges.range(..(s, 0, 0)).count()).collect(),
        src: edges.iter().map(|e| e.1).collect(),
        dst: edges.iter().map(|e| e.2).collect(),
        weight: None,
        labels: (0..steps).map(|s| s.to_string()).collect(),
        present: None,
        features,
        targets: None,
        target_unit: 1.0,
        classes: None,
        encoding: None,
        class_values: None,
        ids: None,
        notes: Vec::new(),
    }
}

/// Returns seven snapshots of twelve vertices, of which three come and go.
fn coming_and_going() -> Snapshots {
    let edges: Vec<_> = (0..7u32)
        .flat_map(|s| (0..9u32).map(move |i| (s as usize, i, (i * (s + 2) + 1) % 9)))
        .filter(|&(s, ..)| s != 3)
        .collect();
    let mut data = snapshots(7, 12, &edges, Some(Features::random(7 * 12, 6, 5)));
    data.present = Some((0..7 * 12).map(|at| at % 12 < 9 || (at / 12 + at) % 3 > 0).collect());
    data.validate("made").unwrap();
    data
}

/// Records the embeddings after the `length` steps before `target`; returns the parameters and the
/// embeddings.
fn ready(
    t: &mut Tape,
    store: &mut Store,
    data: &Snapshots,
    config: &dyn SnapshotModelConfig,
    (target, length): (u32, usize),
    exchanged: &SwappedLayers,
    prepare: impl Fn(&mut Store, &mut SnapshotTables, &Adjacency),
) -> (Parameters, Var) {
    let mut parameters = Parameters::new(store, 3, 0.0).unwrap();
    let adjacency = Adjacency::from_snapshots(data, false).unwrap();
    let mut tables = SnapshotTables::new(store, &mut parameters, data, &adjacency, 5).unwrap();
    prepare(store, &mut tables, &adjacency);
    let model = config.build(&mut parameters, store, &tables).unwrap();
    tables.seek(store, 0, &[target]).unwrap();
    let group = tables.next_group(t, length).unwrap();
    let z = model.embed(t, &tables, &group, exchanged).unwrap();
    (parameters, z)
}

/// Computes the embeddings on the fast path, one row per vertex.
fn embeddings(data: &Snapshots, config: &dyn SnapshotModelConfig, group: (u32, usize)) -> Vec<Vec<f32>> {
    let mut store = Store::new(Precision::F32);
    let mut t = Tape::new(&store);
    let (_, z) = ready(&mut t, &mut store, data, config, group, &SwappedLayers::default(), |_, _, _| {});
    let mut program = Program::new(&t, &[z], Precision::F32, Backend::Cpu).unwrap();
    program.run(&mut store).unwrap();
    program.read::<f32>(z, &store).unwrap().chunks(config.width()).map(<[f32]>::to_vec).collect()
}

/// Reads the snapshots of a fixture.
fn golden_snapshots(g: &Golden) -> Snapshots {
    let (steps, nodes) = (g.fact("steps"), g.fact("vertices"));
    let (src, dst) = (g.ids("src"), g.ids("dst"));
    let edges: Vec<_> =
        g.ids("step").iter().zip(src.iter().zip(&dst)).map(|(&s, (&u, &v))| (s as usize, u, v)).collect();
    let features = Features::from_vec(steps * nodes, g.fact("features"), g.f32("features")).unwrap();
    let mut data = snapshots(steps, nodes, &edges, Some(features));
    data.weight = Some(g.f32("weight"));
    data.present = Some(g.ids("present").iter().map(|&p| p == 1).collect());
    assert_eq!((&data.src, &data.dst), (&src, &dst), "the fixture's edges are in order");
    data.validate("golden").unwrap();
    data
}

/// Computes `A X` of all steps.
fn aggregated(g: &Golden, adjacency: &Adjacency) -> Vec<f64> {
    let (scale, x, n) = (g.real("scale"), g.real("features"), &adjacency.from);
    let f: usize = g.fact("features");
    let mut y = vec![0.0; x.len()];
    for row in 0..scale.len() {
        let step = row / adjacency.nodes * adjacency.nodes;
        for e in n.begin[row] as usize..(n.begin[row] + n.len[row]) as usize {
            let from = step + n.col[e] as usize;
            let factor = scale[row] * scale[from] * n.weight.as_ref().map_or(1.0, |w| f64::from(w[e]));
            (0..f).for_each(|c| y[row * f + c] += factor * x[from * f + c]);
        }
    }
    y
}

/// Trains three passes of three rounds, in which groups alternate between three variants of the step, with
/// snapshots divided between two lanes if `divided`. Returns the final parameters.
fn rounds(config: &dyn SnapshotModelConfig, device: &Device, divided: bool) -> Vec<Vec<u8>> {
    let (data, mut store) = (coming_and_going(), Store::new(Precision::F32));
    let mut parameters = Parameters::new(&mut store, 3, 0.01).unwrap();
    let adjacency = Adjacency::from_snapshots(&data, false).unwrap();
    let tables = SnapshotTables::new(&mut store, &mut parameters, &data, &adjacency, 5).unwrap();
    let model = config.build(&mut parameters, &mut store, &tables).unwrap();
    let (mut dz, mut sums) = (None, Sums::default());
    let kinds = [(1, [[false; 2]; 2]), (2, [[true, false], [false, true]]), (1, [[true; 2]; 2])];
    let mut tapes: Vec<(Tape, Lanes)> = Vec::new();
    for (first, layers) in kinds {
        let (mut t, exchanged) = (Tape::new(&store), SwappedLayers { first, layers: layers.map(Vec::from) });
        let group = tables.next_group(&mut t, 3).unwrap();
        let z = model.embed(&mut t, &tables, &group, &exchanged).unwrap();
        let dz = *dz.get_or_insert_with(|| {
            let values: Vec<f32> = (0..12 * t.spec(z).cols).map(|i| (i % 7) as f32 / 7.0).collect();
            store.values("dz", t.spec(z), &values).unwrap()
        });
        parameters.accumulate(&mut t, &mut store, z, dz, &mut sums).unwrap();
        let lanes = if divided { Lanes::Sections { first, pipelined: true } } else { Lanes::One };
        tapes.push((t, lanes));
    }
    let mut t = Tape::new(&store);
    sums.minimize(&parameters, &mut t).unwrap();
    tapes.push((t, Lanes::One));
    let tapes: Vec<(&Tape, Lanes)> = tapes.iter().map(|(t, lanes)| (t, *lanes)).collect();
    let mut program = Program::with_variants(&tapes, Precision::F32, device).unwrap();
    let learned: Vec<BufferId> = parameters.iter().map(|p| p.1).collect();
    let raw = |store: &Store| -> Vec<Vec<u8>> {
        learned.iter().map(|&id| store.raw(id).unwrap().to_vec()).collect()
    };
    let start = raw(&store);
    for pass in 0..3 {
        tables.seek(&mut store, pass, &[3, 5, 4, 6, 3, 6, 5]).unwrap();
        let variant_of_run = [0, 1, 2, 3, 2, 0, 3, 1, 1, 3];
        let mut runs = Vec::new();
        program.repeat_in(&mut store, &variant_of_run, &mut |done| runs.push(done.runs)).unwrap();
        assert_eq!(runs.last(), Some(&variant_of_run.len()));
    }
    store.fetch(&learned).unwrap();
    let end = raw(&store);
    assert!(start.iter().zip(&end).all(|(start, end)| start != end), "every parameter learns");
    end
}

#[test]
fn groups_in_several_variants_leave_the_same_bits_on_two_lanes_as_on_one() {
    let one = Device::cpu(1).unwrap();
    for (name, _) in MODELS {
        let config = config(name, 6, "auto");
        let want = rounds(&*config, &one, false);
        assert!(want.len() > 4 && rounds(&*config, &Device::cpu(2).unwrap(), true) == want, "{name}");
    }
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu, or a GPU and TGNN_TEST_DEVICE=cuda")]
fn groups_in_several_variants_on_two_streams_leave_the_same_bits_under_every_schedule() {
    let Some(on) = device(0) else { return };
    let gpu = on.device();
    for (at, (name, _)) in MODELS.into_iter().enumerate() {
        let config = config(name, 6, "auto");
        on.schedule(0);
        let want = rounds(&*config, &gpu, false);
        for (_, seed) in drawn(at, 1, 4) {
            on.schedule(seed);
            assert!(rounds(&*config, &gpu, true) == want, "{name}, schedule {seed}");
        }
    }
}

#[test]
fn embeddings_and_gradients_of_every_model_equal_the_plain_formulas_in_every_order() {
    for (name, bytes) in MODELS {
        let g = Golden::open(bytes);
        let (data, d) = (golden_snapshots(&g), g.fact("width"));
        for (group, target) in [("whole", 6), ("short", 2)] {
            let none = [[false; 2]; 2];
            for (order, once, layers) in [
                ("auto", true, none),
                ("auto", false, none),
                ("aggregate", false, none),
                ("transform", false, none),
                ("transform,aggregate", true, none),
                ("aggregate", false, [[false, false], [true, true]]),
                ("auto", true, [[false, true], [true, false]]),
            ] {
                println!("{name}, {group}, {order}, aggregated once: {once}, exchanged: {layers:?}");
                let exchanged = SwappedLayers { first: 2, layers: layers.map(Vec::from) };
                let prepare = |store: &mut Store, tables: &mut SnapshotTables, adjacency: &Adjacency| {
                    if store.precision() == Precision::F64 {
                        // The tables were loaded through f32; the fixture has all digits.
                        let (VertexInputs::Steps(inputs) | VertexInputs::Vertices(inputs)) = tables.inputs;
                        store.write(inputs, &g.real("features")).unwrap();
                        store.write(tables.graph.scale(), &g.real("scale")).unwrap();
                    }
                    if once {
                        let spec = Spec::real(Rows::fixed(tables.steps * tables.nodes), tables.width);
                        tables.aggregated =
                            Some(store.values("aggregated", spec, &aggregated(&g, adjacency)).unwrap());
                    }
                };
                let record = |t: &mut Tape, store: &mut Store, g: &Golden| {
                    let config = config(name, d, order);
                    let at = (target, g.fact("length"));
                    let (parameters, z) = ready(t, store, &data, &*config, at, &exchanged, prepare);
                    for (name, id) in parameters.iter() {
                        store.write(id, &g.real(&format!("init.{name}"))).unwrap();
                    }
                    let dz =
                        store.values("dz", Spec::real(Rows::fixed(data.nodes), d), &g.real("dz")).unwrap();
                    let dz = t.stored(dz).unwrap();
                    let grads = t.backward_many(&[(z, dz)]).unwrap();
                    let gradient = |(name, id)| (format!("grad.{name}"), grads[&t.stored(id).unwrap()]);
                    let named: Vec<(String, Var)> = parameters.iter().map(gradient).collect();
                    [vec![("z".to_owned(), z)], named].concat()
                };
                follow(&g, record, |g, name| g.real(&format!("{group}.{name}")), |_, values| values);
            }
        }
    }
}

#[test]
fn steps_that_a_group_lacks_change_nothing() {
    let data = coming_and_going();
    for (name, _) in MODELS {
        let config = config(name, 8, "auto");
        let found = embeddings(&data, &*config, (5, 5));
        assert!(found.iter().flatten().any(|&x| x != 0.0), "{name} gives zeros");
        assert!(found == embeddings(&data, &*config, (5, 9)), "{name}");
        assert!(found != embeddings(&data, &*config, (5, 4)), "{name} ignores a step");
    }
}

#[test]
fn a_vertex_that_is_absent_from_a_step_keeps_its_state() {
    let data = coming_and_going();
    for name in ["wd_gcn", "t_gcn"] {
        for order in ["aggregate", "transform"] {
            let config = config(name, 8, order);
            for step in 1..7 {
                let before = embeddings(&data, &*config, (step, step as usize));
                let after = embeddings(&data, &*config, (step + 1, step as usize + 1));
                for v in 0..data.nodes {
                    let present = data.has(step as usize, v);
                    assert_eq!(before[v] != after[v], present, "{name}, {order}, step {step}, vertex {v}");
                }
            }
        }
    }
}

#[test]
fn a_vertex_without_edges_is_the_same_alone_and_among_others() {
    let alone = snapshots(4, 1, &[], Some(Features::random(4, 6, 7)));
    let mut features = Vec::new();
    for step in 0..4 {
        for v in 0..5 {
            let row = alone.features.as_ref().unwrap().row(step);
            features.extend(row.iter().map(|x| if v == 2 { *x } else { x + v as f32 }));
        }
    }
    let features = Features::from_vec(4 * 5, 6, features).unwrap();
    let among = snapshots(4, 5, &[(0, 0, 1), (1, 3, 4), (3, 1, 4)], Some(features));
    for (name, _) in MODELS {
        for order in ["aggregate", "transform"] {
            let config = config(name, 8, order);
            let [alone, among] = [&alone, &among].map(|data| embeddings(data, &*config, (4, 4)));
            // EvolveGCN-H reads the other vertices.
            let same = alone[0].iter().zip(&among[2]).all(|(a, b)| (a - b).abs() < 1e-5);
            assert_eq!(same, name != "evolve_gcn_h", "{name}, {order}");
            assert!(alone[0].iter().all(|x| x.is_finite()), "{name}");
        }
    }
}

#[test]
fn learned_rows_of_vertices_have_a_gradient_in_every_model_and_order() {
    let data = Snapshots { features: None, ..coming_and_going() };
    for (name, _) in MODELS {
        for order in ["aggregate", "transform"] {
            let mut store = Store::new(Precision::F32);
            let mut t = Tape::new(&store);
            let (parameters, z) = ready(
                &mut t,
                &mut store,
                &data,
                &*config(name, 8, order),
                (6, 3),
                &SwappedLayers::default(),
                |_, _, _| {},
            );
            let grads = t.backward_many(&[(z, z)]).unwrap();
            let gradients: Vec<(&str, Var)> =
                parameters.iter().map(|(name, id)| (name, grads[&t.stored(id).unwrap()])).collect();
            let keep: Vec<Var> = gradients.iter().map(|g| g.1).collect();
            let mut program = Program::new(&t, &keep, Precision::F32, Backend::Cpu).unwrap();
            program.run(&mut store).unwrap();
            assert_eq!(gradients[0].0, SnapshotTables::ROWS);
            for (parameter, grad) in gradients {
                let found = program.read::<f32>(grad, &store).unwrap();
                assert!(found.iter().all(|x| x.is_finite()), "{name}, {order}, {parameter}");
                assert!(found.iter().any(|&x| x != 0.0), "{name}, {order}, {parameter}: nothing learns");
            }
        }
    }
}

#[test]
fn only_values_that_are_read_are_convolved() {
    let data = coming_and_going();
    // Two layers over four steps. T-GCN also aggregates states, except in the first step.
    for (name, order, products) in [
        ("wd_gcn", "auto", 8),
        ("t_gcn", "aggregate", 4 * 2 + 3 * 4),
        ("t_gcn", "transform", 4 * 4),
        ("evolve_gcn_o", "auto", 2),
        ("evolve_gcn_h", "auto", 5),
    ] {
        let mut store = Store::new(Precision::F32);
        let mut t = Tape::new(&store);
        ready(
            &mut t,
            &mut store,
            &data,
            &*config(name, 8, order),
            (6, 4),
            &SwappedLayers::default(),
            |_, _, _| {},
        );
        let found = t.nodes().iter().filter(|n| n.op.name() == "spmm").count();
        assert_eq!(found, products, "{name}, {order}");
    }
}

#[test]
fn an_invalid_order_is_refused_in_one_line() {
    for (name, section) in [("wd_gcn", "wd-gcn"), ("t_gcn", "t-gcn"), ("evolve_gcn_o", "evolve-gcn")] {
        for (order, ok) in [
            ("auto", true),
            ("transform, auto", true),
            ("", false),
            ("both", false),
            ("auto,auto,auto", false),
            ("aggregate,", false),
        ] {
            let found = config(name, 8, order).validate();
            assert_eq!(found.is_ok(), ok, "{name}, `{order}`");
            let message = found.err().map(|e| e.to_string()).unwrap_or_default();
            assert!(ok || message.contains(&format!("{section}.order is `{order}`")), "{message}");
        }
        assert!(config(name, 0, "auto").validate().is_err());
        assert!(config(name, 8, "transform,aggregate").validate().is_ok());
        for (order, once) in [("auto", true), ("aggregate,transform", true), ("transform,aggregate", false)] {
            assert_eq!(config(name, 8, order).aggregates_once(), once, "{name}, {order}");
        }
    }
}
