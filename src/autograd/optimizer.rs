//! Parameters: named stored values with their start and their optimiser's state.
use super::{Average, Optimizer, UpdateRule};
use crate::{
    error::{Result, ensure},
    ops::{
        Link, OpKind, Tape,
        adam::{AdamSlot, UpdateVars},
        sgd::SgdSlot,
    },
    runtime::{
        comm::{Channel, Ranks},
        *,
    },
};

/// How a parameter starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ScaledInit {
    /// Uniform in ±1/sqrt(n), as PyTorch's `Linear`, `GRUCell` and `RNNCell` with n inputs (or units).
    FanIn(usize),
    /// Normal with mean 0 and deviation 1.
    Normal,
    /// Every element alike.
    Constant(f64),
}

#[derive(Debug)]
struct Parameter {
    name: String,
    value: BufferId,
    state: State,
    learned: bool,
}

/// What an optimiser keeps of a parameter.
#[derive(Clone, Copy, Debug)]
enum State {
    /// First and second moment.
    Adam([BufferId; 2]),
    /// Velocity, if there is momentum.
    Sgd(Option<BufferId>),
}

/// The parameters of a model, in the order in which it named them.
///
/// ```
/// use tgnn::{autograd::*, ops::{Backend, Tape, epilogue::Activation}, runtime::*};
/// let mut store = Store::new(Precision::F32);
/// let mut t = Tape::new(&store);
/// let mut parameters = Parameters::new(&mut store, 1, 0.1)?;
/// let id = parameters.add(&mut store, "w", 1, 1, ScaledInit::Constant(2.0))?;
/// let w = t.stored(id)?;
/// let loss = t.linear(w, w, None, None, Activation::Identity)?; // w times w
/// parameters.minimize(&mut t, loss)?;
/// Program::new(&t, &[], Precision::F32, Backend::Cpu)?.run(&mut store)?;
/// assert!(store.read::<f32>(id)?[0] < 2.0);
/// # Ok::<(), tgnn::error::Error>(())
/// ```
#[derive(Debug)]
pub struct Parameters {
    list: Vec<Parameter>,
    seed: u64,
    optimizer: Optimizer,
    learning_rate: BufferId,
    /// Rates of the steps, if they are not all the same.
    rates: Option<BufferId>,
    /// Norm of the gradients of the last step, if they are clipped.
    norm: Option<BufferId>,
    step: BufferId,
    /// The gradient of a loss for itself.
    one: BufferId,
    /// By which gradients are added up, if several ranks train.
    reduce: Option<Link>,
}

