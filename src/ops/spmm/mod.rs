//! `y[i] = act(s_i sum_j w_ij s_j x[j] + b)`: a step's adjacency with symmetric normalisation, times a dense matrix
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `x` | `[v, d]` f32, or `[t v, d]` f32, bf16 or f16 | rows of the vertices; of the step's vertices where there are rows for all `t` steps |
//! | `steps` | `[l]` u32 below t, or [`NONE`]: y is `act(b)` | steps of a snapshot group, of which the op reads one |
//! | `begin`, `len` | `[t v]` u32 | where the neighbours of a step's vertex begin in the pool, and how many there are, itself among them |
//! | `col` | `[m]` u32 below v | the pool: neighbours j |
//! | `weight` | `[m, 1]` f32, optional | w; 1 without |
//! | `scale` | `[t v, 1]` f32 | s: `degree^-1/2`, 0 for a vertex that is not there |
//! | `first`, `slices` | `[t + 1]`, `[n, 4]` u32 | long rows and what they are cut into: see [`LongRows`] |
//! | `b` | `[1, d]` f32, optional | |
//! | y | `[v, d]` f32 | |
//!
//! Backward: `dz` as [`epilogue`] says, `dx = A^T dz` with the transposed adjacency, `db = sum_i dz`; none for an x that has rows of
//! all steps, for that is data. Deterministic: neighbours add up in
//! an order that depends on the adjacency alone.
//! Source: the propagation rule of GCN (Kipf and Welling 2017), equation 2.
mod cpu;
mod long_rows;

use super::{
    epilogue::{Activation, Epilogue},
    *,
};
use crate::runtime::{cuda::abi, parts};
pub use long_rows::{LongRows, Most};
use std::{ops::Range, ptr::null};

/// See the [module](self).
#[derive(Debug)]
pub struct Spmm {
    graph: GraphVars,
    place: usize,
    bias: bool,
    act: Activation,
}

/// Rows of neighbours of all steps' vertices, as values.
#[derive(Clone, Copy, Debug)]
pub struct AdjacencyVars {
    /// `[t v]` u32.
    pub begin: Var,
    /// `[t v]` u32.
    pub len: Var,
    /// `[m]` u32.
    pub col: Var,
    /// `[m, 1]` f32.
    pub weight: Option<Var>,
    /// `[t + 1]` u32 and `[n, 4]` u32 of the [`LongRows`].
    pub slices: [Var; 2],
    /// The most that any step has, of the same.
    pub most: Most,
}

/// The adjacency of all steps, and its transpose, as values.
#[derive(Clone, Copy, Debug)]
pub struct GraphVars {
    /// Neighbours whose rows a vertex gets.
    pub adjacency: AdjacencyVars,
    /// Neighbours that get a vertex's row.
    pub transpose: AdjacencyVars,
    /// `[t v, 1]` f32.
    pub scale: Var,
    /// v.
    pub vertices: usize,
}

impl Tape {
    /// Appends [`Spmm`] of the step at `place` of `steps`.
    ///
    /// # Errors
    /// `Shape` when types or widths do not fit.
    pub fn spmm(
        &mut self,
        graph: GraphVars,
        x: Var,
        (steps, place): (Var, usize),
        bias: Option<Var>,
        act: Activation,
    ) -> Result<Var> {
        let AdjacencyVars { begin, len, col, weight, slices: [first, slices], .. } = graph.adjacency;
        let ins = [x, steps, begin, len, col, graph.scale, first, slices];
        let ins: Vec<Var> = ins.into_iter().chain(weight).chain(bias).collect();
        self.push1(Spmm { graph, place, bias: bias.is_some(), act }, &ins)
    }
}

impl GraphVars {
    /// With every edge the other way round.
    fn transposed(self) -> Self {
        GraphVars { adjacency: self.transpose, transpose: self.adjacency, ..self }
    }
}

impl Spmm {
    /// Steps whose vertices have `rows` rows; any where there is no vertex.
    fn steps(&self, rows: usize) -> usize {
        rows.checked_div(self.graph.vertices).unwrap_or(NONE as usize)
    }
    fn most(&self) -> Most {
        self.graph.adjacency.most
    }
    fn weight(&self) -> Option<usize> {
        self.graph.adjacency.weight.map(|_| 8)
    }
    fn bias(&self) -> Option<usize> {
        self.bias.then_some(8 + usize::from(self.weight().is_some()))
    }
}

