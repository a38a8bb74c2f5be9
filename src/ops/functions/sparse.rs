//! A sparse matrix of the caller, times a dense one.
use crate::{
    error::{Error, ErrorKind, Result, ensure},
    ops::{
        Call, DeviceCall, Tape,
        epilogue::Activation,
        spmm::{AdjacencyVars, ColumnVars, GraphVars, LongRows, Spmm},
    },
    runtime::{
        cuda::{CudaStream, DeviceBuffer, DeviceTensor, Gpu},
        *,
    },
};

/// The rows of a [`Csr`], or of its transpose, as [`Spmm`] reads them.
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

/// A sparse matrix `S A T` that is ready to be multiplied from either side: A in CSR, with diagonal matrices
/// S and T of scales. T is S unless the matrix is rectangular or [scaled](Self::scaled_by) otherwise.
#[derive(Clone, Debug)]
pub struct Csr {
    rows: CsrRows,
    columns: CsrRows,
    scale: Vec<f32>,
    /// The diagonal of T, if it is not S.
    column_scale: Option<Vec<f32>>,
}

/// An input of the product of a [`Csr`], after `x`: see [`Csr::tables`].
#[derive(Clone, Copy, Debug)]
pub enum CsrTable<'a> {
    /// u32 of so many columns.
    Ids(&'a [u32], usize),
    /// f32 of one column.
    Reals(&'a [f32]),
}

impl Csr {
    /// Takes the square matrix with `indptr.len() - 1` rows and as many columns: row `i` has the entries from
    /// `indptr[i]` to `indptr[i + 1]`, with columns `indices` and `values` (1 if `None`). Duplicate entries
    /// add up. Copies the matrix, and makes its transpose.
    ///
    /// # Errors
    /// `Data` if the arrays contradict each other; the message names the first place. `OutOfMemory` if the
    /// matrix is too large.
    pub fn from_csr(indptr: &[u32], indices: &[u32], values: Option<&[f32]>) -> Result<Self> {
        let n = indptr.len().saturating_sub(1);
        Self::from_parts(indptr, indices, values, n, true)
    }
    /// Takes a matrix of any number of columns, otherwise as [`from_csr`](Self::from_csr): such as a sampled
    /// block, with a row for each destination and a column for each source.
    ///
    /// # Errors
    /// As `from_csr`.
    ///
    /// # Examples
    /// ```
    /// use tgnn::ops::functions::{Csr, spmm, spmm_grad};
    /// // [[0, 2, 1], [3, 0, 0]]
    /// let a = Csr::rectangular(3, &[0, 2, 3], &[1, 2, 0], Some(&[2.0, 1.0, 3.0]))?;
    /// let (mut y, mut dx) = ([0.0; 2], [0.0; 3]);
    /// spmm(&a, &[1.0, 10.0, 100.0], 1, &mut y)?;
    /// spmm_grad(&a, &[1.0, 1.0], 1, &mut dx)?;
    /// assert_eq!((y, dx), ([120.0, 3.0], [3.0, 2.0, 1.0]));
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn rectangular(
        columns: usize,
        indptr: &[u32],
        indices: &[u32],
        values: Option<&[f32]>,
    ) -> Result<Self> {
        Self::from_parts(indptr, indices, values, columns, false)
    }
    fn from_parts(
        indptr: &[u32],
        indices: &[u32],
        values: Option<&[f32]>,
        u: usize,
        square: bool,
    ) -> Result<Self> {
        check_csr(indptr, indices, values, u).map_err(|e| match e {
            Wrong::Arrays(what) => Error::new(ErrorKind::Data, format!("csr: {what}")),
            Wrong::Column(what) if square => {
                Error::new(ErrorKind::Data, format!("csr: {what}, as many as rows"))
                    .remedy("if the matrix is not square, give its number of columns")
            }
            Wrong::Column(what) => Error::new(ErrorKind::Data, format!("csr: {what}")),
        })?;
        let n = indptr.len() - 1;
        let remedy = "renumber the columns from 0, as np.unique(..., return_inverse=True) does";
        check_room(
            &format!("a matrix of {n} rows and {u} columns"),
            20 * (n + u) + 16 * indices.len(),
            remedy,
        )?;
        let (starts, row_of, weight) = transposed(indptr, indices, values, u);
        Ok(Csr {
            rows: CsrRows::new(indptr, indices.to_vec(), values.map(<[f32]>::to_vec)),
            columns: CsrRows::new(&starts, row_of, weight),
            scale: vec![1.0; n],
            column_scale: (u != n).then(|| vec![1.0; u]),
        })
    }
    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.scale.len()
    }
    /// Whether the matrix has no rows.
    pub fn is_empty(&self) -> bool {
        self.scale.is_empty()
    }
    /// Returns the numbers of rows and columns.
    pub fn shape(&self) -> [usize; 2] {
        [self.rows.len.len(), self.columns.len.len()]
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
    /// Returns the diagonal of T.
    pub fn column_scale(&self) -> &[f32] {
        self.column_scale.as_ref().unwrap_or(&self.scale)
    }
    /// Returns the same square matrix with both S and T set to `scale`.
    ///
    /// # Errors
    /// `Shape` if there is not one scale per row, or the matrix is not square.
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
        let [n, u] = self.shape();
        ensure!("csr", n == u, "one list of scales for {n} rows and {u} columns; give two to `scaled_by`");
        ensure!("csr", scale.len() == n, "{} scales for {n} rows", scale.len());
        Ok(Csr { scale, column_scale: None, ..self })
    }
    /// Returns the same matrix with S set to `rows` and T to `columns`.
    ///
    /// # Errors
    /// `Shape` if there is not one scale per row and per column.
    ///
    /// # Examples
    /// ```
    /// use tgnn::ops::functions::{Csr, spmm};
    /// // The mean over the neighbours of each row: columns 0 and 2 of row 0, column 1 of row 1
    /// let a = Csr::rectangular(3, &[0, 2, 3], &[0, 2, 1], None)?.scaled_by(vec![0.5, 1.0], vec![1.0; 3])?;
    /// let mut y = [0.0; 2];
    /// spmm(&a, &[1.0, 10.0, 5.0], 1, &mut y)?;
    /// assert_eq!(y, [3.0, 10.0]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn scaled_by(self, rows: Vec<f32>, columns: Vec<f32>) -> Result<Self> {
        let [n, u] = self.shape();
        ensure!("csr", rows.len() == n, "{} scales for {n} rows", rows.len());
        ensure!("csr", columns.len() == u, "{} scales for {u} columns", columns.len());
        Ok(Csr { scale: rows, column_scale: Some(columns), ..self })
    }
    /// Returns the symmetric normalisation of a graph convolution: S is `degree^-1/2`, where the degree is
    /// the sum of a row of A, and 0 for a degree of 0 or less. Self-loops are part of A. The columns of a
    /// rectangular matrix have degrees of their own, which are their sums.
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
        let [n, u] = self.shape();
        let column_scale = (n != u).then(|| self.columns.degree_scales());
        Csr { scale: self.rows.degree_scales(), column_scale, ..self }
    }
    /// Returns the op that multiplies the matrix, or its transpose, by `x`. Its inputs are `x`, then the
    /// [tables](Self::tables).
    pub fn op(&self, transpose: bool) -> Spmm {
        let (rows, columns) = self.sides(transpose);
        let (n, weighted) = (rows.len.len(), rows.weight.is_some());
        let op = Spmm::new(n, rows.long.most, weighted, 0, false, Activation::Identity);
        if self.column_scale.is_some() { op.with_columns(columns.len.len()) } else { op }
    }
    /// Returns the inputs of [`op`](Self::op) after `x`, in order: for calls of one's own, such as a
    /// [`DeviceCall`](crate::ops::DeviceCall) on copies of the tables ([`DeviceCsr`] makes them).
    ///
    /// # Examples
    /// ```
    /// use tgnn::ops::{Call, functions::{Csr, CsrTable}};
    /// // The transpose of [[0, 2], [3, 4]] times [1, 10]
    /// let a = Csr::from_csr(&[0, 1, 3], &[1, 0, 1], Some(&[2.0, 3.0, 4.0]))?;
    /// let (op, mut y) = (a.op(true), [0.0f32; 2]);
    /// let mut call = Call::new(&op).input(&[1.0f32, 10.0], [2, 1])?;
    /// for table in a.tables(true) {
    ///     call = match table {
    ///         CsrTable::Ids(ids, cols) => call.input(ids, [ids.len() / cols, cols])?,
    ///         CsrTable::Reals(reals) => call.input(reals, [reals.len(), 1])?,
    ///     };
    /// }
    /// call.output(&mut y)?.run()?;
    /// assert_eq!(y, [30.0, 42.0]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn tables(&self, transpose: bool) -> Vec<CsrTable<'_>> {
        use CsrTable::{Ids, Reals};
        let (rows, _) = self.sides(transpose);
        let mut scales = [Some(&self.scale), self.column_scale.as_ref()];
        if transpose && self.column_scale.is_some() {
            scales.reverse();
        }
        let [scale, column_scale] = scales;
        let mut tables = vec![Ids(&[0], 1), Ids(&rows.begin, 1), Ids(&rows.len, 1), Ids(&rows.col, 1)];
        tables.extend(scale.map(|scale| Reals(scale)));
        tables.extend([Ids(&rows.long.first, 1), Ids(&rows.long.slices, 4)]);
        tables.extend(rows.weight.iter().chain(column_scale).map(|reals| Reals(reals)));
        tables
    }
    /// Returns the rows of the matrix and those of its transpose; the other way round of the transpose.
    fn sides(&self, transpose: bool) -> (&CsrRows, &CsrRows) {
        if transpose { (&self.columns, &self.rows) } else { (&self.rows, &self.columns) }
    }
    fn multiply(&self, transpose: bool, x: &[f32], d: usize, y: &mut [f32]) -> Result<()> {
        let (op, (_, columns)) = (self.op(transpose), self.sides(transpose));
        let mut call = Call::new(&op).input(x, [columns.len.len(), d])?;
        for table in self.tables(transpose) {
            call = match table {
                CsrTable::Ids(ids, cols) => call.input(ids, [ids.len() / cols, cols])?,
                CsrTable::Reals(reals) => call.input(reals, [reals.len(), 1])?,
            };
        }
        call.output(y)?.run()
    }
}

