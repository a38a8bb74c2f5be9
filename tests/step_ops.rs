//! Properties of the snapshot tasks' ops beyond their definitions.
use crate::support::devices::device;
use tgnn::{
    autograd::Program,
    error::ErrorKind,
    ops::{Backend, Tape, epilogue::Activation::Identity},
    runtime::*,
};

fn backends() -> Vec<Backend> {
    let cuda = device(0).map(|device| Backend::Cuda(device.gpu.clone()));
    [Some(Backend::Definition), Some(Backend::Cpu), cuda].into_iter().flatten().collect()
}

/// Returns a pseudo-random number less than `below`.
fn draw(i: usize, below: usize) -> u32 {
    philox::Key::new(5, 1, [0, 0]).below(i as u64, below as u32)
}

fn ids(store: &mut Store, t: &mut Tape, cols: usize, values: &[u32]) -> Var {
    let id = store.values("ids", Spec::ids(Rows::fixed(values.len() / cols), cols), values).unwrap();
    t.stored(id).unwrap()
}

/// Returns the candidates of the edges of the second of two steps, for the group numbered `group` in epoch 3.
fn candidates(vertices: usize, edges: &[(u32, u32)], per_item: usize, group: u32) -> Vec<u32> {
    let mut store = Store::new(Precision::F32);
    let mut t = Tape::new(&store);
    // In the first step vertex 0 has an edge to every vertex, which must have no effect on the second.
    let both_steps = (0..vertices as u32).map(|v| (0, v)).chain(edges.iter().copied());
    let (src, dst): (Vec<u32>, Vec<u32>) = both_steps.unzip();
    let ends = [ids(&mut store, &mut t, 1, &src), ids(&mut store, &mut t, 1, &dst)];
    let offsets = ids(&mut store, &mut t, 1, &[0, vertices as u32, src.len() as u32]);
    let [step, base] = [1, 0].map(|n| ids(&mut store, &mut t, 1, &[n]));
    let now = ids(&mut store, &mut t, 2, &[3, group]);
    let items = t.step_items(offsets, step, base, edges.len()).unwrap();
    let drawn = t.draw_non_edges(ends, (offsets, step), items, now, vertices, per_item, 9, 2).unwrap();
    let mut program = Program::new(&t, &[drawn], Precision::F32, Backend::Cpu).expect("room");
    program.run(&mut store).unwrap();
    program.read::<u32>(drawn, &store).unwrap().to_vec()
}

#[test]
fn negatives_of_an_edge_are_drawn_evenly_from_the_vertices_without_an_edge_from_its_source_in_the_step() {
    let vertices = 30;
    let mut edges: Vec<(u32, u32)> = (0..200).map(|i| (draw(2 * i, 10), draw(2 * i + 1, vertices))).collect();
    edges.extend((1..vertices as u32).map(|v| (11, v)));
    edges.sort_unstable();
    edges.dedup();
    let per_item = 500;
    let rows = candidates(vertices, &edges, per_item, 0);
    let mut counts = vec![[0usize; 30]; 12];
    for (&(u, v), row) in edges.iter().zip(rows.chunks_exact(1 + per_item)) {
        assert_eq!(row[0], v);
        row[1..].iter().for_each(|&x| counts[u as usize][x as usize] += 1);
    }
    for (u, counts) in (0..).zip(&counts) {
        let is_edge = |v: usize| edges.binary_search(&(u, v as u32)).is_ok();
        let others: Vec<usize> = (0..vertices).filter(|&v| v as u32 != u && !is_edge(v)).collect();
        let drawn: usize = counts.iter().sum();
        assert_eq!(others.iter().map(|&v| counts[v]).sum::<usize>(), drawn, "source {u}: {counts:?}");
        if drawn > 0 {
            let mean = drawn as f64 / others.len() as f64;
            let even = |&v: &usize| (counts[v] as f64 - mean).abs() < 6.0 * mean.sqrt();
            assert!(others.iter().all(even), "source {u}: {counts:?}");
        }
    }
    assert_ne!(rows, candidates(vertices, &edges, per_item, 1), "the same draws in another group");
}

#[test]
fn a_source_with_edges_to_all_vertices_gets_any_of_them_as_negatives() {
    assert_eq!(candidates(1, &[(0, 0)], 2, 0), [0, 0, 0]);
    let drawn = candidates(3, &[(1, 0), (1, 2)], 30, 0);
    assert!((0..3).all(|v| drawn[1..31].contains(&v)), "{drawn:?}");
}

