//! Ops with unintended operands: indices and counts of any value, and shapes and types that are almost right.
//! Kernels read and write at addresses that depend on these numbers, so each operand must be refused, raise a
//! fault, or do no harm.
use crate::support::devices::{TestDevice, device, soak};
use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};
use tgnn::{
    autograd::Program,
    error::{ErrorKind, Result},
    ops::{Backend, Built, Case, CaseBuilder, Cost, DynOp, Home, Node, Op, OpKind, Out, Tape, cases},
    runtime::{
        cuda::{Kernels, Launch},
        *,
    },
};

/// Larger cases show nothing more.
const MOST_NUMBERS: usize = 4_000;

/// A case with its backward pass: the values to keep, and the stored inputs.
struct Ready {
    c: CaseBuilder,
    keep: Vec<Var>,
    inputs: Vec<(Spec, BufferId)>,
}

fn ready(case: &Case) -> Ready {
    let mut c = CaseBuilder::new(Precision::F32, case.inputs);
    let Built { outs, wrt, .. } = (case.build)(&mut c, case.dims).unwrap();
    let mut pairs = Vec::new();
    for &y in outs.iter().filter(|_| !wrt.is_empty()) {
        let spec = c.tape.spec(y);
        if spec.dtype == DType::F32 {
            pairs.push((y, c.values(spec, &vec![0.5f32; spec.len()])));
        }
    }
    let grads = c.tape.backward_many(&pairs).unwrap();
    let keep = outs.into_iter().chain(wrt.iter().map(|x| grads[x])).collect();
    let mut inputs: Vec<(Spec, BufferId)> = Vec::new();
    for &v in c.tape.nodes().iter().flat_map(|n| &n.ins) {
        if let Home::Stored { id, .. } = c.tape.home(v)
            && inputs.iter().all(|i| i.1 != id)
        {
            inputs.push((c.tape.spec(v), id));
        }
    }
    Ready { c, keep, inputs }
}

/// Returns a small case of every op; up to six in a soak test.
fn small_cases() -> Vec<Case> {
    let each = if soak().is_some() { 6 } else { 1 };
    let mut taken = BTreeMap::new();
    let small = |case: &Case| {
        let numbers: usize = ready(case).inputs.iter().map(|(spec, _)| spec.len()).sum();
        numbers <= MOST_NUMBERS
    };
    let among_the_first = |case: &Case| {
        let n = taken.entry(case.op).or_insert(0);
        *n += 1;
        *n <= each
    };
    cases().into_iter().filter(small).filter(among_the_first).collect()
}

fn backends(on: Option<&TestDevice>) -> Vec<Backend> {
    let gpu = on.map(|on| Backend::Cuda(on.gpu.clone()));
    [Some(Backend::Definition), Some(Backend::Cpu), gpu].into_iter().flatten().collect()
}

/// Runs the tape. Returns what is wrong with the run; `None` if it succeeds or ends with a proper fault.
fn wrong(ready: &mut Ready, keep: &[Var], backend: &Backend, on: Option<&TestDevice>) -> Option<String> {
    let ran = catch_unwind(AssertUnwindSafe(|| {
        let mut program = Program::new(&ready.c.tape, keep, Precision::F32, backend.clone())?;
        program.run(&mut ready.c.store)
    }));
    let found = match ran {
        Ok(Ok(())) => return None,
        // `Comm`: counts of rows between ranks that do not fit.
        Ok(Err(e)) if matches!(e.kind(), ErrorKind::Data | ErrorKind::Diverged | ErrorKind::Comm) => {
            return None;
        }
        Ok(Err(e)) => format!("{:?}: {e}", e.kind()),
        Err(_) => "a panic".into(),
    };
    // Makes a lost device work again.
    on.inspect(|on| on.schedule(0));
    Some(found)
}

/// Fails if anything was found, with a line for each op and kind of finding.
fn assert_empty(found: BTreeMap<String, String>) {
    let lines: Vec<String> = found.into_iter().map(|(what, how)| format!("{what}: {how}")).collect();
    assert!(lines.is_empty(), "{}", lines.join("\n"));
}

/// Returns numbers at or beyond the limits of an index into a value with these rows, each to be written to
/// all elements (`true`) or to the last one alone.
fn wild(spec: Spec) -> Vec<(i64, bool)> {
    let rows = spec.rows.capacity as i64;
    let values = match spec.dtype {
        DType::U32 => vec![u32::MAX.into(), i64::from(u32::MAX) - 1, 1 << 30, rows + 1, rows, 1, 0],
        DType::I64 => vec![i64::MIN, -1, i64::MAX, 1 << 40, rows, 1, 0],
        _ => vec![],
    };
    values.into_iter().flat_map(|value| [(value, true), (value, false)]).collect()
}

/// Writes such a number into a buffer.
fn spoil(store: &mut Store, id: BufferId, (value, all): (i64, bool)) {
    let n = store.spec(id).len();
    let from = if all { 0 } else { n.saturating_sub(1) };
    match store.spec(id).dtype {
        DType::U32 => store.get_mut::<u32>(id).unwrap()[from..].fill(value as u32),
        _ => store.get_mut::<i64>(id).unwrap()[from..].fill(value),
    }
}

#[test]
fn an_index_or_a_count_of_any_value_is_a_fault_or_does_no_harm() {
    let on = device(0);
    let mut found = BTreeMap::new();
    for case in small_cases() {
        for (at, (spec, _)) in ready(&case).inputs.into_iter().enumerate() {
            for how in wild(spec) {
                for backend in backends(on.as_ref()) {
                    let mut ready = ready(&case);
                    let (keep, id) = (ready.keep.clone(), ready.inputs[at].1);
                    spoil(&mut ready.c.store, id, how);
                    if let Some(wrong) = wrong(&mut ready, &keep, &backend, on.as_ref()) {
                        let what = format!("{} on {backend:.3?}, input {at}", case.op);
                        found.entry(what).or_insert(format!("{case}, {how:?}: {wrong}"));
                    }
                }
            }
        }
    }
    assert_empty(found);
}

