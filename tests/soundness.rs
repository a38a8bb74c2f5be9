//! Attempts of safe code outside of the crate that must be refused: each of them once read or wrote memory
//! that was not its own, or gave meaningless results.
use crate::support::devices::device;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};
use tgnn::{
    autograd::{Alone, Lanes, Parameters, Program, ScaledInit},
    error::{ErrorKind, Result},
    ops::{Backend, Home, Node, Op, OpKind, Out, Tape, sample_neighbors::*},
    runtime::*,
};

const F32: Precision = Precision::F32;

fn rows(n: usize) -> Rows {
    Rows::fixed(n)
}

/// Returns a store with reals `x`, `[n, 1]`, a tape with `x + x`, and that sum.
fn doubled(n: usize) -> (Store, Tape, Var) {
    let mut store = Store::new(F32);
    let mut t = Tape::new(&store);
    let x = store.values("x", Spec::real(rows(n), 1), &vec![1.0f32; n]).unwrap();
    let x = t.stored(x).unwrap();
    let y = t.add(x, x).unwrap();
    (store, t, y)
}

fn refused<T>(got: Result<T>, text: &str) {
    let e = got.err().unwrap_or_else(|| panic!("not refused: {text}"));
    assert_eq!(e.kind(), ErrorKind::Shape, "{e}");
    assert!(e.to_string().contains(text), "{e}");
}

#[test]
fn a_program_runs_over_the_store_of_its_tape_alone() {
    let (mut store, t, y) = doubled(1000);
    let (mut other, _, foreign) = doubled(1);
    let mut program = Program::new(&t, &[y], F32, Backend::Cpu).unwrap();
    refused(program.run(&mut other), "its tape is over another store");
    refused(program.repeat(&mut other, 3, &mut |_| ()).map_err(|e| e.1), "its tape is over another store");
    let alone = Alone { op: &|_| true, runs: 1, timings: 1, cold: false, by_launch: false };
    refused(program.time_alone(&mut other, &alone, &mut |_| Ok(())), "its tape is over another store");
    program.run(&mut store).unwrap();
    assert_eq!(program.read::<f32>(y, &store).unwrap(), [2.0; 1000]);
    refused(program.read::<f32>(y, &other), "another store");
    refused(program.read::<f32>(foreign, &store), "another tape's");

    let mut doubles = Store::new(Precision::F64);
    refused(
        Program::new(&t, &[y], Precision::F64, Backend::Definition).unwrap().run(&mut doubles),
        "another store",
    );
    refused(Program::with_variants(&[], F32, &Device::cpu(1).unwrap()), "there is no tape");
    let (_, u, _) = doubled(3);
    let two = [(&t, Lanes::One), (&u, Lanes::One)];
    refused(Program::with_variants(&two, F32, &Device::cpu(1).unwrap()), "different stores");
}

#[test]
fn buffers_and_values_of_other_stores_and_tapes_are_refused() {
    let (mut store, mut t, y) = doubled(2);
    let (mut other, mut u, z) = doubled(2);
    let Home::Stored { id, .. } = t.home(t.nodes()[0].ins[0]) else { panic!("x is stored") };
    refused(other.read::<f32>(id), "another store's");
    refused(other.get_mut::<f32>(id), "another store's");
    refused(other.write(id, &[1.0f32, 2.0]), "another store's");
    refused(other.fetch(&[id]), "another store's");
    refused(u.stored(id), "another store's");
    refused(u.add(z, y), "another tape's");
    refused(t.backward(y, z, &[]), "another tape's");
    refused(Program::new(&t, &[z], F32, Backend::Cpu), "another tape's");
    // A count of another tape must not determine how many rows of this one are live.
    let count = store.values("count", Spec::count(), &[7u32]).unwrap();
    let count = t.stored(count).unwrap();
    let live = other.zeros("rows", Spec::real(Rows::live(9, count), 1)).unwrap();
    refused(u.stored(live), "another tape's");
}

