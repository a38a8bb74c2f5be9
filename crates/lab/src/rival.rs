//! An op by other code.
use std::{fmt, sync::Arc};
use tgnn::{
    error::{Error, Result},
    ops::{Backend, Cost, DynOp, Node, OpKind, Out, Parts, Tape},
    runtime::{
        Io, Precision, Spec, Var,
        comm::TrafficKind,
        cuda::{Kernels, Launch, WindowSize},
    },
};

type Launcher = dyn Fn(&Launch<'_>) -> Result<()> + Send + Sync;

/// Other code that does the work of an op, on the same operands.
#[derive(Clone)]
pub struct Rival {
    op: &'static str,
    name: &'static str,
    launch: Arc<Launcher>,
}

impl fmt::Debug for Rival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by {}", self.op, self.name)
    }
}

impl Rival {
    /// Creates the rival called `name` of the op called `op`; `launch` replaces the op's launch.
    pub fn new(
        op: &'static str,
        name: &'static str,
        launch: impl Fn(&Launch<'_>) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        Rival { op, name, launch: Arc::new(launch) }
    }
    /// Returns the name of the op.
    pub fn op(&self) -> &'static str {
        self.op
    }
    /// Returns the name of the rival.
    pub fn name(&self) -> &'static str {
        self.name
    }
    /// Lets the rival do the work of its op on a tape.
    ///
    /// # Errors
    /// `Shape` if the tape has no such op: a measurement would be the op's own.
    pub fn take_over(&self, tape: &mut Tape) -> Result<()> {
        match tape.replace(self.op, |op| Arc::new(TakenOver { op, by: self.clone() }))? {
            0 => Err(Error::shape(self.op, format_args!("is not on the tape that {} is for", self.name))),
            _ => Ok(()),
        }
    }
}

/// An op that a rival launches. Everything else is the op's.
#[derive(Debug)]
struct TakenOver {
    op: Arc<dyn DynOp>,
    by: Rival,
}

/// Calls the method of the op.
macro_rules! of_the_op {
    ($(fn $name:ident(&self $(, $argument:ident: $type:ty)*) -> $result:ty;)*) => {
        $(fn $name(&self $(, $argument: $type)*) -> $result { self.op.$name($($argument),*) })*
    };
}

impl DynOp for TakenOver {
    of_the_op! {
        fn name(&self) -> &'static str;
        fn kind(&self) -> OpKind;
        fn input_name(&self, i: usize) -> String;
        fn output_name(&self, k: usize) -> String;
        fn row(&self) -> &'static str;
        fn infer(&self, ins: &[Spec]) -> Result<Vec<Out>>;
        fn writes(&self, inputs: usize) -> Vec<usize>;
        fn traffic(&self) -> Option<TrafficKind>;
        fn empty_without(&self) -> Option<usize>;
        fn window(&self, ins: &[Spec], outs: &[Spec]) -> Option<WindowSize<'_>>;
        fn reports_infinite(&self) -> bool;
        fn is_view(&self) -> bool;
        fn fused(&self, tape: &Tape, ins: &[Var]) -> Option<(Arc<dyn DynOp>, Vec<Var>)>;
        fn parts(&self) -> Option<Parts>;
        fn scratch(&self, ins: &[Spec]) -> usize;
        fn tickets(&self, ins: &[Spec]) -> usize;
        fn cost(&self, ins: &[Spec], outs: &[Spec]) -> Cost;
        fn run(&self, backend: &Backend, precision: Precision, io: &Io<'_>) -> ();
        fn vjp(&self, t: &mut Tape, node: &Node, douts: &[Option<Var>]) -> Result<Vec<Option<Var>>>;
    }
    unsafe fn launch(&self, _: &Kernels, on: &Launch<'_>) -> Result<()> {
        (self.by.launch)(on)
    }
}
