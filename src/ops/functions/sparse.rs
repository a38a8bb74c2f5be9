//! A sparse matrix of the caller, times a dense one.
use crate::{
    error::{Error, ErrorKind, Result, ensure},
    ops::{
        Call, Tape,
        epilogue::Activation,
        spmm::{AdjacencyVars, GraphVars, LongRows, Spmm},
    },
    runtime::{Rows, Spec, Store, Var},
};

/// The rows of a [`Csr`], or of its transpose, as [`Spmm`] reads them: for calls of one's own, such as a
/// [`DeviceCall`](crate::ops::DeviceCall) on copies of the tables.
#[derive(Clone, Debug)]
pub struct CsrRows {
    /// `[n]`: index of the first entry of each row.
    pub begin: Vec<u32>,
    /// `[n]`: number of entries of each row.
    pub len: Vec<u32>,
    /// `[m]`: column of each entry.
    pub col: Vec<u32>,
    /// `[m]`: value of each entry; 1 if `None`.
    pub weight: Option<Vec<f32>>,
    /// How long rows are divided.
    pub long: LongRows,
}

/// A square sparse matrix `S A S` that is ready to be multiplied from either side: A in CSR, with a diagonal
/// matrix S of scales.
#[derive(Clone, Debug)]
pub struct Csr {
    rows: CsrRows,
    columns: CsrRows,
    scale: Vec<f32>,
}

impl Csr {
    /// Takes the matrix with `indptr.len() - 1` rows and as many columns: row `i` has the entries from
    /// `indptr[i]` to `indptr[i + 1]`, with columns `indices` and `values` (1 if `None`). Duplicate entries
    /// add up. Copies the matrix, and makes its transpose.
    ///
    /// # Errors
    /// `Data` if the arrays contradict each other; the message names the first place.
    pub fn from_csr(indptr: &[u32], indices: &[u32], values: Option<&[f32]>) -> Result<Self> {
        let bad = |what: String| Err(Error::new(ErrorKind::Data, format!("csr: {what}")));
        let m = indices.len();
        let (Some(&first), Some(&last)) = (indptr.first(), indptr.last()) else {
            return bad("indptr is empty, want one number more than rows".into());
        };
        if first != 0 || last as usize != m {
            return bad(format!("indptr goes from {first} to {last}, want 0 to {m}, the number of indices"));
        }
        if let Some(row) = indptr.windows(2).position(|ends| ends[0] > ends[1]) {
            return bad(format!("indptr falls from {} to {} in row {row}", indptr[row], indptr[row + 1]));
        }
        let n = indptr.len() - 1;
        if let Some(at) = indices.iter().position(|&j| j as usize >= n) {
            return bad(format!("index {at} names column {}, of {n} columns from 0 on", indices[at]));
        }
        if let Some(values) = values.filter(|values| values.len() != m) {
            return bad(format!("{} values for {m} indices", values.len()));
        }
        // The entries by column: a counting sort, so that rows ascend within a column.
        let mut starts = vec![0u32; n + 1];
        indices.iter().for_each(|&j| starts[j as usize + 1] += 1);
        (0..n).for_each(|j| starts[j + 1] += starts[j]);
        let (mut next, mut row_of) = (starts.clone(), vec![0u32; m]);
        let mut weight = values.map(|values| vec![0.0; values.len()]);
        for i in 0..n {
            for e in indptr[i] as usize..indptr[i + 1] as usize {
                let to = &mut next[indices[e] as usize];
                row_of[*to as usize] = i as u32;
                if let (Some(weight), Some(values)) = (&mut weight, values) {
                    weight[*to as usize] = values[e];
                }
                *to += 1;
            }
        }
        Ok(Csr {
            rows: CsrRows::new(indptr, indices.to_vec(), values.map(<[f32]>::to_vec)),
            columns: CsrRows::new(&starts, row_of, weight),
            scale: vec![1.0; n],
        })
    }
    /// Returns the number of rows, which is that of the columns.
    pub fn len(&self) -> usize {
        self.scale.len()
    }
    /// Whether the matrix has no rows.
    pub fn is_empty(&self) -> bool {
        self.scale.is_empty()
    }
    /// Returns the rows of A.
    pub fn rows(&self) -> &CsrRows {
        &self.rows
    }
    /// Returns the rows of the transpose of A, for gradients.
    pub fn columns(&self) -> &CsrRows {
        &self.columns
    }
    /// Returns the diagonal of S.
    pub fn scale(&self) -> &[f32] {
        &self.scale
    }
    /// Returns the same matrix with S set to `scale`.
    ///
    /// # Errors
    /// `Shape` if there is not one scale per row.
    ///
    /// # Examples
    /// ```
    /// use tgnn::ops::functions::{Csr, spmm};
    /// // S A S with A = [[0, 1], [1, 0]] and S = diag(2, 3)
    /// let a = Csr::from_csr(&[0, 1, 2], &[1, 0], None)?.scaled(vec![2.0, 3.0])?;
    /// let mut y = [0.0; 2];
    /// spmm(&a, &[1.0, 10.0], 1, &mut y)?;
    /// assert_eq!(y, [60.0, 6.0]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn scaled(self, scale: Vec<f32>) -> Result<Self> {
        ensure!("csr", scale.len() == self.len(), "{} scales for {} rows", scale.len(), self.len());
        Ok(Csr { scale, ..self })
    }
    /// Returns the symmetric normalisation of a graph convolution: S is `degree^-1/2`, where the degree is
    /// the sum of a row of A, and 0 for a degree of 0 or less. Self-loops are part of A.
    ///
    /// # Examples
    /// ```
    /// use tgnn::ops::functions::{Csr, spmm};
    /// // Two vertices with an edge and self-loops, so both have degree 2.
    /// let a = Csr::from_csr(&[0, 2, 4], &[0, 1, 0, 1], None)?.normalized();
    /// let mut y = [0.0; 2];
    /// spmm(&a, &[1.0, 3.0], 1, &mut y)?;
    /// assert!(y.iter().all(|y| (y - 2.0).abs() < 1e-6)); // (1 + 3) / 2
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    #[must_use]
    pub fn normalized(self) -> Self {
        let degree = |i: usize| -> f64 {
            let entries = self.rows.begin[i] as usize..(self.rows.begin[i] + self.rows.len[i]) as usize;
            self.rows
                .weight
                .as_ref()
                .map_or(entries.len() as f64, |w| w[entries].iter().map(|&w| f64::from(w)).sum())
        };
        let scale = |degree: f64| if degree > 0.0 { (1.0 / degree.sqrt()) as f32 } else { 0.0 };
        Csr { scale: (0..self.len()).map(|i| scale(degree(i))).collect(), ..self }
    }
    fn multiply(&self, rows: &CsrRows, x: &[f32], d: usize, y: &mut [f32]) -> Result<()> {
        let (n, m, op) = (self.len(), rows.col.len(), rows.op());
        let mut call = Call::new(&op)
            .input(x, [n, d])?
            .input(&[0u32], [1, 1])?
            .input(&rows.begin, [n, 1])?
            .input(&rows.len, [n, 1])?
            .input(&rows.col, [m, 1])?
            .input(&self.scale, [n, 1])?
            .input(&rows.long.first, [rows.long.first.len(), 1])?
            .input(&rows.long.slices, [rows.long.slices.len() / 4, 4])?;
        if let Some(weight) = &rows.weight {
            call = call.input(weight, [m, 1])?;
        }
        call.output(y)?.run()
    }
}

