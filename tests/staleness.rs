//! Steps that read older state: which version of it, on every lane, device and rank.
use crate::emulated::{device, drawn};
use tgnn::{
    autograd::{Lanes, Optimizer, Parameters, Placement, Program, ScaledInit, Stage, Staleness, UpdateRule},
    error::{ErrorKind, Result},
    ops::{Tape, epilogue::Activation},
    runtime::{philox::Key, *},
};

/// Number of rows of the table that the program of [`Versions`] reads and writes.
const ROWS: usize = 5;

/// A program that reads a row of a table, adds a weight to it, writes the sum back and to a trace, and updates
/// the weight by a slope of the step. All numbers are small integers, so every sum is exact.
struct Versions {
    store: Store,
    program: Program,
    trace: BufferId,
    /// Row and slope of each step.
    steps: Vec<(usize, f32)>,
}

impl Versions {
    fn new(steps: usize, device: &Device, lanes: Lanes) -> Result<Self> {
        let key = Key::new(3, 1, [0, 0]);
        let drawn = |step: usize| {
            let [row, slope, ..] = key.draw(step as u64);
            (row as usize % ROWS, (slope % 3) as f32 - 1.0)
        };
        let drawn: Vec<(usize, f32)> = (0..steps).map(drawn).collect();
        let mut store = Store::new(Precision::F32);
        let ids = |n| Spec::ids(Rows::fixed(n), 1);
        let numbers = |n| Spec::real(Rows::fixed(n), 1);
        let order = store.values("order", ids(steps), &(0..steps as u32).collect::<Vec<_>>())?;
        let clock = store.zeros("clock", Spec::ids(Rows::fixed(1), 2))?;
        let rows: Vec<u32> = drawn.iter().map(|step| step.0 as u32).collect();
        let rows = store.values("rows", ids(steps), &rows)?;
        let slopes: Vec<f32> = drawn.iter().map(|step| step.1).collect();
        let slopes = store.values("slopes", numbers(steps), &slopes)?;
        let state = store.zeros("state", numbers(ROWS))?;
        let trace = store.zeros("trace", numbers(steps))?;
        let one = store.values("one", numbers(1), &[1.0f32])?;
        let sgd = UpdateRule::Sgd { momentum: 0.0, decay: Default::default() };
        let sgd = Optimizer { rule: sgd, ..Optimizer::default() };
        let mut parameters = Parameters::with_optimizer(&mut store, 1, 1.0, sgd)?;
        let w = parameters.add(&mut store, "w", 1, 1, ScaledInit::Constant(0.0))?;
        let mut t = Tape::new();
        let [order, clock, rows, slopes, table] =
            t.stored_all(&store, [order, clock, rows, slopes, state])?;
        let [out, one, w] = t.stored_all(&store, [trace, one, w])?;
        let group = t.next_group(order, clock, 1)?;
        let row = t.gather_rows(rows, group.target)?;
        let slope = t.gather_rows(slopes, group.target)?;
        let read = t.gather_rows(table, row)?;
        let sum = t.linear(read, one, Some(w), None, Activation::Identity)?;
        // The gradient of the weight is the slope.
        let loss = t.linear(slope, w, None, None, Activation::Identity)?;
        parameters.minimize(&mut t, &store, loss)?;
        t.write_rows(table, row, sum)?;
        t.write_rows(out, group.index, sum)?;
        let program = Program::on_lanes(&t, &[], Precision::F32, device, lanes)?;
        Ok(Versions { store, program, trace, steps: drawn })
    }
    /// Returns the sum of each step, whether in one pass or in several of these lengths.
    fn ran(&mut self, passes: &[usize]) -> Vec<f32> {
        for &steps in passes {
            self.program.repeat(&mut self.store, steps, &mut |_| {}).map_err(|e| e.1).unwrap();
        }
        self.store.fetch(&[self.trace]).unwrap();
        self.store.read::<f32>(self.trace).unwrap().to_vec()
    }
    /// Returns the same by the definition: with every version of the table and of the weight kept.
    fn defined(&self, passes: &[usize], Staleness { memory, weights }: Staleness) -> Vec<f32> {
        let (mut tables, mut values) = (vec![[0.0; ROWS]], vec![0.0]);
        let (mut sums, mut first) = (Vec::new(), 0);
        for &steps in passes {
            for step in first..first + steps {
                // Version n is what n steps have left.
                let [table, weight] = [memory, weights].map(|k| step.saturating_sub(k).max(first));
                let (row, slope) = self.steps[step];
                sums.push(tables[table][row] + values[weight]);
                let (mut table, value) = (tables[step], values[step] - slope);
                table[row] = sums[step];
                tables.push(table);
                values.push(value);
            }
            first += steps;
        }
        sums
    }
}

