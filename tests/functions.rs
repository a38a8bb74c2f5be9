//! Plain functions over the caller's own arrays: their results, and arrays that do not fit.
use crate::support::refused;
use tgnn::{
    autograd::Program,
    error::ErrorKind,
    ops::{
        Backend, Tape,
        epilogue::Activation,
        functions::*,
        sample_neighbors::{History, Sampling, Strategy},
    },
    runtime::*,
};

/// Returns n numbers in [-1, 1).
fn drawn(n: usize, salt: u32) -> Vec<f32> {
    let key = philox::Key::new(7, salt, [0, 0]);
    (0..n).map(|i| key.draw(i as u64)[0] as f32 / (1u64 << 31) as f32 - 1.0).collect()
}

/// Returns `A x` and `A^T x`, computed by a tape.
fn on_tape(a: &Csr, x: &[f32], d: usize) -> [Vec<f32>; 2] {
    let mut store = Store::new(Precision::F32);
    let mut t = Tape::new(&store);
    let a = a.stored(&mut t, &mut store).unwrap();
    let x = t.input(&mut store, "x", Spec::real(Rows::fixed(x.len() / d), d), x).unwrap();
    let y = t.spmm_csr(a, x, None, Activation::Identity).unwrap();
    let dx = t.backward(y, x, &[x]).unwrap()[0];
    let mut program = Program::new(&t, &[y, dx], Precision::F32, Backend::Cpu).unwrap();
    program.run(&mut store).unwrap();
    [y, dx].map(|v| program.read::<f32>(v, &store).unwrap().to_vec())
}

#[test]
fn a_sparse_matrix_of_the_caller_times_a_dense_one_is_the_sum_over_its_entries() {
    for (n, d, weighted, normalized) in [(1, 1, false, false), (40, 5, true, false), (300, 16, true, true)] {
        // The first row is long, the last one empty.
        let len = |i: usize| if i == 0 { 4 * n } else { i % 5 };
        let mut indptr = vec![0u32];
        (0..n).for_each(|i| indptr.push(indptr[i] + if i + 1 == n && n > 1 { 0 } else { len(i) } as u32));
        let m = indptr[n] as usize;
        let indices: Vec<u32> = (0..m).map(|e| ((e * 7919 + 13) % n) as u32).collect();
        let values: Vec<f32> = drawn(m, 1).iter().map(|w| w + 1.5).collect();
        let mut a = Csr::from_csr(&indptr, &indices, weighted.then_some(&values[..])).unwrap();
        let mut scale = vec![1.0f64; n];
        let weight = |e: usize| if weighted { f64::from(values[e]) } else { 1.0 };
        let entries = |i: usize| indptr[i] as usize..indptr[i + 1] as usize;
        if normalized {
            a = a.normalized();
            (0..n).for_each(|i| {
                let degree: f64 = entries(i).map(weight).sum();
                scale[i] = if degree > 0.0 { degree.powf(-0.5) } else { 0.0 };
            });
        }
        let x = drawn(n * d, 2);
        let (mut y, mut dx) = (vec![9.0; n * d], vec![9.0; n * d]);
        spmm(&a, &x, d, &mut y).unwrap();
        spmm_grad(&a, &x, d, &mut dx).unwrap();
        assert_eq!(on_tape(&a, &x, d), [y.clone(), dx.clone()]);
        let (mut want, mut want_dx) = (vec![0.0f64; n * d], vec![0.0f64; n * d]);
        for i in 0..n {
            for e in entries(i) {
                let j = indices[e] as usize;
                let w = scale[i] * weight(e) * scale[j];
                for c in 0..d {
                    want[i * d + c] += w * f64::from(x[j * d + c]);
                    want_dx[j * d + c] += w * f64::from(x[i * d + c]);
                }
            }
        }
        for (got, want) in [(y, want), (dx, want_dx)] {
            let largest = want.iter().fold(0.0f64, |m, x| m.max(x.abs()));
            assert!(got.iter().zip(&want).all(|(&g, w)| (f64::from(g) - w).abs() < 1e-5 * largest.max(1.0)));
        }
    }
}