/// What is wrong with a matrix: its arrays, or a column.
enum Wrong {
    Arrays(String),
    Column(String),
}

fn check_csr(indptr: &[u32], indices: &[u32], values: Option<&[f32]>, u: usize) -> Result<(), Wrong> {
    let (bad, m) = (|what: String| Err(Wrong::Arrays(what)), indices.len());
    let (Some(&first), Some(&last)) = (indptr.first(), indptr.last()) else {
        return bad("indptr is empty, want one number more than rows".into());
    };
    if first != 0 || last as usize != m {
        return bad(format!("indptr goes from {first} to {last}, want 0 to {m}, the number of indices"));
    }
    if let Some(row) = indptr.windows(2).position(|ends| ends[0] > ends[1]) {
        return bad(format!("indptr falls from {} to {} in row {row}", indptr[row], indptr[row + 1]));
    }
    if let Some(values) = values.filter(|values| values.len() != m) {
        return bad(format!("{} values for {m} indices", values.len()));
    }
    if u >= NONE as usize {
        return bad(format!("{u} columns, want fewer than {NONE}"));
    }
    match indices.iter().position(|&j| j as usize >= u) {
        Some(at) => {
            let what = format!("index {at} names column {}, of {u} columns from 0 on", indices[at]);
            Err(Wrong::Column(what))
        }
        None => Ok(()),
    }
}

