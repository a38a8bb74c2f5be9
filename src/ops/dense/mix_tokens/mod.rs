//! `y = x + drop(W2 drop(GELU(W1 LayerNorm(x) + b1)) + b2)` over the k rows of each root: tokens are mixed
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `x` | `[n k, d]` f32, `d > 0` | n roots with k tokens of d channels each |
//! | `gain`, `bias` | `[1, k]` f32, `0 < k <= 1024` | of the normalisation over the tokens of a channel |
//! | `w1`, `b1` | `[m, k]`, `[1, m]` f32, `m > 0` | first layer: m hidden units |
//! | `w2`, `b2` | `[k, m]`, `[1, k]` f32 | second layer |
//! | `now` | `[1, 2]` or `[1, 3]` u32, only with a dropout | clock of both dropouts ([`epilogue`]) |
//! | y | `[n k, d]` f32 | |
//!
//! The formula holds for each column of the k rows of a root. The rows are multiplied from the left, so
//! nothing is transposed, and a root stays in a core's cache, or in shared memory, from x to y. The second
//! dropout has the next salt. Element `c` of hidden unit `j` of root `i` has number `(i m + j) d + c`.
//!
//! Backward: everything but `x` is computed again. Let `v = LayerNorm(x)` and `z = W1 v + b1`. Then
//! `du = drop(dy)`, `dz = drop(W2^T du) gelu'(z)`, `dv = W1^T dz`, and dx is dy plus the gradient of
//! [`layer_norm`] from dv. Gradients of weights are sums over roots and columns. Deterministic.
//!
//! Source: token mixing of the MLP-Mixer (Tolstikhin et al. 2021), in the form of GraphMixer (Cong et al.,
//! ICLR 2023).
mod cpu;

use super::{
    epilogue::{Activation, DropRate, Epilogue, case_drop},
    gelu::{below, density, fast_below},
    layer_norm::{EPS, moments},
    *,
};
use crate::runtime::parts;

/// See the [module](self).
#[derive(Clone, Copy, Debug)]
pub struct MixTokens {
    /// Dropouts of the hidden units and of the sums of the second layer.
    drops: [Epilogue; 2],
}
/// Gradients of all inputs.
#[derive(Debug)]
pub struct MixTokensGrad(MixTokens);

/// Weights of a [`MixTokens`].
///
/// Example: [`Tape::mix_tokens`].
#[derive(Clone, Copy, Debug)]
pub struct MixerVars {
    /// Gain and bias of the normalisation, `[1, k]` each.
    pub norm: [Var; 2],
    /// `[m, k]` weights and `[1, m]` bias of the first layer.
    pub first: [Var; 2],
    /// `[k, m]` weights and `[1, k]` bias of the second layer.
    pub second: [Var; 2],
}

/// Maximum number of tokens.
const MOST_TOKENS: usize = 1024;
/// Threads of a block on a device.
const THREADS: usize = Grid::THREADS as usize;
/// Numbers in the shared memory of a block (`MEMORY` and `GRAD_MEMORY` in `kernels/mix_tokens.cu`).
const MEMORY: usize = 8_000;
const GRAD_MEMORY: usize = 12_000;
/// Maximum number of blocks that sum the gradients of weights, and of the numbers that they sum.
const BLOCKS: usize = 512;
const MOST_SUMS: usize = 1 << 24;

