//! The cases of the cells' ops.
use super::{super::*, Cell, CellVars, FeatureRow, MemoryVars};

/// Builds a case of a cell: `[nodes, unique, d, f, t, g]`. One node in g has no mail; with g = 0, all nodes
/// have one. Features are indexed by node, event or unique node, for f mod 3 = 0, 1, 2. State is indexed by
/// unique node if there is a seventh number 1, otherwise by node. With an eighth number, 0, the time encoding
/// is data. Two further rows of the unique nodes are not live.
pub(in crate::ops) fn build<C: Cell>(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [v, n, d, f, t, gap] = dims[..6] else {
        return Err(Error::shape(C::NAME, "six sizes, or up to eight"));
    };
    let gathered = dims.get(6) == Some(&1);
    let stored_events = v.max(20);
    let count = c.count(n);
    let mut unique: Vec<u32> = (0..n as u32).map(|i| (i * 7 + 1) % v as u32).collect();
    unique.extend([NONE; 2]);
    let unique = c.values(Spec::ids(Rows::live(n + 2, count), 1), &unique);
    let rows = if gathered { Rows::live(n + 2, count) } else { Rows::fixed(v) };
    let memory = |c: &mut CaseBuilder| if gathered { c.live_real(n + 2, count, d) } else { c.real(v, d) };
    let v = rows.capacity;
    let without_mail = |i: usize| gap > 0 && i % gap == gap - 1;
    let events: Vec<u32> =
        (0..v).map(|i| if without_mail(i) { NONE } else { c.below(stored_events) as u32 }).collect();
    let time: Vec<i64> = (0..v as i64).map(|i| i % 3).collect();
    let mail_time: Vec<i64> = time.iter().map(|t| t + 2).collect();
    let m = MemoryVars {
        memory: memory(c),
        memory_time: c.values(Spec::times(rows), &time),
        mail: memory(c),
        mail_event: c.values(Spec::ids(rows, 1), &events),
        mail_time: c.values(Spec::times(rows), &mail_time),
        edge: c.real(stored_events, f),
        gathered,
    };
    let gates = C::GATES * d;
    let w = CellVars {
        time_w: c.real(1, t),
        time_b: c.real(1, t),
        w_x: c.real_in(gates, 2 * d + f + t, |u| 0.3 * u),
        w_h: c.real_in(gates, d, |u| 0.3 * u),
        b_x: c.real(1, gates),
        b_h: c.real(1, gates),
    };
    let gaps = Gaps::unlimited(0.5);
    let features = [FeatureRow::Node, FeatureRow::Event, FeatureRow::Unique][f % 3];
    let (s, time) = c.tape.memory_update::<C>(unique, m, w, features, gaps)?;
    let mut wrt = vec![w.w_x, w.w_h, w.b_x, w.b_h];
    wrt.extend([w.time_w, w.time_b].into_iter().filter(|_| dims.len() < 8));
    Ok(Built::new(&[s, time], &wrt))
}
