//! Which nodes of a step may run while the step before is still under way.
use crate::{
    ops::{Node, OpKind},
    runtime::{Spec, Var},
};
use std::collections::HashSet;

/// The nodes of a step that prepare it and depend on nothing that a step computes: the cursor, negatives, sampling, unique
/// nodes, gathers of features. They may run one step ahead of the others, on values of their own.
///
/// A node stays where it computes (kind `Nn`, `Comm`), reads what a staying node makes or writes, or writes what a staying
/// node reads or writes: found from the declared reads and writes alone. All stay where nothing would be left to overlap with.
pub(super) fn prefetchable(nodes: &[&Node], specs: &[Spec]) -> Vec<bool> {
    let reads = |n: &Node| -> Vec<Var> {
        let counts = n.ins.iter().chain(&n.outs).filter_map(|v| Some(specs[v.at()].rows.live?.var));
        n.ins.iter().copied().chain(counts.filter(|c| !n.outs.contains(c))).collect()
    };
    let writes = |n: &Node| -> Vec<Var> { n.writes.iter().map(|&w| n.ins[w]).collect() };
    let mut prefetchable: Vec<bool> =
        nodes.iter().map(|n| matches!(n.op.kind(), OpKind::Graph | OpKind::Copy)).collect();
    loop {
        let (mut changed_by_staying, mut read_by_staying) = (HashSet::new(), HashSet::new());
        for (n, _) in nodes.iter().zip(&prefetchable).filter(|(_, p)| !**p) {
            changed_by_staying.extend(n.outs.iter().copied().chain(writes(n)));
            read_by_staying.extend(reads(n));
        }
        let mut changed = false;
        for (n, prefetchable) in nodes.iter().zip(&mut prefetchable).filter(|(_, p)| **p) {
            let bound = reads(n).iter().any(|v| changed_by_staying.contains(v))
                || writes(n).iter().any(|v| read_by_staying.contains(v));
            (*prefetchable, changed) = (!bound, changed || bound);
        }
        if !changed {
            break;
        }
    }
    if prefetchable.iter().all(|&a| a) {
        prefetchable.fill(false);
    }
    prefetchable
}

#[cfg(test)]
mod tests {
    use super::prefetchable;
    use crate::{
        ops::{Node, Tape, epilogue::Activation},
        runtime::*,
    };

    #[test]
    fn a_gather_runs_ahead_unless_the_step_changes_what_it_reads_or_made_its_index() {
        let mut store = Store::new(Precision::F32);
        let table = |store: &mut Store, name: &str| store.zeros(name, Spec::real(Rows::fixed(4), 2)).unwrap();
        let [features, memory] = ["features", "memory"].map(|name| table(&mut store, name));
        let index = store.values("index", Spec::ids(Rows::fixed(3), 1), &[0u32, 1, 2]).unwrap();
        let square = store.zeros("weight", Spec::real(Rows::fixed(2), 2)).unwrap();
        let mut t = Tape::new();
        let [features, memory, index, square] =
            t.stored_all(&store, [features, memory, index, square]).unwrap();
        let known = t.gather_rows(features, index).unwrap();
        let state = t.gather_rows(memory, index).unwrap();
        let made = t.linear(known, square, None, Some(state), Activation::Identity).unwrap();
        t.gather_rows(made, index).unwrap();
        t.write_rows(memory, index, made).unwrap();
        let nodes: Vec<&Node> = t.nodes().iter().collect();
        let specs: Vec<Spec> = t.vars().map(|v| t.spec(v)).collect();
        assert_eq!(prefetchable(&nodes, &specs), [true, false, false, false, false]);
        assert_eq!(prefetchable(&nodes[..2], &specs), [false, false], "nothing to overlap with");
    }
}
