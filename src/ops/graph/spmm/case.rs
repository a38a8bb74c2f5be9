//! Test cases and benchmark cases of sparse products.
use super::*;

/// The rows of a case: neighbours with their weights, for each vertex of each step.
type CaseRows = Vec<Vec<(u32, f32)>>;

fn case_rows(c: &mut CaseBuilder, dims: &[usize], columns: usize) -> CaseRows {
    let (v, mean, longest) = (dims[0], dims[5], dims[6]);
    let len = |row: usize| if row % v == 1 && longest > 0 { longest } else { row % (2 * mean + 1) };
    (0..3 * v)
        .map(|row| (0..len(row)).map(|_| (c.below(columns) as u32, c.uniform() + 1.5)).collect())
        .collect()
}

/// Stores the rows of a case as values.
fn case_adjacency(c: &mut CaseBuilder, rows: &CaseRows, vertices: usize, weighted: bool) -> AdjacencyVars {
    let len: Vec<u32> = rows.iter().map(|row| row.len() as u32).collect();
    let begin: Vec<u32> = len.iter().scan(0, |end, n| Some(std::mem::replace(end, *end + n))).collect();
    let entries = || rows.iter().flatten();
    let plan = LongRows::new(&len, vertices);
    let weights: Vec<f32> = entries().map(|e| e.1).collect();
    AdjacencyVars {
        begin: c.ids(&begin, 1),
        len: c.ids(&len, 1),
        col: c.ids(&entries().map(|e| e.0).collect::<Vec<_>>(), 1),
        weight: weighted.then(|| c.values(Spec::real(Rows::fixed(weights.len()), 1), &weights)),
        slices: [c.ids(&plan.first, 1), c.ids(&plan.slices, 4)],
        most: plan.most,
    }
}

pub(in crate::ops) fn build(c: &mut CaseBuilder, dims: &[usize]) -> Result<Built> {
    let [v, d, weighted, stored_as, epilogue, ..] = *dims else {
        return Err(Error::shape("spmm", "seven sizes"));
    };
    let u = dims.get(7).copied().unwrap_or(v);
    let rows = case_rows(c, dims, u);
    let scale = c.real_in(3 * v, 1, |u| 0.2 * u + 0.3);
    let columns = dims.get(7).map(|_| ColumnVars { scale: c.real_in(3 * u, 1, |u| 0.2 * u + 0.3), count: u });
    let mut transposed = vec![Vec::new(); 3 * u];
    for (i, row) in rows.iter().enumerate() {
        row.iter().for_each(|&(j, w)| transposed[i / v * u + j as usize].push(((i % v) as u32, w)));
    }
    let [adjacency, transpose] =
        [(rows, v), (transposed, u)].map(|(rows, n)| case_adjacency(c, &rows, n, weighted == 1));
    let graph = GraphVars { adjacency, transpose, scale, vertices: v, columns };
    let x = match stored_as {
        0 => c.real(u, d),
        n => c.stored(3 * u, d, StoredAs::ALL[n - 1]),
    };
    let (b, steps) = ((epilogue > 0).then(|| c.real(1, d)), c.ids(&[0, 2, NONE], 1));
    let act = if epilogue > 0 { Activation::Tanh } else { Activation::Identity };
    let step_indices = if epilogue == 2 { 1..3 } else { 1..2 };
    let y = step_indices.map(|index| c.tape.spmm(graph, x, (steps, index), b, act));
    let y: Vec<Var> = y.collect::<Result<_>>()?;
    let wrt: Vec<Var> = b.into_iter().chain((epilogue > 0 && stored_as == 0).then_some(x)).collect();
    Ok(Built::new(&y, &wrt))
}

/// Returns the sparse matrix of a case, scales included, in CSR: row starts, columns and values.
///
/// # Errors
/// Those of building the case.
pub fn matrix_of(case: &Case) -> Result<(Vec<u32>, Vec<u32>, Vec<f32>)> {
    let mut c = CaseBuilder::new(Precision::F32, case.inputs);
    (case.build)(&mut c, case.dims)?;
    let ins = &c.tape.nodes()[0].ins;
    let (v, weighted) = (case.dims[0], case.dims[2] == 1);
    let id = |i: usize| match c.tape.home(ins[i]) {
        Home::Stored { id, .. } => Ok(id),
        Home::Step => Err(Error::shape("spmm", "a case's inputs are stored")),
    };
    // The case reads the last step, whose rows extend to the end of the pool.
    let (begin, col) =
        (c.store.read::<u32>(id(at!(Spmm, begin))?)?, c.store.read::<u32>(id(at!(Spmm, col))?)?);
    let (scale, first) = (&c.store.read::<f32>(id(at!(Spmm, scale))?)?[2 * v..], begin[2 * v] as usize);
    let weight = if weighted { Some(c.store.read::<f32>(id(at!(Spmm, slices) + 1)?)?) } else { None };
    let starts: Vec<u32> =
        begin[2 * v..].iter().chain([&(col.len() as u32)]).map(|b| b - begin[2 * v]).collect();
    let mut values = Vec::with_capacity(col.len() - first);
    for (i, row) in starts.windows(2).enumerate() {
        for e in first + row[0] as usize..first + row[1] as usize {
            values.push(scale[i] * scale[col[e] as usize] * weight.map_or(1.0, |w| w[e]));
        }
    }
    Ok((starts, col[first..].to_vec(), values))
}
