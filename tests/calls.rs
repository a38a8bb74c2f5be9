//! Calls of single ops over the caller's own memory: agreement with programs, and operands that do not fit.
use crate::support::refused;
use std::collections::HashMap;
use tgnn::{
    autograd::Program,
    error::{ErrorKind, Result},
    ops::{
        Backend, Built, Call, Case, CaseBuilder, Home, Node, Op, OpKind, Out, cases, functions::on_threads,
        group_slots::GroupSlots, pointwise::Add,
    },
    runtime::*,
};

/// The live rows of a value, of any type.
#[derive(Clone, Debug)]
enum Values {
    F32(Vec<f32>),
    U32(Vec<u32>),
    I64(Vec<i64>),
    Bf16(Vec<half::bf16>),
    F16(Vec<half::f16>),
}

macro_rules! with_values {
    ($values:expr, $x:ident => $body:expr) => {
        match $values {
            Values::F32($x) => $body,
            Values::U32($x) => $body,
            Values::I64($x) => $body,
            Values::Bf16($x) => $body,
            Values::F16($x) => $body,
        }
    };
}

impl Values {
    fn zeros(spec: Spec) -> Self {
        let n = spec.len();
        match spec.dtype {
            DType::F32 => Values::F32(vec![0.0; n]),
            DType::U32 => Values::U32(vec![0; n]),
            DType::I64 => Values::I64(vec![0; n]),
            DType::Bf16 => Values::Bf16(vec![half::bf16::ZERO; n]),
            DType::F16 => Values::F16(vec![half::f16::ZERO; n]),
        }
    }
    fn stored(store: &Store, id: BufferId) -> Self {
        match store.spec(id).dtype {
            DType::F32 => Values::F32(store.read(id).unwrap().to_vec()),
            DType::U32 => Values::U32(store.read(id).unwrap().to_vec()),
            DType::I64 => Values::I64(store.read(id).unwrap().to_vec()),
            DType::Bf16 => Values::Bf16(store.read(id).unwrap().to_vec()),
            DType::F16 => Values::F16(store.read(id).unwrap().to_vec()),
        }
    }
    /// Returns the first `n` elements as f64.
    fn numbers(&self, n: usize) -> Vec<f64> {
        match self {
            Values::F32(x) => x[..n].iter().map(|&x| x.into()).collect(),
            Values::U32(x) => x[..n].iter().map(|&x| x.into()).collect(),
            Values::I64(x) => x[..n].iter().map(|&x| x as f64).collect(),
            Values::Bf16(x) => x[..n].iter().map(|&x| x.into()).collect(),
            Values::F16(x) => x[..n].iter().map(|&x| x.into()).collect(),
        }
    }
}

/// A tape interpreted by calls: the values computed so far.
struct Interpreter {
    values: HashMap<Var, Values>,
}

impl Interpreter {
    fn live_rows(&self, rows: Rows) -> usize {
        rows.live.map_or(rows.capacity, |live| match &self.values[&live.var] {
            Values::U32(count) => (count[0] as usize * live.times).min(rows.capacity),
            other => panic!("{other:?} is no count"),
        })
    }
    /// Runs a node as a call on its live rows. Returns false if the call is refused because the op itself
    /// names counts of its tape.
    fn run(&mut self, c: &CaseBuilder, node: &Node) -> bool {
        let specs = c.tape.specs(&node.ins);
        let mut ins: Vec<Values> = node.ins.iter().map(|v| self.values[v].clone()).collect();
        let rows: Vec<usize> = specs.iter().map(|spec| self.live_rows(spec.rows)).collect();
        let mut outs = Vec::new();
        let mut scratch;
        {
            let mut call = Call::new(&*node.op);
            for (i, values) in ins.iter_mut().enumerate() {
                let (shape, state) = ([rows[i], specs[i].cols], node.writes.contains(&i));
                let n = if state { specs[i].rows.capacity } else { rows[i] };
                let given = with_values!(values, x => {
                    let x = &mut x[..n * specs[i].cols];
                    if state { call.state(x, [n, specs[i].cols]) } else { call.input(x, shape) }
                });
                call = given.unwrap();
            }
            match call.outputs() {
                Ok(specs) => outs.extend(specs.iter().map(|&spec| Values::zeros(spec))),
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::Shape, "{e}");
                    return false;
                }
            }
            for values in &mut outs {
                call = with_values!(values, x => call.output(x)).unwrap();
            }
            scratch = vec![f32::NAN; call.scratch_len().unwrap() + 1];
            call.scratch(&mut scratch).unwrap().run().unwrap();
        }
        assert!(scratch.last().is_some_and(|x| x.is_nan()), "{}: beyond the scratch", node.op.name());
        for &w in &node.writes {
            self.values.insert(node.ins[w], ins[w].clone());
        }
        self.values.extend(node.outs.iter().copied().zip(outs));
        true
    }
}

