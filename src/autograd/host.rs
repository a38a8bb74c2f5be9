//! A program on the host: its memory there, and its nodes with the addresses of what they touch.
use super::{
    lanes::{LANES, cycle},
    program::fault,
    variant::{Place, PlannedNode, Variant},
};
use crate::{error::Result, ops::Backend, runtime::*};
use std::time::Instant;

/// Memory of a program's values: for each lane, and for each turn where steps go in depth there.
pub(super) struct OnHost {
    lanes: [Vec<OwnBytes>; LANES],
}

/// An operand before its rows are counted.
struct Operand {
    view: BufferView,
    /// The count of its live rows, and how many there are to one.
    live: Option<(*const u32, usize)>,
}

/// What a node touches in one turn.
struct Operands {
    ins: Vec<Operand>,
    outs: Vec<Operand>,
    scratch: (*mut u8, usize),
}

/// The nodes of a program, ready to run over a store that nobody else changes meanwhile.
pub(super) struct BoundVariant<'a> {
    nodes: &'a [PlannedNode],
    /// By turn, then by node.
    depth: Vec<Vec<Operands>>,
    backend: &'a Backend,
    precision: Precision,
}
// SAFETY: threads that run nodes of it side by side keep to the order of what these touch; see `run`.
unsafe impl Sync for BoundVariant<'_> {}

/// Room for what a node sees, so that a run allocates nothing.
#[derive(Default)]
pub(super) struct ViewBuffers {
    ins: Vec<BufferView>,
    outs: Vec<BufferView>,
}
// SAFETY: what it holds is of use to a node alone while that runs, and every run fills it anew.
unsafe impl Send for ViewBuffers {}

impl OnHost {
    /// Room for `bytes` of each lane, as many times as it has depth.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn new(bytes: [usize; LANES], depth: [usize; LANES]) -> Result<Self> {
        let advice = "take a smaller batch, fewer neighbours or narrower layers";
        let all = bytes.iter().zip(depth).map(|(bytes, depth)| bytes.saturating_mul(depth));
        let all = all.fold(0, usize::saturating_add);
        check_room("the values of one step", all, advice)?;
        let of = |lane: usize| (0..depth[lane]).map(|_| OwnBytes::zeros(bytes[lane])).collect::<Result<_>>();
        Ok(OnHost { lanes: [of(0)?, of(1)?] })
    }
    /// Bytes of it.
    pub fn bytes(&self) -> usize {
        self.lanes.iter().flatten().map(|turn| turn.len()).sum()
    }
    /// Where a value of a lane begins, as the last step of the first turn left it.
    pub fn address(&self, lane: usize, at: usize) -> *const u8 {
        self.lanes[lane][0].address().wrapping_add(at)
    }
    /// The nodes of each variant with their addresses.
    ///
    /// # Errors
    /// As [`Store::address`].
    pub fn ready<'a>(
        &'a mut self,
        variants: &'a [Variant],
        store: &mut Store,
        (backend, precision): (&'a Backend, Precision),
    ) -> Result<Vec<BoundVariant<'a>>> {
        let depth = cycle(self.lanes.each_ref().map(Vec::len));
        let ready = |variant: &'a Variant| {
            let depth = (0..depth).map(|turn| {
                let mut address = |place| match place {
                    Place::Arena(lane, at) => {
                        let depth = &self.lanes[lane];
                        Ok(depth[turn % depth.len()].address().wrapping_add(at))
                    }
                    Place::Stored(id) => store.address(id),
                };
                variant.nodes.iter().map(|p| Operands::of(p, &variant.places, &mut address)).collect()
            });
            Ok(BoundVariant {
                nodes: &variant.nodes,
                depth: depth.collect::<Result<_>>()?,
                backend,
                precision,
            })
        };
        variants.iter().map(ready).collect()
    }
}

impl Operands {
    fn of(
        p: &PlannedNode,
        places: &[Option<Place>],
        address: &mut impl FnMut(Place) -> Result<*mut u8>,
    ) -> Result<Self> {
        let mut operand = |&(place, spec): &(Place, Spec), own: &[Var], wanted| -> Result<Operand> {
            // A node that makes a count is given all the room of what it counts.
            let live = spec.rows.live.filter(|l| !own.contains(&l.var));
            let live = match live.and_then(|l| Some((places[l.var.at()]?, l.times))) {
                Some((place, times)) => Some((address(place)?.cast_const().cast(), times)),
                None => None,
            };
            Ok(Operand {
                view: BufferView { ptr: address(place)?, spec, rows: spec.rows.capacity, wanted },
                live,
            })
        };
        let ins = p.ins.iter().map(|x| operand(x, &[], true)).collect::<Result<_>>()?;
        let outs = p.outs.iter().zip(&p.wanted).map(|(x, &wanted)| operand(x, &p.node.outs, wanted));
        let outs = outs.collect::<Result<_>>()?;
        Ok(Operands { ins, outs, scratch: (address(p.scratch.0)?, p.scratch.1) })
    }
}

impl Operand {
    /// # Safety
    /// The count must have been made.
    unsafe fn counted(&self) -> BufferView {
        let counted = |(count, times): (*const u32, usize)| {
            // SAFETY: a count is a `[1]` u32, made by an earlier node or stored.
            (unsafe { count.read() } as usize).saturating_mul(times)
        };
        let rows = self.live.map_or(self.view.rows, counted);
        BufferView { rows: rows.min(self.view.rows), ..self.view }
    }
}

impl BoundVariant<'_> {
    /// Runs node `at` in run `run`, whose turn it is.
    ///
    /// # Errors
    /// `Diverged` or `Data`: what its op refuses.
    ///
    /// # Safety
    /// What the node reads must have been made, and nobody may touch meanwhile what it makes or change what it reads.
    pub unsafe fn run(&self, run: usize, at: usize, seen: &mut ViewBuffers) -> Result<()> {
        let (p, operands) = (&self.nodes[at], &self.depth[run % self.depth.len()][at]);
        let _range = nvtx::range(p.node.op.name());
        seen.ins.clear();
        seen.outs.clear();
        // SAFETY: the caller's.
        unsafe {
            seen.ins.extend(operands.ins.iter().map(|o| o.counted()));
            seen.outs.extend(operands.outs.iter().map(|o| o.counted()));
        }
        let status = Status::default();
        // SAFETY: places of values that are alive together are disjoint by the plan, and zeroed or written; a state is given
        // once a node, checked when it was pushed; the rest is the caller's.
        let io = unsafe {
            Io::new(&seen.ins, &seen.outs, operands.scratch, self.precision, &p.node.writes, &status)
        };
        p.node.op.run(self.backend, self.precision, &io);
        match status.take() {
            Some((row, value)) => Err(fault(p.node.op.name(), row, f32::from_bits(value))),
            None => Ok(()),
        }
    }
    /// Runs every node of the first turn, in order; `ran` hears of each, from when to when.
    ///
    /// # Errors
    /// As `run`.
    pub fn run_all(
        &self,
        ran: Option<&mut dyn FnMut(usize, Instant, Instant)>,
        seen: &mut ViewBuffers,
    ) -> Result<()> {
        let mut ran = ran;
        for at in 0..self.nodes.len() {
            let start = ran.is_some().then(Instant::now);
            // SAFETY: one after the other, in the order in which they were planned; store and memory are borrowed.
            unsafe { self.run(0, at, seen)? };
            if let (Some(ran), Some(start)) = (&mut ran, start) {
                ran(at, start, Instant::now());
            }
        }
        Ok(())
    }
}