/// The entries by column: row starts, columns and values of the transpose of a matrix with `u` columns. A
/// counting sort, so that rows ascend within a column.
fn transposed(
    indptr: &[u32],
    indices: &[u32],
    values: Option<&[f32]>,
    u: usize,
) -> (Vec<u32>, Vec<u32>, Option<Vec<f32>>) {
    let mut starts = vec![0u32; u + 1];
    indices.iter().for_each(|&j| starts[j as usize + 1] += 1);
    (0..u).for_each(|j| starts[j + 1] += starts[j]);
    let (mut next, mut row_of) = (starts.clone(), vec![0u32; indices.len()]);
    let mut weight = values.map(|values| vec![0.0; values.len()]);
    for (i, ends) in indptr.windows(2).enumerate() {
        for e in ends[0] as usize..ends[1] as usize {
            let to = &mut next[indices[e] as usize];
            row_of[*to as usize] = i as u32;
            if let (Some(weight), Some(values)) = (&mut weight, values) {
                weight[*to as usize] = values[e];
            }
            *to += 1;
        }
    }
    (starts, row_of, weight)
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
        let adjacency = self.rows.stored(tape, store)?;
        let transpose = self.columns.stored(tape, store)?;
        let mut scales = |name: &str, scale: &Vec<f32>| {
            tape.input(store, name, Spec::real(Rows::fixed(scale.len()), 1), scale)
        };
        let scale = scales("csr scale", &self.scale)?;
        let columns = match &self.column_scale {
            Some(of) => Some(ColumnVars { scale: scales("csr column scale", of)?, count: of.len() }),
            None => None,
        };
        let step = tape.input(store, "csr step", Spec::ids(Rows::fixed(1), 1), &[0u32])?;
        Ok(CsrVars { graph: GraphVars { adjacency, transpose, scale, vertices: self.len(), columns }, step })
    }
}

/// A [`Csr`], or its transpose, copied to a device.
#[derive(Debug)]
pub struct DeviceCsr {
    op: Spmm,
    /// The inputs after `x`.
    tables: Vec<(DeviceBuffer, DType, [usize; 2])>,
}

