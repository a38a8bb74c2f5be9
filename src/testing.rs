//! Checks that every op must pass, driven by the op's cases. Crates that use this one may check their own
//! ops.
use crate::{
    autograd::Program,
    error::Result,
    ops::{Backend, Built, Case, CaseBuilder, Home, Tape},
    runtime::*,
};
use std::ops::Range;

/// What changes the tape of a case before it becomes a program.
pub type Edit<'a> = &'a dyn Fn(&mut Tape) -> Result<()>;

/// Leaves the tape as it is.
const AS_IT_IS: Edit<'static> = &|_| Ok(());

/// A case with its backward pass, ready to run.
struct Ready {
    built: Built,
    store: Store,
    program: Program,
    /// The real outputs, with the buffers of their upstream gradients.
    seeds: Vec<(Var, BufferId)>,
    /// Gradients of the differentiated inputs that the program keeps.
    grads: Vec<Var>,
}

/// Returns the buffer of an input of a case.
fn stored(c: &CaseBuilder, v: Var) -> BufferId {
    match c.tape.home(v) {
        Home::Stored { id, .. } => id,
        Home::Step => unreachable!("inputs of a case are stored"),
    }
}

/// Builds `case` with its backward pass, and returns it with the buffers of its differentiated inputs,
/// followed by those of its states. `kept_grads` is the range of gradients that the program keeps, so that it
/// need not compute the others; `None` keeps all.
fn ready(
    case: &Case,
    precision: Precision,
    backend: Backend,
    kept_grads: Option<Range<usize>>,
    edit: Edit<'_>,
) -> Result<(Ready, Vec<BufferId>)> {
    let mut c = CaseBuilder::new(precision, case.inputs);
    let built = (case.build)(&mut c, case.dims)?;
    let mut seeds = Vec::new();
    let mut pairs = Vec::new();
    if !built.wrt.is_empty() {
        for &y in &built.outs {
            let spec = c.tape.spec(y);
            if spec.dtype != DType::F32 {
                continue;
            }
            let values: Vec<f32> = (0..spec.len()).map(|_| c.uniform()).collect();
            let dy = c.values(spec, &values);
            seeds.push((y, stored(&c, dy)));
            pairs.push((y, dy));
        }
    }
    let all_grads = c.tape.backward_many(&pairs)?;
    let grads: Vec<Var> = built
        .wrt
        .iter()
        .map(|x| {
            let grad = all_grads.get(x).copied();
            grad.ok_or_else(|| crate::error::Error::shape(case.op, "an input has no gradient"))
        })
        .collect::<Result<_>>()?;
    let grads = match kept_grads {
        Some(range) => grads[range].to_vec(),
        None => grads,
    };
    let keep: Vec<Var> = built.outs.iter().chain(&grads).copied().collect();
    let inputs = built.wrt.iter().map(|&x| stored(&c, x)).collect();
    edit(&mut c.tape)?;
    let program = Program::new(&c.tape, &keep, precision, backend)?;
    let states = built.states.iter().map(|&s| stored(&c, s)).collect::<Vec<_>>();
    let ready = Ready { built: Built { states: Vec::new(), ..built }, store: c.store, program, seeds, grads };
    Ok((ready, [inputs, states].concat()))
}

/// Reads the live rows of a value, as f64.
fn read(r: &Ready, v: Var, dtype: DType) -> Result<Vec<f64>> {
    let (program, store) = (&r.program, &r.store);
    Ok(match (dtype, store.precision()) {
        (DType::F32, Precision::F64) => program.read::<f64>(v, store)?.to_vec(),
        (DType::F32, Precision::F32) => program.read::<f32>(v, store)?.iter().map(|&x| x.into()).collect(),
        (DType::U32, _) => program.read::<u32>(v, store)?.iter().map(|&x| x.into()).collect(),
        (DType::I64, _) => program.read::<i64>(v, store)?.iter().map(|&x| x as f64).collect(),
        (DType::Bf16 | DType::F16, _) => unreachable!("a step computes no reals of 16 bits"),
    })
}

/// Everything that a run of a case produces: outputs, gradients and state. Numbers stored in 16 bits do not
/// count as real: they must be the same on every path, bit for bit.
pub type Results = Vec<Outcome>;

/// The name of a result, whether its numbers are real, and the numbers.
pub(crate) type Outcome = (String, bool, Vec<f64>);

/// Runs the forward and backward pass of `case`.
///
/// # Errors
/// Those of the op.
pub fn run(case: &Case, precision: Precision, backend: Backend) -> Result<Results> {
    let (r, buffers) = ready(case, precision, backend, None, AS_IT_IS)?;
    results(r, &buffers)
}

/// Does the same as [`run`], after a run of the same program with upstream gradients of zero.
///
/// # Errors
/// Those of the op.
pub fn run_again(case: &Case, precision: Precision, backend: Backend) -> Result<Results> {
    let (mut r, buffers) = ready(case, precision, backend, None, AS_IT_IS)?;
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    for &(_, id) in &r.seeds {
        seeds.push(r.store.raw(id)?.to_vec());
        r.store.clear(id)?;
    }
    r.program.run(&mut r.store)?;
    for (&(_, id), seed) in r.seeds.iter().zip(&seeds) {
        r.store.raw_mut(id)?.copy_from_slice(seed);
    }
    results(r, &buffers)
}