/// Blocks of more rows or more columns, long rows among them, of no entries, and without rows or columns.
#[test]
fn a_rectangular_matrix_times_a_dense_one_is_the_sum_over_its_entries_and_its_gradient_that_of_the_transpose()
{
    for (n, u, d, each) in
        [(3, 8, 5, 4), (40, 7, 16, 3), (2, 50, 3, 1500), (5, 4, 2, 0), (4, 0, 3, 0), (0, 4, 3, 0)]
    {
        let m = n * each;
        let indptr: Vec<u32> = (0..=n).map(|i| (i * each) as u32).collect();
        let indices: Vec<u32> = (0..m).map(|e| ((e * 7919 + 13) % u) as u32).collect();
        let (values, rows, columns) = (drawn(m, 1), drawn(n, 2), drawn(u, 3));
        let a = Csr::rectangular(u, &indptr, &indices, Some(&values)).unwrap();
        let degrees = a.clone().normalized();
        let degree = |of: &mut dyn Iterator<Item = usize>| of.map(|e| f64::from(values[e])).sum::<f64>();
        let scale = |degree: f64| if degree > 0.0 { degree.powf(-0.5) } else { 0.0 };
        let real = |x: &[f32]| x.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
        let of_rows = (0..n).map(|i| scale(degree(&mut (i * each..(i + 1) * each)))).collect::<Vec<_>>();
        let of_columns: Vec<f64> =
            (0..u).map(|j| scale(degree(&mut (0..m).filter(|&e| indices[e] as usize == j)))).collect();
        let scaled = a.clone().scaled_by(rows.clone(), columns.clone()).unwrap();
        for (a, rows, columns) in [
            (a, vec![1.0; n], vec![1.0; u]),
            (scaled, real(&rows), real(&columns)),
            (degrees, of_rows, of_columns),
        ] {
            let (x, dy) = (drawn(u * d, 4), drawn(n * d, 5));
            let (mut y, mut dx) = (vec![9.0; n * d], vec![9.0; u * d]);
            spmm(&a, &x, d, &mut y).unwrap();
            spmm_grad(&a, &dy, d, &mut dx).unwrap();
            let (mut want, mut want_dx) = (vec![0.0f64; n * d], vec![0.0f64; u * d]);
            for (e, c) in (0..m).flat_map(|e| (0..d).map(move |c| (e, c))) {
                let (i, j) = (e / each, indices[e] as usize);
                let w = rows[i] * f64::from(values[e]) * columns[j];
                want[i * d + c] += w * f64::from(x[j * d + c]);
                want_dx[j * d + c] += w * f64::from(dy[i * d + c]);
            }
            for (got, want) in [(&y, want), (&dx, want_dx)] {
                let most = want.iter().fold(1.0f64, |m, x| m.max(x.abs()));
                assert!(
                    got.iter().zip(&want).all(|(&g, w)| (f64::from(g) - w).abs() < 1e-5 * most),
                    "{n} {u}"
                );
            }
            let mut store = Store::new(Precision::F32);
            let mut t = Tape::new(&store);
            let a = a.stored(&mut t, &mut store).unwrap();
            let x = t.input(&mut store, "x", Spec::real(Rows::fixed(u), d), &x).unwrap();
            let dy = t.input(&mut store, "dy", Spec::real(Rows::fixed(n), d), &dy).unwrap();
            let product = t.spmm_csr(a, x, None, Activation::Identity).unwrap();
            let gradient = t.backward(product, dy, &[x]).unwrap()[0];
            let mut program = Program::new(&t, &[product, gradient], Precision::F32, Backend::Cpu).unwrap();
            program.run(&mut store).unwrap();
            assert_eq!(program.read::<f32>(product, &store).unwrap(), y);
            assert_eq!(program.read::<f32>(gradient, &store).unwrap(), dx);
        }
    }
}

