//! A case of an op whose program has run, so that single ops of it can be timed.
use crate::Rival;
use tgnn::{
    autograd::{Alone, OpTime, Program},
    error::Result,
    ops::{Backend, Case, Tape},
    runtime::{BufferId, Store},
    testing,
};

/// A case that has run once.
#[derive(Debug)]
pub struct ReadyCase {
    program: Program,
    store: Store,
    /// What runs change, as it was at first: a cursor that has advanced would leave less work.
    states: Vec<(BufferId, Vec<u8>)>,
}

impl ReadyCase {
    /// Builds a case with its backward pass, and runs it once. On a device each value has memory of its own,
    /// so that an op can run again on what the others have computed.
    ///
    /// # Errors
    /// Those of the ops.
    pub fn new(case: &Case, backend: Backend) -> Result<Self> {
        Self::with_rival(case, backend, None)
    }
    /// Does the same, with a rival in place of its op, if one is given.
    pub fn with_rival(case: &Case, backend: Backend, rival: Option<&Rival>) -> Result<Self> {
        let backend = match backend {
            Backend::Cuda(gpu) => Backend::Cuda(gpu.values_apart()),
            host => host,
        };
        let edit = |tape: &mut Tape| rival.map_or(Ok(()), |rival| rival.take_over(tape));
        let (mut program, mut store, states) = testing::edited_program(case, backend, &edit)?;
        let first = |&id: &BufferId| Ok((id, store.raw(id)?.to_vec()));
        let states = states.iter().map(first).collect::<Result<_>>()?;
        program.run(&mut store)?;
        Ok(ReadyCase { program, store, states })
    }
    /// Runs single ops and returns their times.
    ///
    /// # Errors
    /// Those of the ops.
    pub fn time(&mut self, alone: &Alone<'_>) -> Result<Vec<OpTime>> {
        let states = &self.states;
        self.program.time_alone(&mut self.store, alone, &mut |store| {
            states.iter().try_for_each(|(id, bytes)| {
                store.raw_mut(*id)?.copy_from_slice(bytes);
                Ok(())
            })
        })
    }
}
