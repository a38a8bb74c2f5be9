//! `y[i] = act(s_i sum_j w_ij r_j x[j] + b)`: a step's adjacency with scaled rows and columns, times a dense
//! matrix
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `x` | `[u, d]` f32, or `[t u, d]` f32, bf16 or f16 | one row a column (u = v unless there is `column_scale`); or one row for each column of all `t` steps, of which the op reads those of its step |
//! | `steps` | `[l]` u32 below t, or [`NONE`]: y is `act(b)` | steps of a snapshot group, of which the op reads one |
//! | `begin`, `len` | `[t v]` u32 | index in the pool of the first neighbour of a step's vertex, and number of its neighbours, itself included; what lies beyond the pool is cut off |
//! | `col` | `[m]` u32 below u | the pool: neighbours j; [`NONE`] is skipped, others are a fault |
//! | `weight` | `[m, 1]` f32, optional | w; 1 if absent |
//! | `scale` | `[t v, 1]` f32 | s: `degree^-1/2`, 0 for an absent vertex |
//! | `column_scale` | `[t u, 1]` f32, optional | r; `scale` if absent. Comes after `weight` |
//! | `first`, `slices` | `[t + 1]`, `[n, 4]` u32 | the slices of long rows: see [`LongRows`] |
//! | `b` | `[1, d]` f32, optional | |
//! | y | `[v, d]` f32 | |
//!
//! Vertices are rows, and their neighbours are columns: usually of the same vertices, with `r = s`, the
//! symmetric normalisation. A rectangular matrix has u columns that are something else, such as the sources
//! of a sampled block.
//!
//! Backward: `dz` is computed from `dy` by the [`epilogue`]; `dx = A^T dz` with the transposed adjacency,
//! `db = sum_i dz`. An `x` with rows of all steps is data and has no gradient. Deterministic: the order in
//! which neighbours are summed depends on the adjacency alone.
//!
//! Source: the propagation rule of GCN (Kipf and Welling 2017), equation 2.
mod case;
mod cpu;
mod long_rows;

pub(in crate::ops) use self::case::build;
pub use self::case::matrix_of;
use super::{
    epilogue::{Activation, Epilogue},
    *,
};
use crate::runtime::{changes::Change, cuda::abi, parts};
pub use long_rows::{LongRows, Most};
use std::{ops::Range, ptr::null};

/// See the [module](self).
#[derive(Debug)]
pub struct Spmm {
    /// The graph as values of the op's tape, for the backward pass.
    graph: Option<GraphVars>,
    /// Number of vertices.
    vertices: usize,
    /// Number of columns, if they have scales of their own.
    columns: Option<usize>,
    /// Maximum counts over the steps.
    most: Most,
    /// Whether there are weights.
    weighted: bool,
    /// Index of the op's step among `steps`.
    step_index: usize,
    /// Whether there is a bias.
    bias: bool,
    act: Activation,
}

/// Values of one direction of the adjacency of all steps.
///
/// Example: [`Tape::spmm`].
#[derive(Clone, Copy, Debug)]
pub struct AdjacencyVars {
    /// Index of the first neighbour of each row in `col`, `[t v]` u32.
    pub begin: Var,
    /// Number of neighbours of each row, `[t v]` u32.
    pub len: Var,
    /// The pool of neighbours, `[m]` u32.
    pub col: Var,
    /// Weights of the neighbours, `[m, 1]` f32; 1 if `None`.
    pub weight: Option<Var>,
    /// `first`, `[t + 1]` u32, and `slices`, `[n, 4]` u32, of the [`LongRows`].
    pub slices: [Var; 2],
    /// Maximum counts over the steps, of the same [`LongRows`].
    pub most: Most,
}

/// Values of the adjacency of all steps and of its transpose.
///
/// Example: [`Tape::spmm`].
#[derive(Clone, Copy, Debug)]
pub struct GraphVars {
    /// For each vertex, the neighbours whose rows it sums.
    pub adjacency: AdjacencyVars,
    /// For each vertex, the neighbours that sum its row.
    pub transpose: AdjacencyVars,
    /// Scale of each vertex, `[t v, 1]` f32.
    pub scale: Var,
    /// Number of vertices, v.
    pub vertices: usize,
    /// The columns, if they are not the vertices: `None` for a square matrix with one scale per vertex.
    pub columns: Option<ColumnVars>,
}