impl Parameters {
    /// No parameter yet; starts are drawn with `seed`. Adam updates them.
    ///
    /// # Errors
    /// As [`with_optimizer`](Self::with_optimizer).
    pub fn new(store: &mut Store, seed: u64, learning_rate: f64) -> Result<Self> {
        Self::with_optimizer(store, seed, learning_rate, Optimizer::default())
    }
    /// [`new`](Self::new) with another optimiser. `learning_rate` is the rate after warm-up and before decay:
    /// see [`LearningRates`](super::LearningRates).
    ///
    /// # Errors
    /// `Usage` if the learning rate or a number of the optimiser is negative or not finite; as
    /// [`Store::values`] and [`LearningRates::check_steps`](super::LearningRates::check_steps).
    pub fn with_optimizer(
        store: &mut Store,
        seed: u64,
        learning_rate: f64,
        optimizer: Optimizer,
    ) -> Result<Self> {
        optimizer.check(learning_rate)?;
        let one = Spec::real(Rows::fixed(1), 1);
        let kind = match optimizer.rule {
            UpdateRule::Adam(_) => "adam",
            UpdateRule::Sgd { .. } => "sgd",
        };
        let rates = match optimizer.rates.are_constant() {
            true => None,
            false => {
                let table = optimizer.rates.table(learning_rate)?;
                Some(store.values("learning rates", Spec::real(Rows::fixed(table.len()), 1), &table)?)
            }
        };
        Ok(Parameters {
            list: Vec::new(),
            seed,
            optimizer,
            learning_rate: store.values(format!("{kind}.lr"), one, &[learning_rate])?,
            rates,
            norm: optimizer.clip_norm.map(|_| store.zeros("gradient norm", one)).transpose()?,
            step: store.zeros(format!("{kind}.step"), Spec::count())?,
            one: store.values("one", one, &[1.0f64])?,
            reduce: None,
        })
    }
    /// Adds the parameter `name`, `[rows, cols]`. The draw depends on the seed, the order of the parameters
    /// and the position only.
    ///
    /// # Errors
    /// `Shape` where there is a parameter of that name: checkpoints know them by it; or if it starts at a
    /// number that is not finite. As [`Store::zeros`].
    pub fn add(
        &mut self,
        store: &mut Store,
        name: &str,
        rows: usize,
        cols: usize,
        init: ScaledInit,
    ) -> Result<BufferId> {
        ensure!("parameter", self.list.iter().all(|p| p.name != name), "there are two by the name {name}");
        if let ScaledInit::Constant(start) = init {
            let finite = start.is_finite();
            ensure!("parameter", finite, "{name} starts at {start}, want a finite number");
        }
        let spec = Spec::real(Rows::fixed(rows), cols);
        spec.check_size(name)?;
        let key = philox::Key::new(self.seed, 0x1417, [self.list.len() as u32, 0]);
        let values: Vec<f64> = (0..rows * cols)
            .map(|i| match init {
                ScaledInit::Constant(c) => c,
                ScaledInit::Normal => {
                    // Box and Muller, 1958; the first uniform number is above 0.
                    let [a, b, ..] = key.draw(i as u64).map(|u| f64::from(u) / f64::from(u32::MAX));
                    (-2.0 * a.max(f64::MIN_POSITIVE).ln()).sqrt() * (std::f64::consts::TAU * b).cos()
                }
                ScaledInit::FanIn(n) => {
                    let u = f64::from(key.draw(i as u64)[0]) / f64::from(1u32 << 31) - 1.0;
                    u / (n.max(1) as f64).sqrt()
                }
            })
            .collect();
        let value = store.values(name, spec, &values)?;
        let mut zeros = |what: &str| store.zeros(format!("{what}.{name}"), spec);
        let state = match self.optimizer.rule {
            UpdateRule::Adam(_) => State::Adam([zeros("adam.m")?, zeros("adam.v")?]),
            UpdateRule::Sgd { momentum: 0.0, .. } => State::Sgd(None),
            UpdateRule::Sgd { .. } => State::Sgd(Some(zeros("sgd.v")?)),
        };
        self.list.push(Parameter { name: name.to_owned(), value, state, learned: true });
        Ok(value)
    }
    /// Adds up the gradients of all ranks before every update, so that all ranks keep the same parameters.
    /// The losses of the ranks should add up to the loss of the whole batch.
    ///
    /// # Errors
    /// As [`Link::new`].
    pub fn over(&mut self, store: &mut Store, ranks: &Ranks) -> Result<()> {
        self.reduce = Some(Link::new(store, ranks, Channel::Gradients)?);
        Ok(())
    }
    /// Keeps every parameter as it is but those whose names begin with one of `prefixes`.
    pub fn learn_only(&mut self, prefixes: &[&str]) {
        for p in &mut self.list {
            p.learned = prefixes.iter().any(|prefix| p.name.starts_with(prefix));
        }
    }
    /// Keeps the parameters whose names begin with `prefix` as they are.
    pub fn fix(&mut self, prefix: &str) {
        self.list.iter_mut().filter(|p| p.name.starts_with(prefix)).for_each(|p| p.learned = false);
    }
    /// Names and buffers.
    pub fn iter(&self) -> impl Iterator<Item = (&str, BufferId)> {
        self.list.iter().map(|p| (p.name.as_str(), p.value))
    }
    /// Buffers of the optimiser: the step count, and what it keeps of each parameter.
    pub fn optimizer_buffers(&self) -> impl Iterator<Item = BufferId> {
        let state = self.list.iter().flat_map(|p| match p.state {
            State::Adam([m, v]) => [Some(m), Some(v)],
            State::Sgd(v) => [v, None],
        });
        std::iter::once(self.step).chain(state.flatten())
    }
    /// An average of those that are learned, over the last `epochs` epochs.
    pub fn average(&self, store: &mut Store, epochs: usize) -> Result<Average> {
        let learned = self.list.iter().filter(|p| p.learned);
        Average::new(learned.map(|p| (p.name.as_str(), p.value)), store, epochs)
    }
    /// Numbers that are learned, in all parameters together.
    pub fn count(&self, store: &Store) -> usize {
        self.list.iter().filter(|p| p.learned).map(|p| store.spec(p.value).len()).sum()
    }
    /// The full learning rate, which may be changed between steps where they all have it.
    pub fn learning_rate(&self) -> BufferId {
        self.learning_rate
    }
    /// The norm of all gradients of the last step together, before they were clipped; `None` if they are not.
    pub fn gradient_norm(&self) -> Option<BufferId> {
        self.norm
    }
    /// Appends the backward pass of `loss`, `[1, 1]`, and the optimiser's update of every parameter that it
    /// depends on; returns the gradients as they are before clipping, by name. A run then fails with
    /// `Diverged` if the loss is not finite, or if a parameter is not after its update; it is called by its
    /// number in the returned list.
    ///
    /// # Errors
    /// `Shape` if the loss is more than one number or depends on no parameter that is learned, or if an op on
    /// the way has no derivative.
    pub fn minimize(&self, t: &mut Tape, loss: Var) -> Result<Vec<(String, Var)>> {
        self.minimize_averaging(t, loss, None)
    }
    /// [`minimize`](Self::minimize), which then adds the parameters to the sums of `average`, if given.
    ///
    /// # Errors
    /// As `minimize`; `Shape` if the average lacks a parameter that is updated.
    pub fn minimize_averaging(
        &self,
        t: &mut Tape,
        loss: Var,
        average: Option<&Average>,
    ) -> Result<Vec<(String, Var)>> {
        let spec = t.spec(loss);
        let number = (spec.rows.capacity, spec.cols) == (1, 1);
        ensure!("minimize", number, "the loss is {spec}, want one number; take its mean");
        let mut grads = self.gradients(t, loss, self.one)?;
        ensure!("minimize", !grads.is_empty(), "the loss depends on no parameter that is learned");
        self.reduced(t, &mut grads)?;
        let rate = self.stored_rate(t)?;
        self.update(t, &grads, rate, average)?;
        Ok(grads.into_iter().map(|(p, g)| (p.name.clone(), g)).collect())
    }
    /// [`minimize`](Self::minimize) with the step size `rate`, `[1, 1]`, that leaves the parameters `fixed`
    /// as they are.
    ///
    /// # Errors
    /// `Shape` where an op on the way has no derivative.
    pub fn minimize_others(&self, t: &mut Tape, loss: Var, rate: Var, fixed: &[BufferId]) -> Result<()> {
        let mut grads = self.gradients(t, loss, self.one)?;
        grads.retain(|(p, _)| !fixed.contains(&p.value));
        self.reduced(t, &mut grads)?;
        self.update(t, &grads, rate, None)
    }
    /// Whether a parameter is learned whose name begins with none of `prefixes`, and that is none of `fixed`.
    pub fn learns_beyond(&self, prefixes: &[&str], fixed: &[BufferId]) -> bool {
        let mut learned = self.list.iter().filter(|p| p.learned && !fixed.contains(&p.value));
        learned.any(|p| !prefixes.iter().any(|prefix| p.name.starts_with(prefix)))
    }
    /// The learning rates of the steps, of which the update takes that of its own.
    fn stored_rate(&self, t: &mut Tape) -> Result<Var> {
        t.stored(self.rates.unwrap_or(self.learning_rate))
    }
    /// Appends the backward pass of `share * loss`, whose gradients are added to `sums`, a sum for each
    /// parameter that is there or comes into being; `share` is stored, `[1, 1]`.
    ///
    /// # Errors
    /// `Shape` where an op on the way has no derivative.
    pub fn accumulate(
        &self,
        t: &mut Tape,
        store: &mut Store,
        loss: Var,
        share: BufferId,
        sums: &mut Sums,
    ) -> Result<()> {
        let mut pairs = Vec::new();
        for (p, g) in self.gradients(t, loss, share)? {
            let sum = match sums.get(p.value) {
                Some(sum) => sum,
                None => store.zeros(format!("grad.{}", p.name), store.spec(p.value))?,
            };
            if sums.get(p.value).is_none() {
                sums.0.push((p.value, sum));
            }
            pairs.push((t.stored(sum)?, g));
        }
        t.accumulate(&pairs)
    }
    /// Parameters that are learned and that `loss` depends on, with their gradients for the gradient `seed`
    /// of the loss.
    fn gradients(&self, t: &mut Tape, loss: Var, seed: BufferId) -> Result<Vec<(&Parameter, Var)>> {
        let mut seed = t.stored(seed)?;
        let spec = t.spec(loss);
        if (spec.rows.capacity, spec.cols) == (1, 1) && !is_reported(t, loss) {
            seed = t.guard(seed, loss)?;
        }
        let grads = t.backward_many(&[(loss, seed)])?;
        t.begin(None);
        let mut found = Vec::new();
        for p in self.list.iter().filter(|p| p.learned) {
            if let Some(&g) = grads.get(&t.stored(p.value)?) {
                found.push((p, g));
            }
        }
        Ok(found)
    }
    /// Appends the sums of the gradients over all ranks.
    fn reduced(&self, t: &mut Tape, grads: &mut [(&Parameter, Var)]) -> Result<()> {
        let Some(link) = &self.reduce else { return Ok(()) };
        let own: Vec<Var> = grads.iter().map(|g| g.1).collect();
        let sums = t.all_reduce(link, &own)?;
        grads.iter_mut().zip(sums).for_each(|(grad, sum)| grad.1 = sum);
        Ok(())
    }
    /// Appends the update by gradients, and adds the parameters to the sums of `average`.
    fn update(
        &self,
        t: &mut Tape,
        grads: &[(&Parameter, Var)],
        lr: Var,
        average: Option<&Average>,
    ) -> Result<()> {
        let scale = match (self.norm, self.optimizer.clip_norm) {
            (Some(norm), Some(most)) => {
                let norm = t.stored(norm)?;
                let grads: Vec<Var> = grads.iter().map(|g| g.1).collect();
                Some(t.clip_norm(norm, &grads, most)?)
            }
            _ => None,
        };
        let vars = UpdateVars { lr, step: t.stored(self.step)?, scale };
        let (mut adam, mut sgd, mut added) = (Vec::new(), Vec::new(), Vec::new());
        for &(p, g) in grads {
            let w = t.stored(p.value)?;
            match p.state {
                State::Adam(moments) => {
                    let [m, v] = t.stored_all(moments)?;
                    let sum = average.and_then(|average| average.sum(p.value));
                    added.extend(sum.map(|_| p.value));
                    let sum = sum.map(|sum| t.stored(sum)).transpose()?;
                    adam.push(AdamSlot { w, g, m, v, sum });
                }
                State::Sgd(v) => {
                    let v = v.map(|v| t.stored(v)).transpose()?;
                    sgd.push(SgdSlot { w, g, v });
                }
            }
        }
        match self.optimizer.rule {
            UpdateRule::Adam(decay) => t.adam(vars, decay, &adam)?,
            UpdateRule::Sgd { momentum, decay } => t.sgd(vars, momentum, decay, &sgd)?,
        }
        average.map_or(Ok(()), |average| average.record(t, &added))
    }
}