/// Returns lanes with every stage on the first one, and lanes with stages on one to five of them, some
/// prefetched.
fn lanes(staleness: Staleness) -> impl Iterator<Item = Lanes> {
    let drawn = (1..40).map(move |seed| {
        let key = Key::new(5, 9, [seed, 0]);
        Stage::ALL.map(|stage| {
            let [lane, prefetched, depth, _] = key.draw(stage as u64);
            let prefetch_depth = if prefetched.is_multiple_of(5) { depth as usize % 3 } else { 0 };
            Placement { lane: lane as usize % (1 + seed as usize % 5), prefetch_depth }
        })
    });
    let placements = std::iter::once([Placement::default(); Stage::ALL.len()]).chain(drawn);
    placements.map(move |placements| Lanes::Stages { placements, staleness })
}

/// Returns kinds of staleness.
fn kinds() -> impl Iterator<Item = Staleness> {
    let kind = |(memory, weights)| Staleness { memory, weights };
    [(0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 3), (4, 2), (3, 7)].into_iter().map(kind)
}

#[test]
fn a_step_reads_exactly_the_version_of_memory_and_weights_that_its_staleness_says_on_any_lanes() {
    let (mut legal, mut illegal) = (0, 0);
    for staleness in kinds() {
        for (at, lanes) in lanes(staleness).enumerate() {
            let cpu = Device::cpu(1 + at % 2).unwrap();
            // A window has some 500 steps.
            let passes: &[usize] = if at.is_multiple_of(8) { &[1300, 1, 2, 700] } else { &[40, 1, 3] };
            match Versions::new(passes.iter().sum(), &cpu, lanes) {
                Ok(mut versions) => {
                    legal += 1;
                    let want = versions.defined(passes, staleness);
                    assert_eq!(versions.ran(passes), want, "{lanes:?}, {passes:?}");
                    // Profiled, node by node.
                    let mut versions = Versions::new(want.len(), &cpu, lanes).unwrap();
                    versions.program.profile();
                    assert_eq!(versions.ran(passes), want, "{lanes:?}, {passes:?}, profiled");
                }
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::Plan, "{e}");
                    illegal += 1;
                }
            }
        }
    }
    assert!(legal > 60 && illegal > 20, "{legal} legal, {illegal} illegal");
}

#[test]
#[cfg_attr(not(feature = "emu"), ignore = "wants --features emu, or a GPU and TGNN_TEST_DEVICE=cuda")]
fn a_captured_graph_keeps_the_versions_under_every_schedule() {
    let Some(on) = device(0) else { return };
    let gpu = on.device();
    for (case, staleness) in kinds().enumerate() {
        // The first use of a window is launched, the later ones are a graph.
        let passes = [30, 30, 30, 7];
        for (at, lanes) in lanes(staleness).enumerate().skip(case % 4).step_by(4) {
            let Ok(mut versions) = Versions::new(passes.iter().sum(), &gpu, lanes) else { continue };
            let want = versions.defined(&passes, staleness);
            for (_, seed) in drawn(at, 1, 4) {
                on.schedule(seed + at as u64);
                let mut versions = Versions::new(want.len(), &gpu, lanes).unwrap();
                assert_eq!(versions.ran(&passes), want, "{lanes:?}, seed {seed}");
            }
            versions.program.profile();
            assert_eq!(versions.ran(&passes), want, "{lanes:?}, profiled");
        }
    }
}
