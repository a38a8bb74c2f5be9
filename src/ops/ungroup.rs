//! `y[i] = act(own[root[i]] + x[position[i]])`, the second term only where root i has a position
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `x` | `[m, d]` f32 | rows of the grouped roots |
//! | `order` | `[m]` u32 | the root that a row of `x` belongs to |
//! | `position` | `[n]` u32 | its inverse: the root's row of `x`, or [`NONE`] |
//! | `own` | `[q, d]` f32 | rows by distinct root |
//! | `root` | `[n]` u32 | the root's row of `own` |
//! | y | `[n, d]` f32 | |
//!
//! Brings rows from the order of [`group_roots`] back to that of the roots, adds what depends on
//! the root's node alone, and applies what follows, in one pass. Backward, with `dz = dy act'(y)`:
//! `dx = dz[order]`, `down = scatter_add_rows(dz, root)`. Deterministic.
use super::{
    linear::{Activation, ActivationGrad, above_zero},
    *,
};
use crate::runtime::{
    simd::vectorised,
    team::{self, InParallel},
};

/// See the [module](self).
#[derive(Debug)]
pub struct Ungroup(Activation);

impl Tape {
    /// Appends [`Ungroup`] for rows `x` of `(order, position)`, and `own` rows by `root`.
    ///
    /// # Errors
    /// `Shape` when rows or widths do not fit.
    pub fn ungroup(
        &mut self,
        x: Var,
        (order, position): (Var, Var),
        own: Var,
        root: Var,
        act: Activation,
    ) -> Result<Var> {
        self.push1(Ungroup(act), &[x, order, position, own, root])
    }
}

vectorised! {
    fn add_relu(y: &mut [f32], own: &[f32], x: Option<&[f32]>) {
        match x {
            Some(x) => {
                for ((y, &own), &x) in y.iter_mut().zip(own).zip(x) {
                    *y = above_zero(own + x);
                }
            }
            None => {
                for (y, &own) in y.iter_mut().zip(own) {
                    *y = above_zero(own);
                }
            }
        }
    }
}

impl Ungroup {
    fn rows<'a, R: Real>(&self, io: &Io<'a>, i: usize) -> (Option<&'a [R]>, Option<&'a [R]>) {
        let (x, position, own, root, d) =
            (io.input::<R>(0), io.input::<u32>(2), io.input::<R>(3), io.input::<u32>(4), io.cols(0));
        let row = |table: &'a [R], r: u32| Some(&table[io.row_of(i, r, table.len() / d)? * d..][..d]);
        (row(own, root[i]), row(x, position[i]))
    }
}

impl Op for Ungroup {
    const NAME: &'static str = "ungroup";
    const KIND: Kind = Kind::Graph;
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        arity(Self::NAME, ins, 5)?;
        let [x, order, position, own, root] = [0, 1, 2, 3, 4].map(|i| ins[i]);
        typed(Self::NAME, "x", &x, DType::F32)?;
        ensure!(Self::NAME, order == Spec::ids(x.rows, 1), "x is {x}, order is {order}");
        ensure!(Self::NAME, own == Spec::real(own.rows, x.cols), "x is {x}, own is {own}");
        ensure!(
            Self::NAME,
            position == root && root == Spec::ids(root.rows, 1),
            "position is {position}, root is {root}"
        );
        Ok(vec![Spec::real(root.rows, x.cols).into()])
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost { bytes: 4 * (3 * outs[0].len() + 2 * ins[4].len()), flops: 2 * outs[0].len() }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        for (i, y) in io.out::<R>(0).chunks_exact_mut(io.cols(0).max(1)).enumerate() {
            let (own, x) = self.rows::<R>(io, i);
            for (j, y) in y.iter_mut().enumerate() {
                *y = self.0.of(own.map_or(R::ZERO, |own| own[j]) + x.map_or(R::ZERO, |x| x[j]));
            }
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        if self.0 != Activation::Relu || io.cols(0) == 0 {
            return self.define::<f32>(io);
        }
        let (d, size) = (io.cols(0), team::piece(io.rows(4), 128));
        io.out::<f32>(0).chunks_mut(size * d).enumerate().in_parallel(1, |(piece, y)| {
            for (i, y) in (piece * size..).zip(y.chunks_exact_mut(d)) {
                match self.rows::<f32>(io, i) {
                    (Some(own), x) => add_relu(y, own, x),
                    (None, _) => y.fill(0.0), // a fault, which `row_of` has reported
                }
            }
        });
    }
    fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (x, position, own, root, y) = (on.input(0), on.input(2), on.input(3), on.input(4), on.out(0));
        let (rows, grouped, roots) = (on.rows(4), on.rows(0), on.rows(3));
        let (grid, d, (act, slope)) = (Grid::warps(on.cap(4)), on.cols(0), self.0.code());
        k.ungroup(on, grid, x, position, own, root, y, rows, grouped, roots, d, act, slope, on.status())
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let Some(dy) = douts[0] else { return Ok(vec![None; 5]) };
        let dz = match self.0 {
            Activation::Identity => dy,
            act => t.push1(ActivationGrad(act), &[node.outs[0], dy])?,
        };
        let dx = t.gather_rows(dz, node.ins[1])?;
        let rows = t.spec(node.ins[3]).rows;
        let down = t.scatter_add_rows(dz, node.ins[4], rows)?;
        Ok(vec![Some(dx), None, None, Some(down), None])
    }
}

/// `[roots, rows of own, d]`; every third root has no row of x.
pub(super) const CASES: &[&[usize]] = &[&[1, 1, 1], &[0, 2, 3], &[9, 4, 5], &[200, 33, 100]];
pub(super) const BENCH: &[&[usize]] = &[&[1_800, 700, 100]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [n, q, d] = *dims else { return Err(Error::shape("ungroup", "three sizes")) };
    let order: Vec<u32> = (0..n as u32).rev().filter(|i| i % 3 != 2).collect();
    let mut position = vec![NONE; n];
    order.iter().enumerate().for_each(|(at, &i)| position[i as usize] = at as u32);
    let (x, own) = (c.real(order.len(), d), c.real(q, d));
    let grouped = (c.ids(&order, 1), c.ids(&position, 1));
    let root = c.ids_below(n, q);
    let y = c.tape.ungroup(x, grouped, own, root, Activation::Relu)?;
    Ok(Built::new(&[y], &[x, own]))
}