impl Tape {
    /// Appends [`MixTokens`] and returns y, `[n k, d]` as `x`: the k tokens of each root, mixed. `drop` is
    /// the first dropout and the clock of both; the second has the next salt.
    ///
    /// # Errors
    /// `Shape` if types, rows or widths do not match, if there is no column, token or hidden unit, if there
    /// are more than 1,024 tokens, or if the dropout probability is not in [0, 1).
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::{mix_tokens::MixerVars, *}, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let mut input = |name, rows, values: &[f32]| {
    ///     tape.input(&mut store, name, Spec::real(Rows::fixed(rows), values.len() / rows), values)
    /// };
    /// // One root with two tokens of one channel, 1 and 3, which are normalised to -1 and 1.
    /// let x = input("x", 2, &[1.0, 3.0])?;
    /// let norm = [input("gain", 1, &[1.0, 1.0])?, input("bias", 1, &[0.0, 0.0])?];
    /// let first = [input("w1", 1, &[0.0, 10.0])?, input("b1", 1, &[0.0])?]; // the hidden unit is 10
    /// let second = [input("w2", 2, &[1.0, 2.0])?, input("b2", 1, &[0.0, 0.5])?];
    /// let y = tape.mix_tokens(x, MixerVars { norm, first, second }, None)?;
    /// let mut program = Program::new(&tape, &[y], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// let y = program.read::<f32>(y, &store)?;
    /// assert!((y[0] - (1.0 + 10.0)).abs() < 1e-3 && (y[1] - (3.0 + 20.5)).abs() < 1e-3);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn mix_tokens(&mut self, x: Var, w: MixerVars, drop: Option<(DropRate, Var)>) -> Result<Var> {
        let MixerVars { norm, first, second } = w;
        let mut ins: Vec<Var> = [&[x][..], &norm, &first, &second].concat();
        ins.iter().try_for_each(|&v| self.check(MixTokens::NAME, v))?;
        let Spec { rows, cols, .. } = self.spec(x);
        let [k, m] = [norm[0], first[1]].map(|v| self.spec(v).cols);
        let hidden = rows.live.map(|live| Live { times: (live.times / k.max(1)).saturating_mul(m), ..live });
        let next = drop.map(|(rate, now)| (DropRate { salt: rate.salt.wrapping_add(1), ..rate }, now));
        let drops = [
            Activation::Identity.then_drop(drop).over(Rows { live: hidden, ..rows }, cols),
            Activation::Identity.then_drop(next).over(rows, cols),
        ];
        ins.extend(drops[0].clock());
        self.push1(MixTokens { drops }, &ins)
    }
}

/// The operands that the op and its gradient share, at the same positions.
#[derive(Clone, Copy)]
struct Operands<'a, R> {
    x: &'a [R],
    gain: &'a [R],
    bias: &'a [R],
    w1: &'a [R],
    b1: &'a [R],
    w2: &'a [R],
    k: usize,
    m: usize,
    d: usize,
}

impl<'a, R: Real> Operands<'a, R> {
    fn new(io: &Io<'a>) -> Self {
        Operands {
            x: io.input(at!(MixTokens, x)),
            gain: io.input(at!(MixTokens, gain)),
            bias: io.input(at!(MixTokens, bias)),
            w1: io.input(at!(MixTokens, w1)),
            b1: io.input(at!(MixTokens, b1)),
            w2: io.input(at!(MixTokens, w2)),
            k: io.cols(at!(MixTokens, gain)),
            m: io.cols(at!(MixTokens, b1)),
            d: io.cols(at!(MixTokens, x)),
        }
    }
    fn roots(&self) -> usize {
        self.x.len() / (self.k * self.d)
    }
    /// Returns the position of token `t` of column `c` of root `i`.
    fn at(&self, i: usize, t: usize, c: usize) -> usize {
        (i * self.k + t) * self.d + c
    }
}

/// What the definition computes of one column of a root: normalised tokens and their factor, hidden units
/// before and after the GELU and the dropout.
struct Column<R> {
    xh: Vec<R>,
    rstd: R,
    z: Vec<R>,
    g: Vec<R>,
}