/// Columns of a [`GraphVars`] that are not its vertices.
///
/// Example: [`Csr::rectangular`](super::functions::Csr::rectangular).
#[derive(Clone, Copy, Debug)]
pub struct ColumnVars {
    /// Scale of each column, `[t u, 1]` f32.
    pub scale: Var,
    /// Number of columns, u.
    pub count: usize,
}

impl Tape {
    /// Appends [`Spmm`] for step `step_index` of `steps`, and returns `y = act(S A S x + bias)`, f32 `[v,
    /// d]`, with the weighted adjacency A of the step and its scales S.
    ///
    /// # Errors
    /// `Shape` if types, row counts or widths do not fit.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::{epilogue::Activation, spmm::*, *}, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// // The path 0 - 1 - 2 with self-loops, without normalisation.
    /// let x = tape.input(&mut store, "x", Spec::real(Rows::fixed(3), 1), &[1.0f32, 10.0, 100.0])?;
    /// let begin = tape.input(&mut store, "begin", Spec::ids(Rows::fixed(3), 1), &[0u32, 2, 5])?;
    /// let len = tape.input(&mut store, "len", Spec::ids(Rows::fixed(3), 1), &[2u32, 3, 2])?;
    /// let col = tape.input(&mut store, "col", Spec::ids(Rows::fixed(7), 1), &[0u32, 1, 0, 1, 2, 1, 2])?;
    /// let scale = tape.input(&mut store, "scale", Spec::real(Rows::fixed(3), 1), &[1.0f32, 1.0, 1.0])?;
    /// let LongRows { first, slices, most } = LongRows::new(&[2, 3, 2], 3); // no row is long
    /// let first = tape.input(&mut store, "first", Spec::ids(Rows::fixed(2), 1), &first)?;
    /// let slices = tape.input(&mut store, "slices", Spec::ids(Rows::fixed(0), 4), &slices)?;
    /// let steps = store.zeros("steps", Spec::ids(Rows::fixed(1), 1))?;
    /// let steps = tape.stored(steps)?;
    /// let adjacency = AdjacencyVars { begin, len, col, weight: None, slices: [first, slices], most };
    /// let transpose = adjacency; // it is symmetric
    /// let graph = GraphVars { adjacency, transpose, scale, vertices: 3, columns: None };
    /// let y = tape.spmm(graph, x, (steps, 0), None, Activation::Identity)?; // of step 0, the only one
    /// let mut program = Program::new(&tape, &[y], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(y, &store)?, [11.0, 111.0, 110.0]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn spmm(
        &mut self,
        graph: GraphVars,
        x: Var,
        (steps, step_index): (Var, usize),
        bias: Option<Var>,
        act: Activation,
    ) -> Result<Var> {
        let AdjacencyVars { begin, len, col, weight, slices: [first, slices], .. } = graph.adjacency;
        let ins = [x, steps, begin, len, col, graph.scale, first, slices];
        let column_scale = graph.columns.map(|columns| columns.scale);
        let ins: Vec<Var> = ins.into_iter().chain(weight).chain(column_scale).chain(bias).collect();
        let AdjacencyVars { most, weight, .. } = graph.adjacency;
        let op = Spmm::new(graph.vertices, most, weight.is_some(), step_index, bias.is_some(), act);
        let op = Spmm { columns: graph.columns.map(|columns| columns.count), ..op };
        self.push1(Spmm { graph: Some(graph), ..op }, &ins)
    }
}

impl GraphVars {
    /// Returns the graph with all edges reversed.
    fn transposed(self) -> Self {
        let turned = GraphVars { adjacency: self.transpose, transpose: self.adjacency, ..self };
        let Some(ColumnVars { scale, count }) = self.columns else { return turned };
        let columns = Some(ColumnVars { scale: self.scale, count: self.vertices });
        GraphVars { scale, vertices: count, columns, ..turned }
    }
}

