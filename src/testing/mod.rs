//! The checks that every op passes, driven by its cases. Nothing here but the rivals knows any op; embedders may check
//! their own.
pub mod rivals;

use crate::{
    autograd::Program,
    error::Result,
    ops::{Backend, Built, Case, CaseBuilder, Home},
    runtime::*,
};
use std::ops::Range;

/// A case with its backward, ready to run.
struct Ready {
    built: Built,
    store: Store,
    program: Program,
    /// Upstream gradient of each real output.
    seeds: Vec<(Var, BufferId)>,
    grads: Vec<Var>,
}

fn stored(c: &CaseBuilder, v: Var) -> BufferId {
    match c.tape.home(v) {
        Home::Stored { id, .. } => id,
        Home::Step => unreachable!("inputs of a case are stored"),
    }
}

/// `only`: which gradients are kept, so that the program need not make the others; all without.
fn ready(
    case: &Case,
    precision: Precision,
    backend: Backend,
    only: Option<Range<usize>>,
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
    let all = c.tape.backward_many(&pairs)?;
    let grads: Vec<Var> = built
        .wrt
        .iter()
        .map(|x| {
            all.get(x).copied().ok_or_else(|| crate::error::Error::shape(case.op, "an input has no gradient"))
        })
        .collect::<Result<_>>()?;
    let grads = match only {
        Some(kept) => grads[kept].to_vec(),
        None => grads,
    };
    let keep: Vec<Var> = built.outs.iter().chain(&grads).copied().collect();
    let inputs = built.wrt.iter().map(|&x| stored(&c, x)).collect();
    let program = Program::new(&c.tape, &keep, precision, backend)?;
    let states = built.states.iter().map(|&s| stored(&c, s)).collect::<Vec<_>>();
    let ready = Ready { built: Built { states: Vec::new(), ..built }, store: c.store, program, seeds, grads };
    Ok((ready, [inputs, states].concat()))
}

fn read(r: &Ready, v: Var, dtype: DType) -> Result<Vec<f64>> {
    let (program, store) = (&r.program, &r.store);
    Ok(match (dtype, store.precision()) {
        (DType::F32, Precision::F64) => program.read::<f64>(v, store)?.to_vec(),
        (DType::F32, Precision::F32) => program.read::<f32>(v, store)?.iter().map(|&x| x.into()).collect(),
        (DType::U32, _) => program.read::<u32>(v, store)?.iter().map(|&x| x.into()).collect(),
        (DType::I64, _) => program.read::<i64>(v, store)?.iter().map(|&x| x as f64).collect(),
        (DType::Bf16 | DType::F16, _) => unreachable!("a step makes no reals of 16 bits"),
    })
}

/// Everything a run of a case produces, each with a name and whether it is real: outputs, gradients, state. What is kept
/// in 16 bits is not: it is the same on every path, bit for bit.
pub type Results = Vec<Outcome>;

/// A name, whether it is real, and the values.
pub type Outcome = (String, bool, Vec<f64>);

/// Runs forward and backward of `case`.
///
/// # Errors
/// As the op's.
pub fn run(case: &Case, precision: Precision, backend: Backend) -> Result<Results> {
    let (r, buffers) = ready(case, precision, backend, None)?;
    results(r, &buffers)
}

/// As [`run`], after a run of the same program whose upstream gradients were zero.
///
/// # Errors
/// As the op's.
pub fn run_again(case: &Case, precision: Precision, backend: Backend) -> Result<Results> {
    let (mut r, buffers) = ready(case, precision, backend, None)?;
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

/// The gradient of input `k` alone, by the fast path in f32: nobody asks for the others. `None` where the case
/// differentiates fewer inputs.
///
/// # Errors
/// As the op's.
pub fn gradient_alone(case: &Case, k: usize) -> Result<Option<Vec<f64>>> {
    let mut c = CaseBuilder::new(Precision::F32, case.inputs);
    if k >= (case.build)(&mut c, case.dims)?.wrt.len() {
        return Ok(None);
    }
    let (mut r, _) = ready(case, Precision::F32, Backend::Cpu, Some(k..k + 1))?;
    r.program.run(&mut r.store)?;
    Ok(Some(read(&r, r.grads[0], DType::F32)?))
}

/// Forward and backward of `case` as a program, the store of its inputs, and the state that a run changes: for
/// benches, which run it many times.
///
/// # Errors
/// As the op's.
pub fn program(case: &Case, backend: Backend) -> Result<(Program, Store, Vec<BufferId>)> {
    let (r, buffers) = ready(case, Precision::F32, backend, None)?;
    let states = buffers[r.built.wrt.len()..].to_vec();
    Ok((r.program, r.store, states))
}

/// Largest difference between central differences of the f64 definition and the f64 run of the appended backward,
/// over up to 40 elements of every differentiated input.
///
/// # Errors
/// As the op's.
pub fn gradient_error(case: &Case) -> Result<f64> {
    // The second step is for a kink (a relu) that the first one straddles; a wrong gradient fails both.
    const STEPS: [f64; 2] = [1e-5, 1e-6];
    let (mut whole, _) = ready(case, Precision::F64, Backend::Definition, None)?;
    whole.program.run(&mut whole.store)?;
    let (mut r, inputs) = ready(case, Precision::F64, Backend::Definition, Some(0..0))?; // forward alone
    let mut worst = 0.0f64;
    for (k, &grad) in whole.grads.iter().enumerate() {
        let got = read(&whole, grad, DType::F32)?;
        let n = got.len();
        for at in (0..n.min(40)).map(|i| i * n / n.min(40)) {
            let start = r.store.read::<f64>(inputs[k])?[at];
            let mut outputs = |x: f64| -> Result<Vec<f64>> {
                r.store.get_mut::<f64>(inputs[k])?[at] = x;
                r.program.run(&mut r.store)?;
                let all = r.seeds.iter().map(|&(y, _)| read(&r, y, DType::F32));
                Ok(all.collect::<Result<Vec<_>>>()?.concat())
            };
            // Output by output, so that those which do not depend on the input add no rounding.
            let slopes = STEPS.map(|step| -> Result<Vec<f64>> {
                let (high, low) = (outputs(start + step)?, outputs(start - step)?);
                Ok(high.iter().zip(&low).map(|(h, l)| (h - l) / (2.0 * step)).collect())
            });
            r.store.get_mut::<f64>(inputs[k])?[at] = start;
            let mut upstream: Vec<f64> = Vec::new();
            for &(y, dy) in &r.seeds {
                let live = r.program.rows(y, &r.store)? * r.program.spec(y).cols;
                upstream.extend(&r.store.read::<f64>(dy)?[..live]);
            }
            let mut least = f64::INFINITY;
            for slopes in slopes {
                let slope: f64 = slopes?.iter().zip(&upstream).map(|(s, d)| s * d).sum();
                least = least.min(error(&[got[at]], &[slope]));
            }
            worst = worst.max(least);
        }
    }
    Ok(worst)
}

/// Largest difference; a NaN is an infinite one.
pub fn error(got: &[f64], want: &[f64]) -> f64 {
    if got.len() != want.len() {
        return f64::INFINITY;
    }
    got.iter()
        .zip(want)
        .map(|(a, b)| if (a - b).is_nan() { f64::INFINITY } else { (a - b).abs() })
        .fold(0.0, f64::max)
}

/// Largest magnitude.
pub fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0f64, |m, v| m.max(v.abs()))
}