impl MixTokens {
    fn column<R: Real>(&self, io: &Io<'_>, o: &Operands<'_, R>, i: usize, c: usize) -> Column<R> {
        let x: Vec<R> = (0..o.k).map(|t| o.x[o.at(i, t, c)]).collect();
        let (mean, rstd) = moments(&x);
        let xh: Vec<R> = x.iter().map(|&x| (x - mean) * rstd).collect();
        let sum = |j: usize| (0..o.k).map(|t| o.w1[j * o.k + t] * (xh[t] * o.gain[t] + o.bias[t])).sum::<R>();
        let z: Vec<R> = (0..o.m).map(|j| o.b1[j] + sum(j)).collect();
        let g = z.iter().enumerate();
        let g = g.map(|(j, &z)| self.drops[0].apply(io, z * below(z), (i * o.m + j) * o.d + c)).collect();
        Column { xh, rstd, z, g }
    }
    /// Checks the inputs of this op, called `op`, or of its gradient.
    fn check_inputs(&self, op: &'static str, ins: &[Spec]) -> Result<()> {
        let [x, gain, b1] = [at!(x), at!(gain), at!(b1)];
        for (what, i) in [("x", x), ("gain", gain), ("b1", b1)] {
            some_columns(op, what, &ins[i])?;
        }
        let (k, m) = (ins[gain].cols, ins[b1].cols);
        ensure!(op, k <= MOST_TOKENS, "gain is {}, want at most {MOST_TOKENS} columns", ins[gain]);
        countable(op, "weights of a layer", k.saturating_mul(m))?;
        countable(op, "elements", ins[x].len())?;
        self.drops[0].check(op, ins)
    }
}

impl Op for MixTokens {
    const NAME: &'static str = "mix_tokens";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "x [n k, d], gain [1, k], bias [1, k], w1 [m, k], b1 [1, m], w2 [k, m], \
        b2 [1, k], now? [1, c] ids -> y [n k, d]";
    fn has(&self, _: &str) -> Option<bool> {
        Some(self.drops[0].clock().is_some())
    }
    fn check(&self, ins: &[Spec]) -> Result<()> {
        self.check_inputs(Self::NAME, ins)
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 4 * outs[0].len() * ins[at!(b1)].cols)
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (o, b2, y) = (Operands::<R>::new(io), io.input::<R>(at!(b2)), io.out::<R>(0));
        for i in 0..o.roots() {
            for c in 0..o.d {
                let column = self.column(io, &o, i, c);
                for (t, &b2) in b2.iter().enumerate() {
                    let at = o.at(i, t, c);
                    let u = b2 + (0..o.m).map(|j| o.w2[t * o.m + j] * column.g[j]).sum::<R>();
                    y[at] = o.x[at] + self.drops[1].apply(io, u, at);
                }
            }
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        cpu::forward(&self.drops, io);
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (tokens, hidden, d) = (on.cols(at!(gain)), on.cols(at!(b1)), on.cols(at!(x)));
        let tile = Tile::new([tokens, hidden], [1, 1], MEMORY);
        let grid = Grid::items(tile.count(&on.spec(at!(x)), tokens).saturating_mul(THREADS));
        let [x, gain, bias, w1] = [at!(x), at!(gain), at!(bias), at!(w1)].map(|i| on.input(i));
        let [b1, w2, b2] = [at!(b1), at!(w2), at!(b2)].map(|i| on.input(i));
        let [first, second] = self.drops.map(|drop| drop.on_device(on));
        launch!(
            k, on, mix_tokens[grid];
            x, gain, bias, w1, b1, w2, b2, on.out(0), on.rows(at!(x)), tokens, hidden, d, EPS as f32,
            tile.columns, tile.hidden, first, second
        )
    }
    fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>> {
        let mut dins = vec![None; node.ins.len()];
        if let Some(dy) = douts[0] {
            let mut ins = node.ins[..at!(b2)].to_vec();
            ins.push(dy);
            ins.extend(self.drops[0].clock());
            let grads = t.push(MixTokensGrad(*self), &ins)?;
            dins.iter_mut().zip(grads).for_each(|(din, grad)| *din = Some(grad));
        }
        Ok(dins)
    }
}

/// What a block of a kernel has in shared memory at a time: columns, counted over all roots, and hidden
/// units.
struct Tile {
    columns: u32,
    hidden: u32,
}

