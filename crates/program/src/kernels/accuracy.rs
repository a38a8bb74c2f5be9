//! How accurate the kernels of every op are: the error of each case beside its allowance.
use serde_json::{Value, json};
use std::fmt;
use tgnn::{
    error::{Error, ErrorKind, Result},
    ops::{Backend, Case},
    runtime::cuda::{CudaStream, Gpu},
    testing,
};

/// Largest share of the allowed error that a row of the table shows as a number.
const MOST_SHARE: f64 = 999.0;
/// Characters of a case that a row of the table shows: some have a hundred sizes.
const SHOWN: usize = 60;

/// The accuracy of the ops on a device.
pub(super) struct Accuracy {
    ops: Vec<OpAccuracy>,
    /// Ops that were not tried, because the device no longer works.
    not_tried: Vec<&'static str>,
}

/// The accuracy of an op over its cases.
pub(super) struct OpAccuracy {
    op: &'static str,
    cases: usize,
    /// The largest error of a result as a share of the allowed error; infinite if a case does not run.
    worst: f64,
    worst_case: String,
    /// Cases beyond the allowance, and cases that do not run, each with what is wrong.
    off: Vec<String>,
}

impl OpAccuracy {
    fn new(op: &'static str) -> Self {
        OpAccuracy { op, cases: 0, worst: 0.0, worst_case: String::new(), off: Vec::new() }
    }
    /// Whether all cases agree with the definition.
    pub fn agrees(&self) -> bool {
        self.off.is_empty()
    }
    fn add(&mut self, case: &Case, found: Result<testing::Off>) {
        let (share, wrong) = match found {
            Ok(off) => (off.share(), (!off.within()).then(|| format!("{case}: {off}"))),
            Err(e) => (f64::INFINITY, Some(format!("{case}: {e}"))),
        };
        self.cases += 1;
        if share > self.worst || self.worst_case.is_empty() {
            (self.worst, self.worst_case) = (share, case.to_string());
        }
        self.off.extend(wrong);
    }
    fn json(&self) -> Value {
        json!({
            "op": self.op, "cases": self.cases, "worst": self.worst, "worst_case": self.worst_case,
            "off": self.off,
        })
    }
}

impl fmt::Display for OpAccuracy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let worst_case = &self.worst_case[..self.worst_case.len().min(SHOWN)];
        let worst = match self.worst {
            // Where nothing is allowed, any error is too large by a number of 300 digits.
            worst if worst > MOST_SHARE && worst.is_finite() => format!(">{MOST_SHARE}"),
            worst => format!("{worst:.2}"),
        };
        write!(f, "{:<25}{:>6}{worst:>17}  {worst_case}", self.op, self.cases)?;
        self.off.iter().try_for_each(|off| write!(f, "\n  {off}"))
    }
}

impl Accuracy {
    /// The head of the table whose rows are the accuracies of ops.
    pub const HEAD: &str = "op                        cases    error/allowed  worst case";

    /// Compares every case, forward and backward, with its definition in f64. Inputs are rounded to the
    /// precision of products beforehand, so that products take them unchanged. `on_op` is called as soon as
    /// an op is done.
    ///
    /// A case that is off does not end the comparison. A fault that leaves the device unusable does: the ops
    /// that follow are then not tried.
    pub fn measure(gpu: &Gpu, cases: &[Case], mut on_op: impl FnMut(&OpAccuracy)) -> Self {
        let mut all = Accuracy { ops: Vec::new(), not_tried: Vec::new() };
        for of_op in cases.chunk_by(|a, b| a.op == b.op) {
            let op = of_op[0].op;
            if all.ops.last().is_some_and(|last: &OpAccuracy| !last.agrees()) && !works(gpu) {
                all.not_tried.push(op);
                continue;
            }
            let mut accuracy = OpAccuracy::new(op);
            for case in of_op {
                let backend = Backend::Cuda(gpu.values_apart());
                accuracy.add(case, testing::worst(&case.with_inputs(gpu.precision()), backend));
                if !accuracy.agrees() && !works(gpu) {
                    break;
                }
            }
            on_op(&accuracy);
            all.ops.push(accuracy);
        }
        all
    }
    /// Returns the number of cases that were tried.
    pub fn cases(&self) -> usize {
        self.ops.iter().map(|op| op.cases).sum()
    }
    /// Whether every op was tried, and no case is off.
    pub fn verified(&self) -> bool {
        self.not_tried.is_empty() && self.ops.iter().all(OpAccuracy::agrees)
    }
    /// Whether all cases of an op agree with its definition.
    pub fn agrees(&self, op: &str) -> bool {
        self.ops.iter().any(|of| of.op == op && of.agrees())
    }
    /// Returns what was found, in a line.
    pub fn summary(&self) -> String {
        let off: Vec<&str> = self.ops.iter().filter(|op| !op.agrees()).map(|op| op.op).collect();
        let cases: usize = self.ops.iter().map(|op| op.off.len()).sum();
        let mut text = match cases {
            0 => format!("{} cases agree with their definitions", self.cases()),
            _ => format!("{cases} of {} cases are off ({})", self.cases(), off.join(", ")),
        };
        if !self.not_tried.is_empty() {
            text += &format!(
                "; the device no longer works, so these ops were not tried: {}",
                self.not_tried.join(", ")
            );
        }
        text
    }
    /// Returns an error unless all ops are verified.
    ///
    /// # Errors
    /// `Device`, naming the ops that are off and those that were not tried.
    pub fn check(&self) -> Result<()> {
        match self.verified() {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Device, self.summary())
                .remedy("this is a bug in tgnn, or of the device: please report it")),
        }
    }
    /// Returns the accuracy as JSON: keys and values.
    pub fn json(&self) -> [(&'static str, Value); 4] {
        [
            ("verified", self.verified().into()),
            ("cases", self.cases().into()),
            ("accuracy", self.ops.iter().map(OpAccuracy::json).collect()),
            ("not_tried", json!(self.not_tried)),
        ]
    }
}

/// Whether the device still does work: after some faults the driver refuses everything.
pub(super) fn works(gpu: &Gpu) -> bool {
    CudaStream::new(gpu).and_then(|stream| stream.synchronize()).is_ok()
}
