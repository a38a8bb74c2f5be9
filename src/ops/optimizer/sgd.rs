//! `v = momentum v + g + decay w`, `w -= lr v`
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `lr` | `[k, 1]` f32 | learning rate of each step; the last one holds for all later steps |
//! | `step` | `[1, 1]` u32, state | number of updates: incremented before the update |
//! | `scale` | `[1, 1]` f32, optional | factor of all gradients, such as that of [`clip_norm`] |
//! | `w`, `g`, `v`, for every parameter | same shape, f32; `w`, `v` state | value, gradient, velocity; without momentum there is no `v` |
//!
//! One op handles all parameters, with one launch for every 64 of them. A new value or velocity that is not
//! finite is a fault of its parameter, as for [`adam`]. Deterministic. Source: PyTorch's SGD, without its
//! dampening.
use super::{
    adam::{
        Part, UpdateVars, check_finite, check_number, magnitude, numbered, parameters, rate_of, scale_of,
        scale_on, update_vars,
    },
    *,
};
use crate::runtime::{
    cuda::abi,
    simd::vectorised,
    team::{self, InParallel},
};

/// Offsets of a parameter's inputs from the first, `w`.
const G: usize = 1;
const V: usize = 2;

/// See the [module](self).
#[derive(Debug)]
pub struct Sgd {
    momentum: f64,
    decay: f64,
    scaled: bool,
}

/// A parameter with its gradient and velocity, all of one shape.
///
/// Example: [`Tape::sgd`].
#[derive(Clone, Copy, Debug)]
pub struct SgdSlot {
    /// Parameter.
    pub w: Var,
    /// Gradient of the parameter.
    pub g: Var,
    /// Velocity; `None` without momentum.
    pub v: Option<Var>,
}

impl Tape {
    /// Appends [`Sgd`], which updates the parameters of all `slots` in place, with `momentum` and weight
    /// decay `decay`; `vars` and shapes are as for [`adam`](Self::adam).
    ///
    /// # Errors
    /// `Shape` if a gradient or velocity differs from its parameter in shape, if there are velocities without
    /// momentum or momentum without them, or if state is not writable.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::{adam::UpdateVars, sgd::SgdSlot, *}, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let lr = tape.input(&mut store, "lr", Spec::real(Rows::fixed(1), 1), &[0.5f32])?;
    /// let w = tape.input(&mut store, "w", Spec::real(Rows::fixed(1), 1), &[1.0f32])?;
    /// let g = tape.input(&mut store, "g", Spec::real(Rows::fixed(1), 1), &[2.0f32])?;
    /// let v = store.zeros("v", Spec::real(Rows::fixed(1), 1))?;
    /// let step = store.zeros("step", Spec::count())?;
    /// let [v, step] = tape.stored_all([v, step])?;
    /// let vars = UpdateVars { lr, step, scale: None };
    /// tape.sgd(vars, 0.5, 0.0, &[SgdSlot { w, g, v: Some(v) }])?; // momentum 0.5, no decay
    /// let mut program = Program::new(&tape, &[], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(w, &store)?, [0.0]); // v = 2, w = 1 - 0.5 * 2
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(w, &store)?, [-1.5]); // v = 0.5 * 2 + 2, w = 0 - 0.5 * 3
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn sgd(&mut self, vars: UpdateVars, momentum: f64, decay: f64, slots: &[SgdSlot]) -> Result<()> {
        let with_velocity = slots.iter().filter(|s| s.v.is_some()).count();
        let want = if momentum == 0.0 { 0 } else { slots.len() };
        ensure!(Sgd::NAME, with_velocity == want, "{with_velocity} velocities, want {want}");
        let mut ins = vars.inputs();
        ins.extend(slots.iter().flat_map(|s| [s.w, s.g].into_iter().chain(s.v)));
        self.push(Sgd { momentum, decay, scaled: vars.scale.is_some() }, &ins).map(drop)
    }
}

/// Factors of a step: of the velocity, of the parameter in the gradient, of the gradient.
#[derive(Clone, Copy)]
struct Factors {
    lr: f32,
    momentum: f32,
    decay: f32,
    scale: f32,
}

vectorised! {
    /// Updates elements; returns the largest [`magnitude`] of a value or velocity.
    fn update(w: &mut [f32], g: &[f32], f: Factors) -> u32 {
        let mut most = 0;
        for (w, &g) in w.iter_mut().zip(g) {
            *w -= f.lr * f.decay.mul_add(*w, f.scale * g);
            most = most.max(magnitude(*w));
        }
        most
    }
    fn update_with_momentum(w: &mut [f32], v: &mut [f32], g: &[f32], f: Factors) -> u32 {
        let mut most = 0;
        for ((w, v), &g) in w.iter_mut().zip(v).zip(g) {
            *v = f.momentum.mul_add(*v, f.decay.mul_add(*w, f.scale * g));
            *w -= f.lr * *v;
            most = most.max(magnitude(*w)).max(magnitude(*v));
        }
        most
    }
}

impl Sgd {
    /// Returns the position of the first parameter.
    fn first(&self) -> usize {
        2 + usize::from(self.scaled)
    }
    /// Returns the number of inputs per parameter.
    fn inputs_each(&self) -> usize {
        if self.momentum == 0.0 { 2 } else { 3 }
    }
    /// Returns the positions of the parameters among `inputs`.
    fn slots(&self, inputs: usize) -> impl Iterator<Item = usize> + use<> {
        (self.first()..inputs).step_by(self.inputs_each())
    }
    /// Counts the step, and returns its learning rate.
    fn begin<R: Real>(io: &Io<'_>) -> f64 {
        let step = &mut io.state::<u32>(at!(step))[0];
        *step = step.saturating_add(1);
        rate_of(io.input::<R>(at!(lr)), *step)
    }
}

