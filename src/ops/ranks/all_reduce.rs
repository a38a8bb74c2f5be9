//! `out[i] = sum over all ranks of x[i]`, for several values at once
//!
//! | value | shape | meaning |
//! | --- | --- | --- |
//! | `sequence` | `[1]` u32, state | sequence number of the [`Link`] |
//! | `x` | any number of f32 values with fixed rows | gradients |
//! | `to` | one for each `x` and as `x`, state, optional | where the sums are written |
//! | out | as `x`; none if there is `to` | sums, the same bits on every rank |
//!
//! The values are packed into one message. Numbers are added in the order of the ranks. No gradient.
use super::{
    adam::{Part, parameters},
    window::REGION_ALIGN,
    *,
};
use crate::runtime::{
    comm::{Channel, Ranks, TrafficKind, all_reduce},
    cuda::{Window, WindowSize, abi},
};
use std::{
    ops::Range,
    sync::{Mutex, PoisonError},
};

/// See the [module](self).
#[derive(Debug)]
pub struct AllReduce {
    link: Link,
    /// Number of values.
    values: usize,
    /// The packed values and what arrives, reused from run to run.
    buffers: Mutex<[Vec<f32>; 2]>,
}

/// Position of the first value; input 0 is the sequence number.
const FIRST: usize = 1;

impl Tape {
    /// Appends [`AllReduce`], which adds up each of `values` over all ranks: f32 of any shape, with fixed
    /// rows.
    ///
    /// # Errors
    /// `Shape` if a value is not f32, or its rows are not fixed.
    ///
    /// # Examples
    /// ```
    /// use tgnn::{autograd::Program, ops::*, runtime::{*, comm::{Channel, Ranks}}};
    /// let mut store = Store::new(Precision::F32);
    /// let mut tape = Tape::new(&store);
    /// let link = Link::new(&mut store, &Ranks::alone(), Channel::Gradients)?;
    /// let x = tape.input(&mut store, "x", Spec::real(Rows::fixed(1), 2), &[1.0f32, 2.0])?;
    /// let sums = tape.all_reduce(&link, &[x])?;
    /// let mut program = Program::new(&tape, &sums, Precision::F32, Backend::Cpu)?;
    /// program.run(&mut store)?;
    /// assert_eq!(program.read::<f32>(sums[0], &store)?, [1.0, 2.0]); // of a single rank
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    pub fn all_reduce(&mut self, link: &Link, values: &[Var]) -> Result<Vec<Var>> {
        let sequence = link.sequence(self)?;
        let mut sums = Vec::with_capacity(values.len());
        for values in values.chunks(Io::MOST_OUTPUTS) {
            let ins: Vec<Var> = std::iter::once(sequence).chain(values.iter().copied()).collect();
            sums.extend(self.push(AllReduce::new(link, values.len()), &ins)?);
        }
        Ok(sums)
    }
}

