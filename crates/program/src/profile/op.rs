//! Profiles an op by itself: finds its cases, and runs it.
use super::measured::{How, MeasuredOp};
use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook},
};
use tgnn::{
    autograd::Alone,
    error::{Error, Result},
    ops::{Backend, Case, bench_cases, cases},
    runtime::{Device, cuda::ProfiledRange, nvtx},
};
use tgnn_data::text::similar;
use tgnn_lab::ceilings::{Caches, ReadyCase};

/// Number of times that warm runs are timed on a device.
const TIMINGS: usize = 7;

/// An op, and the cases in which it runs.
pub(super) struct OpCases {
    op: &'static str,
    cases: Vec<Case>,
}

impl OpCases {
    /// Finds the op called `name`, which runs in its own cases or, as `gru_memory_grad`, in those of another
    /// op. The cases are those of the sizes `dims`, as in `1487x100`; or those of the benches, or else the
    /// largest one of the tests.
    ///
    /// # Errors
    /// `Usage` if there is no such op, or the sizes do not suit it.
    pub fn find(name: &str, dims: Option<&str>) -> Result<Self> {
        let (all, bench) = (cases(), bench_cases());
        let mut owners: Vec<&Case> = all.iter().filter(|case| belongs_to(name, case.op)).collect();
        // The longest name first, so that linear_pair_grad is of linear_pair and not of linear; then the
        // largest case.
        owners.sort_by_key(|case| std::cmp::Reverse((case.op.len(), size(case))));
        let found = owners.iter().find_map(|case| Some((**case, op_in(case, name)?)));
        let Some((largest, op)) = found else { return Err(unknown(name, &all)) };
        // All cases of an op run it; not all of them have every gradient.
        let own = |case: &&Case| case.op == largest.op && (op == case.op || op_in(case, name).is_some());
        let cases = match dims {
            Some(dims) => vec![with_dims(&largest, dims)?],
            None => match bench.iter().filter(own).copied().collect::<Vec<_>>() {
                none if none.is_empty() => vec![largest],
                bench => bench,
            },
        };
        Ok(OpCases { op, cases })
    }
    /// Runs the op in its cases. Everything else that a case runs, and a first run, is before the range that
    /// profilers record.
    ///
    /// # Errors
    /// `Usage` if a case cannot have its sizes; those of the ops.
    pub fn measure(&self, device: &Device, how: How) -> Result<Vec<MeasuredOp>> {
        let backend = Backend::for_device(device);
        device.keep_awake(|| {
            let ready = |case: &Case| built(case, || ReadyCase::new(case, backend.clone()));
            let mut ready = self.cases.iter().map(ready).collect::<Result<Vec<_>>>()?;
            let timings = if device.gpu().is_some_and(|gpu| gpu.is_emulated()) { 1 } else { TIMINGS };
            let (op, How { runs, caches, by_launch }) = (|op: &str| op == self.op, how);
            let alone = Alone { op: &op, runs, timings, cold: caches == Caches::Cold, by_launch };
            let _profiled = device.gpu().map(ProfiledRange::begin).transpose()?;
            let _range = nvtx::range(format_args!("profile {}", self.op));
            let mut found = Vec::new();
            for (case, ready) in self.cases.iter().zip(&mut ready) {
                let times = ready.time(&alone)?;
                if times.is_empty() {
                    let what = format!("{} does not run in the case {case}", self.op);
                    return Err(Error::usage(what).remedy("give other sizes"));
                }
                found.extend(times.iter().map(|time| MeasuredOp::new(time, case.to_string())));
            }
            Ok(found)
        })
    }
}

/// Whether an op called `name` may run in a case of `owner`.
fn belongs_to(name: &str, owner: &str) -> bool {
    name.strip_prefix(owner).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
}

/// Returns the number of elements that the sizes of a case suggest.
fn size(case: &Case) -> usize {
    case.dims.iter().map(|&n| n.max(1)).fold(1, usize::saturating_mul)
}

/// Returns the name of the op called `name` if a case runs it.
fn op_in(case: &Case, name: &str) -> Option<&'static str> {
    let (program, ..) = tgnn::testing::program(case, Backend::Cpu).ok()?;
    program.nodes().map(|node| node.op.name()).find(|op| *op == name)
}

/// Returns the error for a name that is no op's: what is similar, or else all ops.
fn unknown(name: &str, all: &[Case]) -> Error {
    let names: BTreeSet<&str> = all.iter().map(|case| case.op).collect();
    let mut close: BTreeSet<&str> = similar(names.iter().copied(), name).into_iter().collect();
    close.extend(names.iter().filter(|op| name.len() > 2 && (op.contains(name) || belongs_to(name, op))));
    let list = |names: BTreeSet<&str>| names.into_iter().collect::<Vec<_>>().join(", ");
    Error::usage(format!("there is no op `{name}`")).remedy(match close.is_empty() {
        true => format!("give step, epoch, or one of {}", list(names)),
        false => format!("did you mean {}?", list(close)),
    })
}

/// Returns a case of other sizes: `dims`, as in `1487x100`.
fn with_dims(like: &Case, dims: &str) -> Result<Case> {
    let shown = like.to_string();
    let wrong = |what: String| {
        let shown = shown.trim_start_matches(like.op).trim();
        Error::usage(what).remedy(format!("a case of {} is --case {shown}", like.op))
    };
    let numbers = dims.split('x').map(|n| n.parse::<usize>()).collect::<Result<Vec<_>, _>>();
    let numbers = numbers.map_err(|_| wrong(format!("--case {dims} is not sizes with an x between them")))?;
    if numbers.len() != like.dims.len() {
        let [given, wanted] = [numbers.len(), like.dims.len()];
        return Err(wrong(format!("--case {dims} has {given} sizes, and {} has {wanted}", like.op)));
    }
    // A case lives as long as the program, as those in the sources do.
    let case = Case { dims: numbers.leak(), ..*like };
    built(&case, || tgnn::testing::program(&case, Backend::Cpu).map(drop))
        .map_err(|e| wrong(e.to_string()))?;
    Ok(case)
}

/// Builds a case. Not all sizes suit each other, and cases check them only by what would be a bug elsewhere.
fn built<T>(case: &Case, build: impl FnOnce() -> Result<T>) -> Result<T> {
    let print = take_hook();
    set_hook(Box::new(|_| {}));
    let built = catch_unwind(AssertUnwindSafe(build));
    set_hook(print);
    built
        .unwrap_or_else(|_| Err(Error::usage(format!("the sizes of the case {case} do not suit each other"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_op_that_a_case_runs_is_found_by_its_name() {
        for name in cases().iter().map(|case| case.op).collect::<BTreeSet<_>>() {
            let found = OpCases::find(name, None).unwrap();
            assert_eq!((found.op, found.cases[0].op), (name, name));
        }
        let grad = OpCases::find("linear_pair_input_grad", None).unwrap();
        assert_eq!((grad.op, grad.cases[0].op), ("linear_pair_input_grad", "linear_pair"));
    }
}
