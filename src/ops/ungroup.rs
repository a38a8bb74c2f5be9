//! `y[i] = drop(act(own[root[i]] + x[position[i]]))`, the second term only where root i has a position
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `x` | `[m, d]` f32 | rows of the grouped roots |
//! | `order` | `[m]` u32 | the root that a row of `x` belongs to |
//! | `position` | `[n]` u32 | its inverse: the root's row of `x`, or [`NONE`] |
//! | `own` | `[q, d]` f32 | rows by distinct root |
//! | `root` | `[n]` u32 | the root's row of `own` |
//! | `now` | `[1, 2]` u32, optional | clock of the drop-out, where there is one ([`Epilogue`]) |
//! | y | `[n, d]` f32 | |
//!
//! Brings rows from the order of [`group_roots`] back to that of the roots, adds what depends on
//! the root's node alone, and applies what follows, in one pass. Backward, with `dz` as [`epilogue`] says:
//! `dx = dz[order]`, `down = scatter_add_rows(dz, root)`. Deterministic.
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
pub struct Ungroup(Epilogue);

impl Tape {
    /// Appends [`Ungroup`] for rows `x` of `(order, position)`, and `own` rows by `root`; an [`Activation`] is an
    /// epilogue too.
    ///
    /// # Errors
    /// `Shape` when rows or widths do not fit, or p of the drop-out is not in [0, 1).
    pub fn ungroup(
        &mut self,
        x: Var,
        (order, position): (Var, Var),
        own: Var,
        root: Var,
        epilogue: impl Into<Epilogue>,
    ) -> Result<Var> {
        let epilogue = epilogue.into();
        let mut ins = vec![x, order, position, own, root];
        ins.extend(epilogue.clock());
        self.push1(Ungroup(epilogue), &ins)
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
        arity(Self::NAME, ins, 5 + usize::from(self.0.clock().is_some()))?;
        let [x, order, position, own, root] = [0, 1, 2, 3, 4].map(|i| ins[i]);
        typed(Self::NAME, "x", &x, DType::F32)?;
        ensure!(Self::NAME, order == Spec::ids(x.rows, 1), "x is {x}, order is {order}");
        ensure!(Self::NAME, own == Spec::real(own.rows, x.cols), "x is {x}, own is {own}");
        ensure!(
            Self::NAME,
            position == root && root == Spec::ids(root.rows, 1),
            "position is {position}, root is {root}"
        );
        self.0.check(Self::NAME, ins)?;
        Ok(vec![Spec::real(root.rows, x.cols).into()])
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost { bytes: 4 * (3 * outs[0].len() + 2 * ins[4].len()), flops: 2 * outs[0].len() }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let d = io.cols(0);
        for (i, y) in io.out::<R>(0).chunks_exact_mut(d.max(1)).enumerate() {
            let (own, x) = self.rows::<R>(io, i);
            for (j, y) in y.iter_mut().enumerate() {
                let z = own.map_or(R::ZERO, |own| own[j]) + x.map_or(R::ZERO, |x| x[j]);
                *y = self.0.of(io, z, i * d + j);
            }
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        if self.0.act != Activation::Relu || io.cols(0) == 0 {
            return self.define::<f32>(io);
        }
        let (d, size) = (io.cols(0), team::piece(io.rows(4), 128));
        io.out::<f32>(0).chunks_mut(size * d).enumerate().in_parallel(1, |(piece, y)| {
            let first = piece * size;
            for (i, y) in (first..).zip(y.chunks_exact_mut(d)) {
                match self.rows::<f32>(io, i) {
                    (Some(own), x) => add_relu(y, own, x),
                    (None, _) => y.fill(0.0), // a fault, which `row_of` has reported
                }
            }
            self.0.drop(io, first * d, y);
        });
    }
    fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (x, position, own, root, y) = (on.input(0), on.input(2), on.input(3), on.input(4), on.out(0));
        let (rows, grouped, roots) = (on.rows(4), on.rows(0), on.rows(3));
        let (grid, d, epilogue) = (Grid::warps(on.cap(4)), on.cols(0), self.0.on_device(on));
        k.ungroup(on, grid, x, position, own, root, y, rows, grouped, roots, d, epilogue, on.status())
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let Some(dy) = douts[0] else { return Ok(vec![None; node.ins.len()]) };
        let dz = self.0.grad(t, node.outs[0], dy)?;
        let dx = t.gather_rows(dz, node.ins[1])?;
        let rows = t.spec(node.ins[3]).rows;
        let down = t.scatter_add_rows(dz, node.ins[4], rows)?;
        let mut dins = vec![Some(dx), None, None, Some(down), None];
        dins.resize(node.ins.len(), None);
        Ok(dins)
    }
}

/// `[roots, rows of own, d, drop-out in percent]`; every third root has no row of x.
pub(super) const CASES: &[&[usize]] =
    &[&[1, 1, 1, 0], &[0, 2, 3, 20], &[9, 4, 5, 0], &[9, 4, 5, 30], &[200, 33, 100, 0], &[200, 33, 100, 10]];
pub(super) const BENCH: &[&[usize]] = &[&[1_800, 700, 100, 10]];
pub(super) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [n, q, d, drop] = *dims else { return Err(Error::shape("ungroup", "four sizes")) };
    let order: Vec<u32> = (0..n as u32).rev().filter(|i| i % 3 != 2).collect();
    let mut position = vec![NONE; n];
    order.iter().enumerate().for_each(|(at, &i)| position[i as usize] = at as u32);
    let (x, own) = (c.real(order.len(), d), c.real(q, d));
    let grouped = (c.ids(&order, 1), c.ids(&position, 1));
    let root = c.ids_below(n, q);
    let epilogue = Activation::Relu.then_drop(case_drop(c, drop));
    let y = c.tape.ungroup(x, grouped, own, root, epilogue)?;
    Ok(Built::new(&[y], &[x, own]))
}