/// The allowance for a fast path, relative to the largest magnitude of what is compared: twice the worst relative
/// error of the plain f32 definition over everything the case makes, plus four ulp. Never a picked number.
///
/// Over the whole case, because on a handful of numbers the plain path can be exact by luck.
pub fn allowance(plain: &Results, exact: &Results) -> f64 {
    let reals = plain.iter().zip(exact).filter(|(p, _)| p.1);
    2.0 * reals.map(|(p, e)| relative(p, e)).fold(0.0, f64::max) + 4.0 * f64::from(f32::EPSILON)
}

/// Largest difference, relative to the largest magnitude of what is wanted.
fn relative(got: &Outcome, want: &Outcome) -> f64 {
    match largest(&want.2) {
        0.0 => 0.0,
        scale => error(&got.2, &want.2) / scale,
    }
}

/// How far a result is off, and how far it may be.
#[derive(Clone, Debug, Default)]
pub struct Off {
    /// Which result.
    pub what: String,
    /// Largest difference from the definition in f64.
    pub error: f64,
    /// Largest one that is allowed: none where the result is not real.
    pub allowed: f64,
}

impl Off {
    /// Whether it is right.
    pub fn within(&self) -> bool {
        self.error <= self.allowed
    }
    fn ratio(&self) -> f64 {
        self.error / self.allowed.max(f64::MIN_POSITIVE)
    }
}

impl std::fmt::Display for Off {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} is off by {:.1e}, {:.1e} is allowed", self.what, self.error, self.allowed)
    }
}

/// Runs `case`, forward and backward, on `backend` in f32 and by its definition in f64; returns the result that comes closest
/// to its allowance, or is the furthest beyond. What is not real may be off by nothing, a real by its [`allowance`].
///
/// Where products multiply in less than f32, with unit roundoff `u`, a result may be off by more:
///
/// - A product of two rounded operands is off by up to `2 u` of itself, and a case has at most two in a row, a forward and
///   a backward one: `4 u`. Allowed is twice that; for f32 it would be the four ulp of `allowance`.
/// - Sums that cancel are off by more of themselves, and a relu's gradient jumps where such a sum gets another sign. That
///   is measured as the f32 path's error is: twice what the definition in f64 changes on inputs rounded to the format,
///   result by result, for a jump in one says nothing of another. It is nothing where the inputs have that format.
///
/// # Errors
/// As the op's.
pub fn worst(case: &Case, backend: Backend) -> Result<Off> {
    let precision = backend.precision();
    let exact = run(case, Precision::F64, Backend::Definition)?;
    let plain = run(case, Precision::F32, Backend::Definition)?;
    let rounded = run(&case.with_inputs(precision), Precision::F64, Backend::Definition)?;
    let found = run(case, Precision::F32, backend)?;
    let allowed = allowance(&plain, &exact);
    let all = exact.iter().zip(&found).zip(&rounded).map(|((want, got), rounded)| {
        let more = match precision {
            MatmulPrecision::F32 => 0.0,
            _ => 8.0 * precision.unit_roundoff() + 2.0 * relative(rounded, want),
        };
        let allowed = if want.1 { (allowed + more) * largest(&want.2) } else { 0.0 };
        Off { what: want.0.clone(), error: error(&got.2, &want.2), allowed }
    });
    Ok(all.max_by(|a, b| a.ratio().total_cmp(&b.ratio())).unwrap_or_default())
}