impl Tile {
    /// Returns the largest tile of k tokens and m hidden units that fits into `memory` numbers. A column
    /// takes one number, and `each[0]` for a token and `each[1]` for a hidden unit.
    fn new([k, m]: [u32; 2], each: [usize; 2], memory: usize) -> Self {
        // Fewer hidden units at a time would leave threads without work.
        const LEAST_HIDDEN: usize = 64;
        let (k, m) = (k as usize, m as usize);
        let size = |hidden: usize| 1 + each[0] * k + each[1] * hidden;
        // A thread computes four tokens of four columns at a time.
        let of_threads = 4 * (THREADS / k.div_ceil(4)).clamp(1, THREADS / 4);
        let columns = (memory / size(m.min(LEAST_HIDDEN))).min(of_threads);
        let columns = if columns < 4 { columns } else { columns / 4 * 4 };
        let hidden = ((memory / columns - size(0)) / each[1]).min(m);
        Tile { columns: columns as u32, hidden: hidden as u32 }
    }
    /// Returns the number of tiles of `x` with k tokens a root.
    fn count(&self, x: &Spec, k: u32) -> usize {
        (x.len() / k as usize).div_ceil(self.columns as usize)
    }
}

impl MixTokensGrad {
    /// Returns the sizes of the gradients of the weights, in the order of the outputs.
    fn sizes([k, m]: [usize; 2]) -> [usize; 6] {
        [k, k, m * k, m, k * m, k]
    }
    /// Returns the tile of the kernel, and its number of blocks, each of which sums gradients.
    fn blocks(ins: &[Spec]) -> (Tile, usize) {
        let [k, m] = [ins[at!(gain)].cols, ins[at!(b1)].cols];
        let tile = Tile::new([k as u32, m as u32], [3, 2], GRAD_MEMORY);
        let sums: usize = Self::sizes([k, m]).iter().sum();
        let blocks = tile.count(&ins[at!(x)], k as u32).min(BLOCKS).min(MOST_SUMS / sums).max(1);
        (tile, blocks)
    }
}

