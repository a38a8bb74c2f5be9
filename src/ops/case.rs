//! Test cases: the inputs on which every check and every bench of an op runs.
use super::Tape;
use crate::{error::Result, runtime::*};
use half::{bf16, f16};

/// One case of an op.
///
/// # Examples
/// ```
/// use tgnn::{error::Result, ops::{Built, Case, CaseBuilder}, runtime::MatmulPrecision, testing};
/// fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
///     let a = c.real(dims[0], dims[1]);
///     let square = c.tape.mul(a, a)?;
///     Ok(Built::new(&[square], &[a])) // compare `square`, differentiate it by `a`
/// }
/// let case = Case { op: "square", dims: &[3, 2], build, inputs: MatmulPrecision::F32 };
/// assert!(testing::gradient_error(&case)? < 1e-6);
/// # Ok::<(), tgnn::error::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Name of the op's file.
    pub op: &'static str,
    /// Sizes; the comment on the op's `CASES` gives their order.
    pub dims: &'static [usize],
    /// Function that appends the op to a tape, on inputs of these sizes.
    pub build: fn(&mut CaseBuilder, &[usize]) -> Result<Built>,
    /// Format that the drawn real inputs are rounded to; f32 unless set by
    /// [`with_inputs`](Case::with_inputs).
    pub inputs: MatmulPrecision,
}

