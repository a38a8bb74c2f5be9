//! A program on the host: the memory of its values, and its nodes bound to addresses.
use super::{
    lanes::MAX_LANES,
    stages::StageRange,
    variant::{Place, PlannedNode, Variant},
};
use crate::{
    error::Result,
    ops::{Backend, Cost, fault_error},
    runtime::*,
};
use std::time::Instant;

/// The memory of a program's values.
pub(super) struct OnHost {
    /// For each lane, as many buffers as its depth.
    lanes: [Vec<OwnBytes>; MAX_LANES],
    /// See [`Place::Zeros`].
    zeros: OwnBytes,
}

/// An operand before its rows are counted.
struct Operand {
    view: BufferView,
    /// The count of its live rows, and the number of rows for each counted one.
    live: Option<LiveCount>,
    /// The same after the node has run, which may compute the count.
    live_after: Option<LiveCount>,
}

/// The address of a count of rows, and the number of rows for each counted one.
type LiveCount = (*const u32, usize);

/// The memory that a node accesses, with one choice of buffers.
struct Operands {
    ins: Vec<Operand>,
    outs: Vec<Operand>,
    scratch: (*mut u8, usize),
}

/// The nodes of a variant bound to addresses, ready to run over a store that nobody else changes meanwhile.
pub(super) struct BoundVariant<'a> {
    nodes: &'a [PlannedNode],
    /// For each node, its operands in each choice of buffers.
    operands: Vec<Vec<Operands>>,
    backend: &'a Backend,
    precision: Precision,
}
// SAFETY: threads that run nodes side by side keep the order of conflicting accesses; see `run`.
unsafe impl Sync for BoundVariant<'_> {}

/// The views of a node's operands, reused so that a run allocates nothing.
#[derive(Default)]
pub(super) struct ViewBuffers {
    ins: Vec<BufferView>,
    outs: Vec<BufferView>,
}
// SAFETY: the views are used only while their node runs, and every run fills them anew.
unsafe impl Send for ViewBuffers {}

/// What is called for every node that runs.
pub(super) struct NodeWatch<'a> {
    /// Before the node runs.
    pub before: &'a mut dyn FnMut(&PlannedNode),
    /// After it, with its number, its start, its end, and its cost at live row counts.
    pub after: &'a mut dyn FnMut(usize, Instant, Instant, Cost),
}

impl OnHost {
    /// Allocates `bytes` for each lane, as many times as its buffer depth, and bytes for [`Place::Zeros`].
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn new(bytes: [usize; MAX_LANES], buffer_depth: [usize; MAX_LANES], zeros: usize) -> Result<Self> {
        let advice = "take a smaller batch, fewer neighbours or narrower layers";
        let of_lanes = bytes.iter().zip(buffer_depth).map(|(bytes, depth)| bytes.saturating_mul(depth));
        check_room("the values of one step", of_lanes.fold(0, usize::saturating_add), advice)?;
        let mut lanes: [Vec<OwnBytes>; MAX_LANES] = Default::default();
        for (buffers, (bytes, depth)) in lanes.iter_mut().zip(bytes.into_iter().zip(buffer_depth)) {
            *buffers = (0..depth).map(|_| OwnBytes::zeros(bytes)).collect::<Result<_>>()?;
        }
        Ok(OnHost { lanes, zeros: OwnBytes::zeros(zeros)? })
    }
    /// Returns the size of all buffers in bytes.
    pub fn bytes(&self) -> usize {
        self.lanes.iter().flatten().map(|buffer| buffer.len()).sum()
    }
    /// Returns the address of a value at an offset in the first buffer of a lane.
    pub fn address(&self, lane: usize, offset: usize) -> *const u8 {
        self.lanes[lane][0].address().wrapping_add(offset)
    }
    /// Binds the nodes of each variant to addresses.
    ///
    /// # Errors
    /// As [`Store::address`].
    pub fn bind<'a>(
        &'a mut self,
        variants: &'a [Variant],
        store: &mut Store,
        backend: &'a Backend,
        precision: Precision,
    ) -> Result<Vec<BoundVariant<'a>>> {
        let host: &'a Self = self;
        let bind = |v: &'a Variant| host.bind_nodes(&v.nodes, &v.places, store, backend, precision);
        variants.iter().map(bind).collect()
    }
    /// Binds nodes of a variant, whose values have these places, to addresses.
    ///
    /// # Errors
    /// As [`Store::address`].
    pub fn bind_nodes<'a>(
        &'a self,
        nodes: &'a [PlannedNode],
        places: &[Option<Place>],
        store: &mut Store,
        backend: &'a Backend,
        precision: Precision,
    ) -> Result<BoundVariant<'a>> {
        let buffer_depth = self.lanes.each_ref().map(Vec::len);
        let operands = nodes.iter().map(|planned| {
            let of_run = |run: usize| {
                let mut address = |place| match place {
                    Place::Arena(lane, offset) => {
                        let buffers = &self.lanes[lane];
                        Ok(buffers[run % buffers.len()].address().wrapping_add(offset))
                    }
                    Place::Stored(id) => store.address(id),
                    Place::Zeros => Ok(self.zeros.address()),
                };
                Operands::bind(planned, places, &mut address)
            };
            (0..planned.buffer_choices(&buffer_depth)).map(of_run).collect()
        });
        let operands = operands.collect::<Result<_>>()?;
        Ok(BoundVariant { nodes, operands, backend, precision })
    }
}