#[test]
fn a_store_refuses_values_and_types_that_do_not_fit_its_buffers() {
    let mut store = Store::new(F32);
    let x = store.zeros("x", Spec::real(rows(2), 1)).unwrap();
    refused(store.read::<u32>(x), "x: holds F32");
    refused(store.read::<f64>(x), "x: holds F32");
    refused(store.get_mut::<i64>(x), "x: holds F32");
    refused(store.fill(x, 1u32), "x: holds F32");
    refused(store.write(x, &[1.0f32]), "x: 1 values of F32 for F32 [2, 1]");
    refused(store.values("y", Spec::ids(rows(2), 1), &[1.0f32, 2.0]), "y: 2 values of F32 for U32");
    refused(store.zeros("z", Spec::real(rows(usize::MAX / 2), 8)), "more than any memory holds");
    refused(store.table("t", Spec::real(rows(2), 1), Arc::new(vec![1u32, 2])), "a table of U32 for F32");
    refused(store.table("t", Spec::real(rows(3), 1), Arc::new(vec![1f32, 2.0])), "8 bytes for F32 [3, 1]");
    let t = store.table("t", Spec::real(rows(2), 1), Arc::new(vec![1f32, 2.0])).unwrap();
    refused(store.write(t, &[1.0f32, 2.0]), "is a table");
    refused(store.raw_mut(t), "is a table");
}

/// Bytes from an odd address.
struct Odd(Vec<u8>);
// SAFETY: the bytes never change or move. They are misaligned on purpose; `Store::table` must notice.
unsafe impl Bytes for Odd {
    fn bytes(&self) -> &[u8] {
        let odd = usize::from(self.0.as_ptr().addr().is_multiple_of(2));
        &self.0[odd..odd + 8]
    }
    fn dtype(&self) -> DType {
        DType::F32
    }
}

#[test]
fn a_table_that_is_not_aligned_is_refused() {
    let table = Arc::new(Odd(vec![0; 16]));
    refused(Store::new(F32).table("t", Spec::real(rows(2), 1), table), "is not aligned to 4 bytes");
}

/// An op whose claims about itself are set by the test.
#[derive(Debug, Default)]
struct Liar {
    out: Option<Out>,
    writes: Vec<usize>,
    view: bool,
    scratch: usize,
    reads_f64: bool,
}

impl Op for Liar {
    const NAME: &'static str = "liar";
    const KIND: OpKind = OpKind::Nn;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        Ok(vec![self.out.unwrap_or_else(|| ins[0].into())])
    }
    fn writes(&self, _: usize) -> Vec<usize> {
        self.writes.clone()
    }
    fn is_view(&self) -> bool {
        self.view
    }
    fn scratch(&self, _: &[Spec]) -> usize {
        self.scratch
    }
    fn define<R: tgnn::runtime::Real>(&self, io: &Io<'_>) {
        let x: f64 = if self.reads_f64 { io.input::<f64>(0).iter().sum() } else { 0.0 };
        io.out::<R>(0).fill(R::from_f64(x));
    }
}

#[test]
fn the_claims_of_an_op_are_checked_when_it_is_recorded() {
    let (mut store, mut t, y) = doubled(4);
    let out = |spec: Spec| Liar { out: Some(spec.into()), ..Liar::default() };
    refused(t.push(out(Spec::real(rows(usize::MAX / 2 + 1), 2)), &[y]), "more than any memory holds");
    refused(t.push(out(Spec::real(rows(1), usize::MAX)), &[y]), "more than any memory holds");
    // Live rows counted by a value that is no count, by another tape's value, and by an output that is no
    // count.
    refused(t.push(out(Spec::real(Rows::live(4, y), 1)), &[y]), "are counted by F32 [4, 1]");
    let (_, _, foreign) = doubled(1);
    refused(t.push(out(Spec::real(Rows::live(4, foreign), 1)), &[y]), "another tape's");
    let counted = Liar { out: Some(Out::counted_by(Spec::real(rows(4), 1), 0)), ..Liar::default() };
    refused(t.push(counted, &[y]), "which is no count");
    // Views that are longer than their input, or of another type.
    let view = |spec: Spec| Liar { view: true, ..out(spec) };
    refused(t.push(view(Spec::real(rows(5), 1)), &[y]), "no view of its first input");
    refused(t.push(view(Spec::times(rows(1))), &[y]), "no view of its first input");
    refused(t.push(view(Spec::times(rows(1))), &[]), "no view of its first input");
    refused(t.push(Liar { writes: vec![3], ..Liar::default() }, &[y]), "changes input 3 of 1");
    let id = store.zeros("state", Spec::real(rows(1), 1)).unwrap();
    let state = t.stored(id).unwrap();
    refused(t.push(Liar { writes: vec![0], ..Liar::default() }, &[state, state]), "given 2 times");
    let greedy = t.push(Liar { scratch: usize::MAX / 2, ..Liar::default() }, &[y]).unwrap();
    refused(Program::new(&t, &greedy, F32, Backend::Cpu), "more than any memory holds");
}