/// Runs a case by calls and as a program, and compares all values. Returns the names of the ops that ran.
fn compare(case: &Case) -> Vec<&'static str> {
    let mut c = CaseBuilder::new(Precision::F32, case.inputs);
    let Built { outs, wrt, .. } = (case.build)(&mut c, case.dims).unwrap();
    let real = outs.iter().filter(|&&y| !wrt.is_empty() && c.tape.spec(y).dtype == DType::F32);
    let pairs: Vec<(Var, Var)> = real
        .copied()
        .collect::<Vec<_>>()
        .into_iter()
        .map(|y| {
            let spec = c.tape.spec(y);
            (y, c.values(spec, &vec![0.5f32; spec.len()]))
        })
        .collect();
    c.tape.backward_many(&pairs).unwrap();
    let nodes: Vec<Node> = c.tape.nodes().to_vec();
    let mut keep = Vec::new();
    let mut by_calls = Interpreter { values: HashMap::new() };
    let values = || nodes.iter().flat_map(|n| n.ins.iter().chain(&n.outs)).chain(&outs).copied();
    let counts = values().filter_map(|v| Some(c.tape.spec(v).rows.live?.var));
    for v in values().chain(counts) {
        match c.tape.home(v) {
            Home::Stored { id, .. } => _ = by_calls.values.insert(v, Values::stored(&c.store, id)),
            Home::Step => keep.push(v),
        }
    }
    let mut program = Program::new(&c.tape, &keep, Precision::F32, Backend::Cpu).unwrap();
    program.run(&mut c.store).unwrap();
    let mut ran = Vec::new();
    for node in &nodes {
        if !by_calls.run(&c, node) {
            break;
        }
        ran.push(node.op.name());
        for &v in node.outs.iter().chain(node.writes.iter().map(|&w| &node.ins[w])) {
            let spec = c.tape.spec(v);
            let n = by_calls.live_rows(spec.rows) * spec.cols;
            let want = match c.tape.home(v) {
                Home::Stored { id, .. } => Values::stored(&c.store, id),
                Home::Step => match spec.dtype {
                    DType::F32 => Values::F32(program.read(v, &c.store).unwrap().to_vec()),
                    DType::U32 => Values::U32(program.read(v, &c.store).unwrap().to_vec()),
                    _ => Values::I64(program.read(v, &c.store).unwrap().to_vec()),
                },
            };
            let written_later = nodes.iter().filter(|n| n.writes.iter().any(|&w| n.ins[w] == v)).count() > 1;
            if written_later {
                continue;
            }
            let (got, want) = (by_calls.values[&v].numbers(n), want.numbers(n));
            let allowed = if spec.dtype == DType::F32 { 1e-4 } else { 0.0 };
            let largest = want.iter().fold(0.0f64, |m, x| m.max(x.abs()));
            let off = got.iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(off <= allowed * largest, "{case}: {}, {v}: {off} of {largest}", node.op.name());
        }
    }
    ran
}