impl Op for Spmm {
    const NAME: &'static str = "spmm";
    const KIND: OpKind = OpKind::Graph;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, 8 + usize::from(self.weight().is_some()) + usize::from(self.bias))?;
        let [x, steps, begin, len, col, scale, first, slices] = [0, 1, 2, 3, 4, 5, 6, 7].map(|i| ins[i]);
        kept_reals(Self::NAME, "x", &x)?;
        ensure!(Self::NAME, steps == Spec::ids(steps.rows, 1), "steps are {steps}");
        ensure!(Self::NAME, self.place < steps.rows.capacity, "place {} of {steps}", self.place);
        let (v, rows, most) = (self.graph.vertices, begin.rows.capacity, self.most());
        for (what, spec, rows, cols) in [
            ("begin", &begin, rows, 1),
            ("len", &len, rows, 1),
            ("col", &col, col.rows.capacity, 1),
            ("slices", &slices, slices.rows.capacity, 4),
            ("the steps' slices", &first, first.rows.capacity, 1),
        ] {
            typed(Self::NAME, what, spec, DType::U32)?;
            shaped(Self::NAME, what, spec, rows, cols)?;
        }
        typed(Self::NAME, "scale", &scale, DType::F32)?;
        shaped(Self::NAME, "scale", &scale, rows, 1)?;
        if let Some(w) = self.weight() {
            typed(Self::NAME, "weight", &ins[w], DType::F32)?;
            shaped(Self::NAME, "weight", &ins[w], col.rows.capacity, 1)?;
        }
        ensure!(Self::NAME, rows.checked_rem(v).unwrap_or(rows) == 0, "{rows} rows of {v} vertices");
        ensure!(Self::NAME, most.rows <= most.slices, "{} long rows of {} slices", most.rows, most.slices);
        for (what, n) in [
            ("vertices", v),
            ("rows", rows),
            ("neighbours", col.rows.capacity),
            ("slices", slices.rows.capacity),
            ("slices of a step", most.slices),
            ("neighbours of a short row", most.short),
            ("place", self.place),
        ] {
            countable(Self::NAME, what, n)?;
        }
        Spec::real(Rows::fixed(most.slices), x.cols).check_size(Self::NAME)?;
        ensure!(Self::NAME, v == 0 || first.rows.capacity == rows / v + 1, "slices of other steps: {first}");
        ensure!(
            Self::NAME,
            x.rows == Rows::fixed(v) && !x.dtype.is_half() || x.rows == Rows::fixed(rows),
            "x is {x}"
        );
        let out = Spec::real(Rows::fixed(v), x.cols);
        if let Some(b) = self.bias() {
            typed(Self::NAME, "bias", &ins[b], DType::F32)?;
            shaped(Self::NAME, "bias", &ins[b], 1, out.cols)?;
        }
        Ok(vec![out.into()])
    }
    fn scratch(&self, ins: &[Spec]) -> usize {
        let x = ins[0];
        let stripes = cpu::stripes_len(self.graph.vertices, x.cols, x.dtype.size(Precision::F32));
        self.most().slices * x.cols + stripes
    }
    fn tickets(&self, _: &[Spec]) -> usize {
        self.most().rows
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        let (v, d, n) = (self.graph.vertices, outs[0].cols, self.most().neighbors);
        let entry = 4 + 4 * usize::from(self.weight().is_some());
        let rows = v * (d * (ins[0].dtype.size(Precision::F32) + 4) + 12);
        // How many neighbours there are is what somebody said.
        Cost { bytes: rows.saturating_add(n.saturating_mul(entry)), flops: n.saturating_mul(2 * d) }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        by_kept!(io.spec(0).dtype, R, self.plain(io));
    }
    fn cpu(&self, io: &Io<'_>) {
        match io.spec(0).dtype {
            DType::Bf16 => self.fast::<half::bf16>(io),
            DType::F16 => self.fast::<half::f16>(io),
            _ => self.fast::<f32>(io),
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (d, v, most) = (on.cols(0), self.graph.vertices, self.most());
        if v == 0 {
            return Ok(()); // and the tables may be of any number of steps
        }
        let operands = abi::Spmm {
            steps: on.input(1),
            begin: on.input(2),
            len: on.input(3),
            col: on.input(4),
            first: on.input(6),
            slices: on.input(7),
            weight: self.weight().map_or(null(), |w| on.input(w)),
            scale: on.input(5),
            bias: self.bias().map_or(null(), |b| on.input(b)),
            y: on.out(0),
            parts: on.scratch(),
            tickets: on.tickets(),
            place: self.place as u32,
            most_steps: self.steps(on.capacity(2)) as u32,
            x_rows: on.capacity(0) as u32,
            vertices: v as u32,
            d,
            short_rows: most.short as u32,
            most_slices: most.slices as u32,
            most_rows: most.rows as u32,
            pool: on.capacity(4) as u32,
            cut: on.capacity(7) as u32,
            then: Epilogue::from(self.act).on_device(on),
        };
        // Threads for four numbers each, and blocks for the slices before those of the rows.
        let mut grid = Grid::items(v * (d as usize).div_ceil(4).next_power_of_two());
        grid.blocks.0 += operands.most_slices;
        match on.spec(0).dtype.is_half() {
            true => {
                let (x, kind) = on.halves(0);
                // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
                unsafe { k.spmm_half(on, grid, x, kind, operands, on.status()) }
            }
            // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
            false => unsafe { k.spmm(on, grid, on.input(0), operands, on.status()) },
        }
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let mut dins = vec![None; node.ins.len()];
        let Some(dy) = douts[0] else { return Ok(dins) };
        let dz = Epilogue::from(self.act).grad(t, node.outs[0], dy)?;
        if t.spec(node.ins[0]).rows.capacity == self.graph.vertices {
            let at = (node.ins[1], self.place);
            dins[0] = Some(t.spmm(self.graph.transposed(), dz, at, None, Activation::Identity)?);
        }
        if let Some(b) = self.bias() {
            dins[b] = Some(t.push1(SumRows, &[dz])?);
        }
        Ok(dins)
    }
}

