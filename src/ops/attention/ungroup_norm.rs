//! `y[i] = norm(z[i])`, `z[i] = drop(act(own[root[i]] + x[position[i]]))`, without the second term if root i
//! has no position.
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `x` | `[m, d]` f32 | rows of the grouped roots |
//! | `order` | `[m]` u32 | root of each row of `x` |
//! | `position` | `[n]` u32 | inverse of `order`: the root's row of `x`, or [`NONE`] |
//! | `own` | `[q, d]` f32 | rows by unique root |
//! | `root` | `[n]` u32 | the root's row of `own` |
//! | `gain`, `bias` | `[1, d]` f32 | weights of the norm, as in [`layer_norm`] |
//! | `now` | `[1, 2]` or `[1, 3]` u32, optional | clock of the dropout, if the [`Epilogue`] has one |
//! | y | `[n, d]` f32 | output rows, in the order of the roots |
//! | z, stats | `[n, d]`, `[n, 2]` f32 | saved for the backward pass |
//!
//! This op ends an attention layer. In one pass, it brings rows from the order of [`group_roots`] back to the
//! order of the roots, adds the term that depends only on the root's node, and applies activation, dropout
//! and norm. Backward, with `dz` as in [`layer_norm`] and then [`epilogue`]: `dx = dz[order]` in the same
//! pass, and `down = scatter_add_rows(dz, root)` is the gradient of `own`. Deterministic.
use super::{
    epilogue::{Activation, Epilogue, above_zero, case_drop},
    *,
};
use crate::runtime::{
    simd::vectorised,
    team::{self, InParallel},
};

/// See the [module](self).
#[derive(Debug)]
pub struct UngroupNorm(Epilogue);
/// Gradients of z before its epilogue, of `x`, `gain` and `bias`.
#[derive(Debug)]
pub struct UngroupNormGrad(Epilogue);

impl Tape {
    /// Appends [`UngroupNorm`] for rows `x` grouped by `(order, position)` and rows `own` indexed by `root`.
    /// An [`Activation`] alone is an epilogue, too.
    ///
    /// # Errors
    /// `Shape` if rows or widths do not match, or if p of the dropout is not in [0, 1).
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::{epilogue::Activation, *}, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let x = tape.input(&mut store, "x", Spec::real(Rows::fixed(1), 2), &[4.0f32, 0.0])?;
    /// let order = tape.input(&mut store, "order", Spec::ids(Rows::fixed(1), 1), &[1u32])?;
    /// let position = tape.input(&mut store, "position", Spec::ids(Rows::fixed(2), 1), &[NONE, 0])?;
    /// let own = tape.input(&mut store, "own", Spec::real(Rows::fixed(1), 2), &[1.0f32, 3.0])?;
    /// let root = tape.input(&mut store, "root", Spec::ids(Rows::fixed(2), 1), &[0u32, 0])?;
    /// let gain = tape.input(&mut store, "gain", Spec::real(Rows::fixed(1), 2), &[1.0f32, 1.0])?;
    /// let bias = tape.input(&mut store, "bias", Spec::real(Rows::fixed(1), 2), &[0.0f32, 0.0])?;
    /// let (rows, weights, act) = ((order, position), (gain, bias), Activation::Identity);
    /// let y = tape.ungroup_norm(x, rows, own, root, act, weights)?;
    /// let mut program = Program::new(&tape, &[y], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// // Root 0 has its own row 1, 3 alone; root 1 has 1 + 4, 3 + 0. Then each row is normalised.
    /// let want = [-1.0, 1.0, 1.0, -1.0];
    /// assert!(program.read::<f32>(y, &store)?.iter().zip(want).all(|(y, w)| (y - w).abs() < 1e-4));
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn ungroup_norm(
        &mut self,
        x: Var,
        (order, position): (Var, Var),
        own: Var,
        root: Var,
        epilogue: impl Into<Epilogue>,
        (gain, bias): (Var, Var),
    ) -> Result<Var> {
        self.check(UngroupNorm::NAME, root)?;
        self.check(UngroupNorm::NAME, x)?;
        let epilogue = epilogue.into().over(self.spec(root).rows, self.spec(x).cols);
        let mut ins = vec![x, order, position, own, root, gain, bias];
        ins.extend(epilogue.clock());
        Ok(self.push(UngroupNorm(epilogue), &ins)?[0])
    }
}

vectorised! {
    fn add_into(z: &mut [f32], own: &[f32], x: Option<&[f32]>) {
        match x {
            Some(x) => {
                for ((z, &own), &x) in z.iter_mut().zip(own).zip(x) {
                    *z = own + x;
                }
            }
            None => z.copy_from_slice(own),
        }
    }
    fn relu(z: &mut [f32]) {
        for z in z {
            *z = above_zero(*z);
        }
    }
}