impl DeviceCsr {
    /// Copies the tables to `gpu`, on `stream`.
    ///
    /// # Errors
    /// `OutOfMemory`; `Device` if the driver refuses.
    ///
    /// # Examples
    #[cfg_attr(feature = "emu", doc = "```")]
    #[cfg_attr(not(feature = "emu"), doc = "```no_run")]
    /// use tgnn::{ops::functions::{Csr, DeviceCsr}, runtime::{DType, Device, cuda::*}};
    /// let device = Device::open("emu", 1)?;
    /// let gpu = device.gpu().expect("the device is not the CPU");
    /// let stream = CudaStream::new(gpu)?;
    /// // [[0, 2, 1], [3, 0, 0]] times [1, 10, 100]
    /// let a = Csr::rectangular(3, &[0, 2, 3], &[1, 2, 0], Some(&[2.0, 1.0, 3.0]))?;
    /// let a = DeviceCsr::new(&a, false, gpu, &stream)?;
    /// let (x, y) = (DeviceBuffer::new(gpu, 12)?, DeviceBuffer::new(gpu, 8)?);
    /// x.upload(&[1.0f32, 10.0, 100.0], &stream)?;
    /// let call = a.call(DeviceTensor::from_buffer(&x, DType::F32, [3, 1])?)?;
    /// let call = call.output(DeviceTensor::from_buffer(&y, DType::F32, [2, 1])?)?;
    /// let workspace = DeviceBuffer::new(gpu, call.workspace_bytes()?)?;
    /// workspace.fill(0, &stream)?;
    /// // SAFETY: all buffers live until the download below, which waits for the stream.
    /// unsafe { call.launch(gpu, &stream, workspace.address(), workspace.bytes())? };
    /// let mut found = [0.0f32; 2];
    /// y.download(&mut found, &stream)?;
    /// assert_eq!(found, [120.0, 3.0]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn new(a: &Csr, transpose: bool, gpu: &Gpu, stream: &CudaStream) -> Result<Self> {
        fn copy<T: Element>(values: &[T], gpu: &Gpu, stream: &CudaStream) -> Result<DeviceBuffer> {
            let buffer = DeviceBuffer::new(gpu, size_of_val(values))?;
            buffer.upload(values, stream)?;
            Ok(buffer)
        }
        let tables = a.tables(transpose).into_iter().map(|table| match table {
            CsrTable::Ids(ids, cols) => Ok((copy(ids, gpu, stream)?, DType::U32, [ids.len() / cols, cols])),
            CsrTable::Reals(reals) => Ok((copy(reals, gpu, stream)?, DType::F32, [reals.len(), 1])),
        });
        Ok(DeviceCsr { op: a.op(transpose), tables: tables.collect::<Result<_>>()? })
    }
    /// Returns the call that multiplies by `x`, whose only output is the product.
    ///
    /// # Errors
    /// `Shape` if the address of `x` is not aligned.
    pub fn call(&self, x: DeviceTensor) -> Result<DeviceCall<'_>> {
        let mut tables = self.tables.iter();
        tables.try_fold(DeviceCall::new(&self.op).input(x)?, |call, (buffer, dtype, shape)| {
            call.input(DeviceTensor::from_buffer(buffer, *dtype, *shape)?)
        })
    }
}

impl Tape {
    /// Appends the product of a sparse matrix of one's own and `x`, and returns `y = act(S A T x + bias)`,
    /// f32 `[n, d]` for `x` `[u, d]`, where the matrix is `[n, u]`. Its gradient uses the transpose.
    ///
    /// # Errors
    /// As [`spmm`](Self::spmm).
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::{epilogue::Activation, functions::Csr, *}, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
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
    /// Returns `degree^-1/2` of each row, where the degree is the sum of its values; 0 for a degree of 0 or
    /// less.
    fn degree_scales(&self) -> Vec<f32> {
        let degree = |(&begin, &len): (&u32, &u32)| -> f64 {
            let entries = begin as usize..(begin + len) as usize;
            let sum = |w: &Vec<f32>| w[entries.clone()].iter().map(|&w| f64::from(w)).sum();
            self.weight.as_ref().map_or(entries.len() as f64, sum)
        };
        let scale = |degree: f64| if degree > 0.0 { (1.0 / degree.sqrt()) as f32 } else { 0.0 };
        self.begin.iter().zip(&self.len).map(degree).map(scale).collect()
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
        CsrRows { long: LongRows::new(&len, n), begin: starts[..n].to_vec(), len, col, weight }
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
/// `Shape` if `x` does not have `d` columns and a row for each column of the matrix, or `y` not `d` columns
/// and the rows of the matrix.
pub fn spmm(a: &Csr, x: &[f32], d: usize, y: &mut [f32]) -> Result<()> {
    a.multiply(false, x, d, y)
}

/// Computes `dx = A^T dy`, the gradient of [`spmm`] with respect to `x`.
///
/// # Errors
/// As [`spmm`].
pub fn spmm_grad(a: &Csr, dy: &[f32], d: usize, dx: &mut [f32]) -> Result<()> {
    a.multiply(true, dy, d, dx)
}