/// A [`Csr`] as values of a tape: see [`Csr::stored`].
#[derive(Clone, Copy, Debug)]
pub struct CsrVars {
    /// The matrix and its transpose, a graph of one step.
    pub graph: GraphVars,
    /// `[1]` u32: that step, 0.
    pub step: Var,
}

impl Csr {
    /// Adds the matrix to `store`, for products on `tape` by [`Tape::spmm_csr`].
    ///
    /// # Errors
    /// As [`Tape::input`].
    pub fn stored(&self, tape: &mut Tape, store: &mut Store) -> Result<CsrVars> {
        let n = self.len();
        let adjacency = self.rows.stored(tape, store)?;
        let transpose = self.columns.stored(tape, store)?;
        let scale = tape.input(store, "csr scale", Spec::real(Rows::fixed(n), 1), &self.scale)?;
        let step = tape.input(store, "csr step", Spec::ids(Rows::fixed(1), 1), &[0u32])?;
        Ok(CsrVars { graph: GraphVars { adjacency, transpose, scale, vertices: n }, step })
    }
}

impl Tape {
    /// Appends the product of a sparse matrix of one's own and `x`, and returns `y = act(S A S x + bias)`,
    /// f32 `[n, d]` like `x`. Its gradient uses the transpose.
    ///
    /// # Errors
    /// As [`spmm`](Self::spmm).
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::{epilogue::Activation, functions::Csr, *}, runtime::*};
    /// let (mut store, mut tape) = (Store::new(Precision::F32), Tape::new());
    /// // [[0, 2], [3, 4]]
    /// let a = Csr::from_csr(&[0, 1, 3], &[1, 0, 1], Some(&[2.0, 3.0, 4.0]))?;
    /// let a = a.stored(&mut tape, &mut store)?;
    /// let x = tape.input(&mut store, "x", Spec::real(Rows::fixed(2), 1), &[1.0f32, 10.0])?;
    /// let y = tape.spmm_csr(a, x, None, Activation::Identity)?;
    /// let mut program = Program::new(&tape, &[y], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(y, &store)?, [20.0, 43.0]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn spmm_csr(&mut self, a: CsrVars, x: Var, bias: Option<Var>, act: Activation) -> Result<Var> {
        self.spmm(a.graph, x, (a.step, 0), bias, act)
    }
}

