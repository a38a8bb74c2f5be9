//! A tape is a program as data: a list of nodes. Recording a model appends nodes; its backward pass, the
//! optimiser's update and the writes of the node memory append more nodes to the same list. One training step
//! is therefore a straight-line program that can be run, priced, printed, split into lanes, and checked for
//! hazards from its declared reads and writes.
use super::{Cost, DynOp, Op, Out, prefix_rows::PadRows, sum::Sum};
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

/// Storage of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// A buffer of a store, which outlives the step.
    Stored {
        /// The buffer.
        id: BufferId,
        /// Whether ops may change the buffer.
        writable: bool,
        /// Whether the buffer is in host memory, from which a device reads it.
        on_host: bool,
    },
    /// The arena, from the node that computes the value to the last node that reads it.
    Step,
}

/// A section of a step, such as one snapshot of a group. A plan may place sections on different lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// Index within the step, from 0.
    pub index: usize,
    /// Name in timelines.
    pub name: &'static str,
}

/// Formats the section as in timelines, with numbers from 1: `snapshot 2`.
impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.index + 1)
    }
}

/// The section and the direction that a node belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag {
    /// Section of the step; `None` outside of all sections.
    pub section: Option<Section>,
    /// Whether the backward pass appended the node.
    pub backward: bool,
}

/// One op with its operands.
#[derive(Clone, Debug)]
pub struct Node {
    /// The op.
    pub op: Arc<dyn DynOp>,
    /// Inputs: values that the op reads, or changes in place if `writes` lists them.
    pub ins: Vec<Var>,
    /// Outputs.
    pub outs: Vec<Var>,
    /// Indices into `ins` of the values that the op changes in place.
    pub writes: Vec<usize>,
    /// Whether the output shares the memory of the first input, see [`Op::is_view`].
    pub view: bool,
    /// Section and direction of the node.
    pub tag: Tag,
}

struct Value {
    spec: Spec,
    home: Home,
}

/// A program as data: nodes in order, and the values that they read and compute. All stored values belong to
/// one store. Its methods [append ops](super#what-a-tape-records).
///
/// ```
/// use tgnn::{ops::Tape, runtime::*};
/// let mut store = Store::new(Precision::F32);
/// let x = store.values("x", Spec::real(Rows::fixed(2), 1), &[1.0f32, 2.0])?;
/// let mut t = Tape::new(&store);
/// let x = t.stored(x)?;
/// t.add(x, x)?;
/// assert_eq!(t.to_string(), "%1 F32 [2, 1] = add(%0, %0)\n");
/// # Ok::<(), tgnn::error::Error>(())
/// ```
pub struct Tape {
    id: u32,
    nodes: Vec<Node>,
    values: Vec<Value>,
    stored: HashMap<BufferId, Var>,
    store: Listing,
    tag: Tag,
}

brief_debug!(Tape, t => { nodes: t.nodes.len(), values: t.values.len() });