#[test]
fn arrays_that_are_no_csr_or_no_events_are_refused_with_the_first_place() {
    let csr =
        |indptr: &[u32], indices: &[u32], values: Option<&[f32]>| Csr::from_csr(indptr, indices, values);
    refused(csr(&[], &[], None), "csr: indptr is empty");
    refused(csr(&[0, 2], &[0], None), "csr: indptr goes from 0 to 2, want 0 to 1");
    refused(csr(&[1, 1], &[0], None), "csr: indptr goes from 1 to 1");
    refused(csr(&[0, 2, 1, 3], &[0; 3], None), "csr: indptr falls from 2 to 1 in row 1");
    refused(csr(&[0, 2], &[0, 1], None), "csr: index 1 names column 1, of 1 columns");
    let e = csr(&[0, 1, 2], &[0, 2], None).unwrap_err().to_string();
    assert!(e.ends_with("as many as rows; if the matrix is not square, give its number of columns"), "{e}");
    let wide = |indices: &[u32]| Csr::rectangular(3, &[0, 1, 2], indices, None);
    refused(wide(&[0, 3]), "csr: index 1 names column 3, of 3 columns from 0 on");
    refused(Csr::rectangular(usize::MAX, &[0], &[], None), "columns, want fewer than");
    let block = wide(&[2, 0]).unwrap();
    assert_eq!((block.shape(), block.len()), ([2, 3], 2));
    refused(spmm(&block, &[1.0; 2], 1, &mut [0.0; 2]), "spmm: x has 2 elements, want 3 for F32 [3, 1]");
    refused(
        spmm(&block, &[1.0; 3], 1, &mut [0.0; 3]),
        "spmm: output y has 3 elements, want 2 for F32 [2, 1]",
    );
    refused(spmm_grad(&block, &[1.0; 3], 1, &mut [0.0; 3]), "spmm: x has 3 elements, want 2");
    refused(block.clone().scaled(vec![1.0; 2]), "csr: one list of scales for 2 rows and 3 columns");
    refused(block.clone().scaled_by(vec![1.0; 2], vec![1.0; 2]), "csr: 2 scales for 3 columns");
    refused(block.scaled_by(vec![1.0; 3], vec![1.0; 3]), "csr: 3 scales for 2 rows");
    refused(csr(&[0, 1], &[0], Some(&[])), "csr: 0 values for 1 indices");
    let a = csr(&[0, 1], &[0], None).unwrap();
    refused(a.clone().scaled(vec![]), "csr: 0 scales for 1 rows");
    refused(spmm(&a, &[1.0; 2], 1, &mut [0.0]), "spmm: x has 2 elements, want 1");
    refused(spmm(&a, &[1.0], 1, &mut [0.0; 2]), "spmm: output y has 2 elements, want 1");
    let none = csr(&[0], &[], None).unwrap();
    assert!(none.is_empty() && spmm(&none, &[], 4, &mut []).is_ok());

    refused(EventLists::new(&[0], &[], &[1], 3), "events: 1 sources, 0 destinations and 1 times");
    refused(EventLists::new(&[0, 1], &[1, 3], &[1, 2], 3), "events: event 1 is of nodes 1 and 3, of 3");
    refused(EventLists::new(&[0, 1], &[1, 2], &[2, 1], 3), "events: event 1 is earlier");
    // More nodes or columns than memory: refused before anything is allocated.
    let most = NONE - 1;
    if available_memory_bytes().is_some_and(|free| free < 50 << 30) {
        let lists = EventLists::new(&[0], &[most], &[1], NONE as usize).map(|_| ()).unwrap_err();
        let csr = Csr::rectangular(most as usize, &[0], &[], None).map(|_| ()).unwrap_err();
        for (e, what) in [(lists, "nodes"), (csr, "columns")] {
            assert_eq!(e.kind(), ErrorKind::OutOfMemory, "{e}");
            assert!(e.to_string().contains(&format!("renumber the {what} from 0")), "{e}");
        }
    }
    let events = EventLists::new(&[0], &[1], &[5], 2).unwrap();
    let recent = |node: &[u32], time: &[i64], k: usize, [a, b, c, d]: [usize; 4]| {
        let (mut node_out, mut event, mut dt, mut count) = (vec![0; a], vec![0; b], vec![0.0; c], vec![0; d]);
        let slots = RecentSlots { node: &mut node_out, event: &mut event, dt: &mut dt, count: &mut count };
        recent_neighbors(&events, node, time, k, slots)
    };
    refused(recent(&[0], &[1, 2], 1, [1; 4]), "sample_neighbors: time has 2 elements, want 1");
    refused(recent(&[0], &[1], 2, [1; 4]), "sample_neighbors: output node has 1 elements, want 2");
    refused(
        recent(&[2], &[9], 1, [1; 4]),
        "sample_neighbors: row 0 of `node` names row 2 of a smaller table",
    );
    recent(&[NONE], &[9], 1, [1; 4]).unwrap();
    recent(&[], &[], 3, [0; 4]).unwrap();
}