/// The neighbours that begin at a place of a pool of `all`; the tables may say more than there are.
fn within(begin: u32, len: u32, all: usize) -> Range<usize> {
    let begin = (begin as usize).min(all);
    begin..all.min(begin + len as usize)
}

impl Spmm {
    /// The step that is read, [`NONE`] where there are fewer.
    fn step(&self, io: &Io<'_>) -> u32 {
        io.input::<u32>(1).get(self.place).copied().unwrap_or(NONE)
    }
    fn plain<R: Real, T: Stored<R>>(&self, io: &Io<'_>) {
        let (d, v, x) = (io.cols(0), self.graph.vertices, io.input::<T>(0));
        let [begin, len, col] = [2, 3, 4].map(|i| io.input::<u32>(i));
        let (scale, weight) = (io.input::<R>(5), self.weight().map(|w| io.input::<R>(w)));
        let bias = self.bias().map(|b| io.input::<R>(b));
        let step = io.row_of(self.place, self.step(io), self.steps(begin.len()));
        let own = if io.rows(0) == v { 0 } else { step.unwrap_or(0) * v };
        let mut row = vec![R::ZERO; d];
        for (i, y) in io.out::<R>(0).chunks_exact_mut(d.max(1)).enumerate() {
            y.fill(R::ZERO);
            let at = step.map(|s| s * v + i);
            let entries = at.map_or(0..0, |at| within(begin[at], len[at], col.len()));
            for (e, j) in entries.map(|e| (e, col[e] as usize)).filter(|&(_, j)| j < v) {
                T::real(&x[(own + j) * d..][..d], &mut row);
                let factor = scale[step.unwrap_or(0) * v + j] * weight.map_or(R::ONE, |w| w[e]);
                y.iter_mut().zip(&row).for_each(|(y, &x)| *y += factor * x);
            }
            let own_scale = at.map_or(R::ZERO, |at| scale[at]);
            for (c, y) in y.iter_mut().enumerate() {
                *y = self.act.of(own_scale * *y + bias.map_or(R::ZERO, |b| b[c]));
            }
        }
    }
}