/// Runs the program and returns its results.
fn results(mut r: Ready, buffers: &[BufferId]) -> Result<Results> {
    r.program.run(&mut r.store)?;
    let mut results = Results::new();
    let spec_of = |r: &Ready, v: Var| r.program.spec(v);
    for (i, v) in r.built.outs.clone().into_iter().enumerate() {
        let dtype = spec_of(&r, v).dtype;
        results.push((format!("output {i}"), dtype == DType::F32, read(&r, v, dtype)?));
    }
    for (i, v) in r.grads.clone().into_iter().enumerate() {
        results.push((format!("gradient {i}"), true, read(&r, v, DType::F32)?));
    }
    for id in &buffers[r.built.wrt.len()..] {
        let dtype = r.store.spec(*id).dtype;
        let values = match dtype {
            DType::F32 | DType::Bf16 | DType::F16 => r.store.read_f64(*id)?,
            DType::U32 => r.store.read::<u32>(*id)?.iter().map(|&x| x.into()).collect(),
            DType::I64 => r.store.read::<i64>(*id)?.iter().map(|&x| x as f64).collect(),
        };
        results.push((r.store.name(*id).to_owned(), dtype == DType::F32, values));
    }
    Ok(results)
}

/// Computes only the gradient of differentiated input `k`, by the fast path in f32. `None` if the case
/// differentiates fewer inputs.
///
/// # Errors
/// Those of the op.
pub fn gradient_alone(case: &Case, k: usize) -> Result<Option<Vec<f64>>> {
    let mut c = CaseBuilder::new(Precision::F32, case.inputs);
    if k >= (case.build)(&mut c, case.dims)?.wrt.len() {
        return Ok(None);
    }
    let (mut r, _) = ready(case, Precision::F32, Backend::Cpu, Some(k..k + 1), AS_IT_IS)?;
    r.program.run(&mut r.store)?;
    Ok(Some(read(&r, r.grads[0], DType::F32)?))
}

/// Returns the forward and backward pass of `case` as a program, the store of its inputs, and the state that
/// a run changes: for benches, which run the program many times.
///
/// # Errors
/// Those of the op.
pub fn program(case: &Case, backend: Backend) -> Result<(Program, Store, Vec<BufferId>)> {
    edited_program(case, backend, AS_IT_IS)
}

/// Does the same as [`program`], after `edit`.
///
/// # Errors
/// Those of the op and of `edit`.
pub fn edited_program(
    case: &Case,
    backend: Backend,
    edit: Edit<'_>,
) -> Result<(Program, Store, Vec<BufferId>)> {
    let (r, buffers) = ready(case, Precision::F32, backend, None, edit)?;
    let states = buffers[r.built.wrt.len()..].to_vec();
    Ok((r.program, r.store, states))
}

/// Returns the largest difference between central differences of the f64 definition and the gradients of the
/// backward pass in f64, over up to 40 elements of every differentiated input.
///
/// # Errors
/// Those of the op.
pub fn gradient_error(case: &Case) -> Result<f64> {
    // The second step size is for a kink (of a relu) between the two points of the first, where that is far
    // off; a wrong gradient fails with both.
    const STEPS: [f64; 2] = [1e-5, 1e-6];
    const FAR: f64 = 1e-9;
    let (mut whole, _) = ready(case, Precision::F64, Backend::Definition, None, AS_IT_IS)?;
    whole.program.run(&mut whole.store)?;
    let (mut r, inputs) = ready(case, Precision::F64, Backend::Definition, Some(0..0), AS_IT_IS)?; // only the forward pass
    r.program.run(&mut r.store)?;
    let mut upstream: Vec<f64> = Vec::new();
    for &(y, dy) in &r.seeds {
        let live = r.program.rows(y, &r.store)? * r.program.spec(y).cols;
        upstream.extend(&r.store.read::<f64>(dy)?[..live]);
    }
    let mut worst = 0.0f64;
    for (k, &grad) in whole.grads.iter().enumerate() {
        let got = read(&whole, grad, DType::F32)?;
        let n = got.len();
        for at in (0..n.min(40)).map(|i| i * n / n.min(40)) {
            let start = r.store.read::<f64>(inputs[k])?[at];
            let mut outputs = |x: f64| -> Result<Vec<f64>> {
                r.store.get_mut::<f64>(inputs[k])?[at] = x;
                r.program.run(&mut r.store)?;
                let outputs = r.seeds.iter().map(|&(y, _)| read(&r, y, DType::F32));
                Ok(outputs.collect::<Result<Vec<_>>>()?.concat())
            };
            let mut least = f64::INFINITY;
            for step in STEPS {
                let (high, low) = (outputs(start + step)?, outputs(start - step)?);
                // Each output has its own slope, so that outputs that do not depend on the input add no
                // rounding.
                let slopes = high.iter().zip(&low).map(|(h, l)| (h - l) / (2.0 * step));
                let slope: f64 = slopes.zip(&upstream).map(|(s, d)| s * d).sum();
                least = least.min(error(&[got[at]], &[slope]));
                if least <= FAR {
                    break;
                }
            }
            r.store.get_mut::<f64>(inputs[k])?[at] = start;
            worst = worst.max(least);
        }
    }
    Ok(worst)
}