#[test]
fn the_recent_neighbours_are_the_latest_events_before_the_query() {
    let (nodes, n, k) = (7u32, 200usize, 4);
    let ids = |salt| drawn(n, salt).iter().map(|u| ((u + 1.0) * 3.5) as u32 % nodes).collect::<Vec<u32>>();
    let (src, dst, time) = (ids(1), ids(2), (0..n as i64).map(|i| i / 3 - 20).collect::<Vec<i64>>());
    let events = EventLists::new(&src, &dst, &time, nodes as usize).unwrap();
    assert_eq!(events.len(), n);
    let query: Vec<u32> = (0..50).map(|i| i % nodes).collect();
    let at: Vec<i64> = (0..50).map(|i| i64::from(i) - 21).collect();
    let (mut node, mut event, mut dt, mut count) =
        (vec![0; 50 * k], vec![0; 50 * k], vec![0.0; 50 * k], vec![0; 50]);
    let slots = RecentSlots { node: &mut node, event: &mut event, dt: &mut dt, count: &mut count };
    on_threads(2, || recent_neighbors(&events, &query, &at, k, slots)).unwrap().unwrap();
    // The same on a tape, with all events before the batch.
    let mut store = Store::new(Precision::F32);
    let mut t = Tape::new(&store);
    let tcsr = events.stored(&mut t, &mut store).unwrap();
    let mut ids = |name: &str, rows: usize, width: usize, values: &[u32]| {
        t.input(&mut store, name, Spec::ids(Rows::fixed(rows), width), values).unwrap()
    };
    let (queries, batch, now) =
        (ids("node", 50, 1, &query), ids("batch", 1, 1, &[n as u32]), ids("now", 1, 2, &[0, 0]));
    let times = t.input(&mut store, "time", Spec::times(Rows::fixed(50)), &at).unwrap();
    let how = Sampling { k, strategy: Strategy::Recent, history: History::Time, gaps: Gaps::unlimited(1.0) };
    let near = t.sample_neighbors(tcsr, (queries, times), (batch, now), 0, how).unwrap();
    let keep = [near.node, near.event, near.count];
    let mut program = Program::new(&t, &keep, Precision::F32, Backend::Cpu).unwrap();
    program.run(&mut store).unwrap();
    for (var, want) in keep.into_iter().zip([&node, &event, &count]) {
        assert_eq!(program.read::<u32>(var, &store).unwrap(), want);
    }
    for i in 0..50 {
        let of = |e: usize| (src[e] == query[i] || dst[e] == query[i]) && time[e] < at[i];
        let want: Vec<usize> = (0..n).rev().filter(|&e| of(e)).take(k).collect();
        assert_eq!(count[i] as usize, want.len());
        for j in 0..k {
            let found = (node[i * k + j], event[i * k + j], dt[i * k + j]);
            let expected = want.get(j).map_or((NONE, NONE, 0.0), |&e| {
                let other = if src[e] == query[i] { dst[e] } else { src[e] };
                (other, e as u32, (at[i] - time[e]) as f32)
            });
            assert_eq!(found, expected, "query {i}, slot {j}");
        }
    }
}

/// Checks the slope of `loss` in each of `numbers` against `gradient`.
fn check_gradient(what: &str, numbers: &[f32], gradient: &[f32], loss: impl Fn(&[f32]) -> f64) {
    assert_eq!(numbers.len(), gradient.len());
    for at in (0..numbers.len()).step_by(numbers.len() / 6 + 1) {
        let moved = |by: f32| {
            let mut x = numbers.to_vec();
            x[at] += by;
            loss(&x)
        };
        let slope = (moved(2e-2) - moved(-2e-2)) / 4e-2;
        let off = (slope - f64::from(gradient[at])).abs();
        assert!(off < 1e-2 * (1.0 + slope.abs()), "{what}[{at}]: {slope} against {}", gradient[at]);
    }
}