impl AllReduce {
    fn new(link: &Link, values: usize) -> Self {
        AllReduce { link: link.clone(), values, buffers: Mutex::default() }
    }
    /// Returns the positions of the values.
    fn inputs(&self) -> Range<usize> {
        FIRST..FIRST + self.values
    }
    fn run<R: Real>(&self, io: &Io<'_>, [packed, arriving]: &mut [Vec<R>; 2]) {
        packed.clear();
        self.inputs().for_each(|i| packed.extend_from_slice(io.input::<R>(i)));
        self.link.step(io, Self::NAME, |comm| {
            let sent = 2 * size_of_val(packed.as_slice()) * (comm.size() - 1) / comm.size();
            let traffic = self.link.ranks().traffic();
            traffic.add(TrafficKind::Gradients, self.values, sent);
            let of_ranks = (comm.rank(), comm.size());
            traffic.add_to_record(TrafficKind::Gradients, of_ranks, 2, |_| sent / (comm.size() - 1).max(1));
            all_reduce(comm, packed, arriving)
        });
        let mut rest = packed.as_slice();
        for k in 0..self.values {
            let out = io.out::<R>(k);
            let (own, later) = rest.split_at(out.len());
            out.copy_from_slice(own);
            rest = later;
        }
    }
    /// Calls `launch` with the values, their sums, and their places in the window.
    fn launches(
        &self,
        on: &Launch<'_>,
        window: &Window,
        launch: impl Fn(Grid, abi::Parameters, Part) -> Result<()>,
    ) -> Result<()> {
        let places: Vec<u64> = self
            .inputs()
            .scan(window.address(), |next, i| {
                let place = *next;
                *next += place_bytes(on.spec(i).len()) as u64;
                Some(place)
            })
            .collect();
        let parameter_at = |at: usize, end| abi::Parameter {
            w: on.needed(at - FIRST),
            g: on.input(at),
            m: places[at - FIRST] as *mut f32,
            v: std::ptr::null_mut(),
            sum: std::ptr::null_mut(),
            n: on.spec(at).len() as u32,
            end,
        };
        parameters(on, self.inputs(), parameter_at, launch)
    }
    /// Launches the kernels that write the window.
    ///
    /// # Safety
    /// As [`Op::launch`].
    unsafe fn write(&self, k: &Kernels, on: &Launch<'_>, window: &Window) -> Result<()> {
        let others = self.link.ranks().size() - 1;
        let bytes: usize = self.inputs().map(|i| size_of::<f32>() * on.spec(i).len() * others).sum();
        let sent = window.sent(TrafficKind::Gradients);
        self.launches(on, window, |grid, values, Part { last, .. }| {
            let sent = if last { sent } else { std::ptr::null_mut() };
            launch!(
                k, on, write_values_to_window[grid];
                values, sent, self.values as u32, bytes as u64
            )
        })
    }
    /// Launches the kernels that add up the windows.
    ///
    /// # Safety
    /// As [`Op::launch`].
    unsafe fn sum(&self, k: &Kernels, on: &Launch<'_>, window: &Window) -> Result<()> {
        self.launches(on, window, |grid, values, Part { last, .. }| {
            let progress = if last { window.progress() } else { std::ptr::null_mut() };
            launch!(k, on, sum_windows[grid]; values, window.blocks(), progress)
        })
    }
}

/// Returns the bytes of a value in a window.
fn place_bytes(values: usize) -> usize {
    (values * size_of::<f32>()).next_multiple_of(REGION_ALIGN)
}

impl Op for AllReduce {
    const NAME: &'static str = "all_reduce";
    const KIND: OpKind = OpKind::Comm;
    const SIGNATURE: &'static str = "sequence [1] ids state, {x [R, d]} -> out";
    fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>> {
        ensure!(Self::NAME, ins.len() > FIRST, "{} inputs, want a sequence number and values", ins.len());
        arity(Self::NAME, ins, self.inputs().end)?;
        signature::infer(self, ins)?;
        Ok(ins[FIRST..].iter().map(|&x| x.into()).collect())
    }
    fn traffic(&self) -> Option<TrafficKind> {
        Some(TrafficKind::Gradients)
    }
    fn window(&self, ins: &[Spec], _: &[Spec]) -> Option<WindowSize<'_>> {
        let values = ins[self.inputs()].iter().map(|x| place_bytes(x.len()));
        self.link.window(values.sum())
    }
    fn define<R: Real>(&self, io: &Io<'_>) {
        self.run::<R>(io, &mut Default::default());
    }
    fn cpu(&self, io: &Io<'_>) {
        self.run(io, &mut self.buffers.lock().unwrap_or_else(PoisonError::into_inner));
    }
    unsafe fn launch(&self, k: &Kernels, on: &Launch<'_>) -> Result<()> {
        if !self.link.is_alone() {
            let channel = self.link.channel();
            // SAFETY: the caller's promise.
            let write = |window: &Window| unsafe { self.write(k, on, window) };
            // SAFETY: as above.
            let sum = |window: &Window| unsafe { self.sum(k, on, window) };
            return on.exchange(channel, write, sum);
        }
        self.inputs().try_for_each(|i| {
            let (grid, rows, d) = (Grid::items(on.spec(i).len()), on.rows(i), on.cols(i));
            launch!(
                k, on, prefix_rows[grid];
                on.input(i), std::ptr::null(), on.needed(i - FIRST), rows, rows, d
            )
        })
    }
}

/// `[values, rows, cols]`
pub(in crate::ops) const CASES: &[&[usize]] = &[&[1, 1, 1], &[3, 5, 7], &[70, 1, 2], &[2, 0, 4]];
pub(in crate::ops) const BENCH: &[&[usize]] = &[&[20, 100, 110]];
pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let link = Link::new(&mut c.store, &Ranks::alone(), Channel::Gradients)?;
    let values: Vec<Var> = (0..dims[0]).map(|_| c.real(dims[1], dims[2])).collect();
    let outs = c.tape.all_reduce(&link, &values)?;
    Ok(Built::new(&outs, &[]))
}
