//! A tape is a program as data: a list of nodes. Recording a model appends nodes, its backward appends more to the
//! same list, the optimiser's update and the memory's writes more still; so one training step is a straight program
//! that can be run, priced, printed, split into lanes, and checked for hazards from its declared reads and writes.
use super::{Cost, DynOp, Op, Out, add::Add, prefix_rows::PadRows};
use crate::{
    error::{Error, Result, ensure},
    runtime::*,
};
use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

/// Where a value lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// In a store, beyond the step.
    Stored {
        /// The buffer.
        id: BufferId,
        /// Whether ops may change it.
        writable: bool,
        /// Whether the host keeps it, and a device reads it there.
        on_host: bool,
    },
    /// In the arena, from the node that makes it to the last that reads it.
    Step,
}

/// A section of a step, such as one snapshot of a group. A plan may place sections on different lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its number within the step, from 0.
    pub index: usize,
    /// What timelines call it.
    pub name: &'static str,
}

/// As timelines write it: `snapshot 2`.
impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.index + 1)
    }
}

/// Which part of a step a node belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag {
    /// Its section; `None` outside of all sections.
    pub section: Option<Section>,
    /// Whether the backward pass made it.
    pub backward: bool,
}

/// One op with its operands.
#[derive(Clone, Debug)]
pub struct Node {
    /// The op.
    pub op: Arc<dyn DynOp>,
    /// What it reads (and changes, where `writes` says so).
    pub ins: Vec<Var>,
    /// What it makes.
    pub outs: Vec<Var>,
    /// Which of `ins` it changes in place.
    pub writes: Vec<usize>,
    /// Whether its output lies where its first input does, as [`Op::is_view`] says.
    pub view: bool,
    /// Which part of the step it belongs to.
    pub tag: Tag,
}

struct Value {
    spec: Spec,
    home: Home,
}

/// A program as data: nodes in order, and the values that they read and make. What is stored is of one store.
pub struct Tape {
    id: u32,
    nodes: Vec<Node>,
    values: Vec<Value>,
    stored: HashMap<BufferId, Var>,
    store: Option<StoreId>,
    tag: Tag,
}

impl Default for Tape {
    fn default() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let id = NEXT.fetch_add(1, Relaxed);
        Tape {
            id,
            nodes: Vec::new(),
            values: Vec::new(),
            stored: HashMap::new(),
            store: None,
            tag: Tag::default(),
        }
    }
}