fn weighted_sum(x: &[f32], weights: &[f32]) -> f64 {
    x.iter().zip(weights).map(|(&x, &w)| f64::from(x) * f64::from(w)).sum()
}

fn weights(w: &[Vec<f32>; 6]) -> GruWeights<'_> {
    let [time_w, time_b, w_x, w_h, b_x, b_h] = w.each_ref().map(Vec::as_slice);
    GruWeights { time_w, time_b, w_x, w_h, b_x, b_h }
}

#[test]
fn memory_update_as_a_function_keeps_nodes_without_mail_and_has_the_gradients_of_its_weights() {
    let (v, d, f, t, e) = (6, 3, 2, 4, 5);
    let c = 2 * d + f + t;
    let (memory, mail, edge) = (drawn(v * d, 1), drawn(v * d, 2), drawn(e * f, 3));
    let tables = MemoryTables {
        memory: &memory,
        memory_time: &[0, 1, 2, 3, 4, 5],
        mail: &mail,
        mail_event: &[0, NONE, 2, 4, 1, NONE],
        mail_time: &[3, 0, 4, 5, 5, 0],
        edge: &edge,
        edge_width: f,
    };
    let w = [t, t, 3 * d * c, 3 * d * d, 3 * d, 3 * d].map(|n| drawn(n, 10 + n as u32));
    let nodes = [4u32, 1, 0, 2];
    let updated = gru_memory(&nodes, tables, weights(&w), 0.5).unwrap();
    assert_eq!(updated.memory[d..2 * d], memory[d..2 * d], "node 1 has no mail");
    assert_ne!(updated.memory[..d], memory[4 * d..5 * d]);
    assert_eq!(updated.time, [5, 1, 3, 4]);
    let upstream = drawn(nodes.len() * d, 50);
    let g = gru_memory_grad(&updated, weights(&w), &upstream).unwrap();
    let grads = [g.time_w, g.time_b, g.w_x, g.w_h, g.b_x, g.b_h];
    for (i, grad) in grads.iter().enumerate() {
        check_gradient(&format!("weight {i}"), &w[i], grad, |x| {
            let mut w = w.clone();
            w[i] = x.to_vec();
            weighted_sum(&gru_memory(&nodes, tables, weights(&w), 0.5).unwrap().memory, &upstream)
        });
    }
    refused(gru_memory(&[2, 1, 2], tables, weights(&w), 1.0), "gru_memory: node 2 is listed twice");
    refused(
        gru_memory(&[6], tables, weights(&w), 1.0),
        "gru_memory: row 0 of `nodes` names row 6 of a smaller table",
    );
    let short = MemoryTables { mail: &mail[1..], ..tables };
    refused(gru_memory(&nodes, short, weights(&w), 1.0), "gru_memory: mail has 17 elements, want 18");
    for i in 0..6 {
        for more in [1, 3, 3 * d] {
            let mut longer = w.clone();
            longer[i].resize(w[i].len() + more, 0.0);
            let forward = gru_memory(&nodes, tables, weights(&longer), 1.0);
            refused(forward, "gru_memory: ");
            refused(gru_memory_grad(&updated, weights(&longer), &upstream), "gru_memory: ");
        }
    }
    let wider = MemoryTables { edge_width: f + 1, ..tables };
    refused(
        gru_memory(&nodes, wider, weights(&w), 1.0),
        "gru_memory: w_x has 108 elements, want 117 for [9, 13]",
    );
    let times = MemoryTables { memory_time: &[0, 1], ..tables };
    refused(gru_memory(&nodes, times, weights(&w), 1.0), "gru_memory: memory_time has 2 elements, want 6");
    let edge = MemoryTables { edge: &edge[1..], ..tables };
    refused(
        gru_memory(&nodes, edge, weights(&w), 1.0),
        "gru_memory: edge has 9 elements, want 8 for F32 [4, 2]",
    );
    let none = GruWeights { b_h: &[], ..weights(&w) };
    refused(gru_memory(&nodes, tables, none, 1.0), "gru_memory: b_h has 0 elements");
    refused(
        gru_memory_grad(&updated, weights(&w), &upstream[1..]),
        "gru_memory_grad: dmemory has 11 elements, want 12",
    );
}