#[test]
fn calls_of_the_ops_of_every_case_agree_with_its_program() {
    let mut ran: Vec<&str> =
        cases().iter().filter(|c| c.dims.iter().all(|&n| n <= 200)).flat_map(compare).collect();
    ran.sort_unstable();
    ran.dedup();
    assert!(ran.len() > 60, "only these ops ran: {ran:?}");
}

#[test]
fn operands_that_do_not_fit_are_refused_with_what_was_found_and_expected() {
    let (a, ids, mut out) = ([1.0f32, 2.0], [1u32, 2], [0.0f32; 2]);
    let call = || Call::new(&Add);
    refused(call().input(&a, [3, 1]), "add: a has 2 elements, want 3 for F32 [3, 1]");
    refused(call().input(&a, [usize::MAX, 2]), "more than any memory holds");
    refused(call().input(&[1.0f64, 2.0], [2, 1]), "add: a holds f64, want F32 [2, 1]");
    let one = || call().input(&a, [2, 1]).unwrap();
    refused(one().outputs(), "add: 1 inputs, want 2: a, b");
    refused(one().input(&ids, [2, 1]).unwrap().outputs(), "add: b is U32 [2, 1], want F32 [2, 1]");
    let two = || one().input(&a, [2, 1]).unwrap();
    assert_eq!(two().outputs().unwrap(), [Spec::real(Rows::fixed(2), 1)]);
    assert_eq!(two().scratch_len().unwrap(), 0);
    refused(two().run(), "add: 0 outputs, want 1");
    refused(two().output(&mut out[..1]), "add: output out has 1 elements, want 2 for F32 [2, 1]");
    refused(two().output(&mut [0u32; 2]), "add: output out holds u32, want F32 [2, 1]");
    refused(two().ignore().unwrap().ignore(), "add: 2 outputs, want 1");
    refused(two().ignore().unwrap().input(&a, [2, 1]), "input 2 is given after the shapes were asked for");
    refused(
        one().state(&mut out, [2, 1]).unwrap().outputs(),
        "given as state: b, changed by the op: nothing",
    );
    two().output(&mut out).unwrap().run().unwrap();
    assert_eq!(out, [2.0, 4.0]);
    two().ignore().unwrap().run().unwrap();
}

/// `x += by`, for the rows with an index that is not too large.
#[derive(Debug)]
struct AddTo {
    declared: bool,
}

impl Op for AddTo {
    const NAME: &'static str = "add_to";
    const KIND: OpKind = OpKind::Nn;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        Ok(vec![Out::counted_by(ins[1], 1), Spec::count().into()])
    }
    fn writes(&self, _: usize) -> Vec<usize> {
        if self.declared { vec![0] } else { vec![] }
    }
    fn scratch(&self, _: &[Spec]) -> usize {
        3
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (x, by) = (io.state::<R>(0), io.input::<R>(1));
        assert_eq!(io.scratch::<R>().len(), 3);
        x.iter_mut().zip(by).for_each(|(x, &by)| *x += by);
        io.out::<R>(0)[0] = R::from_f64(7.0);
        io.out::<u32>(1)[0] = 1;
        if by.iter().any(|by| by.f64() > 100.0) {
            io.row_of(1, 1000, 10);
        }
        if by.iter().any(|by| by.f64().is_nan()) {
            io.fault(2, Fault::NotFinite(f32::NAN));
        }
    }
}