impl Case {
    /// Returns the same case on real inputs rounded to the format `inputs`: dense products in that format use
    /// them without further rounding.
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

/// Values of a built case that the checks compare.
#[derive(Debug, Default)]
pub struct Built {
    /// Outputs, compared between backends; the real ones that depend on `wrt` are differentiated.
    pub outs: Vec<Var>,
    /// Inputs whose gradients are checked.
    pub wrt: Vec<Var>,
    /// State, compared after the run.
    pub states: Vec<Var>,
}

impl Built {
    /// Creates a case without state from its outputs and the inputs `wrt` that they are differentiated by.
    pub fn new(outs: &[Var], wrt: &[Var]) -> Self {
        Built { outs: outs.to_vec(), wrt: wrt.to_vec(), states: Vec::new() }
    }
}

/// Builder of a case's inputs, which are the same numbers in every precision.
///
/// # Examples
/// ```
/// use tgnn::{ops::CaseBuilder, runtime::*};
/// let mut c = CaseBuilder::new(Precision::F32, MatmulPrecision::F32);
/// let (x, index) = (c.real(3, 2), c.ids(&[2, 0], 1));
/// let rows = c.tape.gather_rows(x, index)?;
/// assert_eq!(c.tape.spec(rows), Spec::real(Rows::fixed(2), 2));
/// # Ok::<(), tgnn::error::Error>(())
/// ```
#[derive(Debug)]
pub struct CaseBuilder {
    /// Tape with the op under test.
    pub tape: Tape,
    /// Store with the inputs.
    pub store: Store,
    inputs: MatmulPrecision,
    draws: u64,
}

impl CaseBuilder {
    /// Creates an empty case with reals of `precision`; drawn reals are rounded to the format `inputs`.
    pub fn new(precision: Precision, inputs: MatmulPrecision) -> Self {
        let store = Store::new(precision);
        CaseBuilder { tape: Tape::new(&store), store, inputs, draws: 0 }
    }
    fn next(&mut self) -> u32 {
        self.draws += 1;
        philox::Key::new(0x5EED, 0, [0, 0]).draw(self.draws)[0]
    }
    /// Draws a uniform integer below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        ((u64::from(self.next()) * n as u64) >> 32) as usize
    }
    /// Draws an integer below `n`, small ones most often: about as unevenly as the roots of a batch of events
    /// read rows. Of 1,433 rows, the first one gets one draw in 38, half of them get seven in ten.
    pub fn unevenly_below(&mut self, n: usize) -> usize {
        let x = u64::from(self.next());
        ((u128::from(x * x) * n as u128) >> 64) as usize
    }
    /// Draws a uniform number in [-1, 1], rounded to the inputs' format.
    pub fn uniform(&mut self) -> f32 {
        let drawn = f64::from(self.next()).mul_add(1.0 / f64::from(1u32 << 31), -1.0);
        self.inputs.nearest(drawn as f32)
    }
    /// Stores `values` and returns them as a value of the tape.
    ///
    /// # Panics
    /// If `values` do not fill `spec`, which is a mistake in the case.
    pub fn values<T: Element>(&mut self, spec: Spec, values: &[T]) -> Var {
        let stored = self.store.values(format!("input {}", self.tape.len()), spec, values);
        let var = stored.and_then(|id| self.tape.stored(id));
        var.unwrap_or_else(|e| panic!("values of a case fill their spec: {e}"))
    }
    /// Draws uniform reals in [-1, 1), `[rows, cols]`.
    pub fn real(&mut self, rows: usize, cols: usize) -> Var {
        self.real_in(rows, cols, |u| u)
    }
    /// Draws reals `map(u)`, `[rows, cols]`, of uniform u in [-1, 1).
    pub fn real_in(&mut self, rows: usize, cols: usize, map: impl Fn(f32) -> f32) -> Var {
        let values: Vec<f32> = (0..rows * cols).map(|_| map(self.uniform())).collect();
        self.values(Spec::real(Rows::fixed(rows), cols), &values)
    }
    /// Draws uniform reals in [-1, 1), `[rows, cols]`, with the storage type `stored_as`.
    pub fn stored(&mut self, rows: usize, cols: usize, stored_as: StoredAs) -> Var {
        let spec = Spec { dtype: stored_as.dtype(), ..Spec::real(Rows::fixed(rows), cols) };
        let values: Vec<f32> = (0..spec.len()).map(|_| self.uniform()).collect();
        match stored_as {
            StoredAs::F32 => self.values(spec, &values),
            StoredAs::Bf16 => {
                self.values(spec, &values.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>())
            }
            StoredAs::F16 => self.values(spec, &values.iter().map(|&x| f16::from_f32(x)).collect::<Vec<_>>()),
        }
    }
    /// Draws multiples of 1/8 from 0 to 1, `[rows, cols]`: their sums are exact and free of cancellation, and
    /// their means are never close to the midpoint between two adjacent 16-bit numbers.
    pub fn few_bits(&mut self, rows: usize, cols: usize) -> Var {
        self.real_in(rows, cols, |u| (4.0 * (u + 1.0)).round() / 8.0)
    }
    /// Stores u32 ids, `[n / cols, cols]`.
    pub fn ids(&mut self, values: &[u32], cols: usize) -> Var {
        self.values(Spec::ids(Rows::fixed(values.len() / cols.max(1)), cols), values)
    }
    /// Draws `n` uniform ids below `below`.
    pub fn ids_below(&mut self, n: usize, below: usize) -> Var {
        let values: Vec<u32> = (0..n).map(|_| self.below(below) as u32).collect();
        self.ids(&values, 1)
    }
    /// Stores i64 times, `[n]`.
    pub fn times(&mut self, values: &[i64]) -> Var {
        self.values(Spec::times(Rows::fixed(values.len())), values)
    }
    /// Stores the count `n`, `[1]` u32.
    pub fn count(&mut self, n: usize) -> Var {
        self.values(Spec::count(), &[n as u32])
    }
    /// Stores the presence of `capacity` rows, `count` of them live: every third row is absent ([`NONE`]).
    pub fn present(&mut self, capacity: usize, count: Var) -> Var {
        let rows: Vec<u32> = (0..capacity as u32).map(|i| if i % 3 == 2 { NONE } else { i }).collect();
        self.values(Spec::ids(Rows::live(capacity, count), 1), &rows)
    }
    /// Draws uniform reals in [-1, 1), `[capacity, cols]`, of which `count` rows are live.
    pub fn live_real(&mut self, capacity: usize, count: Var, cols: usize) -> Var {
        let values: Vec<f32> = (0..capacity * cols).map(|_| self.uniform()).collect();
        self.values(Spec::real(Rows::live(capacity, count), cols), &values)
    }
}