#[test]
fn attention_as_a_function_weighs_neighbours_to_one_and_has_the_gradients_of_its_inputs() {
    for (d, f, t) in [(3, 2, 4), (4, 0, 3), (0, 2, 2)] {
        let (n, k, u, e, heads, c) = (5, 3, 4, 6, 2, d + f + t);
        let (query, h, edge) = (drawn(n * heads * c, 1), drawn(u * d, 2), drawn(e * f, 3));
        let (time_w, time_b) = (drawn(t, 4), drawn(t, 5));
        let count = [3u32, 0, 1, 2, 3];
        let slot = |s: usize, below: usize| {
            if s % k < count[s / k] as usize { (s * 5 % below) as u32 } else { NONE }
        };
        let row: Vec<u32> = (0..n * k).map(|s| slot(s, u)).collect();
        let event: Vec<u32> = (0..n * k).map(|s| slot(s, e)).collect();
        let dt: Vec<f32> = drawn(n * k, 6).iter().map(|x| x + 1.0).collect();
        let rows = AttentionRows {
            heads,
            head_width: 2,
            width: d,
            edge_width: f,
            query: &query,
            h: &h,
            row: &row,
            event: &event,
            dt: &dt,
            count: &count,
            edge: &edge,
            time_w: &time_w,
            time_b: &time_b,
        };
        let out = temporal_attention(&rows).unwrap();
        for (i, &found) in count.iter().enumerate() {
            let want = f32::from(u8::from(found > 0));
            assert!(out.sum[i * heads..][..heads].iter().all(|s| (s - want).abs() < 1e-6), "{:?}", out.sum);
            let mixed = &out.mix[i * heads * c..][..heads * c];
            assert!(want > 0.0 || mixed.iter().all(|&x| x == 0.0));
        }
        // A root with a single neighbour mixes that neighbour's row.
        let phi = |j: usize| (time_w[j] * dt[2 * k] + time_b[j]).cos();
        let z =
            h[row[2 * k] as usize * d..][..d].iter().chain(&edge[event[2 * k] as usize * f..][..f]).copied();
        let z: Vec<f32> = z.chain((0..t).map(phi)).collect();
        assert!(out.mix[2 * heads * c..][..c].iter().zip(&z).all(|(a, b)| (a - b).abs() < 1e-6));
        let (dmix, dsum) = (drawn(out.mix.len(), 8), drawn(out.sum.len(), 9));
        let g = temporal_attention_grad(&rows, &out.weight, &dmix, &dsum).unwrap();
        let loss = |rows: &AttentionRows<'_>| weighted_sum(&temporal_attention(rows).unwrap().mix, &dmix);
        check_gradient("query", &query, &g.query, |x| loss(&AttentionRows { query: x, ..rows }));
        check_gradient("time_w", &time_w, &g.time_w, |x| loss(&AttentionRows { time_w: x, ..rows }));
        check_gradient("time_b", &time_b, &g.time_b, |x| loss(&AttentionRows { time_b: x, ..rows }));
        if d > 0 {
            check_gradient("h", &h, &g.h, |x| loss(&AttentionRows { h: x, ..rows }));
        }
        let count = [4u32, 0, 1, 2, 3];
        let e = temporal_attention(&AttentionRows { count: &count, ..rows }).unwrap_err();
        assert_eq!(e.to_string(), "temporal_attention: row 0 of `count` is 4, and there are fewer slots");
        refused(temporal_attention(&AttentionRows { heads: 0, ..rows }), "0 heads");
        let wider = AttentionRows { edge_width: f + 1, ..rows };
        refused(temporal_attention(&wider), &format!("and a time encoding of width {t}"));
        let longer = [&time_w[..], &[0.0]].concat();
        refused(
            temporal_attention(&AttentionRows { time_w: &longer, ..rows }),
            "temporal_attention: query has ",
        );
        refused(
            temporal_attention(&AttentionRows { time_b: &longer, ..rows }),
            &format!("temporal_attention: time_b has {} elements, want {t}", t + 1),
        );
        refused(
            temporal_attention(&AttentionRows { dt: &dt[1..], ..rows }),
            "temporal_attention: dt has 14 elements, want 15",
        );
        refused(
            temporal_attention(&AttentionRows { width: usize::MAX, ..rows }),
            "temporal_attention: query has ",
        );
    }
}
