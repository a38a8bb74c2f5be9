//! `y[i] = norm(z[i])`, `z[i] = drop(act(own[root[i]] + x[position[i]]))`, the second term only where root i has a position
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `x` | `[m, d]` f32 | rows of the grouped roots |
//! | `order` | `[m]` u32 | the root that a row of `x` belongs to |
//! | `position` | `[n]` u32 | its inverse: the root's row of `x`, or [`NONE`] |
//! | `own` | `[q, d]` f32 | rows by unique root |
//! | `root` | `[n]` u32 | the root's row of `own` |
//! | `gain`, `bias` | `[1, d]` f32 | of the norm, which is that of [`layer_norm`] |
//! | `now` | `[1, 2]` u32, optional | clock of the drop-out, where there is one ([`Epilogue`]) |
//! | y | `[n, d]` f32 | |
//! | z, stats | `[n, d]`, `[n, 2]` f32 | for the backward |
//!
//! The end of an attention layer: brings rows from the order of [`group_roots`] back to that of the roots, adds what depends
//! on the root's node alone, and applies what follows, in one pass. Backward, with `dz` as [`layer_norm`] and then
//! [`epilogue`] say: `dx = dz[order]` in the same pass, `down = scatter_add_rows(dz, root)`. Deterministic.
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
    /// Appends [`UngroupNorm`] for rows `x` of `(order, position)`, and `own` rows by `root`; `norm` is `(gain, bias)`. An
    /// [`Activation`] is an epilogue too.
    ///
    /// # Errors
    /// `Shape` when rows or widths do not fit, or p of the drop-out is not in [0, 1).
    pub fn ungroup_norm(
        &mut self,
        x: Var,
        (order, position): (Var, Var),
        own: Var,
        root: Var,
        epilogue: impl Into<Epilogue>,
        (gain, bias): (Var, Var),
    ) -> Result<Var> {
        let epilogue = epilogue.into();
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
    fn rows<'a, R: Real>(&self, io: &Io<'a>, i: usize) -> (Option<&'a [R]>, Option<&'a [R]>) {
        let (x, position, own, root, d) =
            (io.input::<R>(0), io.input::<u32>(2), io.input::<R>(3), io.input::<u32>(4), io.cols(0));
        let row = |table: &'a [R], r: u32| Some(&table[io.row_of(i, r, table.len() / d)? * d..][..d]);
        (row(own, root[i]), row(x, position[i]))
    }
}

impl Op for UngroupNorm {
    const NAME: &'static str = "ungroup_norm";
    const KIND: OpKind = OpKind::Nn;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, 7 + usize::from(self.0.clock().is_some()))?;
        let [x, order, position, own, root] = [0, 1, 2, 3, 4].map(|i| ins[i]);
        typed(Self::NAME, "x", &x, DType::F32)?;
        ensure!(Self::NAME, order == Spec::ids(x.rows, 1), "x is {x}, order is {order}");
        ensure!(Self::NAME, own == Spec::real(own.rows, x.cols), "x is {x}, own is {own}");
        ensure!(
            Self::NAME,
            position == root && root == Spec::ids(root.rows, 1),
            "position is {position}, root is {root}"
        );
        layer_norm::check_weights(Self::NAME, &x, &ins[5..7])?;
        self.0.check(Self::NAME, ins)?;
        let z = Spec::real(root.rows, x.cols);
        Ok(vec![z.into(), z.into(), Spec::real(root.rows, 2).into()])
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost { bytes: 4 * (4 * outs[0].len() + 2 * ins[4].len() + outs[2].len()), flops: 10 * outs[0].len() }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (d, z) = (io.cols(0), io.out::<R>(1));
        for (i, z) in z.chunks_exact_mut(d).enumerate() {
            let (own, x) = self.rows::<R>(io, i);
            for (j, z) in z.iter_mut().enumerate() {
                let sum = own.map_or(R::ZERO, |own| own[j]) + x.map_or(R::ZERO, |x| x[j]);
                *z = self.0.of(io, sum, i * d + j);
            }
        }
        layer_norm::normalised(z, io.input(5), io.input(6), io.out(0), io.out(2));
    }
    fn cpu(&self, io: &Io<'_>) {
        let (d, n, gain, bias) = (io.cols(0), io.rows(4), io.input::<f32>(5), io.input::<f32>(6));
        if ![Activation::Identity, Activation::Relu].contains(&self.0.act) {
            return self.define::<f32>(io);
        }
        let size = team::piece(n, 128);
        let outs = io.out::<f32>(0).chunks_mut(size * d).zip(io.out::<f32>(2).chunks_mut(size * 2));
        outs.zip(io.out::<f32>(1).chunks_mut(size * d)).enumerate().in_parallel(
            1,
            |(piece, ((y, stats), z))| {
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
            },
        );
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (x, position, own, root) = (on.input(0), on.input(2), on.input(3), on.input(4));
        let (gain, bias, y, z, stats) = (on.input(5), on.input(6), on.kept(0), on.kept(1), on.kept(2));
        let (rows, grouped, roots) = (on.rows(4), on.rows(0), on.rows(3));
        let (grid, d, epilogue) = (Grid::warps(on.capacity(4)), on.cols(0), self.0.on_device(on));
        let eps = layer_norm::EPS as f32;
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe {
            k.ungroup_norm(
                on,
                grid,
                x,
                position,
                own,
                root,
                gain,
                bias,
                y,
                z,
                stats,
                rows,
                grouped,
                roots,
                d,
                eps,
                epilogue,
                on.status(),
            )
        }
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let mut dins = vec![None; node.ins.len()];
        let Some(dy) = douts[0] else { return Ok(dins) };
        let [_, order, position, own, root, gain, ..] = node.ins[..] else {
            return Err(Error::shape(Self::NAME, "seven inputs"));
        };
        let mut ins = vec![node.outs[1], gain, node.outs[2], dy, order, position];
        ins.extend(self.0.clock());
        let d = t.push(UngroupNormGrad(self.0), &ins)?;
        let rows = t.spec(own).rows;
        let down = t.scatter_add_rows(d[0], root, rows)?;
        (dins[0], dins[3], dins[5], dins[6]) = (Some(d[1]), Some(down), Some(d[2]), Some(d[3]));
        Ok(dins)
    }
}

