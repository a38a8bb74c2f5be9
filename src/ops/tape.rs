//! A tape is a program as data: a list of nodes. Recording a model appends nodes, its backward appends more to the
//! same list, the optimiser's update and the memory's writes more still; so one training step is a straight program
//! that can be run, priced, printed, split into lanes, and checked for hazards from its declared reads and writes.
use super::{Cost, DynOp, Op, add::Add, prefix_rows::PadRows};
use crate::{
    error::{Error, Result, ensure},
    runtime::*,
};
use std::{collections::HashMap, fmt, sync::Arc};

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

/// What a node is for, within a step over a snapshot group: what plans share out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Which share of the step.
    pub of: Share,
    /// Whether the reverse pass made it.
    pub backward: bool,
}

/// A share of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Share {
    /// All of it, where nothing else is said: what comes before the snapshots, and after the reverse pass.
    #[default]
    Step,
    /// The snapshot at this place of a group.
    Snapshot(usize),
    /// The prediction, and its loss.
    Prediction,
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
    /// What it is for.
    pub part: Part,
}

struct Value {
    spec: Spec,
    home: Home,
}

/// A program as data: nodes in order, and the values that they read and make.
#[derive(Default)]
pub struct Tape {
    nodes: Vec<Node>,
    values: Vec<Value>,
    stored: HashMap<BufferId, Var>,
    part: Part,
}

impl Tape {
    /// An empty program.
    pub fn new() -> Self {
        Self::default()
    }
    /// Says what the nodes are for that come next. The reverse pass of one is for what it is for.
    pub fn begin(&mut self, of: Share) {
        self.part = Part { of, backward: false };
    }
    /// The buffer `id` of `store` as a value; the same value on every call.
    pub fn stored(&mut self, store: &Store, id: BufferId) -> Var {
        if let Some(&v) = self.stored.get(&id) {
            return v;
        }
        let v = self.value(
            store.spec(id),
            Home::Stored { id, writable: store.is_writable(id), on_host: store.is_on_host(id) },
        );
        self.stored.insert(id, v);
        v
    }
    fn value(&mut self, spec: Spec, home: Home) -> Var {
        self.values.push(Value { spec, home });
        Var(self.values.len() as u32 - 1)
    }
    /// Shape and type of a value.
    pub fn spec(&self, v: Var) -> Spec {
        self.values[v.0 as usize].spec
    }
    /// Where a value lives.
    pub fn home(&self, v: Var) -> Home {
        self.values[v.0 as usize].home
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
    /// Appends `op` on `ins` and returns its outputs. Shapes are checked here and nowhere else.
    ///
    /// # Errors
    /// `Shape`: the op refuses the inputs, or would write a table or the same state twice.
    pub fn push(&mut self, op: impl Op, ins: &[Var]) -> Result<Vec<Var>> {
        let op: Arc<dyn DynOp> = Arc::new(op);
        let specs: Vec<Spec> = ins.iter().map(|&v| self.spec(v)).collect();
        let inferred = op.infer(&specs)?;
        ensure!(op.name(), ins.len() <= Io::MOST_INPUTS, "{} inputs, at most {}", ins.len(), Io::MOST_INPUTS);
        let writes = op.writes(ins.len());
        for &w in &writes {
            let writable = matches!(self.home(ins[w]), Home::Stored { writable: true, .. });
            ensure!(
                op.name(),
                writable,
                "input {w} is changed in place, so it must be a writable stored value"
            );
            let readers = ins.iter().filter(|&&v| v == ins[w]).count();
            ensure!(op.name(), readers == 1, "input {w} is changed in place and given {readers} times");
        }
        let first = self.values.len();
        let outs: Vec<Var> = inferred
            .into_iter()
            .map(|mut out| {
                if let Some(k) = out.counted_by {
                    out.spec.rows = Rows::live(out.spec.rows.cap, Var((first + k) as u32));
                }
                self.value(out.spec, Home::Step)
            })
            .collect();
        self.nodes.push(Node { op, ins: ins.to_vec(), outs: outs.clone(), writes, part: self.part });
        Ok(outs)
    }
    /// [`push`](Self::push) for an op with one output.
    ///
    /// # Errors
    /// As `push`.
    pub fn push1(&mut self, op: impl Op, ins: &[Var]) -> Result<Var> {
        Ok(self.push(op, ins)?[0])
    }
    /// Appends the reverse pass of `y` for the gradient `dy`, and returns the gradient of each of `xs`.
    ///
    /// Gradients of a value that is read more than once are added in the order in which the reverse pass meets
    /// them, so the result is deterministic.
    ///
    /// # Errors
    /// `Shape`: an op on the way has no derivative, or `y` does not depend on one of `xs`.
    pub fn backward(&mut self, y: Var, dy: Var, xs: &[Var]) -> Result<Vec<Var>> {
        let grads = self.backward_many(&[(y, dy)])?;
        xs.iter()
            .map(|x| {
                grads
                    .get(x)
                    .copied()
                    .ok_or_else(|| Error::shape("backward", format_args!("value {} has no gradient", x.0)))
            })
            .collect()
    }
    /// [`backward`](Self::backward) for several outputs at once; returns every gradient there is.
    ///
    /// # Errors
    /// `Shape`: an op on the way has no derivative.
    pub fn backward_many(&mut self, seeds: &[(Var, Var)]) -> Result<HashMap<Var, Var>> {
        let mut grads: HashMap<Var, Var> = HashMap::new();
        let before = self.part;
        for &(y, dy) in seeds {
            self.add_gradient(&mut grads, y, dy)?;
        }
        for at in (0..self.nodes.len()).rev() {
            let node = self.nodes[at].clone();
            if node.outs.iter().all(|o| !grads.contains_key(o)) {
                continue;
            }
            self.part = Part { backward: true, ..node.part };
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
        self.part = before;
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
    /// Compulsory bytes and operations of one node, at full row counts.
    pub fn node_cost(&self, n: &Node) -> Cost {
        n.op.cost(&self.specs(&n.ins), &self.specs(&n.outs))
    }
    /// Shapes of `vars`.
    pub fn specs(&self, vars: &[Var]) -> Vec<Spec> {
        vars.iter().map(|&v| self.spec(v)).collect()
    }
}

/// One line a node: `%7 F32 [<=6000, 100], ... = gru_memory(%1, %4!, ...)`; `!` marks state changed in place.
impl fmt::Display for Tape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for n in &self.nodes {
            let outs: Vec<String> = n.outs.iter().map(|&o| format!("%{} {}", o.0, self.spec(o))).collect();
            let mark = |i| if n.writes.contains(&i) { "!" } else { "" };
            let ins: Vec<String> =
                n.ins.iter().enumerate().map(|(i, v)| format!("%{}{}", v.0, mark(i))).collect();
            let eq = if outs.is_empty() { "" } else { " = " };
            writeln!(f, "{}{eq}{}({})", outs.join(", "), n.op.name(), ins.join(", "))?;
        }
        Ok(())
    }
}
