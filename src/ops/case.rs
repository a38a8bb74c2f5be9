//! Test cases: the inputs on which every check and every bench of an op runs.
use super::Tape;
use crate::{error::Result, runtime::*};
use half::{bf16, f16};

/// One case of an op.
#[derive(Clone, Copy)]
pub struct Case {
    /// Name of the op's file.
    pub op: &'static str,
    /// Sizes, in the order that the op's `CASES` explain.
    pub dims: &'static [usize],
    /// Records the op on inputs of these sizes.
    pub build: fn(&mut CaseBuilder, &[usize]) -> Result<Built>,
    /// Format of the real numbers that are drawn for it: f32 as a rule.
    pub inputs: MatmulPrecision,
}

impl Case {
    /// The same case on real numbers of the format `inputs`, which products in it take as they are.
    #[must_use]
    pub fn with_inputs(self, inputs: MatmulPrecision) -> Self {
        Case { inputs, ..self }
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let dims: Vec<String> = self.dims.iter().map(ToString::to_string).collect();
        write!(f, "{} {}", self.op, dims.join("x"))
    }
}

/// What a case wants looked at.
#[derive(Default)]
pub struct Built {
    /// Outputs: compared between backends; the real ones that depend on `wrt` are differentiated.
    pub outs: Vec<Var>,
    /// Inputs whose gradients are checked.
    pub wrt: Vec<Var>,
    /// State: compared after the run.
    pub states: Vec<Var>,
}

impl Built {
    /// Outputs, and the inputs they are differentiated by.
    pub fn new(outs: &[Var], wrt: &[Var]) -> Self {
        Built { outs: outs.to_vec(), wrt: wrt.to_vec(), states: Vec::new() }
    }
}

/// Makes the inputs of a case: the same numbers in every precision.
pub struct CaseBuilder {
    /// The program under test.
    pub tape: Tape,
    /// Its inputs.
    pub store: Store,
    inputs: MatmulPrecision,
    draws: u64,
}

impl CaseBuilder {
    /// An empty case with reals of `precision`; the numbers that are drawn have the format `inputs`.
    pub fn new(precision: Precision, inputs: MatmulPrecision) -> Self {
        CaseBuilder { tape: Tape::new(), store: Store::new(precision), inputs, draws: 0 }
    }
    fn next(&mut self) -> u32 {
        self.draws += 1;
        philox::Key::new(0x5EED, 0, [0, 0]).draw(self.draws)[0]
    }
    /// A uniform integer below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        ((u64::from(self.next()) * n as u64) >> 32) as usize
    }
    /// A uniform number in [-1, 1], of the inputs' format.
    pub fn uniform(&mut self) -> f32 {
        let drawn = f64::from(self.next()).mul_add(1.0 / f64::from(1u32 << 31), -1.0);
        self.inputs.nearest(drawn as f32)
    }
    /// A stored value with these elements.
    ///
    /// # Panics
    /// When they do not fill the spec: a mistake of the case.
    pub fn values<T: Element>(&mut self, spec: Spec, values: &[T]) -> Var {
        let stored = self.store.values(format!("input {}", self.tape.len()), spec, values);
        let var = stored.and_then(|id| self.tape.stored(&self.store, id));
        var.unwrap_or_else(|e| panic!("values of a case fill their spec: {e}"))
    }
    /// Uniform reals in [-1, 1), `[rows, cols]`.
    pub fn real(&mut self, rows: usize, cols: usize) -> Var {
        self.real_in(rows, cols, |u| u)
    }
    /// Reals `f(u)` of uniform u in [-1, 1).
    pub fn real_in(&mut self, rows: usize, cols: usize, f: impl Fn(f32) -> f32) -> Var {
        let values: Vec<f32> = (0..rows * cols).map(|_| f(self.uniform())).collect();
        self.values(Spec::real(Rows::fixed(rows), cols), &values)
    }
    /// Uniform reals in [-1, 1), kept as `kept`.
    pub fn kept(&mut self, rows: usize, cols: usize, kept: StoredAs) -> Var {
        let spec = Spec { dtype: kept.dtype(), ..Spec::real(Rows::fixed(rows), cols) };
        let values: Vec<f32> = (0..spec.len()).map(|_| self.uniform()).collect();
        match kept {
            StoredAs::F32 => self.values(spec, &values),
            StoredAs::Bf16 => {
                self.values(spec, &values.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>())
            }
            StoredAs::F16 => self.values(spec, &values.iter().map(|&x| f16::from_f32(x)).collect::<Vec<_>>()),
        }
    }
    /// Reals whose sums are exact and cancel nothing, and whose means lie near no middle of two numbers of 16 bits: multiples
    /// of 1/8, from 0 to 1.
    pub fn few_bits(&mut self, rows: usize, cols: usize) -> Var {
        self.real_in(rows, cols, |u| (4.0 * (u + 1.0)).round() / 8.0)
    }
    /// u32 ids `[n / cols, cols]`.
    pub fn ids(&mut self, values: &[u32], cols: usize) -> Var {
        self.values(Spec::ids(Rows::fixed(values.len() / cols.max(1)), cols), values)
    }
    /// `n` uniform ids below `below`.
    pub fn ids_below(&mut self, n: usize, below: usize) -> Var {
        let values: Vec<u32> = (0..n).map(|_| self.below(below) as u32).collect();
        self.ids(&values, 1)
    }
    /// i64 times.
    pub fn times(&mut self, values: &[i64]) -> Var {
        self.values(Spec::times(Rows::fixed(values.len())), values)
    }
    /// A count on the device.
    pub fn count(&mut self, n: usize) -> Var {
        self.values(Spec::count(), &[n as u32])
    }
    /// What says of each of `capacity` rows, of which `count` are live, whether it is there: every third is not.
    pub fn present(&mut self, capacity: usize, count: Var) -> Var {
        let rows: Vec<u32> = (0..capacity as u32).map(|i| if i % 3 == 2 { NONE } else { i }).collect();
        self.values(Spec::ids(Rows::live(capacity, count), 1), &rows)
    }
    /// Uniform reals `[capacity, cols]` of which `count` rows are live.
    pub fn live_real(&mut self, capacity: usize, count: Var, cols: usize) -> Var {
        let values: Vec<f32> = (0..capacity * cols).map(|_| self.uniform()).collect();
        self.values(Spec::real(Rows::live(capacity, count), cols), &values)
    }
}