#[test]
fn a_decoder_with_products_per_vertex_scores_as_one_with_products_per_root() {
    let (vertices, rows, m, d) = (40usize, 90usize, 3usize, 12usize);
    for backend in backends() {
        let mut store = Store::new(Precision::F32);
        let mut t = Tape::new(&store);
        let mut at = 0;
        let mut real = |rows: usize, cols: usize| {
            let values: Vec<f32> =
                (0..rows * cols).map(|i| draw(at + i, 2001) as f32 / 1000.0 - 1.0).collect();
            at += values.len();
            let id = store.values("reals", Spec::real(Rows::fixed(rows), cols), &values).unwrap();
            t.stored(id).unwrap()
        };
        let weights = [real(d, d), real(d, d), real(1, d), real(1, d), real(1, 1)];
        let [w_src, w_dst, b, w_out, b_out] = weights;
        let (z, dlogits) = (real(vertices, d), real(rows, 1 + m));
        let src: Vec<u32> = (0..rows).map(|i| draw(7 * i, vertices)).collect();
        let others: Vec<u32> = (0..rows * (1 + m)).map(|i| draw(11 * i + 3, vertices)).collect();
        let roots: Vec<u32> =
            src.iter().zip(others.chunks_exact(1 + m)).flat_map(|(&u, x)| [&[u], x].concat()).collect();
        let src = ids(&mut store, &mut t, 1, &src);
        let others = ids(&mut store, &mut t, 1 + m, &others);
        let roots = ids(&mut store, &mut t, 1, &roots);

        let p = t.linear(z, w_src, None, None, Identity).unwrap();
        let q = t.linear(z, w_dst, None, None, Identity).unwrap();
        let by_vertex = t.pair_logits([p, q], [b, w_out, b_out], src, others).unwrap();
        let root_rows = t.gather_rows(z, roots).unwrap();
        let by_root = t.link_decoder(root_rows, Rows::fixed(rows), weights).unwrap();
        let inputs = [z, w_src, w_dst, b, w_out, b_out];
        let found = [by_vertex, by_root]
            .map(|logits| [vec![logits], t.backward(logits, dlogits, &inputs).unwrap()].concat());
        let mut program = Program::new(&t, &found.concat(), Precision::F32, backend.clone()).expect("room");
        program.run(&mut store).unwrap();
        for (k, (&a, &b)) in found[0].iter().zip(&found[1]).enumerate() {
            let (a, b) = (program.read::<f32>(a, &store).unwrap(), program.read::<f32>(b, &store).unwrap());
            let largest = b.iter().fold(0f32, |m, x| m.max(x.abs()));
            let off = a.iter().zip(b).fold(0f32, |m, (a, b)| m.max((a - b).abs()));
            assert!(a.len() == b.len() && off < 1e-5 * largest, "{backend:?}, {k}: {off} of {largest}");
        }
    }
}

#[test]
fn a_prediction_counts_only_if_its_value_is_known_and_is_then_a_fault_if_it_is_not_finite() {
    for backend in backends() {
        let loss = |pred: [f32; 4], want: [f32; 4]| {
            let mut store = Store::new(Precision::F32);
            let mut t = Tape::new(&store);
            let [pred, want] = [pred, want].map(|values| {
                let id = store.values("values", Spec::real(Rows::fixed(2), 2), &values).unwrap();
                t.stored(id).unwrap()
            });
            let loss = t.squared_loss(pred, want).unwrap();
            let mut program = Program::new(&t, &[loss], Precision::F32, backend.clone()).expect("room");
            let ran = program.run(&mut store).map_err(|e| (e.kind(), e.to_string()));
            ran.map(|()| program.read::<f32>(loss, &store).unwrap()[0])
        };
        let nan = f32::NAN;
        assert_eq!(loss([1.0, 2.0, 3.0, 4.0], [0.0, nan, 1.0, nan]), Ok(2.5), "{backend:?}");
        assert_eq!(loss([nan, 2.0, f32::INFINITY, 4.0], [nan, 2.0, nan, 1.0]), Ok(4.5), "{backend:?}");
        assert_eq!(loss([nan; 4], [nan; 4]), Ok(0.0), "{backend:?}");
        let (kind, text) = loss([1.0, 2.0, 3.0, nan], [0.0; 4]).unwrap_err();
        assert!(kind == ErrorKind::Diverged && text.starts_with("squared_loss: row 1 is NaN"), "{text}");
    }
}