impl Spmm {
    fn fast<T: Element + cpu::Kept>(&self, io: &Io<'_>) {
        let (d, v, y) = (io.cols(0), self.graph.vertices, io.out::<f32>(0));
        if y.is_empty() {
            return;
        }
        let [begin, len, first] = [2, 3, 6].map(|i| io.input::<u32>(i));
        let step = io.row_of(self.place, self.step(io), self.steps(begin.len()));
        let rows = step.map_or(0..0, |s| s * v..(s + 1) * v);
        let slices = step.map_or(0..0, |s| first[s] as usize..first[s + 1] as usize);
        let own = if io.rows(0) == v { 0 } else { rows.start };
        let step = cpu::Step {
            x: &io.input::<T>(0)[own * d..][..v * d],
            begin: &begin[rows.clone()],
            len: &len[rows.clone()],
            col: io.input(4),
            weight: self.weight().map(|w| io.input(w)),
            scale: &io.input(5)[rows],
            bias: self.bias().map(|b| io.input(b)),
            act: self.act,
        };
        // Those that there is room for, each of four words.
        let slices = io.input::<u32>(7).as_chunks::<4>().0.get(slices).unwrap_or(&[]);
        let slices = &slices[..slices.len().min(self.most().slices)];
        cpu::multiply(&step, slices, io.scratch(), y, d);
    }
}

/// `y[0] = sum_i x[i]`: the gradient of a bias.
#[derive(Debug)]
pub struct SumRows;

/// On a device: most blocks that sum rows, and fewest rows of one.
const BLOCKS: usize = 128;
const BLOCK_ROWS: usize = 64;

impl Op for SumRows {
    const NAME: &'static str = "sum_rows";
    const KIND: OpKind = OpKind::Nn;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, 1)?;
        typed(Self::NAME, "x", &ins[0], DType::F32)?;
        Ok(vec![Spec::real(Rows::fixed(1), ins[0].cols).into()])
    }
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
        let (rows, d, each) = (on.rows(0), on.cols(0), on.capacity(0).div_ceil(BLOCKS).max(BLOCK_ROWS));
        let grid = Grid::new(on.capacity(0).div_ceil(each), Grid::THREADS);
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe {
            k.sum_rows(on, grid, on.input(0), on.out(0), on.scratch(), on.tickets(), rows, d, each as u32)
        }
    }
}

/// `[v, d, weighted, x, after, mean, longest]` of three steps: x of the vertices (0), or of all steps as one of
/// [`StoredAs::ALL`] (from 1 on); nothing comes after the sum, and no gradient is asked for (0), or a bias and tanh, with
/// gradients (1), of a step that is none, too (2); rows have up to twice `mean` neighbours, the second vertex `longest`.
pub(super) const CASES: &[&[usize]] = &[
    &[1, 1, 0, 0, 1, 1, 0],
    &[0, 3, 0, 0, 1, 0, 0],
    &[9, 5, 1, 0, 2, 3, 40],
    &[40, 64, 0, 0, 0, 5, 0],
    &[30, 16, 1, 1, 0, 3, 2500],
    &[10, 37, 1, 2, 1, 3, 1100],
    &[10, 132, 0, 3, 2, 2, 33],
    &[2, 300, 1, 0, 1, 1, 1030],
];
pub(super) const BENCH: &[&[usize]] = &[
    &[10_000, 64, 0, 0, 1, 20, 0],
    &[10_000, 64, 0, 0, 0, 20, 0],
    &[10_000, 64, 0, 0, 0, 10, 100_000],
    &[10_000, 64, 0, 2, 0, 20, 0],
    &[10_000, 256, 0, 0, 0, 20, 0],
];

/// The rows of a case: neighbours and weights of each vertex in each step.
type CaseRows = Vec<Vec<(u32, f32)>>;

fn case_rows(c: &mut CaseBuilder, dims: &[usize]) -> CaseRows {
    let (v, mean, longest) = (dims[0], dims[5], dims[6]);
    let len = |row: usize| if row % v == 1 && longest > 0 { longest } else { row % (2 * mean + 1) };
    (0..3 * v).map(|row| (0..len(row)).map(|_| (c.below(v) as u32, c.uniform() + 1.5)).collect()).collect()
}