impl UngroupNorm {
    /// Returns the rows of `own` and of `x` for root `i`.
    fn rows<'a, R: Real>(&self, io: &Io<'a>, i: usize) -> (Option<&'a [R]>, Option<&'a [R]>) {
        let (x, position) = (io.input::<R>(at!(x)), io.input::<u32>(at!(position)));
        let (own, root, d) = (io.input::<R>(at!(own)), io.input::<u32>(at!(root)), io.cols(at!(x)));
        let row = |table: &'a [R], r: u32| Some(&table[io.row_of(i, r, table.len() / d)? * d..][..d]);
        (row(own, root[i]), row(x, position[i]))
    }
}

impl Op for UngroupNorm {
    const NAME: &'static str = "ungroup_norm";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "x [m, d], order [m] ids, position [n] ids, own [q, d], root [n] ids, \
        gain [1, d], bias [1, d], now? [1, c] ids -> y [n, d], z [n, d], stats [n, 2]";
    fn has(&self, _: &str) -> Option<bool> {
        Some(self.0.clock().is_some())
    }
    fn check(&self, ins: &[Spec]) -> Result<()> {
        some_columns(Self::NAME, "x", &ins[at!(x)])?;
        self.0.check(Self::NAME, ins)
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        let (y, stats) = (outs[0].len(), outs[2].len());
        Cost { bytes: 4 * (4 * y + 2 * ins[at!(root)].len() + stats), flops: 10 * y }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (d, z) = (io.cols(at!(x)), io.out::<R>(1));
        for (i, z) in z.chunks_exact_mut(d).enumerate() {
            let (own, x) = self.rows::<R>(io, i);
            for (j, z) in z.iter_mut().enumerate() {
                let sum = own.map_or(R::ZERO, |own| own[j]) + x.map_or(R::ZERO, |x| x[j]);
                *z = self.0.apply(io, sum, i * d + j);
            }
        }
        layer_norm::normalised(z, io.input(at!(gain)), io.input(at!(bias)), io.out(0), io.out(2));
    }
    fn cpu(&self, io: &Io<'_>) {
        let (d, n) = (io.cols(at!(x)), io.rows(at!(root)));
        let (gain, bias) = (io.input::<f32>(at!(gain)), io.input::<f32>(at!(bias)));
        if ![Activation::Identity, Activation::Relu].contains(&self.0.act) {
            return self.define::<f32>(io);
        }
        let (size, y, z, stats) = (team::piece(n, 128), io.out::<f32>(0), io.out::<f32>(1), io.out::<f32>(2));
        let pieces = y.chunks_mut(size * d).zip(stats.chunks_mut(size * 2)).zip(z.chunks_mut(size * d));
        pieces.enumerate().in_parallel(1, |(piece, ((y, stats), z))| {
            let first = piece * size;
            for (i, z) in (first..).zip(z.chunks_exact_mut(d)) {
                match self.rows::<f32>(io, i) {
                    (Some(own), x) => add_into(z, own, x),
                    (None, _) => z.fill(0.0), // a fault, which `row_of` has reported
                }
            }
            if self.0.act == Activation::Relu {
                relu(z);
            }
            self.0.drop(io, first * d, z);
            layer_norm::forward(y, stats, z, gain, bias);
        });
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (x, position) = (on.input(at!(x)), on.input(at!(position)));
        let (own, root) = (on.input(at!(own)), on.input(at!(root)));
        let (gain, bias) = (on.input(at!(gain)), on.input(at!(bias)));
        let (y, z, stats) = (on.needed(0), on.needed(1), on.needed(2));
        let (rows, grouped, roots) = (on.rows(at!(root)), on.rows(at!(x)), on.rows(at!(own)));
        let (grid, d) = (Grid::warps(on.capacity(at!(root))), on.cols(at!(x)));
        let (eps, epilogue, status) = (layer_norm::EPS as f32, self.0.on_device(on), on.status());
        launch!(
            k, on, ungroup_norm[grid];
            x, position, own, root, gain, bias, y, z, stats, rows, grouped, roots, d, eps, epilogue,
            status
        )
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let mut dins = vec![None; node.ins.len()];
        let Some(dy) = douts[0] else { return Ok(dins) };
        let [_, order, position, own, root, gain, ..] = node.ins[..] else {
            return Err(Error::shape(Self::NAME, "seven inputs"));
        };
        let mut ins = vec![node.outs[1], gain, node.outs[2], dy, order, position];
        ins.extend(self.0.clock());
        let grads = t.push(UngroupNormGrad(self.0), &ins)?;
        let rows = t.spec(own).rows;
        let down = t.scatter_add_rows(grads[0], root, rows)?;
        dins[at!(x)] = Some(grads[1]);
        dins[at!(own)] = Some(down);
        dins[at!(gain)] = Some(grads[2]);
        dins[at!(bias)] = Some(grads[3]);
        Ok(dins)
    }
}