impl Tape {
    /// Returns an empty program over the buffers of `store`, also those that it gets later.
    pub fn new(store: &Store) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Tape {
            id: NEXT.fetch_add(1, Relaxed),
            nodes: Vec::new(),
            values: Vec::new(),
            stored: HashMap::new(),
            store: store.listing().clone(),
            tag: Tag::default(),
        }
    }
    /// Tags the nodes pushed from now on; their backward nodes inherit the tag. `None` ends the section.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{ops::{Section, Tape}, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let x = tape.input(&mut store, "x", Spec::real(Rows::fixed(1), 1), &[1.0f32])?;
    /// let second = Section { index: 1, name: "snapshot" };
    /// tape.begin(Some(second));
    /// tape.add(x, x)?;
    /// tape.begin(None);
    /// tape.add(x, x)?;
    /// let sections: Vec<_> = tape.nodes().iter().map(|n| n.tag.section).collect();
    /// assert_eq!(sections, [Some(second), None]);
    /// assert_eq!(second.to_string(), "snapshot 2");
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn begin(&mut self, section: Option<Section>) {
        self.tag = Tag { section, backward: false };
    }
    /// Returns a buffer of the tape's store as a value; the same value on every call.
    ///
    /// # Errors
    /// `Shape` if the buffer is another store's, or if the live count of its rows is not a `[1]` u32 value of
    /// this tape.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{ops::Tape, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let id = store.values("x", Spec::real(Rows::fixed(1), 2), &[1.0f32, 2.0])?;
    /// let x = tape.stored(id)?;
    /// assert_eq!(tape.stored(id)?, x);
    /// assert_eq!(tape.spec(x), Spec::real(Rows::fixed(1), 2));
    /// let mut other = Tape::new(&Store::new(Precision::F32));
    /// assert!(other.stored(id).unwrap_err().to_string().contains("another store"));
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn stored(&mut self, id: BufferId) -> Result<Var> {
        if let Some(&v) = self.stored.get(&id) {
            return Ok(v);
        }
        let Some(BufferInfo { spec, writable, on_host }) = self.store.find(id) else {
            return Err(Error::shape("stored", "the buffer is another store's"));
        };
        self.check_live("stored", spec)?;
        let v = self.value(spec, Home::Stored { id, writable, on_host });
        self.stored.insert(id, v);
        Ok(v)
    }
    /// Returns several buffers as values, see [`stored`](Self::stored).
    ///
    /// # Errors
    /// As `stored`.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{ops::Tape, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let x = store.zeros("x", Spec::real(Rows::fixed(1), 2))?;
    /// let index = store.zeros("index", Spec::ids(Rows::fixed(3), 1))?;
    /// let [x, index] = tape.stored_all([x, index])?;
    /// assert_eq!([x, index].map(|v| tape.spec(v).to_string()), ["F32 [1, 2]", "U32 [3, 1]"]);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn stored_all<const N: usize>(&mut self, ids: [BufferId; N]) -> Result<[Var; N]> {
        let mut vars = [Var::new(self.id, 0); N];
        for (v, id) in vars.iter_mut().zip(ids) {
            *v = self.stored(id)?;
        }
        Ok(vars)
    }
    /// Adds a writable buffer with the contents `values` to `store`, the tape's store, and returns it as a
    /// value.
    ///
    /// # Errors
    /// As [`Store::values`] and [`stored`](Self::stored).
    ///
    /// # Examples
    /// ```
    /// use tgnn::{ops::Tape, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let x = tape.input(&mut store, "x", Spec::real(Rows::fixed(1), 2), &[1.0f32, 2.0])?;
    /// assert_eq!(tape.spec(x).to_string(), "F32 [1, 2]");
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn input<T: Element>(
        &mut self,
        store: &mut Store,
        name: impl Into<String>,
        spec: Spec,
        values: &[T],
    ) -> Result<Var> {
        let id = store.values(name, spec, values)?;
        self.stored(id)
    }
    /// Returns the store whose buffers are on the tape.
    pub(crate) fn store(&self) -> StoreId {
        self.store.store()
    }
    fn value(&mut self, spec: Spec, home: Home) -> Var {
        self.values.push(Value { spec, home });
        self.var(self.values.len() - 1)
    }
    /// Returns the value with index `at`.
    fn var(&self, at: usize) -> Var {
        Var::new(self.id, at)
    }
    /// Returns all values, in the order in which they were created.
    pub(crate) fn vars(&self) -> impl Iterator<Item = Var> + '_ {
        (0..self.values.len()).map(|at| self.var(at))
    }
    /// Checks that `v` is a value of this tape; `op` is the name in the error.
    pub(crate) fn check(&self, op: &str, v: Var) -> Result<()> {
        ensure!(op, v.tape() == self.id && v.at() < self.values.len(), "value {v} is another tape's");
        Ok(())
    }
    fn known(&self, v: Var) -> &Value {
        assert!(v.tape() == self.id, "value {v} is another tape's");
        &self.values[v.at()]
    }
    /// Returns shape and type of a value.
    ///
    /// # Panics
    /// If the value belongs to another tape.
    pub fn spec(&self, v: Var) -> Spec {
        self.known(v).spec
    }
    /// Returns the storage of a value.
    ///
    /// # Panics
    /// If the value belongs to another tape.
    pub fn home(&self, v: Var) -> Home {
        self.known(v).home
    }
    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.values.len()
    }
    /// Whether the tape has no values.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
    /// Returns the nodes in program order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }
    /// Returns the node that computes `v`; `None` if `v` is stored.
    ///
    /// # Panics
    /// If the value belongs to another tape.
    pub fn maker(&self, v: Var) -> Option<&Node> {
        match self.home(v) {
            Home::Stored { .. } => None,
            Home::Step => self.nodes.iter().rev().find(|n| n.outs.contains(&v)),
        }
    }
    /// Puts other ops into the places of those called `name`: `with` makes each from the op that it replaces.
    /// The operands stay. Returns how many there were.
    ///
    /// # Errors
    /// `Shape` if a new op differs from the old one in its outputs, in the inputs that it changes, or in
    /// being a view.
    pub fn replace(&mut self, name: &str, with: impl Fn(Arc<dyn DynOp>) -> Arc<dyn DynOp>) -> Result<usize> {
        let mut replaced = 0;
        for at in 0..self.nodes.len() {
            let node = &self.nodes[at];
            if node.op.name() != name {
                continue;
            }
            let (old, new) = (&node.op, with(node.op.clone()));
            let ins: Vec<Spec> = node.ins.iter().map(|&v| self.spec(v)).collect();
            let outs = |op: &dyn DynOp| -> Result<Vec<_>> {
                Ok(op.infer(&ins)?.into_iter().map(|out| (out.spec, out.counted_by)).collect())
            };
            let same = outs(&**old)? == outs(&*new)?
                && old.writes(ins.len()) == new.writes(ins.len())
                && old.is_view() == new.is_view();
            ensure!(old.name(), same, "an op in its place differs in its operands");
            self.nodes[at].op = new;
            replaced += 1;
        }
        Ok(replaced)
    }
    /// Appends `op` with inputs `ins`, or [an op that replaces it](Op::fused), and returns its outputs.
    /// Shapes and the op's own declarations (writes, counts, views) are checked here and nowhere else;
    /// programs rely on these checks.
    ///
    /// # Errors
    /// `Shape` in these cases:
    /// - there are too many inputs or outputs, or an input belongs to another tape;
    /// - the op refuses its inputs;
    /// - the op changes an input in place that is not a writable stored value, or that it is also given as
    ///   another input;
    /// - an output is too large, its live count is not a `[1]` u32 value, or it is declared as a view of the
    ///   first input but cannot be one.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let a = tape.input(&mut store, "a", Spec::real(Rows::fixed(1), 2), &[3.0f32, 4.0])?;
    /// let outs = tape.push(pointwise::Add, &[a, a])?;
    /// let mut program = Program::new(&tape, &[outs[0]], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(outs[0], &store)?, [6.0, 8.0]);
    /// // The op checks its inputs, and the tape is as before.
    /// let refused = tape.push(pointwise::Add, &[a]).unwrap_err();
    /// assert_eq!(refused.to_string(), "add: 1 inputs, want 2: a, b");
    /// assert_eq!(tape.nodes().len(), 1);
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn push(&mut self, op: impl Op, ins: &[Var]) -> Result<Vec<Var>> {
        self.append(Arc::new(op), ins)
    }
    /// [`push`](Self::push), which is compiled for every op, does nothing but call this.
    fn append(&mut self, op: Arc<dyn DynOp>, ins: &[Var]) -> Result<Vec<Var>> {
        ensure!(op.name(), ins.len() <= Io::MOST_INPUTS, "{} inputs, at most {}", ins.len(), Io::MOST_INPUTS);
        ins.iter().try_for_each(|&v| self.check(op.name(), v))?;
        let (op, ins) = op.fused(self, ins).unwrap_or_else(|| (op, ins.to_vec()));
        let specs = self.specs(&ins);
        let inferred = op.infer(&specs)?;
        let writes = op.writes(ins.len());
        self.check_writes(&*op, &ins, &writes)?;
        let outs = self.check_outs(op.name(), &inferred)?;
        let view = op.is_view();
        if view {
            ensure!(op.name(), is_view(&specs, &outs, &writes), "its output is no view of its first input");
        }
        let outs: Vec<Var> = outs.into_iter().map(|out| self.value(out, Home::Step)).collect();
        self.nodes.push(Node { op, ins, outs: outs.clone(), writes, view, tag: self.tag });
        Ok(outs)
    }
    /// Checks that every input changed in place is a writable stored value and is given to the op only once.
    fn check_writes(&self, op: &dyn DynOp, ins: &[Var], writes: &[usize]) -> Result<()> {
        let name = op.name();
        for &w in writes {
            ensure!(name, w < ins.len(), "changes input {w} of {}", ins.len());
            let (what, uses) = (op.input_name(w), ins.iter().filter(|&&v| v == ins[w]).count());
            let writable = matches!(self.home(ins[w]), Home::Stored { writable: true, .. });
            ensure!(name, writable, "{what} is changed in place, so it must be a writable stored value");
            ensure!(name, uses == 1, "{what} is changed in place, but given {uses} times");
        }
        Ok(())
    }
    /// Checks the outputs and returns their shapes, with the live counts that the op itself computes filled
    /// in.
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
    /// Checks that the live count of `spec`, if it has one, is a `[1]` u32 value of this tape.
    fn check_live(&self, op: &str, spec: Spec) -> Result<()> {
        let Some(live) = spec.rows.live else { return Ok(()) };
        self.check(op, live.var)?;
        let (counts, want) = (self.spec(live.var), Spec::count());
        ensure!(op, counts == want, "live rows of {spec} are counted by {counts}, want {want}");
        Ok(())
    }
    /// Appends `op` and returns its first output, see [`push`](Self::push).
    ///
    /// # Errors
    /// As `push`, and `Shape` if the op has no output.
    pub fn push1(&mut self, op: impl Op, ins: &[Var]) -> Result<Var> {
        let outs = self.push(op, ins)?;
        outs.first().copied().ok_or_else(|| Error::shape("push1", "the op has no output"))
    }
    /// Appends the backward pass of `y` for the gradient `dy`, and returns the gradient of each of `xs`.
    ///
    /// The gradients of a value with several readers are added in the order in which the backward pass meets
    /// them, so the result is deterministic.
    ///
    /// # Errors
    /// `Shape` if an op between `xs` and `y` has no derivative, if `y` does not depend on one of `xs`, or if
    /// a value belongs to another tape.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let a = tape.input(&mut store, "a", Spec::real(Rows::fixed(1), 2), &[3.0f32, 4.0])?;
    /// let ones = tape.input(&mut store, "ones", Spec::real(Rows::fixed(1), 2), &[1.0f32, 1.0])?;
    /// let square = tape.mul(a, a)?;
    /// let da = tape.backward(square, ones, &[a])?[0];
    /// let mut program = Program::new(&tape, &[da], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(da, &store)?, [6.0, 8.0]); // 2 a
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
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
    /// Appends the backward pass of several outputs at once, given as pairs of a value and its gradient.
    /// Returns the gradients of all values that have one.
    ///
    /// # Errors
    /// `Shape` if an op on the way has no derivative, or if a value belongs to another tape.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let a = tape.input(&mut store, "a", Spec::real(Rows::fixed(1), 1), &[3.0f32])?;
    /// let one = tape.input(&mut store, "one", Spec::real(Rows::fixed(1), 1), &[1.0f32])?;
    /// let ten = tape.input(&mut store, "ten", Spec::real(Rows::fixed(1), 1), &[10.0f32])?;
    /// let (square, double) = (tape.mul(a, a)?, tape.add(a, a)?);
    /// let grads = tape.backward_many(&[(square, one), (double, ten)])?;
    /// let mut program = Program::new(&tape, &[grads[&a]], Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(grads[&a], &store)?, [26.0]); // 1 * 2 a + 10 * 2
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn backward_many(&mut self, seeds: &[(Var, Var)]) -> Result<HashMap<Var, Var>> {
        let mut grads: HashMap<Var, Var> = HashMap::new();
        let before = self.tag;
        for &(y, dy) in seeds {
            [y, dy].into_iter().try_for_each(|v| self.check("backward", v))?;
            let (value, grad) = (self.spec(y), self.spec(dy));
            let same = (value.rows.capacity, value.cols) == (grad.rows.capacity, grad.cols);
            ensure!("backward", same, "y is {value}, its gradient is {grad}");
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
            self.check_gradients(&node, &dins)?;
            for (&v, d) in node.ins.iter().zip(dins) {
                if let Some(d) = d {
                    self.add_gradient(&mut grads, v, d)?;
                }
            }
        }
        // Sorted, so that the tape does not depend on the order of the hash map.
        let mut with_gradient: Vec<Var> = grads.keys().copied().collect();
        with_gradient.sort_unstable();
        for v in with_gradient {
            self.whole(&mut grads, v)?;
        }
        self.tag = before;
        Ok(grads)
    }
    /// Checks that the backward pass of a node gave each input nothing, or a gradient of its shape. That of a
    /// view may have fewer rows: those of the view.
    fn check_gradients(&self, node: &Node, dins: &[Option<Var>]) -> Result<()> {
        let (op, n) = (node.op.name(), node.ins.len());
        ensure!(op, dins.len() == n, "vjp gives {} gradients, want one for each of {n} inputs", dins.len());
        for (i, (&v, d)) in node.ins.iter().zip(dins).enumerate() {
            let Some(d) = *d else { continue };
            self.check(op, d)?;
            let (has, value) = (self.spec(d), self.spec(v));
            let want = Spec { dtype: value.dtype.widened(), ..value };
            let rows = has.rows.capacity == want.rows.capacity || node.view && i == 0;
            let fits = (has.dtype, has.cols) == (want.dtype, want.cols) && rows;
            let name = node.op.input_name(i);
            ensure!(op, fits, "vjp gives {has} as the gradient of {name}, which is {value}");
        }
        Ok(())
    }
    /// Returns the gradient of `v`, if there is one, padded to the rows of `v`: the gradient that a view of
    /// `v` contributes may have fewer rows.
    fn whole(&mut self, grads: &mut HashMap<Var, Var>, v: Var) -> Result<Option<Var>> {
        let Some(&g) = grads.get(&v) else { return Ok(None) };
        if self.spec(g).rows == self.spec(v).rows {
            return Ok(Some(g));
        }
        let whole = self.padded(g, v)?;
        grads.insert(v, whole);
        Ok(Some(whole))
    }
    /// Appends zero rows to `g`, up to the rows of `v`.
    fn padded(&mut self, g: Var, v: Var) -> Result<Var> {
        self.push1(PadRows { onto: false }, &[g, v])
    }
    /// Adds `d` to the gradient of `v`.
    fn add_gradient(&mut self, grads: &mut HashMap<Var, Var>, v: Var, d: Var) -> Result<()> {
        self.check("backward", d)?;
        let (value, grad) = (self.spec(v), self.spec(d));
        let fits =
            grad.dtype == DType::F32 && grad.cols == value.cols && grad.rows.capacity <= value.rows.capacity;
        ensure!(
            "backward",
            fits && value.dtype.widened() == DType::F32,
            "a gradient of shape {grad} does not match its value of shape {value}"
        );
        let rows = |t: &Self, v: Var| t.spec(v).rows;
        let sum = match grads.get(&v).copied() {
            None => d,
            Some(g) if rows(self, g) == rows(self, d) => self.push1(Sum, &[g, d])?,
            Some(g) => {
                // One of the two comes from a view and has fewer rows.
                let (short, whole) = if rows(self, g) == rows(self, v) { (d, g) } else { (g, d) };
                let whole = if rows(self, whole) == rows(self, v) { whole } else { self.padded(whole, v)? };
                self.push1(PadRows { onto: true }, &[short, whole])?
            }
        };
        grads.insert(v, sum);
        Ok(())
    }
    /// Returns the compulsory bytes and operations of the whole program.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{ops::{Cost, Tape}, runtime::*};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let a = tape.input(&mut store, "a", Spec::real(Rows::fixed(1), 2), &[3.0f32, 4.0])?;
    /// tape.add(a, a)?;
    /// assert_eq!(tape.cost(), Cost { bytes: 3 * 2 * 4, flops: 2 }); // two operands and a result
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn cost(&self) -> Cost {
        self.nodes.iter().map(|n| self.node_cost(n)).fold(Cost::default(), |sum, cost| Cost {
            bytes: sum.bytes + cost.bytes,
            flops: sum.flops + cost.flops,
        })
    }
    /// Returns the compulsory bytes and operations of one node of this tape, at full row counts.
    ///
    /// # Panics
    /// If the node belongs to another tape.
    pub fn node_cost(&self, n: &Node) -> Cost {
        n.op.cost(&self.specs(&n.ins), &self.specs(&n.outs))
    }
    /// Returns shapes and types of `vars`.
    ///
    /// # Panics
    /// If one of the values belongs to another tape.
    pub fn specs(&self, vars: &[Var]) -> Vec<Spec> {
        vars.iter().map(|&v| self.spec(v)).collect()
    }
}

/// Whether the op has one output, which can be the first elements of its first input, and changes nothing in
/// place.
fn is_view(ins: &[Spec], outs: &[Spec], writes: &[usize]) -> bool {
    match (ins.first(), outs) {
        (Some(first), [out]) => out.dtype == first.dtype && out.len() <= first.len() && writes.is_empty(),
        _ => false,
    }
}

/// Writes one line per node: `%7 F32 [<=6000, 100], ... = gru_memory(%1, %4!, ...)`; `!` marks state changed
/// in place.
impl fmt::Display for Tape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for n in &self.nodes {
            let outs: Vec<String> = n.outs.iter().map(|&o| format!("{o} {}", self.spec(o))).collect();
            let mark = |i| if n.writes.contains(&i) { "!" } else { "" };
            let ins: Vec<String> = n.ins.iter().enumerate().map(|(i, v)| format!("{v}{}", mark(i))).collect();
            let equals = if outs.is_empty() { "" } else { " = " };
            writeln!(f, "{}{equals}{}({})", outs.join(", "), n.op.name(), ins.join(", "))?;
        }
        Ok(())
    }
}