#[test]
fn state_changes_in_place_counted_outputs_have_their_capacity_and_scratch_has_its_size() {
    let op = AddTo { declared: true };
    let (mut x, mut out, mut count) = ([1.0f32, 2.0], [0.0f32; 2], [0u32]);
    let mut scratch = [0.0; 5];
    Call::new(&op)
        .state(&mut x, [2, 1])
        .unwrap()
        .input(&[10.0f32, 20.0], [2, 1])
        .unwrap()
        .output(&mut out)
        .unwrap()
        .output(&mut count)
        .unwrap()
        .scratch(&mut scratch)
        .unwrap()
        .run()
        .unwrap();
    assert_eq!((x, out, count), ([11.0, 22.0], [7.0, 0.0], [1]));
    let call = Call::new(&op).state(&mut x, [2, 1]).unwrap().input(&[0.0f32; 2], [2, 1]).unwrap();
    assert_eq!(call.scratch_len().unwrap(), 3);
    refused(call.scratch(&mut [0.0; 2]), "add_to: 2 reals of scratch, want 3");
    let read = Call::new(&op).input(&out, [2, 1]).unwrap().input(&out, [2, 1]).unwrap();
    refused(read.outputs(), "given as state: nothing, changed by the op: input 0");
    let undeclared = AddTo { declared: false };
    let call = Call::new(&undeclared).state(&mut x, [2, 1]).unwrap().input(&out, [2, 1]).unwrap();
    refused(call.outputs(), "given as state: input 0, changed by the op: nothing");
}

#[test]
fn faults_are_the_errors_of_a_program() {
    let fails = |by: f32| {
        let mut x = [0.0f32; 1];
        let op = AddTo { declared: true };
        let by = [by];
        let call = Call::new(&op).state(&mut x, [1, 1]).unwrap().input(&by, [1, 1]).unwrap();
        call.ignore().unwrap().ignore().unwrap().run().unwrap_err()
    };
    let e = fails(101.0);
    assert_eq!(
        (e.kind(), e.to_string().as_str()),
        (ErrorKind::Data, "add_to: row 1 names row 1000 of a smaller table")
    );
    let e = fails(f32::NAN);
    assert!(e.kind() == ErrorKind::Diverged && e.to_string().starts_with("add_to: row 2 is NaN"), "{e}");
    // Counts that belong to a tape mean nothing to a call.
    let mut c = CaseBuilder::new(Precision::F32, MatmulPrecision::F32);
    let count = c.count(1);
    let op = GroupSlots::new(Rows::live(3, count), false);
    refused(Call::new(&op).input(&[1u32; 2], [2, 1]).unwrap().outputs(), "1 inputs, want 2");
}

#[test]
fn threads_of_a_call_do_not_change_its_bits() {
    let n = 100_000;
    let x: Vec<f32> = (0..n).map(|i| (i as f32).sin()).collect();
    let run = |threads: usize| {
        let mut y = vec![0.0; n];
        let call = Call::new(&Add).input(&x, [n, 1]).unwrap().input(&x, [n, 1]).unwrap();
        call.output(&mut y).unwrap().run_on_threads(threads).unwrap();
        y
    };
    let [one, three, again] = [1, 3, 3].map(run);
    assert!(one == three && three == again && one[1] == 2.0 * x[1]);
    let e = Call::new(&Add).run_on_threads(1 << 20).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Usage);
    assert_eq!(on_threads(3, team::threads).unwrap(), 3);
}

/// Every op says what its operands are called, and refuses one of the wrong type by that name.
#[test]
fn errors_call_the_operands_of_every_op_by_their_names() {
    let mut silent = Vec::new();
    for case in cases() {
        let mut c = CaseBuilder::new(Precision::F32, MatmulPrecision::F32);
        (case.build)(&mut c, case.dims).unwrap();
        for node in c.tape.nodes() {
            let ins = c.tape.specs(&node.ins);
            for i in 0..ins.len() {
                let name = node.op.input_name(i);
                assert!(!name.starts_with("input "), "{}: {name}", node.op.name());
                let mut wrong = ins.clone();
                wrong[i].dtype = if ins[i].dtype == DType::I64 { DType::U32 } else { DType::I64 };
                let Err(e) = node.op.infer(&wrong) else { continue };
                let word = name.split(' ').next().unwrap();
                let text = e.to_string().replace(' ', "_").to_lowercase();
                if !text.contains(&word.to_lowercase()) {
                    silent.push(format!("{}: {name}: {e}", node.op.name()));
                }
            }
            for k in 0..node.outs.len() {
                assert_ne!(node.op.output_name(k), "");
            }
        }
    }
    silent.sort();
    silent.dedup();
    assert!(silent.is_empty(), "{}", silent.join("\n"));
}