impl Tape {
    /// An empty program.
    pub fn new() -> Self {
        Self::default()
    }
    /// Tags the nodes pushed from now on; their backward nodes inherit the tag. `None` ends the section.
    pub fn begin(&mut self, section: Option<Section>) {
        self.tag = Tag { section, backward: false };
    }
    /// The buffer `id` of `store` as a value; the same value on every call.
    ///
    /// # Errors
    /// `Shape` when the buffer is not of `store`, another store's buffer is on the tape, or live rows are counted by no count of it.
    pub fn stored(&mut self, store: &Store, id: BufferId) -> Result<Var> {
        ensure!("stored", id.store() == store.id(), "the buffer is another store's");
        ensure!("stored", self.store.is_none_or(|own| own == store.id()), "the tape is over another store");
        if let Some(&v) = self.stored.get(&id) {
            return Ok(v);
        }
        self.check_live("stored", store.spec(id))?;
        let v = self.value(
            store.spec(id),
            Home::Stored { id, writable: store.is_writable(id), on_host: store.is_on_host(id) },
        );
        self.stored.insert(id, v);
        self.store = Some(store.id());
        Ok(v)
    }
    /// [`stored`](Self::stored) for several buffers.
    ///
    /// # Errors
    /// As `stored`.
    pub fn stored_all<const N: usize>(&mut self, store: &Store, ids: [BufferId; N]) -> Result<[Var; N]> {
        let mut vars = [Var::of(self.id, 0); N];
        for (v, id) in vars.iter_mut().zip(ids) {
            *v = self.stored(store, id)?;
        }
        Ok(vars)
    }
    /// The store whose buffers are on the tape; none where there are none.
    pub(crate) fn store(&self) -> Option<StoreId> {
        self.store
    }
    fn value(&mut self, spec: Spec, home: Home) -> Var {
        self.values.push(Value { spec, home });
        self.var(self.values.len() - 1)
    }
    /// The value at this place among all.
    fn var(&self, at: usize) -> Var {
        Var::of(self.id, at)
    }
    /// All values, in the order in which they came to be.
    pub(crate) fn vars(&self) -> impl Iterator<Item = Var> + '_ {
        (0..self.values.len()).map(|at| self.var(at))
    }
    /// Refuses a value of another tape; `op` names who refuses.
    pub(crate) fn check(&self, op: &str, v: Var) -> Result<()> {
        ensure!(op, v.tape() == self.id && v.at() < self.values.len(), "value {v} is another tape's");
        Ok(())
    }
    fn known(&self, v: Var) -> &Value {
        assert!(v.tape() == self.id, "value {v} is another tape's");
        &self.values[v.at()]
    }
    /// Shape and type of a value.
    ///
    /// # Panics
    /// When it is another tape's.
    pub fn spec(&self, v: Var) -> Spec {
        self.known(v).spec
    }
    /// Where a value lives.
    ///
    /// # Panics
    /// When it is another tape's.
    pub fn home(&self, v: Var) -> Home {
        self.known(v).home
    }
    /// Number of values.
    pub fn len(&self) -> usize {
        self.values.len()
    }
    /// Whether there is no value yet.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
    /// The program, in order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }
    /// Appends `op` on `ins` and returns its outputs. Shapes are checked here and nowhere else, and so is what the op says of
    /// itself: programs rely on it.
    ///
    /// # Errors
    /// `Shape`: the op refuses the inputs, which may be another tape's; would write a table, or the same state twice; or gives
    /// outputs that no memory holds, whose live count is no count, or which are no view of its input though it says so.
    pub fn push(&mut self, op: impl Op, ins: &[Var]) -> Result<Vec<Var>> {
        let op: Arc<dyn DynOp> = Arc::new(op);
        ensure!(op.name(), ins.len() <= Io::MOST_INPUTS, "{} inputs, at most {}", ins.len(), Io::MOST_INPUTS);
        ins.iter().try_for_each(|&v| self.check(op.name(), v))?;
        let specs = self.specs(ins);
        let inferred = op.infer(&specs)?;
        let writes = op.writes(ins.len());
        self.check_writes(op.name(), ins, &writes)?;
        let outs = self.check_outs(op.name(), &inferred)?;
        let view = op.is_view();
        if view {
            ensure!(op.name(), is_view(&specs, &outs, &writes), "its output is no view of its first input");
        }
        let outs: Vec<Var> = outs.into_iter().map(|out| self.value(out, Home::Step)).collect();
        self.nodes.push(Node { op, ins: ins.to_vec(), outs: outs.clone(), writes, view, tag: self.tag });
        Ok(outs)
    }
    /// Refuses to change in place what is no writable stored value, or what is read beside.
    fn check_writes(&self, op: &str, ins: &[Var], writes: &[usize]) -> Result<()> {
        for &w in writes {
            ensure!(op, w < ins.len(), "changes input {w} of {}", ins.len());
            let writable = matches!(self.home(ins[w]), Home::Stored { writable: true, .. });
            ensure!(op, writable, "input {w} is changed in place, so it must be a writable stored value");
            let readers = ins.iter().filter(|&&v| v == ins[w]).count();
            ensure!(op, readers == 1, "input {w} is changed in place and given {readers} times");
        }
        Ok(())
    }
    /// Shapes of the outputs, live counts of those that the op itself counts filled in.
    fn check_outs(&self, op: &str, inferred: &[Out]) -> Result<Vec<Spec>> {
        let n = inferred.len();
        ensure!(op, n <= Io::MOST_OUTPUTS, "{n} outputs, at most {}", Io::MOST_OUTPUTS);
        let spec = |(k, out): (usize, &Out)| {
            out.spec.check_size(op)?;
            let mut spec = out.spec;
            if let Some(count) = out.counted_by {
                let is_count =
                    inferred.get(count).is_some_and(|c| c.spec == Spec::count() && c.counted_by.is_none());
                ensure!(op, is_count, "output {k} is counted by output {count}, which is no count");
                spec.rows = Rows::live(spec.rows.capacity, self.var(self.values.len() + count));
            }
            if out.counted_by.is_none() {
                self.check_live(op, spec)?;
            }
            Ok(spec)
        };
        inferred.iter().enumerate().map(spec).collect()
    }
    /// Refuses a live count that is no count of this tape.
    fn check_live(&self, op: &str, spec: Spec) -> Result<()> {
        let Some(live) = spec.rows.live else { return Ok(()) };
        self.check(op, live.var)?;
        let (counts, want) = (self.spec(live.var), Spec::count());
        ensure!(op, counts == want, "live rows of {spec} are counted by {counts}, want {want}");
        Ok(())
    }
    /// [`push`](Self::push) for an op with one output.
    ///
    /// # Errors
    /// As `push`.
    pub fn push1(&mut self, op: impl Op, ins: &[Var]) -> Result<Var> {
        let outs = self.push(op, ins)?;
        outs.first().copied().ok_or_else(|| Error::shape("push1", "the op has no output"))
    }
    /// Appends the backward pass of `y` for the gradient `dy`, and returns the gradient of each of `xs`.
    ///
    /// Gradients of a value that is read more than once are added in the order in which the backward pass meets
    /// them, so the result is deterministic.
    ///
    /// # Errors
    /// `Shape`: an op on the way has no derivative, `y` does not depend on one of `xs`, or a value is another tape's.
    pub fn backward(&mut self, y: Var, dy: Var, xs: &[Var]) -> Result<Vec<Var>> {
        let grads = self.backward_many(&[(y, dy)])?;
        xs.iter()
            .map(|x| {
                grads
                    .get(x)
                    .copied()
                    .ok_or_else(|| Error::shape("backward", format_args!("value {x} has no gradient")))
            })
            .collect()
    }
    /// [`backward`](Self::backward) for several outputs at once; returns every gradient there is.
    ///
    /// # Errors
    /// `Shape`: an op on the way has no derivative.
    pub fn backward_many(&mut self, seeds: &[(Var, Var)]) -> Result<HashMap<Var, Var>> {
        let mut grads: HashMap<Var, Var> = HashMap::new();
        let before = self.tag;
        for &(y, dy) in seeds {
            [y, dy].into_iter().try_for_each(|v| self.check("backward", v))?;
            self.add_gradient(&mut grads, y, dy)?;
        }
        for at in (0..self.nodes.len()).rev() {
            let node = self.nodes[at].clone();
            if node.outs.iter().all(|o| !grads.contains_key(o)) {
                continue;
            }
            self.tag = Tag { backward: true, ..node.tag };
            let mut douts = Vec::with_capacity(node.outs.len());
            for &o in &node.outs {
                douts.push(self.whole(&mut grads, o)?);
            }
            let dins = node.op.vjp(self, &node, &douts)?;
            for (&v, d) in node.ins.iter().zip(dins) {
                if let Some(d) = d {
                    self.add_gradient(&mut grads, v, d)?;
                }
            }
        }
        let mut of: Vec<Var> = grads.keys().copied().collect();
        of.sort_unstable();
        for v in of {
            self.whole(&mut grads, v)?;
        }
        self.tag = before;
        Ok(grads)
    }
    /// The gradient of `v`, if there is one, with a row for each of its own: that of a view's may be shorter.
    fn whole(&mut self, grads: &mut HashMap<Var, Var>, v: Var) -> Result<Option<Var>> {
        let Some(&g) = grads.get(&v) else { return Ok(None) };
        if self.spec(g).rows == self.spec(v).rows {
            return Ok(Some(g));
        }
        let whole = self.padded(g, v)?;
        grads.insert(v, whole);
        Ok(Some(whole))
    }
    fn padded(&mut self, g: Var, v: Var) -> Result<Var> {
        self.push1(PadRows { onto: false }, &[g, v])
    }
    fn add_gradient(&mut self, grads: &mut HashMap<Var, Var>, v: Var, d: Var) -> Result<()> {
        self.check("backward", d)?;
        let (of, is) = (self.spec(v), self.spec(d));
        let fits = is.dtype == DType::F32 && is.cols == of.cols && is.rows.capacity <= of.rows.capacity;
        ensure!("backward", fits && of.dtype.widened() == DType::F32, "{is} is no gradient of {of}");
        let rows = |t: &Self, v: Var| t.spec(v).rows;
        let sum = match grads.get(&v).copied() {
            None => d,
            Some(g) if rows(self, g) == rows(self, d) => self.push1(Add, &[g, d])?,
            Some(g) => {
                // One is that of a view, and shorter.
                let (short, whole) = if rows(self, g) == rows(self, v) { (d, g) } else { (g, d) };
                let whole = if rows(self, whole) == rows(self, v) { whole } else { self.padded(whole, v)? };
                self.push1(PadRows { onto: true }, &[short, whole])?
            }
        };
        grads.insert(v, sum);
        Ok(())
    }
    /// Compulsory bytes and operations of the whole program.
    pub fn cost(&self) -> Cost {
        self.nodes
            .iter()
            .map(|n| self.node_cost(n))
            .fold(Cost::default(), |a, c| Cost { bytes: a.bytes + c.bytes, flops: a.flops + c.flops })
    }
    /// Compulsory bytes and operations of one node of this tape, at full row counts.
    ///
    /// # Panics
    /// When it is another tape's.
    pub fn node_cost(&self, n: &Node) -> Cost {
        n.op.cost(&self.specs(&n.ins), &self.specs(&n.outs))
    }
    /// Shapes of `vars`.
    ///
    /// # Panics
    /// When one is another tape's.
    pub fn specs(&self, vars: &[Var]) -> Vec<Spec> {
        vars.iter().map(|&v| self.spec(v)).collect()
    }
}

/// Whether the one output is the first elements of the first input, and nothing is written.
fn is_view(ins: &[Spec], outs: &[Spec], writes: &[usize]) -> bool {
    match (ins.first(), outs) {
        (Some(of), [out]) => out.dtype == of.dtype && out.len() <= of.len() && writes.is_empty(),
        _ => false,
    }
}

/// One line a node: `%7 F32 [<=6000, 100], ... = gru_memory(%1, %4!, ...)`; `!` marks state changed in place.
impl fmt::Display for Tape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for n in &self.nodes {
            let outs: Vec<String> = n.outs.iter().map(|&o| format!("{o} {}", self.spec(o))).collect();
            let mark = |i| if n.writes.contains(&i) { "!" } else { "" };
            let ins: Vec<String> = n.ins.iter().enumerate().map(|(i, v)| format!("{v}{}", mark(i))).collect();
            let eq = if outs.is_empty() { "" } else { " = " };
            writeln!(f, "{}{eq}{}({})", outs.join(", "), n.op.name(), ins.join(", "))?;
        }
        Ok(())
    }
}