impl Spmm {
    // Input indices; the optional weight and bias follow.

    /// Creates the op for step `step_index` of an adjacency with `vertices` rows a step and these maximum
    /// counts ([`LongRows::most`]). Only an op that a tape makes has a backward pass; the gradient of `x` is
    /// the same op over the transposed adjacency.
    pub fn new(
        vertices: usize,
        most: Most,
        weighted: bool,
        step_index: usize,
        bias: bool,
        act: Activation,
    ) -> Self {
        Spmm { graph: None, vertices, columns: None, most, weighted, step_index, bias, act }
    }
    /// Returns the same op for a matrix with `count` columns a step, which have scales of their own.
    #[must_use]
    pub fn with_columns(self, count: usize) -> Self {
        Spmm { columns: Some(count), ..self }
    }
    /// Returns the number of columns of a step.
    fn columns(&self) -> usize {
        self.columns.unwrap_or(self.vertices)
    }
    /// Returns the number of steps of tables with `rows` rows; [`NONE`] if there are no vertices.
    fn steps(&self, rows: usize) -> usize {
        rows.checked_div(self.vertices).unwrap_or(NONE as usize)
    }
    fn most(&self) -> Most {
        self.most
    }
    /// Returns the input index of the weights.
    fn weight(&self) -> Option<usize> {
        self.weighted.then_some(at!(slices) + 1)
    }
    /// Returns the input index of the scales of the columns.
    fn column_scale(&self) -> usize {
        self.columns.map_or(at!(scale), |_| at!(slices) + 1 + usize::from(self.weighted))
    }
    /// Returns the input index of the bias.
    fn bias(&self) -> Option<usize> {
        self.bias.then_some(self.inputs() - 1)
    }
    fn inputs(&self) -> usize {
        at!(slices)
            + 1
            + [self.weighted, self.columns.is_some(), self.bias].map(usize::from).iter().sum::<usize>()
    }
    /// Returns the number of rows of tables with a row for each column of each step, if the other tables have
    /// `rows` rows. Without vertices the steps are unknown, and count as one.
    fn rows_of_columns(&self, rows: usize) -> usize {
        rows.checked_div(self.vertices).unwrap_or(1).saturating_mul(self.columns())
    }
}