impl Operands {
    fn bind(
        planned: &PlannedNode,
        places: &[Option<Place>],
        address: &mut impl FnMut(Place) -> Result<*mut u8>,
    ) -> Result<Self> {
        let mut operand = |&(place, spec): &(Place, Spec), outs: &[Var], wanted| -> Result<Operand> {
            let counted = spec.rows.live.and_then(|l| Some((places[l.var.at()]?, l.times)));
            let live_after = match counted {
                Some((place, times)) => Some((address(place)?.cast_const().cast(), times)),
                None => None,
            };
            // A node that computes a count gets the whole capacity of the value that the count is for.
            let live = live_after.filter(|_| spec.rows.live.is_some_and(|l| !outs.contains(&l.var)));
            let view = BufferView { ptr: address(place)?, spec, rows: spec.rows.capacity, wanted };
            Ok(Operand { view, live, live_after })
        };
        let ins = planned.ins.iter().map(|x| operand(x, &[], true)).collect::<Result<_>>()?;
        let outs = planned.outs.iter().zip(&planned.wanted);
        let outs = outs.map(|(x, &wanted)| operand(x, &planned.node.outs, wanted)).collect::<Result<_>>()?;
        Ok(Operands { ins, outs, scratch: (address(planned.scratch.0)?, planned.scratch.1) })
    }
}

impl Operand {
    /// Returns the view of the live rows.
    ///
    /// # Safety
    /// The count must have been computed.
    unsafe fn counted(&self) -> BufferView {
        // SAFETY: the caller's.
        BufferView { rows: unsafe { self.rows(self.live) }, ..self.view }
    }
    /// Returns the shape of the rows that were live when the node had run.
    ///
    /// # Safety
    /// The node must have run.
    unsafe fn live_spec(&self) -> Spec {
        // SAFETY: the caller's.
        Spec { rows: Rows::fixed(unsafe { self.rows(self.live_after) }), ..self.view.spec }
    }
    /// Returns the number of live rows.
    ///
    /// # Safety
    /// The count must have been computed.
    unsafe fn rows(&self, live: Option<LiveCount>) -> usize {
        let counted = |(count, times): LiveCount| {
            // SAFETY: a count is a `[1]` u32, computed by this node, by an earlier one, or stored.
            (unsafe { count.read() } as usize).saturating_mul(times)
        };
        live.map_or(self.view.rows, counted).min(self.view.rows)
    }
}

impl BoundVariant<'_> {
    /// Runs node `at` with the buffers of run `run`.
    ///
    /// # Errors
    /// `Diverged` or `Data` if the op meets a number that is not finite, or an index outside of its table.
    ///
    /// # Safety
    /// The operands that the node reads must have been computed, and no other thread may access what it
    /// writes, or write what it reads, meanwhile.
    pub unsafe fn run(&self, run: usize, at: usize, views: &mut ViewBuffers) -> Result<()> {
        let (planned, choices) = (&self.nodes[at], &self.operands[at]);
        let operands = &choices[run % choices.len()];
        let op = &planned.node.op;
        let _range = nvtx::range(op.name());
        views.ins.clear();
        views.outs.clear();
        // SAFETY: the caller's.
        unsafe {
            views.ins.extend(operands.ins.iter().map(|o| o.counted()));
            views.outs.extend(operands.outs.iter().map(|o| o.counted()));
        }
        let status = Status::default();
        // SAFETY: the plan gives disjoint places to values that are alive together, and they are zeroed or
        // written; a state is an operand of a node at most once, checked when the node was pushed; the rest
        // is the caller's.
        let io = unsafe {
            Io::new(&views.ins, &views.outs, operands.scratch, self.precision, &planned.node.writes, &status)
        };
        op.run(self.backend, self.precision, &io);
        match (status.failure(), status.take()) {
            (Some(e), _) => Err(e),
            (None, Some((row, fault))) => Err(fault_error(&**op, row, fault, Some(&io))),
            (None, None) => Ok(()),
        }
    }
    /// Returns the cost of the last run of node `at`, with the buffers of run `run`, at its live row counts.
    ///
    /// # Safety
    /// The node must have run, and no other thread may write the counts of its rows meanwhile.
    pub unsafe fn cost_of_run(&self, run: usize, at: usize) -> Cost {
        let choices = &self.operands[at];
        let Operands { ins, outs, .. } = &choices[run % choices.len()];
        // SAFETY: the caller's.
        let specs = |of: &[Operand]| of.iter().map(|o| unsafe { o.live_spec() }).collect::<Vec<_>>();
        self.nodes[at].cost(&specs(ins), &specs(outs))
    }
    /// Returns the nodes.
    pub fn nodes(&self) -> &[PlannedNode] {
        self.nodes
    }
    /// Returns the count that node `at` has computed as its result `out`, in the first buffers.
    ///
    /// # Safety
    /// The node must have run, the result must be a count, and no other thread may write it meanwhile.
    pub unsafe fn count_of_run(&self, at: usize, out: usize) -> u32 {
        // SAFETY: a count is a `[1]` u32; the rest is the caller's.
        unsafe { self.operands[at][0].outs[out].view.ptr.cast::<u32>().read() }
    }
    /// Runs every node in order, in the first buffers; `watch` sees each of them.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_all(&self, mut watch: Option<&mut NodeWatch<'_>>, views: &mut ViewBuffers) -> Result<()> {
        let mut stage = StageRange::default();
        for (at, planned) in self.nodes.iter().enumerate() {
            stage.enter(planned.stage);
            let start = watch.as_mut().map(|watch| {
                (watch.before)(planned);
                Instant::now()
            });
            // SAFETY: one node after the other, in the order in which they were planned; store and memory are
            // borrowed.
            unsafe { self.run(0, at, views)? };
            if let (Some(watch), Some(start)) = (&mut watch, start) {
                let end = Instant::now();
                // SAFETY: the node has run; store and memory are borrowed.
                (watch.after)(at, start, end, unsafe { self.cost_of_run(0, at) });
            }
        }
        Ok(())
    }
}