impl CsrRows {
    /// Returns the op that multiplies the matrix by `x`. Its inputs are `x`; the step, which is 0; `begin`,
    /// `len` and `col`; the diagonal of S; `long.first` and `long.slices`; and `weight` if there is one.
    ///
    /// # Examples
    /// ```
    /// use tgnn::ops::{Call, functions::Csr};
    /// // The transpose of [[0, 2], [3, 4]] times [1, 10]
    /// let a = Csr::from_csr(&[0, 1, 3], &[1, 0, 1], Some(&[2.0, 3.0, 4.0]))?;
    /// let (rows, mut y) = (a.columns(), [0.0f32; 2]);
    /// let weight = rows.weight.as_ref().expect("the matrix has values");
    /// Call::new(&rows.op())
    ///     .input(&[1.0f32, 10.0], [2, 1])?
    ///     .input(&[0u32], [1, 1])?
    ///     .input(&rows.begin, [2, 1])?
    ///     .input(&rows.len, [2, 1])?
    ///     .input(&rows.col, [3, 1])?
    ///     .input(a.scale(), [2, 1])?
    ///     .input(&rows.long.first, [2, 1])?
    ///     .input(&rows.long.slices, [0, 4])? // no row is long
    ///     .input(weight, [3, 1])?
    ///     .output(&mut y)?
    ///     .run()?;
    /// assert_eq!(y, [30.0, 42.0]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn op(&self) -> Spmm {
        let (n, weighted) = (self.len.len(), self.weight.is_some());
        Spmm::new(n, self.long.most, weighted, 0, false, Activation::Identity)
    }
    fn stored(&self, tape: &mut Tape, store: &mut Store) -> Result<AdjacencyVars> {
        fn ids(tape: &mut Tape, store: &mut Store, name: &str, values: &[u32], width: usize) -> Result<Var> {
            let rows = Rows::fixed(values.len() / width);
            tape.input(store, format!("csr {name}"), Spec::ids(rows, width), values)
        }
        let weight = self
            .weight
            .as_ref()
            .map(|weight| tape.input(store, "csr weights", Spec::real(Rows::fixed(weight.len()), 1), weight));
        Ok(AdjacencyVars {
            begin: ids(tape, store, "starts", &self.begin, 1)?,
            len: ids(tape, store, "lengths", &self.len, 1)?,
            col: ids(tape, store, "columns", &self.col, 1)?,
            weight: weight.transpose()?,
            slices: [
                ids(tape, store, "first slices", &self.long.first, 1)?,
                ids(tape, store, "slices", &self.long.slices, 4)?,
            ],
            most: self.long.most,
        })
    }
    fn new(starts: &[u32], col: Vec<u32>, weight: Option<Vec<f32>>) -> Self {
        let n = starts.len() - 1;
        let len: Vec<u32> = starts.windows(2).map(|ends| ends[1] - ends[0]).collect();
        CsrRows { long: LongRows::of(&len, n), begin: starts[..n].to_vec(), len, col, weight }
    }
}

/// Computes `y = A x` for `x` and `y` of `d` columns. The result does not depend on the number of threads.
///
/// ```
/// use tgnn::ops::functions::{Csr, spmm, spmm_grad};
/// // [[0, 2], [3, 4]]
/// let a = Csr::from_csr(&[0, 1, 3], &[1, 0, 1], Some(&[2.0, 3.0, 4.0]))?;
/// let (mut y, mut dx) = ([0.0; 2], [0.0; 2]);
/// spmm(&a, &[1.0, 10.0], 1, &mut y)?;
/// spmm_grad(&a, &[1.0, 1.0], 1, &mut dx)?; // the gradient of the sum of y
/// assert_eq!((y, dx), ([20.0, 43.0], [3.0, 6.0]));
/// # Ok::<(), tgnn::error::Error>(())
/// ```
///
/// # Errors
/// `Shape` if `x` or `y` do not have `d` columns and the rows of the matrix.
pub fn spmm(a: &Csr, x: &[f32], d: usize, y: &mut [f32]) -> Result<()> {
    a.multiply(&a.rows, x, d, y)
}

/// Computes `dx = A^T dy`, the gradient of [`spmm`] with respect to `x`.
///
/// # Errors
/// As [`spmm`].
pub fn spmm_grad(a: &Csr, dy: &[f32], d: usize, dx: &mut [f32]) -> Result<()> {
    a.multiply(&a.columns, dy, d, dx)
}