/// An op that is applied again, to other operands than its own.
#[derive(Debug)]
struct Again(Arc<dyn DynOp>);

impl Op for Again {
    const NAME: &'static str = "again";
    const KIND: OpKind = OpKind::Nn;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        self.0.infer(ins)
    }
    fn writes(&self, inputs: usize) -> Vec<usize> {
        self.0.writes(inputs)
    }
    fn is_view(&self) -> bool {
        self.0.is_view()
    }
    fn scratch(&self, ins: &[Spec]) -> usize {
        self.0.scratch(ins)
    }
    fn tickets(&self, ins: &[Spec]) -> usize {
        self.0.tickets(ins)
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        self.0.cost(ins, outs)
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        self.0.run(&Backend::Definition, R::PRECISION, io);
    }
    fn cpu(&self, io: &Io<'_>) {
        self.0.run(&Backend::Cpu, Precision::F32, io);
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        // SAFETY: the operands are those that the op itself accepted, in `infer`.
        unsafe { self.0.launch(k, on) }
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        self.0.vjp(t, node, douts)
    }
}

/// Returns specs that are almost `spec`; `count` is a value that can count live rows.
fn almost(spec: Spec, count: Var) -> Vec<Spec> {
    let Rows { capacity, live } = spec.rows;
    let types = [DType::F32, DType::U32, DType::I64, DType::Bf16].map(|dtype| Spec { dtype, ..spec });
    let widths = [0, spec.cols.saturating_sub(1), spec.cols + 1, 2 * spec.cols];
    let capacities = [0, capacity.saturating_sub(1), capacity + 1, 2 * capacity];
    let rows = Rows { capacity, live: if live.is_some() { None } else { Rows::live(capacity, count).live } };
    let widths = widths.map(|cols| Spec { cols, ..spec });
    let capacities = capacities.map(|capacity| Spec { rows: Rows { capacity, ..spec.rows }, ..spec });
    let specs = types.into_iter().chain(widths).chain(capacities).chain([Spec { rows, ..spec }]);
    specs.filter(|s| *s != spec).collect()
}

/// Appends node `at` once more with other operands and runs it. Returns what is wrong, and whether the node
/// was appended.
fn again(
    ready: &mut Ready,
    at: usize,
    ins: &[Var],
    backend: &Backend,
    on: Option<&TestDevice>,
) -> (Option<String>, bool) {
    let op = ready.c.tape.nodes()[at].op.clone();
    match catch_unwind(AssertUnwindSafe(|| ready.c.tape.push(Again(op), ins))) {
        Err(_) => (Some("a panic of infer".into()), false),
        Ok(Err(e)) if e.kind() == ErrorKind::Shape => (None, false),
        Ok(Err(e)) => (Some(format!("{:?}: {e}", e.kind())), false),
        Ok(Ok(outs)) => {
            let found = wrong(ready, &outs, backend, on);
            // A device may refuse a launch with such operands; only an illegal access is wrong.
            let refused = |how: &String| how.starts_with("Device") && !how.contains("ILLEGAL_ADDRESS");
            (found.filter(|how| !refused(how)), true)
        }
    }
}

/// Returns the operands of node `at` with the `nth` change of operand `i`, and a description; `None` after
/// the last change. The first change removes the operand. The last ones keep its shape and type and write
/// wild numbers, as an earlier op of the step might leave.
fn changed(ready: &mut Ready, at: usize, i: usize, nth: usize) -> Option<(Vec<Var>, String)> {
    let mut ins = ready.c.tape.nodes()[at].ins.clone();
    let count = ready.c.store.zeros("count", Spec::count()).unwrap();
    let count = ready.c.tape.stored(count).unwrap();
    if i == ins.len() {
        ins.push(count);
        return (nth == 0).then_some((ins, "one operand more".into()));
    }
    if nth == 0 {
        ins.remove(i);
        return Some((ins, "one operand less".into()));
    }
    let was = ready.c.tape.spec(ins[i]);
    let specs = almost(was, count);
    let (spec, content) = match specs.get(nth - 1) {
        Some(&spec) => (spec, None),
        None => (was, Some(*wild(was).get(nth - 1 - specs.len())?)),
    };
    let id = ready.c.store.zeros("other", spec).unwrap();
    content.iter().for_each(|&how| spoil(&mut ready.c.store, id, how));
    ins[i] = ready.c.tape.stored(id).unwrap();
    Some((ins, format!("{spec} of {content:?} for {was}")))
}

#[test]
fn operands_that_are_almost_right_are_refused_or_do_no_harm() {
    let on = device(0);
    let mut found = BTreeMap::new();
    for case in small_cases() {
        for backend in backends(on.as_ref()) {
            let mut now = ready(&case);
            for at in 0..now.c.tape.nodes().len() {
                let (name, inputs) = (now.c.tape.nodes()[at].op.name(), now.c.tape.nodes()[at].ins.len());
                for i in 0..=inputs {
                    for nth in 0.. {
                        let Some((ins, change)) = changed(&mut now, at, i, nth) else { break };
                        let (how, appended) = again(&mut now, at, &ins, &backend, on.as_ref());
                        if let Some(how) = how {
                            let what = format!("{name} on {backend:.3?}, input {i}");
                            found.entry(what).or_insert(format!("{case}, {change}: {how}"));
                        }
                        if appended {
                            now = ready(&case);
                        }
                    }
                }
            }
        }
    }
    assert_empty(found);
}
