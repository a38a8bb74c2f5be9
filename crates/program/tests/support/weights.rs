//! The weights that docs/weights.md describes.

/// Prefixes of the names of weights that only snapshot models have.
pub const OF_SNAPSHOTS: [&str; 7] =
    ["vertices.", "gcn.", "lstm.", "cell.", "evolve.", "class_head.", "value_head."];

/// Returns the names and sizes of the weights in a row of docs/weights.md; `letter` gives the numbers for its
/// letters.
pub fn documented(row: &str, letter: impl Fn(&str) -> usize) -> Vec<(String, [usize; 2])> {
    let cell = |i: usize| -> Vec<String> {
        let cell = row.split('|').nth(i).unwrap();
        cell.split('`').skip(1).step_by(2).map(Into::into).collect()
    };
    let term = |t: &str| t.split_whitespace().map(&letter).product::<usize>();
    let size = |text: &String| -> [usize; 2] {
        let mut sizes = vec![1];
        let dimensions = text.trim_matches(['[', ']']).split(',');
        sizes.extend(dimensions.map(|d| d.split('+').map(term).sum::<usize>()));
        [sizes[sizes.len() - 2], sizes[sizes.len() - 1]]
    };
    let (names, sizes) = (cell(1), cell(2));
    assert!([1, names.len()].contains(&sizes.len()), "{row}");
    names.into_iter().zip(sizes.iter().cycle().map(size)).collect()
}