/// Returns the largest difference, or infinity if the lengths differ or a difference is NaN.
pub fn error(got: &[f64], want: &[f64]) -> f64 {
    if got.len() != want.len() {
        return f64::INFINITY;
    }
    got.iter()
        .zip(want)
        .map(|(a, b)| if (a - b).is_nan() { f64::INFINITY } else { (a - b).abs() })
        .fold(0.0, f64::max)
}

/// Returns the largest magnitude.
pub fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0f64, |m, v| m.max(v.abs()))
}

/// Returns the allowed error of a fast path, relative to the largest magnitude of a result: twice the largest
/// relative error of the plain f32 definition over all results of the case, plus four ulp. It is never a
/// hand-picked number.
///
/// The error is taken over the whole case, because on a few numbers the plain path can be exact by chance.
pub fn allowance(plain: &Results, exact: &Results) -> f64 {
    let reals = plain.iter().zip(exact).filter(|(p, _)| p.1);
    2.0 * reals.map(|(p, e)| relative(p, e)).fold(0.0, f64::max) + 4.0 * f64::from(f32::EPSILON)
}

/// Returns the largest difference, relative to the largest magnitude in `want`.
fn relative(got: &Outcome, want: &Outcome) -> f64 {
    match largest(&want.2) {
        0.0 => 0.0,
        scale => error(&got.2, &want.2) / scale,
    }
}

/// The error of a result, and the allowed error.
#[derive(Clone, Debug, Default)]
pub struct Off {
    /// Name of the result.
    pub what: String,
    /// Largest difference from the f64 definition.
    pub error: f64,
    /// Largest allowed difference; 0 if the result is not real.
    pub allowed: f64,
}

impl Off {
    /// Returns whether the error is allowed.
    pub fn within(&self) -> bool {
        self.error <= self.allowed
    }
    /// Returns the error as a share of the allowed error: above 1 if it is not allowed.
    pub fn share(&self) -> f64 {
        if self.error == 0.0 { 0.0 } else { self.error / self.allowed.max(f64::MIN_POSITIVE) }
    }
}

impl std::fmt::Display for Off {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: the error is {:.1e}, the allowed error {:.1e}", self.what, self.error, self.allowed)
    }
}

/// Runs `case`, forward and backward, on `backend` in f32 and by its definition in f64. Returns the result
/// with the largest ratio of its error to its allowed error. Results that are not real must be exact; real
/// results may have an error up to their [`allowance`].
///
/// If products multiply in a format narrower than f32, with unit roundoff `u`, the allowed error is larger:
///
/// - The relative error of a product of two rounded operands is up to `2 u`. A case has at most two such
///   products in a row, one in the forward and one in the backward pass: `4 u`. Twice that is allowed; for
///   f32 the four ulp of `allowance` correspond to it.
/// - Sums that cancel have a larger relative error, and the gradient of a relu jumps where such a sum changes
///   its sign. This error is measured like that of the f32 path: twice the change of the f64 definition when
///   its inputs are rounded to the format. It is taken for each result by itself, because a jump in one says
///   nothing about another. It is zero if the inputs already have that format.
///
/// # Errors
/// Those of the op.
pub fn worst(case: &Case, backend: Backend) -> Result<Off> {
    edited_worst(case, backend, AS_IT_IS)
}

/// Does the same as [`worst`], with the run on `backend` after `edit`.
///
/// # Errors
/// Those of the op and of `edit`.
pub fn edited_worst(case: &Case, backend: Backend, edit: Edit<'_>) -> Result<Off> {
    let precision = backend.precision();
    let exact = run(case, Precision::F64, Backend::Definition)?;
    let plain = run(case, Precision::F32, Backend::Definition)?;
    let rounded = run(&case.with_inputs(precision), Precision::F64, Backend::Definition)?;
    let (found, buffers) = ready(case, Precision::F32, backend, None, edit)?;
    let found = results(found, &buffers)?;
    let allowed = allowance(&plain, &exact);
    let errors = exact.iter().zip(&found).zip(&rounded).map(|((want, got), rounded)| {
        let by_precision = match precision {
            MatmulPrecision::F32 => 0.0,
            _ => 8.0 * precision.unit_roundoff() + 2.0 * relative(rounded, want),
        };
        let allowed = if want.1 { (allowed + by_precision) * largest(&want.2) } else { 0.0 };
        Off { what: want.0.clone(), error: error(&got.2, &want.2), allowed }
    });
    Ok(errors.max_by(|a, b| a.share().total_cmp(&b.share())).unwrap_or_default())
}