impl Op for Spmm {
    const NAME: &'static str = "spmm";
    const KIND: OpKind = OpKind::Graph;
    const SIGNATURE: &'static str = "x [r, d] stored, steps [s] ids, begin [R] ids, len [R] ids, col [C] ids, \
        scale [R], first [F] ids, slices [S, 4] ids, weight? [C], column_scale? [Q], bias? [1, d] \
        -> y [v, d]";
    fn sizes(&self) -> Sizes {
        vec![("v", Rows::fixed(self.vertices))]
    }
    fn has(&self, operand: &str) -> Option<bool> {
        Some(match operand {
            "weight" => self.weighted,
            "column_scale" => self.columns.is_some(),
            _ => self.bias,
        })
    }
    fn check(&self, ins: &[Spec]) -> Result<()> {
        let (x, steps) = (ins[at!(x)], ins[at!(steps)]);
        let (step_index, length) = (self.step_index, steps.rows.capacity);
        ensure!(Self::NAME, step_index < length, "step index is {step_index}, want less than {length}");
        let (v, rows, most) = (self.vertices, ins[at!(begin)].rows.capacity, self.most());
        ensure!(
            Self::NAME,
            rows.checked_rem(v).unwrap_or(rows) == 0,
            "the tables have {rows} rows, want a multiple of {v} vertices"
        );
        ensure!(Self::NAME, most.rows <= most.slices, "{} long rows, but {} slices", most.rows, most.slices);
        let (col, first, slices) = (ins[at!(col)], ins[at!(first)], ins[at!(slices)]);
        let (columns, all) = (self.columns(), self.rows_of_columns(rows));
        for (what, n) in [
            ("vertices", v),
            ("columns", columns),
            ("rows", rows),
            ("rows of columns", all),
            ("neighbours", col.rows.capacity),
            ("slices", slices.rows.capacity),
            ("slices of a step", most.slices),
            ("neighbours of a short row", most.short),
            ("step index", step_index),
        ] {
            countable(Self::NAME, what, n)?;
        }
        Spec::real(Rows::fixed(most.slices), x.cols).check_size(Self::NAME)?;
        // Without vertices the number of steps is unknown.
        let (steps, scale) = (v == 0 || first.rows.capacity == rows / v + 1, ins[self.column_scale()]);
        ensure!(Self::NAME, steps, "first is {first}, want one row a step and one more");
        let scaled = self.columns.is_none() || v == 0 || scale.rows.capacity == all;
        ensure!(Self::NAME, scaled, "column_scale is {scale}, want {all} rows");
        ensure!(
            Self::NAME,
            x.rows == Rows::fixed(columns) && !x.dtype.is_half() || x.rows == Rows::fixed(all),
            "x is {x}, want {columns} rows of f32, one for each column of the matrix, or {all} rows"
        );
        Ok(())
    }
    fn scratch(&self, ins: &[Spec]) -> usize {
        let x = ins[at!(x)];
        let stripes = cpu::stripes_len(self.columns(), x.cols, x.dtype.size(Precision::F32));
        self.most().slices * x.cols + stripes
    }
    fn tickets(&self, _: &[Spec]) -> usize {
        self.most().rows
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        let (v, u, d, n) = (self.vertices, self.columns(), outs[0].cols, self.most().neighbors);
        let entry = 4 + 4 * usize::from(self.weight().is_some());
        let rows = u * d * ins[at!(x)].dtype.size(Precision::F32) + v * (4 * d + 12);
        // The number of neighbours is the caller's claim and may be anything, so the sums saturate.
        Cost { bytes: rows.saturating_add(n.saturating_mul(entry)), flops: n.saturating_mul(2 * d) }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        by_storage!(io.spec(at!(x)).dtype, R, self.define_stored(io));
    }
    fn cpu(&self, io: &Io<'_>) {
        match io.spec(at!(x)).dtype {
            DType::Bf16 => self.multiply_stored::<half::bf16>(io),
            DType::F16 => self.multiply_stored::<half::f16>(io),
            _ => self.multiply_stored::<f32>(io),
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (d, v, most) = (on.cols(at!(x)), self.vertices, self.most());
        if v == 0 {
            return Ok(()); // the number of steps is unknown
        }
        let operands = abi::Spmm {
            steps: on.input(at!(steps)),
            begin: on.input(at!(begin)),
            len: on.input(at!(len)),
            col: on.input(at!(col)),
            first: on.input(at!(first)),
            slices: on.input(at!(slices)),
            weight: self.weight().map_or(null(), |w| on.input(w)),
            scale: on.input(at!(scale)),
            column_scale: on.input(self.column_scale()),
            bias: self.bias().map_or(null(), |b| on.input(b)),
            y: on.out(0),
            parts: on.scratch(),
            tickets: on.tickets(),
            place: self.step_index as u32,
            most_steps: self.steps(on.capacity(at!(begin))) as u32,
            x_rows: on.capacity(at!(x)) as u32,
            vertices: v as u32,
            columns: self.columns() as u32,
            d,
            short_rows: most.short as u32,
            most_slices: most.slices as u32,
            most_rows: most.rows as u32,
            pool: on.capacity(at!(col)) as u32,
            cut: on.capacity(at!(slices)) as u32,
            unused: 0,
            then: Epilogue::from(self.act).on_device(on),
        };
        // A thread for every four numbers of a row; the blocks of the slices come before those of the rows.
        let mut grid = Grid::items(v * (d as usize).div_ceil(4).next_power_of_two());
        grid.blocks.0 += operands.most_slices;
        let (status, small) = (on.status(), on.stream().gpu().has(Change::Small));
        if on.spec(at!(x)).dtype.is_half() {
            let (x, kind) = on.halves(at!(x));
            match small {
                true => launch!(k, on, spmm_half[grid]; x, kind, operands, status),
                false => launch!(k, on, spmm_half_before[grid]; x, kind, operands, status),
            }
        } else {
            let x = on.input(at!(x));
            match small {
                true => launch!(k, on, spmm[grid]; x, operands, status),
                false => launch!(k, on, spmm_before[grid]; x, operands, status),
            }
        }
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let mut dins = vec![None; node.ins.len()];
        let Some(dy) = douts[0] else { return Ok(dins) };
        let dz = Epilogue::from(self.act).grad(t, node.outs[0], dy)?;
        if t.spec(node.ins[at!(x)]).rows.capacity == self.columns() {
            let graph = self.graph.ok_or_else(|| Error::shape(Self::NAME, "its transpose is unknown"))?;
            let step = (node.ins[at!(steps)], self.step_index);
            dins[at!(x)] = Some(t.spmm(graph.transposed(), dz, step, None, Activation::Identity)?);
        }
        if let Some(b) = self.bias() {
            dins[b] = Some(t.push1(SumRows, &[dz])?);
        }
        Ok(dins)
    }
}

/// Returns the range of `len` neighbours from index `begin` on, clipped to a pool of `pool` neighbours.
fn pool_range(begin: u32, len: u32, pool: usize) -> Range<usize> {
    let begin = (begin as usize).min(pool);
    begin..pool.min(begin + len as usize)
}

impl Spmm {
    /// Returns the step that the op reads; `None` for [`NONE`], and, with a fault, for a step outside of the
    /// tables.
    fn step(&self, io: &Io<'_>) -> Option<usize> {
        let step = io.input::<u32>(at!(steps)).get(self.step_index).copied().unwrap_or(NONE);
        io.row_of(self.step_index, step, self.steps(io.input::<u32>(at!(begin)).len()))
    }
    /// Runs the definition on an `x` stored as `T`.
    fn define_stored<R: Real, T: Stored<R>>(&self, io: &Io<'_>) {
        let (d, v, u, x) = (io.cols(at!(x)), self.vertices, self.columns(), io.input::<T>(at!(x)));
        let [begin, len, col] = [at!(begin), at!(len), at!(col)].map(|i| io.input::<u32>(i));
        let (scale, column_scale) = (io.input::<R>(at!(scale)), io.input::<R>(self.column_scale()));
        let weight = self.weight().map(|w| io.input::<R>(w));
        let bias = self.bias().map(|b| io.input::<R>(b));
        let step = self.step(io);
        let first_column = step.unwrap_or(0) * u;
        let first_row = if io.rows(at!(x)) == u { 0 } else { first_column };
        let mut row = vec![R::ZERO; d];
        for (i, y) in io.out::<R>(0).chunks_exact_mut(d.max(1)).enumerate() {
            y.fill(R::ZERO);
            let at = step.map(|s| s * v + i);
            let entries = at.map_or(0..0, |at| pool_range(begin[at], len[at], col.len()));
            for (e, j) in entries.filter_map(|e| Some((e, io.row_of(e, col[e], u)?))) {
                T::real(&x[(first_row + j) * d..][..d], &mut row);
                let factor = column_scale[first_column + j] * weight.map_or(R::ONE, |w| w[e]);
                y.iter_mut().zip(&row).for_each(|(y, &x)| *y += factor * x);
            }
            let row_scale = at.map_or(R::ZERO, |at| scale[at]);
            for (c, y) in y.iter_mut().enumerate() {
                *y = self.act.apply(row_scale * *y + bias.map_or(R::ZERO, |b| b[c]));
            }
        }
    }
    /// Runs the fast host path on an `x` stored as `T`.
    fn multiply_stored<T: Element + cpu::StoredNumber>(&self, io: &Io<'_>) {
        let (d, v, u, y) = (io.cols(at!(x)), self.vertices, self.columns(), io.out::<f32>(0));
        if y.is_empty() {
            return;
        }
        let [begin, len, first] = [at!(begin), at!(len), at!(first)].map(|i| io.input::<u32>(i));
        let step = self.step(io);
        let [rows, columns] = [v, u].map(|n| step.map_or(0..0, |s| s * n..(s + 1) * n));
        let slices = step.map_or(0..0, |s| first[s] as usize..first[s + 1] as usize);
        let first_row = if io.rows(at!(x)) == u { 0 } else { columns.start };
        let step = cpu::Step {
            io,
            x: io.input::<T>(at!(x)).get(first_row * d..(first_row + u) * d).unwrap_or(&[]),
            begin: &begin[rows.clone()],
            len: &len[rows.clone()],
            col: io.input(at!(col)),
            weight: self.weight().map(|w| io.input(w)),
            scale: &io.input(at!(scale))[rows],
            column_scale: &io.input(self.column_scale())[columns],
            bias: self.bias().map(|b| io.input(b)),
            act: self.act,
        };
        // The tables may list more slices than the scratch buffer has space for.
        let slices = io.input::<u32>(at!(slices)).as_chunks::<4>().0.get(slices).unwrap_or(&[]);
        let slices = &slices[..slices.len().min(self.most().slices)];
        cpu::multiply(&step, slices, io.scratch(), y, d);
    }
}

/// `y[0] = sum_i x[i]`: the gradient of a bias.
#[derive(Debug)]
pub struct SumRows;

/// Maximum number of blocks that sum rows on a device.
const BLOCKS: usize = 128;
/// Minimum number of rows of such a block.
const BLOCK_ROWS: usize = 64;

impl Op for SumRows {
    const NAME: &'static str = "sum_rows";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "x [n, d] -> y [1, d]";
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (x, y) = (io.input::<R>(0), io.out::<R>(0));
        y.fill(R::ZERO);
        x.chunks_exact(y.len().max(1)).for_each(|row| y.iter_mut().zip(row).for_each(|(y, &x)| *y += x));
    }
    fn scratch(&self, ins: &[Spec]) -> usize {
        parts::PARTS.max(BLOCKS) * ins[0].cols
    }
    fn tickets(&self, _: &[Spec]) -> usize {
        1
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, ins[0].len())
    }
    fn cpu(&self, io: &Io<'_>) {
        parts::column_sums(io.out(0), io.input(0), io.scratch());
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let block_rows = on.capacity(0).div_ceil(BLOCKS).max(BLOCK_ROWS);
        let grid = Grid::new(on.capacity(0).div_ceil(block_rows), Grid::THREADS);
        let (x, y, rows, d, block_rows) = (on.input(0), on.out(0), on.rows(0), on.cols(0), block_rows as u32);
        launch!(k, on, sum_rows[grid]; x, y, on.scratch(), on.tickets(), rows, d, block_rows)
    }
}