#[test]
fn an_op_in_the_place_of_another_must_have_its_operands() {
    let (mut store, mut t, y) = doubled(4);
    let longer = || Liar { out: Some(Spec::real(rows(5), 1).into()), ..Liar::default() };
    refused(t.replace("add", |_| Arc::new(longer())), "differs in its operands");
    let writes = || Liar { writes: vec![0], ..Liar::default() };
    refused(t.replace("add", |_| Arc::new(writes())), "differs in its operands");
    refused(
        t.replace("add", |_| Arc::new(Liar { view: true, ..Liar::default() })),
        "differs in its operands",
    );
    assert_eq!(t.replace("mul", |_| Arc::new(Liar::default())).unwrap(), 0);
    // It runs instead.
    assert_eq!(t.replace("add", |_| Arc::new(Liar::default())).unwrap(), 1);
    let mut program = Program::new(&t, &[y], F32, Backend::Definition).unwrap();
    program.run(&mut store).unwrap();
    assert_eq!(program.read::<f32>(y, &store).unwrap(), [0.0; 4]);
}

type Gradients = fn(&mut Tape, &Node, Var) -> Result<Vec<Option<Var>>>;

/// An op whose backward pass gives `gradients` of its inputs, in place of its outputs' gradients.
struct Giver(Gradients);

impl std::fmt::Debug for Giver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Giver")
    }
}

impl Op for Giver {
    const NAME: &'static str = "giver";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "x [n, d], index [n] ids -> out [n, d]";
    fn define<R: tgnn::runtime::Real>(&self, io: &Io<'_>) {
        io.out::<R>(0).copy_from_slice(io.input::<R>(0));
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        douts[0].map_or(Ok(vec![None, None]), |dout| (self.0)(t, node, dout))
    }
}

#[test]
fn gradients_of_another_number_or_shape_than_the_inputs_are_refused() {
    type Gives = fn(&mut Tape, &Node, Var) -> Result<Vec<Option<Var>>>;
    let minimized = |gives: Gives| {
        let mut store = Store::new(F32);
        let mut t = Tape::new(&store);
        let mut p = Parameters::new(&mut store, 1, 0.1)?;
        let w = p.add(&mut store, "w", 6, 2, ScaledInit::Constant(1.0))?;
        let index = t.input(&mut store, "index", Spec::ids(rows(6), 1), &[0u32; 6])?;
        let w = t.stored(w)?;
        let y = t.push1(Giver(gives), &[w, index])?;
        let loss = t.mean(y)?;
        p.minimize(&mut t, loss).map(drop)
    };
    minimized(|_, _, dout| Ok(vec![Some(dout), None])).unwrap();
    let wants = "giver: vjp gives";
    let cases: [(Gives, &str); 8] = [
        (|_, _, _| Ok(vec![]), "0 gradients, want one for each of 2 inputs"),
        (|_, _, dout| Ok(vec![Some(dout)]), "1 gradients"),
        (|_, _, dout| Ok(vec![Some(dout), None, None]), "3 gradients"),
        (
            |t, _, dout| Ok(vec![Some(t.mean(dout)?), None]),
            "F32 [1, 1] as the gradient of x, which is F32 [6, 2]",
        ),
        (|t, _, dout| Ok(vec![Some(t.prefix_rows(dout, rows(3))?), None]), "F32 [3, 2] as the gradient of x"),
        (|t, _, dout| Ok(vec![Some(t.fold_rows(dout, 2)?), None]), "F32 [3, 4] as the gradient of x"),
        (|_, node, _| Ok(vec![Some(node.ins[1]), None]), "U32 [6, 1] as the gradient of x"),
        (|_, _, dout| Ok(vec![None, Some(dout)]), "F32 [6, 2] as the gradient of index, which is U32 [6, 1]"),
    ];
    for (gives, text) in cases {
        refused(minimized(gives), &format!("{wants} {text}"));
    }
}