impl UngroupNormGrad {
    /// `dx = dz[i]`, for the row at `at` of x.
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
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, 6 + usize::from(self.0.clock().is_some()))?;
        let [z, gain, stats, dy, order, position] = [0, 1, 2, 3, 4, 5].map(|i| ins[i]);
        layer_norm::check_gradient(Self::NAME, [&z, &gain, &stats, &dy])?;
        ensure!(Self::NAME, order == Spec::ids(order.rows, 1), "order is {order}");
        ensure!(Self::NAME, position == Spec::ids(z.rows, 1), "z is {z}, position is {position}");
        self.0.check(Self::NAME, ins)?;
        Ok([z, Spec::real(order.rows, z.cols), gain, gain].map(Out::from).to_vec())
    }
    fn scratch(&self, ins: &[Spec]) -> usize {
        layer_norm::gradient_scratch(ins[0].cols)
    }
    fn tickets(&self, _: &[Spec]) -> usize {
        1
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 16 * outs[0].len())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (z, order, d, dz) = (io.input::<R>(0), io.input::<u32>(4), io.cols(0), io.out::<R>(0));
        layer_norm::gradients(z, io.input(1), io.input(3), dz, io.out(2), io.out(3));
        for (i, (dz, &z)) in dz.iter_mut().zip(z).enumerate() {
            *dz = self.0.grad_of(io, z, *dz, i);
        }
        for (at, (dx, &i)) in io.out::<R>(1).chunks_exact_mut(d).zip(order).enumerate() {
            Self::take(io, at, i, dz, dx);
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (order, d) = (io.input::<u32>(4), io.cols(0));
        let then = |first, dz: &mut [f32], z: &[f32]| self.0.grad_in_place(io, first, dz, z);
        let (dz, size) = (layer_norm::gradients_on_host(io, [2, 3], then), team::piece(order.len(), 128));
        io.out::<f32>(1).chunks_mut(size * d).enumerate().in_parallel(1, |(piece, dx)| {
            for (at, dx) in (piece * size..).zip(dx.chunks_exact_mut(d)) {
                Self::take(io, at, order[at], dz, dx);
            }
        });
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (d, rows, (grid, each)) = (on.cols(0), on.rows(0), layer_norm::gradient_blocks(on.capacity(0)));
        let (z, gain, stats, dy, position) =
            (on.input(0), on.input(1), on.input(2), on.input(3), on.input(5));
        let (dz, dx, dgain, dbias) = (on.kept(0), on.out(1), on.out(2), on.out(3));
        let (sums, ticket, grouped, epilogue) =
            (on.scratch(), on.tickets(), on.out_rows(1), self.0.on_device(on));
        // SAFETY: `infer` checked the shapes, and the addresses are those of the operands.
        unsafe {
            k.ungroup_norm_grad(
                on, grid, z, gain, stats, dy, position, dz, dx, sums, ticket, dgain, dbias, rows, grouped, d,
                each, epilogue,
            )
        }
    }
}

/// `[roots, rows of own, d, drop-out in percent]`; every third root has no row of x.
pub(super) const CASES: &[&[usize]] =
    &[&[1, 1, 1, 0], &[0, 2, 3, 20], &[9, 4, 5, 0], &[9, 4, 5, 30], &[200, 33, 100, 0], &[200, 33, 100, 10]];
pub(super) const BENCH: &[&[usize]] = &[&[1_800, 700, 100, 10]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
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