impl UngroupNormGrad {
    /// Copies row `i` of dz into `dx`, which is row `at` of the gradient of x.
    fn take<R: Real>(io: &Io<'_>, at: usize, i: u32, dz: &[R], dx: &mut [R]) {
        match io.row_of(at, i, io.rows(0)) {
            Some(i) => dx.copy_from_slice(&dz[i * dx.len()..][..dx.len()]),
            None => dx.fill(R::ZERO),
        }
    }
}

impl Op for UngroupNormGrad {
    const NAME: &'static str = "ungroup_norm_grad";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "z [n, d], gain [1, d], stats [n, 2], dy [n, d], order [m] ids, \
        position [n] ids, now? [1, c] ids -> dz [n, d], dx [m, d], dgain [1, d], dbias [1, d]";
    fn has(&self, _: &str) -> Option<bool> {
        Some(self.0.clock().is_some())
    }
    fn check(&self, ins: &[Spec]) -> Result<()> {
        some_columns(Self::NAME, "z", &ins[at!(z)])?;
        self.0.check(Self::NAME, ins)
    }
    fn scratch(&self, ins: &[Spec]) -> usize {
        layer_norm::gradient_scratch(ins[at!(z)].cols)
    }
    fn tickets(&self, _: &[Spec]) -> usize {
        1
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 16 * outs[0].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (z, order, d) = (io.input::<R>(at!(z)), io.input::<u32>(at!(order)), io.cols(at!(z)));
        let (gain, dy) = (io.input(at!(gain)), io.input(at!(dy)));
        let (dz, dx, dgain, dbias) = (io.out::<R>(0), io.out::<R>(1), io.out(2), io.out(3));
        layer_norm::gradients(z, gain, dy, dz, dgain, dbias);
        for (i, (dz, &z)) in dz.iter_mut().zip(z).enumerate() {
            *dz = self.0.grad_of(io, z, *dz, i);
        }
        for (at, (dx, &i)) in dx.chunks_exact_mut(d).zip(order).enumerate() {
            Self::take(io, at, i, dz, dx);
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (order, d) = (io.input::<u32>(at!(order)), io.cols(at!(z)));
        let epilogue = |first, dz: &mut [f32], z: &[f32]| self.0.grad_in_place(io, first, dz, z);
        let (dz, size) = (layer_norm::gradients_on_host(io, [2, 3], epilogue), team::piece(order.len(), 128));
        io.out::<f32>(1).chunks_mut(size * d).enumerate().in_parallel(1, |(piece, dx)| {
            for (at, dx) in (piece * size..).zip(dx.chunks_exact_mut(d)) {
                Self::take(io, at, order[at], dz, dx);
            }
        });
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (d, rows) = (on.cols(at!(z)), on.rows(at!(z)));
        let (grid, block_rows) = layer_norm::gradient_blocks(on.capacity(at!(z)));
        let (z, gain, stats) = (on.input(at!(z)), on.input(at!(gain)), on.input(at!(stats)));
        let (dy, position) = (on.input(at!(dy)), on.input(at!(position)));
        let (dz, dx, dgain, dbias) = (on.needed(0), on.out(1), on.out(2), on.out(3));
        let (sums, ticket) = (on.scratch(), on.tickets());
        let (grouped, epilogue) = (on.out_rows(1), self.0.on_device(on));
        launch!(
            k, on, ungroup_norm_grad[grid];
            z, gain, stats, dy, position, dz, dx, sums, ticket, dgain, dbias, rows, grouped, d,
            block_rows, epilogue
        )
    }
}

/// `[roots, rows of own, d, dropout percentage]`; every third root has no row of x.
pub(in crate::ops) const CASES: &[&[usize]] =
    &[&[1, 1, 1, 0], &[0, 2, 3, 20], &[9, 4, 5, 0], &[9, 4, 5, 30], &[200, 33, 100, 0], &[200, 33, 100, 10]];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[1_800, 700, 100, 10]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [n, q, d, drop] = *dims else { return Err(Error::shape("ungroup_norm", "four sizes")) };
    let order: Vec<u32> = (0..n as u32).rev().filter(|i| i % 3 != 2).collect();
    let mut position = vec![NONE; n];
    order.iter().enumerate().for_each(|(at, &i)| position[i as usize] = at as u32);
    let (x, own) = (c.real(order.len(), d), c.real(q, d));
    let grouped = (c.ids(&order, 1), c.ids(&position, 1));
    let root = c.ids_below(n, q);
    let epilogue = Activation::Relu.then_drop(case_drop(c, drop));
    let norm = (c.real(1, d), c.real(1, d));
    let y = c.tape.ungroup_norm(x, grouped, own, root, epilogue, norm)?;
    Ok(Built::new(&[y], &[x, own, norm.0, norm.1]))
}