#[test]
fn an_op_cannot_read_reals_of_another_precision_than_the_programs() {
    let (mut store, mut t, y) = doubled(3);
    let z = t.push(Liar { reads_f64: true, ..Liar::default() }, &[y]).unwrap();
    let mut program = Program::new(&t, &z, F32, Backend::Cpu).unwrap();
    let ran = catch_unwind(AssertUnwindSafe(|| program.run(&mut store)));
    let text = *ran.expect_err("the op reads f64").downcast::<String>().expect("a text");
    assert!(text.contains("input 0 is F32 [3, 1] in a program of F32, not f64"), "{text}");
}

#[test]
fn values_that_were_not_kept_or_not_computed_yet_cannot_be_read() {
    let (mut store, mut t, y) = doubled(2);
    let z = t.add(y, y).unwrap();
    let mut program = Program::new(&t, &[z], F32, Backend::Cpu).unwrap();
    refused(program.read::<f32>(z, &store), "run the program once");
    program.run(&mut store).unwrap();
    refused(program.read::<f32>(y, &store), "is not kept");
    refused(program.rows(y, &store), "is not kept");
    refused(program.read::<u32>(z, &store), "not of u32");
    assert_eq!(program.read::<f32>(z, &store).unwrap(), [4.0, 4.0]);
    let x = t.nodes()[0].ins[0];
    assert_eq!(program.read::<f32>(x, &store).unwrap(), [1.0, 1.0], "a stored value can be read");
    program.repeat(&mut store, 2, &mut |_| ()).unwrap();
    refused(program.read::<f32>(z, &store), "run the program once");
}

#[test]
fn the_store_is_not_shown_while_lanes_run() {
    let mut store = Store::new(F32);
    let mut t = Tape::new(&store);
    let order = store.values("order", Spec::ids(rows(200), 1), &[0u32; 200]).unwrap();
    let clock = store.zeros("clock", Spec::ids(rows(1), 2)).unwrap();
    let sum = store.zeros("sum", Spec::real(rows(1), 1)).unwrap();
    let one = store.values("one", Spec::real(rows(1), 1), &[1f32]).unwrap();
    let [order, clock, s, one] = t.stored_all([order, clock, sum, one]).unwrap();
    let group = t.next_group(order, clock, 1).unwrap();
    let row = t.gather_rows(one, group.target).unwrap();
    let more = t.add(s, row).unwrap();
    t.write_rows(s, group.target, more).unwrap();
    let device = Device::cpu(2).unwrap();
    for (lanes, shown) in [(Lanes::One, 200), (Lanes::PREFETCH, 10)] {
        let mut program = Program::on_lanes(&t, &[], F32, &device, lanes).unwrap();
        let Home::Stored { id, .. } = t.home(clock) else { panic!("the clock is stored") };
        store.clear(id).unwrap();
        store.clear(sum).unwrap();
        let mut seen = Vec::new();
        program
            .repeat(&mut store, 200, &mut |done| {
                seen.extend(done.store.map(|store| (done.runs, store.read::<f32>(sum).unwrap()[0])));
            })
            .unwrap();
        assert_eq!((seen.len(), seen.last()), (shown, Some(&(200, 200.0))), "{lanes:?}");
        assert!(seen.iter().all(|&(runs, sum)| sum == runs as f32), "a store that is shown is not written");
    }
}

#[test]
fn two_parameters_of_the_same_name_are_refused() {
    let mut store = Store::new(F32);
    let mut p = Parameters::new(&mut store, 1, 0.1).unwrap();
    p.add(&mut store, "w", 1, 1, ScaledInit::Normal).unwrap();
    refused(p.add(&mut store, "w", 2, 3, ScaledInit::Normal), "two by the name w");
}