/// `[v, d, weighted, x, epilogue, mean, longest, u]`, over three steps; without u the matrix is square.
/// - `x`: 0 for one row a vertex, n > 0 for rows of all steps stored as `StoredAs::ALL[n - 1]`.
/// - `epilogue`: 0 for none, without gradients; 1 for bias and tanh, with gradients; 2 for the same, and
///   additionally for a step that is [`NONE`].
/// - Rows have up to `2 mean` neighbours, and the second vertex has `longest` if that is not 0.
pub(in crate::ops) const CASES: &[&[usize]] = &[
    &[1, 1, 0, 0, 1, 1, 0],
    &[0, 3, 0, 0, 1, 0, 0],
    &[9, 5, 1, 0, 2, 3, 40],
    &[40, 64, 0, 0, 0, 5, 0],
    &[30, 16, 1, 1, 0, 3, 2500],
    &[10, 37, 1, 2, 1, 3, 1100],
    &[10, 132, 0, 3, 2, 2, 33],
    &[2, 300, 1, 0, 1, 1, 1030],
    &[7, 5, 1, 0, 2, 3, 40, 12],
    &[12, 16, 0, 0, 1, 2, 1100, 3],
    &[9, 33, 1, 2, 1, 3, 0, 20],
    &[3, 4, 0, 0, 1, 0, 0, 0],
    &[0, 4, 0, 0, 1, 0, 0, 5],
];
pub(in crate::ops) const BENCH: &[&[usize]] = &[
    &[10_000, 64, 0, 0, 1, 20, 0],
    &[10_000, 64, 0, 0, 0, 20, 0],
    &[10_000, 64, 0, 0, 0, 10, 100_000],
    &[10_000, 64, 0, 2, 0, 20, 0],
    &[10_000, 256, 0, 0, 0, 20, 0],
];