/// Whether a run reports `loss` by itself if it is not finite: a loss of the crate does, and so do sums of
/// such losses and their products with data, such as the share of a batch.
fn is_reported(t: &Tape, loss: Var) -> bool {
    let Some(node) = t.maker(loss) else { return false };
    let of_losses = ["add", "mul", "scale", "sum"].contains(&node.op.name());
    let is_data = |v| t.maker(v).is_some_and(|node| node.op.kind() != OpKind::Nn);
    node.op.reports_infinite() || of_losses && node.ins.iter().all(|&v| is_reported(t, v) || is_data(v))
}

/// Sums of gradients: of which parameter, and the sum.
#[derive(Debug, Default)]
pub struct Sums(Vec<(BufferId, BufferId)>);

impl Sums {
    fn get(&self, parameter: BufferId) -> Option<BufferId> {
        self.0.iter().find(|s| s.0 == parameter).map(|s| s.1)
    }
    /// Appends the optimiser's update by the sums, and clears them.
    ///
    /// # Errors
    /// `Shape`, as the ops'.
    pub fn minimize(&self, parameters: &Parameters, t: &mut Tape) -> Result<()> {
        let summed = parameters.list.iter().filter_map(|p| Some((p, self.get(p.value)?)));
        let grads = summed.map(|(p, sum)| Ok((p, t.stored(sum)?)));
        let grads: Vec<(&Parameter, Var)> = grads.collect::<Result<_>>()?;
        let rate = parameters.stored_rate(t)?;
        parameters.update(t, &grads, rate, None)?;
        t.clear(&grads.iter().map(|g| g.1).collect::<Vec<_>>())
    }
}