/// Samples neighbours for a batch whose event is `event`, which the stream of three events may lack, with
/// these offsets.
fn sampled(backend: Backend, event: u32, offsets: &[i64; 3]) -> Result<Vec<u32>> {
    let mut store = Store::new(F32);
    let mut t = Tape::new(&store);
    let entry = |time, node, event| Entry { time, node, event };
    let entries: Vec<i64> = bytemuck::cast_slice(&[
        entry(0, 1, 0),
        entry(5, 1, 1),
        entry(9, 1, 2),
        entry(0, 0, 0),
        entry(5, 0, 1),
        entry(9, 0, 2),
    ])
    .to_vec();
    let ids = |n, cols| Spec::ids(rows(n), cols);
    let stored = [
        store.values("offsets", Spec::times(rows(3)), offsets)?,
        store.values("entries", Entry::spec(6), &entries)?,
        store.values("position", ids(3, 2), &[0u32, 0, 1, 1, 2, 2])?,
        store.values("node", ids(3, 1), &[0u32, 1, 0])?,
        store.values("time", Spec::times(rows(3)), &[7i64, 100, 7])?,
        store.values("batch", ids(1, 1), &[event])?,
        store.values("now", ids(1, 2), &[0u32, 0])?,
    ];
    let [offsets, entries, position, node, time, batch, now] = t.stored_all(stored)?;
    let how =
        Sampling { k: 2, strategy: Strategy::Recent, history: History::Batch, gaps: Gaps::unlimited(1.0) };
    let tcsr = TcsrVars { offsets, entries, position };
    let near = t.sample_neighbors(tcsr, (node, time), (batch, now), 3, how)?;
    let mut program = Program::new(&t, &[near.event, near.count], F32, backend)?;
    program.run(&mut store)?;
    Ok([near.event, near.count]
        .map(|v| program.read::<u32>(v, &store).map(<[u32]>::to_vec))
        .into_iter()
        .flatten()
        .flatten()
        .collect())
}

#[test]
fn a_batch_beyond_the_stream_is_sampled_as_by_the_definition_and_lists_beyond_the_entries_are_refused() {
    let device = crate::support::devices::device(0);
    let backends = [Some(Backend::Cpu), device.as_ref().map(|d| Backend::Cuda(d.gpu.clone()))];
    for backend in backends.into_iter().flatten() {
        for event in [0, 2, 3, 1000, NONE - 1] {
            let want = sampled(Backend::Definition, event, &[0, 3, 6]).unwrap();
            assert_eq!(
                sampled(backend.clone(), event, &[0, 3, 6]).unwrap(),
                want,
                "event {event}, {backend:?}"
            );
        }
        for offsets in [[0, 3, 7], [0, -1, 6], [4, 3, 6], [0, i64::MAX, 6], [i64::MIN, 3, 6]] {
            for backend in [backend.clone(), Backend::Definition] {
                let e = sampled(backend, 2, &offsets).expect_err("lists beyond the entries");
                assert!(e.to_string().contains("sample_neighbors: row"), "{e}");
            }
        }
    }
}

/// Fills a table with each value, after runs that have written to it, and sometimes fetches it in between.
#[test]
fn a_filled_buffer_holds_the_value_on_the_host_and_for_the_next_run_on_a_device() {
    let devices = device(0).map(|on| Backend::Cuda(on.gpu.clone()));
    for backend in [Some(Backend::Cpu), devices].into_iter().flatten() {
        let mut store = Store::new(F32);
        let mut t = Tape::new(&store);
        let index = t.input(&mut store, "index", Spec::ids(rows(1), 1), &[1u32]).unwrap();
        let written = t.input(&mut store, "rows", Spec::ids(rows(1), 1), &[7u32]).unwrap();
        let id = store.zeros("table", Spec::ids(rows(3), 1)).unwrap();
        let table = t.stored(id).unwrap();
        t.write_rows(table, index, written).unwrap();
        let mut program = Program::new(&t, &[], F32, backend).unwrap();
        for (i, value) in [0, 0, 9, NONE, NONE, 0, 0x0101_0101].into_iter().enumerate() {
            for fetches in [false, true] {
                store.fill(id, value).unwrap();
                assert_eq!(store.read::<u32>(id).unwrap(), [value; 3], "{i}");
                program.run(&mut store).unwrap();
                if fetches {
                    store.fetch(&[id]).unwrap();
                    assert_eq!(store.read::<u32>(id).unwrap(), [value, 7, value], "{i}");
                }
            }
            store.clear(id).unwrap();
            store.get_mut::<u32>(id).unwrap()[0] = 5;
            program.run(&mut store).unwrap();
            store.fetch(&[id]).unwrap();
            assert_eq!(store.read::<u32>(id).unwrap(), [5, 7, 0], "{i}");
        }
    }
}