impl Op for Sgd {
    const NAME: &'static str = "sgd";
    const KIND: OpKind = OpKind::Nn;
    const SIGNATURE: &'static str = "lr [s + 1], step [1] ids state, scale? [1], {w [P, q] state, g [P, q], \
        v? [P, q] state} ->";
    const ROW: &'static str = "parameter {}";
    fn has(&self, operand: &str) -> Option<bool> {
        Some(match operand {
            "scale" => self.scaled,
            _ => self.momentum != 0.0,
        })
    }
    fn check(&self, ins: &[Spec]) -> Result<()> {
        all_countable(self, ins)
    }
    fn tickets(&self, _: &[Spec]) -> usize {
        1
    }
    fn cost(&self, ins: &[Spec], _: &[Spec]) -> Cost {
        let n: usize = ins[self.first()..].iter().step_by(self.inputs_each()).map(Spec::len).sum();
        let numbers = 2 * self.inputs_each() - 1;
        Cost { bytes: 4 * numbers * n, flops: 2 * self.inputs_each() * n }
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        let lr = R::from_f64(Self::begin::<R>(io));
        let (momentum, decay, scale) =
            (R::from_f64(self.momentum), R::from_f64(self.decay), scale_of::<R>(io, self.scaled));
        for (number, at) in numbered(io, self.slots(io.inputs())) {
            let (w, g) = (io.state::<R>(at), io.input::<R>(at + G));
            let mut v = (self.momentum != 0.0).then(|| io.state::<R>(at + V));
            for i in 0..w.len() {
                let mut step = scale * g[i] + decay * w[i];
                if let Some(v) = &mut v {
                    step = momentum * v[i] + step;
                    v[i] = step;
                }
                w[i] = w[i] - lr * step;
                let velocity = v.as_ref().map(|v| v[i]);
                velocity.into_iter().chain([w[i]]).for_each(|x| check_number(io, number, x));
            }
        }
    }
    fn cpu(&self, io: &Io<'_>) {
        let (lr, scale) = (Self::begin::<f32>(io) as f32, scale_of(io, self.scaled));
        let factors = Factors { lr, momentum: self.momentum as f32, decay: self.decay as f32, scale };
        for (number, at) in numbered(io, self.slots(io.inputs())) {
            let (w, g) = (io.state::<f32>(at), io.input::<f32>(at + G));
            let size = team::share(w.len());
            let chunks = w.chunks_mut(size).zip(g.chunks(size));
            if self.momentum == 0.0 {
                chunks.in_parallel(1, |(w, g)| {
                    let most = update(w, g, factors);
                    check_finite(io, number, most, [w, &[]]);
                });
                continue;
            }
            let chunks = chunks.zip(io.state::<f32>(at + V).chunks_mut(size));
            chunks.in_parallel(1, |((w, g), v)| {
                let most = update_with_momentum(w, v, g, factors);
                check_finite(io, number, most, [w, v]);
            });
        }
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        let (rate, rates, step) = (on.input(at!(lr)), on.spec(at!(lr)).len() as u32, on.state(at!(step)));
        let (scale, momentum, decay) = (scale_on(on, self.scaled), self.momentum as f32, self.decay as f32);
        let parameter_at = |at: usize, end| {
            let v = if self.momentum == 0.0 { std::ptr::null_mut() } else { on.state(at + V) };
            let (w, g, m) = (on.state(at), on.input(at + G), std::ptr::null_mut());
            abi::Parameter { w, g, m, v, sum: std::ptr::null_mut(), n: on.spec(at).len() as u32, end }
        };
        parameters(on, self.slots(on.inputs()), parameter_at, |grid, parameters, Part { first, last }| {
            let (ticket, status) = (if last { on.tickets() } else { std::ptr::null_mut() }, on.status());
            launch!(
                k, on, sgd[grid];
                parameters, rate, rates, step, scale, momentum, decay, ticket, first, status
            )
        })
    }
}

/// `[rates, scaled, momentum, decay, sizes of the parameters...]`: the gradients have a factor if `scaled` is
/// 1; there is momentum if that is 1, and likewise decay.
pub(in crate::ops) const CASES: &[&[usize]] = &[
    &[1, 0, 0, 0, 1, 1],
    &[1, 0, 1, 0, 0, 7],
    &[9, 1, 0, 1, 5, 9],
    &[4, 0, 1, 1, 33, 20_000],
    &[1, 1, 1, 1, 1_027],
    &MANY,
];
/// More parameters than one launch takes.
const MANY: [usize; 74] = {
    let mut dims = [3; 74];
    (dims[0], dims[1], dims[2], dims[3]) = (2, 0, 1, 0);
    dims
};
pub(in crate::ops) const BENCH: &[&[usize]] =
    &[&[1, 0, 1, 0, 141_600, 30_000, 37_200, 37_200, 10_000, 10_000, 10_000, 10_000, 10_000, 10_000]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let &[rates, scaled, momentum, decay, ref sizes @ ..] = dims else {
        return Err(Error::shape("sgd", "four sizes, and those of the parameters"));
    };
    let vars = update_vars(c, rates, scaled == 1);
    let mut slots = Vec::new();
    for &n in sizes {
        let (w, g) = (c.real(1, n), c.real(1, n));
        slots.push(SgdSlot { w, g, v: (momentum == 1).then(|| c.real(1, n)) });
    }
    c.tape.sgd(vars, 0.9 * momentum as f64, 0.3 * decay as f64, &slots)?;
    let states = slots.iter().flat_map(|s| [s.w].into_iter().chain(s.v)).chain([vars.step]).collect();
    Ok(Built { states, ..Built::default() })
}