impl Op for MixTokensGrad {
    const NAME: &'static str = "mix_tokens_grad";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "x [n k, d], gain [1, k], bias [1, k], w1 [m, k], b1 [1, m], w2 [k, m], \
        dy [n k, d], now? [1, c] ids \
        -> dx [n k, d], dgain [1, k], dbias [1, k], dw1 [m, k], db1 [1, m], dw2 [k, m], db2 [1, k]";
    fn has(&self, _: &str) -> Option<bool> {
        self.0.has("now")
    }
    fn check(&self, ins: &[Spec]) -> Result<()> {
        self.0.check_inputs(Self::NAME, ins)
    }
    fn scratch(&self, ins: &[Spec]) -> usize {
        let sums: usize = Self::sizes([ins[at!(gain)].cols, ins[at!(b1)].cols]).iter().sum();
        (parts::PARTS + 1).max(Self::blocks(ins).1) * sums
    }
    fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost {
        Cost::streaming(ins, outs, 10 * outs[0].len() * ins[at!(b1)].cols)
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let (o, dy, dx) = (Operands::<R>::new(io), io.input::<R>(at!(dy)), io.out::<R>(0));
        let [dgain, dbias, dw1, db1, dw2, db2] = [1, 2, 3, 4, 5, 6].map(|i| {
            let sum = io.out::<R>(i);
            sum.fill(R::ZERO);
            sum
        });
        for (i, c) in (0..o.roots()).flat_map(|i| (0..o.d).map(move |c| (i, c))) {
            let Column { xh, rstd, z, g } = self.0.column(io, &o, i, c);
            let du = |t: usize| self.0.drops[1].apply(io, dy[o.at(i, t, c)], o.at(i, t, c));
            let du: Vec<R> = (0..o.k).map(du).collect();
            let dz = |j: usize| {
                let dg = (0..o.k).map(|t| du[t] * o.w2[t * o.m + j]).sum::<R>();
                let slope = below(z[j]) + z[j] * density(z[j]);
                self.0.drops[0].apply(io, dg * slope, (i * o.m + j) * o.d + c)
            };
            let dz: Vec<R> = (0..o.m).map(dz).collect();
            let dv: Vec<R> = (0..o.k).map(|t| (0..o.m).map(|j| dz[j] * o.w1[j * o.k + t]).sum()).collect();
            let k = R::from_f64(o.k as f64);
            let mean_g = (0..o.k).map(|t| dv[t] * o.gain[t]).sum::<R>() / k;
            let mean_gx = (0..o.k).map(|t| dv[t] * o.gain[t] * xh[t]).sum::<R>() / k;
            for t in 0..o.k {
                let at = o.at(i, t, c);
                dx[at] = (dv[t] * o.gain[t] - mean_g - xh[t] * mean_gx) * rstd + dy[at];
                dgain[t] += dv[t] * xh[t];
                dbias[t] += dv[t];
                db2[t] += du[t];
                for j in 0..o.m {
                    dw1[j * o.k + t] += dz[j] * (xh[t] * o.gain[t] + o.bias[t]);
                    dw2[t * o.m + j] += du[t] * g[j];
                }
            }
            db1.iter_mut().zip(dz).for_each(|(db1, dz)| *db1 += dz);
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        cpu::backward(&self.0.drops, io);
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let ins: Vec<Spec> = (0..on.inputs()).map(|i| on.spec(i)).collect();
        let (tile, blocks) = Self::blocks(&ins);
        let (tokens, hidden, d) = (on.cols(at!(gain)), on.cols(at!(b1)), on.cols(at!(x)));
        let [x, gain, bias, w1] = [at!(x), at!(gain), at!(bias), at!(w1)].map(|i| on.input(i));
        let [b1, w2, dy] = [at!(b1), at!(w2), at!(dy)].map(|i| on.input(i));
        let [first, second] = self.0.drops.map(|drop| drop.on_device(on));
        launch!(
            k, on, mix_tokens_grad[Grid::new(blocks, Grid::THREADS)];
            x, gain, bias, w1, b1, w2, dy, on.out(0), on.scratch(), on.rows(at!(x)), tokens, hidden, d,
            EPS as f32, tile.columns, tile.hidden, first, second
        )?;
        let sums: usize = Self::sizes([tokens as usize, hidden as usize]).iter().sum();
        let [dgain, dbias, dw1, db1, dw2, db2] = [1, 2, 3, 4, 5, 6].map(|i| on.out(i));
        launch!(
            k, on, mix_tokens_weight_grads[Grid::new(sums.div_ceil(32), Grid::THREADS)];
            on.scratch(), blocks as u32, dgain, dbias, dw1, db1, dw2, db2, tokens, hidden
        )
    }
}

/// `[n, k, m, d, dropout in percent]`; `n` of `n + 2` roots are live. Among them no root, one root, one
/// token (whose normalised value is 0), several roots in a tile and several tiles in a root. The last cases
/// have more hidden units than a tile takes at a time, and so many tokens that a tile has fewer than four
/// columns.
pub(in crate::ops) const CASES: &[&[usize]] = &[
    &[1, 1, 1, 1, 0],
    &[0, 3, 2, 4, 30],
    &[3, 4, 2, 5, 30],
    &[1, 20, 10, 100, 10],
    &[7, 20, 10, 37, 0],
    &[33, 7, 6, 36, 20],
    &[2, 5, 9, 260, 10],
    &[2, 2, 70, 8, 10],
    &[1, 1000, 3, 5, 10],
];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[1_800, 20, 10, 100, 10]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [n, k, m, d] = [dims[0], dims[1], dims[2], dims[3]];
    let rows = Rows::live(n + 2, c.count(n)).times(k);
    let values: Vec<f32> = (0..rows.capacity * d).map(|_| c.uniform()).collect();
    let x = c.values(Spec::real(rows, d), &values);
    let norm = [c.real(1, k), c.real(1, k)];
    // Weights that keep the hidden units of many tokens where a GELU is curved.
    let [of_k, of_m] = [k, m].map(|n| 1.0 / (n as f32).sqrt());
    let first = [c.real_in(m, k, |u| u * of_k), c.real(1, m)];
    let second = [c.real_in(k, m, |u| u * of_m), c.real(1, k)];
    let drop = case_drop(c, dims[4]);
    let y = c.tape.mix_tokens(x, MixerVars { norm, first, second }, drop)?;
    Ok(Built::new(&[y], &[&[x][..], &norm, &first, &second].concat()))
}