/// The rows as values.
fn case_adjacency(c: &mut CaseBuilder, rows: &CaseRows, vertices: usize, weighted: bool) -> AdjacencyVars {
    let len: Vec<u32> = rows.iter().map(|row| row.len() as u32).collect();
    let begin: Vec<u32> = len.iter().scan(0, |end, n| Some(std::mem::replace(end, *end + n))).collect();
    let entries = || rows.iter().flatten();
    let plan = LongRows::of(&len, vertices);
    let weights: Vec<f32> = entries().map(|e| e.1).collect();
    AdjacencyVars {
        begin: c.ids(&begin, 1),
        len: c.ids(&len, 1),
        col: c.ids(&entries().map(|e| e.0).collect::<Vec<_>>(), 1),
        weight: weighted.then(|| c.values(Spec::real(Rows::fixed(weights.len()), 1), &weights)),
        slices: [c.ids(&plan.first, 1), c.ids(&plan.slices, 4)],
        most: plan.most,
    }
}

pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [v, d, weighted, kept, after, ..] = *dims else { return Err(Error::shape("spmm", "seven sizes")) };
    let rows = case_rows(c, dims);
    let scale = c.real_in(3 * v, 1, |u| 0.2 * u + 0.3);
    let mut turned = vec![Vec::new(); rows.len()];
    for (i, row) in rows.iter().enumerate() {
        row.iter().for_each(|&(j, w)| turned[i / v * v + j as usize].push(((i % v) as u32, w)));
    }
    let [adjacency, transpose] = [rows, turned].map(|rows| case_adjacency(c, &rows, v, weighted == 1));
    let graph = GraphVars { adjacency, transpose, scale, vertices: v };
    let x = match kept {
        0 => c.real(v, d),
        kept => c.kept(3 * v, d, StoredAs::ALL[kept - 1]),
    };
    let (b, steps) = ((after > 0).then(|| c.real(1, d)), c.ids(&[0, 2, NONE], 1));
    let act = if after > 0 { Activation::Tanh } else { Activation::Identity };
    let places = if after == 2 { 1..3 } else { 1..2 };
    let y: Vec<Var> = places.map(|at| c.tape.spmm(graph, x, (steps, at), b, act)).collect::<Result<_>>()?;
    let wrt: Vec<Var> = b.into_iter().chain((after > 0 && kept == 0).then_some(x)).collect();
    Ok(Built::new(&y, &wrt))
}

/// The matrix that a case's y is the product of, with its scales: starts of rows, columns, values.
///
/// # Errors
/// As the case's.
pub(crate) fn matrix_of(case: &Case) -> Result<(Vec<u32>, Vec<u32>, Vec<f32>)> {
    let mut c = CaseBuilder::new(Precision::F32, case.inputs);
    (case.build)(&mut c, case.dims)?;
    let ins = &c.tape.nodes()[0].ins;
    let (v, weighted) = (case.dims[0], case.dims[2] == 1);
    let id = |i: usize| match c.tape.home(ins[i]) {
        Home::Stored { id, .. } => Ok(id),
        Home::Step => Err(Error::shape("spmm", "a case's inputs are stored")),
    };
    // Of the last step, whose rows end where the pool does.
    let (begin, col) = (c.store.read::<u32>(id(2)?)?, c.store.read::<u32>(id(4)?)?);
    let (scale, first) = (&c.store.read::<f32>(id(5)?)?[2 * v..], begin[2 * v] as usize);
    let weight = if weighted { Some(c.store.read::<f32>(id(8)?)?) } else { None };
    let starts: Vec<u32> =
        begin[2 * v..].iter().chain([&(col.len() as u32)]).map(|b| b - begin[2 * v]).collect();
    let mut values = Vec::with_capacity(col.len() - first);
    for (i, row) in starts.windows(2).enumerate() {
        for e in first + row[0] as usize..first + row[1] as usize {
            values.push(scale[i] * scale[col[e] as usize] * weight.map_or(1.0, |w| w[e]));
        }
    }
    Ok((starts, col[first..].to_vec(), values))
}
