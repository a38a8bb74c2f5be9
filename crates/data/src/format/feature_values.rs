//! Features from the columns of a table: numbers, categories and text.
use super::{
    cell::{Cell, Row, comma_remedy},
    column_names::{given, suggestion},
    columns::{ColumnName, FeatureColumns},
    number::Fault,
};
use crate::{EncodedColumn, Encoding, FeatureEncoding, Features, feature_columns::hash_words, text::counted};
use indexmap::IndexSet;
use tgnn::error::{Error, Result};

const VALUES: &str = "write a number, or read the column as categories with --columns one-hot=NAME";
/// Maximum number of categories of a column.
const MOST_CATEGORIES: usize = 1_000;

/// Returns what to do about a cell that is not a number.
fn remedy(cell: &Cell<'_>) -> &'static str {
    comma_remedy(cell).unwrap_or(VALUES)
}

/// Features of the rows read so far.
pub(super) struct FeatureValues {
    groups: Vec<Group>,
    /// Number of rows.
    rows: usize,
    /// Number of missing values, which are 0.
    pub missing: u64,
}

/// Size from which on a feature is too large to learn from.
const LARGE: f32 = 1e9;

/// Returns a note if a feature of a column called `name` is very large.
pub(super) fn large(size: f32, name: &str) -> Option<String> {
    (size >= LARGE).then(|| {
        format!(
            "features of {name} are as large as {size:.1e}, which models hardly learn from: write their logarithm, or \
             divide them"
        )
    })
}

/// Features from neighbouring columns of one kind.
enum Group {
    Numbers(Numbers),
    OneHot(OneHot),
    Hashed(Hashed),
}

impl FeatureValues {
    /// Prepares to read `columns` from rows like the first one, whose columns are called `names`.
    pub(super) fn new(first: &dyn Row, columns: &[FeatureColumns], names: &[String]) -> Result<Self> {
        let width = first.len();
        let at = |name: &ColumnName| match given(names, name) {
            Ok(Some(at)) if at < width => Ok(at),
            Ok(Some(at)) => Err(no_column(first, at + 1, "features")),
            Ok(None) => Err(first
                .error(None, format!("there is no column `{name}`"))
                .remedy(suggestion(names, &name.to_string()))),
            Err(e) => Err(first.error(None, e.what).remedy(e.remedy)),
        };
        let mut groups = Vec::new();
        for part in columns {
            let numbers = match part {
                // An open range may be empty: JODIE's header names features even if there are none.
                FeatureColumns::Range(first, None) => first - 1..width,
                FeatureColumns::Range(_, Some(last)) if *last > width => {
                    return Err(no_column(first, *last, "features"));
                }
                FeatureColumns::Range(first, Some(last)) => first - 1..*last,
                FeatureColumns::Values(name) => at(name)?..at(name)? + 1,
                FeatureColumns::OneHot(name) => {
                    let (at, of_row, categories) = (at(name)?, Vec::new(), IndexSet::new());
                    groups.push(Group::OneHot(OneHot { at, of_row, categories }));
                    continue;
                }
                FeatureColumns::Hashed(name, buckets) => {
                    let (at, values) = (at(name)?, Vec::new());
                    groups.push(Group::Hashed(Hashed { at, buckets: *buckets, values }));
                    continue;
                }
            };
            match groups.last_mut() {
                Some(Group::Numbers(group)) => group.at.extend(numbers),
                _ => groups.push(Group::Numbers(Numbers { at: numbers.collect(), ..Numbers::default() })),
            }
        }
        Ok(FeatureValues { groups, rows: 0, missing: 0 })
    }

    /// Starts without rows, to read rows of the same columns.
    pub(super) fn like(&self) -> Self {
        let like = |group: &Group| match group {
            Group::Numbers(Numbers { at, widths, .. }) => {
                Group::Numbers(Numbers { at: at.clone(), widths: widths.clone(), ..Numbers::default() })
            }
            Group::OneHot(group) => {
                Group::OneHot(OneHot { at: group.at, of_row: Vec::new(), categories: IndexSet::new() })
            }
            Group::Hashed(group) => Group::Hashed(Hashed { values: Vec::new(), ..*group }),
        };
        FeatureValues { groups: self.groups.iter().map(like).collect(), rows: 0, missing: 0 }
    }

    /// Whether lists are as long as those of `other`, which is [`like`](Self::like) this, and there are not
    /// too many categories together.
    pub(super) fn fits(&self, other: &Self) -> bool {
        self.groups.iter().zip(&other.groups).all(|pair| match pair {
            (Group::Numbers(own), Group::Numbers(other)) => {
                (0..own.at.len()).all(|k| own.width(k) == other.width(k))
            }
            (Group::OneHot(own), Group::OneHot(other)) => {
                let new = other.categories.difference(&own.categories).count();
                own.categories.len() + new <= MOST_CATEGORIES
            }
            _ => true,
        })
    }

    /// Appends the features of the rows of `other`, which [`fits`](Self::fits).
    pub(super) fn append(&mut self, other: Self) {
        for pair in self.groups.iter_mut().zip(other.groups) {
            match pair {
                (Group::Numbers(own), Group::Numbers(other)) => {
                    own.values.extend(other.values);
                    own.rows += other.rows;
                    own.widths.resize(own.at.len(), None);
                    own.widths.iter_mut().zip(other.widths).for_each(|(own, other)| *own = own.or(other));
                    if other.largest.0 > own.largest.0 {
                        own.largest = other.largest;
                    }
                }
                (Group::OneHot(own), Group::OneHot(other)) => {
                    let index: Vec<u32> = other
                        .categories
                        .into_iter()
                        .map(|category| own.categories.insert_full(category).0 as u32)
                        .collect();
                    own.of_row.extend(other.of_row.iter().map(|c| c.map(|c| index[c as usize])));
                }
                (Group::Hashed(own), Group::Hashed(other)) => own.values.extend(other.values),
                _ => {}
            }
        }
        self.rows += other.rows;
        self.missing += other.missing;
    }

    /// Returns the index of a cell of `row` that holds features and is missing, if there is one.
    pub(super) fn missing_in(&self, row: &dyn Row) -> Option<usize> {
        let cells = self.groups.iter().flat_map(|group| match group {
            Group::Numbers(Numbers { at, .. }) => at.as_slice(),
            Group::OneHot(OneHot { at, .. }) | Group::Hashed(Hashed { at, .. }) => std::slice::from_ref(at),
        });
        cells.copied().find(|&i| row.cell(i).is_missing())
    }

    /// Returns a note if a feature is very large. The columns are called `names`.
    pub(super) fn note_large(&self, names: &[String]) -> Option<String> {
        let groups = self.groups.iter().filter_map(|group| match group {
            Group::Numbers(group) => Some(group.largest),
            _ => None,
        });
        let (size, at) = groups.max_by(|a, b| a.0.total_cmp(&b.0))?;
        let name = names.get(at).map_or_else(|| format!("column {}", at + 1), |name| format!("`{name}`"));
        large(size, &name)
    }

    /// Appends the features of a row.
    pub(super) fn push(&mut self, row: &dyn Row) -> Result<()> {
        for group in &mut self.groups {
            self.missing += match group {
                Group::Numbers(group) => group.push(row)?,
                Group::OneHot(group) => group.push(row)?,
                Group::Hashed(group) => group.push(row)?,
            };
        }
        self.rows += 1;
        Ok(())
    }

    /// Returns one row of features per row of the table, the columns side by side, and how they were made;
    /// `None` if there are none. The columns are called `names`.
    pub(super) fn finish(mut self, names: &[String]) -> Result<Option<(Features, FeatureEncoding)>> {
        let rows = self.rows;
        let encoding = FeatureEncoding(self.groups.iter().flat_map(|group| group.encoding(names)).collect());
        let width = encoding.width();
        if rows == 0 || width == 0 {
            return Ok(None);
        }
        // The usual case needs no copy.
        if let [Group::Numbers(group)] = &mut self.groups[..] {
            let features = Features::from_vec(rows, width, std::mem::take(&mut group.values))?;
            return Ok(Some((features, encoding)));
        }
        let parts: Vec<(usize, Vec<f32>)> = self.groups.into_iter().map(|group| group.values(rows)).collect();
        let mut values = Vec::with_capacity(rows * width);
        for row in 0..rows {
            for (width, part) in &parts {
                values.extend_from_slice(&part[row * width..][..*width]);
            }
        }
        Ok(Some((Features::from_vec(rows, width, values)?, encoding)))
    }
}

/// Returns the error for a column beyond the end of a row.
#[cold]
pub(super) fn no_column(row: &dyn Row, n: usize, what: &str) -> Error {
    let columns = counted(row.len() as u64, "column");
    let what = format!("the row has {columns}, so there is no column {n} to hold the {what}");
    row.error(None, what).remedy("name the columns with --columns src=1,dst=2,time=3")
}

impl Group {
    /// Returns how its columns become features.
    fn encoding(&self, names: &[String]) -> Vec<EncodedColumn> {
        let column = |at: usize, values| {
            let name = names.get(at).filter(|name| !name.is_empty());
            EncodedColumn { name: name.cloned().unwrap_or_else(|| (at + 1).to_string()), values }
        };
        match self {
            Group::Numbers(Numbers { at, widths, .. }) => {
                let widths = at.iter().zip(widths);
                widths.map(|(&at, width)| column(at, Encoding::Numbers(width.unwrap_or(1)))).collect()
            }
            Group::OneHot(group) => vec![column(group.at, Encoding::OneHot(group.sorted()))],
            Group::Hashed(Hashed { at, buckets, .. }) => vec![column(*at, Encoding::Hashed(*buckets))],
        }
    }

    /// Returns the number of features, and the features of all rows.
    fn values(self, rows: usize) -> (usize, Vec<f32>) {
        match self {
            Group::Numbers(group) => (group.values.len() / rows, group.values),
            Group::OneHot(group) => group.values(),
            Group::Hashed(group) => (group.buckets, group.values),
        }
    }
}

/// Numbers, and lists of numbers.
#[derive(Default)]
struct Numbers {
    /// Indices of the cells.
    at: Vec<usize>,
    /// Length of the list in each of them, 1 for a number; `None` until one is not missing, and meanwhile
    /// each has one value.
    widths: Vec<Option<usize>>,
    /// Number of whole rows in `values`.
    rows: usize,
    values: Vec<f32>,
    /// Size of the largest value, and the index of its cell.
    largest: (f32, usize),
}

impl Numbers {
    /// Returns the number of values in column `k`.
    fn width(&self, k: usize) -> usize {
        self.widths.get(k).copied().flatten().unwrap_or(1)
    }

    /// Appends the values of a row; returns how many are missing.
    fn push(&mut self, row: &dyn Row) -> Result<u64> {
        if self.push_floats(row) {
            return Ok(0);
        }
        self.widths.resize(self.at.len(), None);
        let mut missing = 0;
        for k in 0..self.at.len() {
            let (cell, start) = (row.cell(self.at[k]), self.values.len());
            let width = self.append(k, row, &cell)?;
            let new = &mut self.values[start..];
            for v in new.iter_mut() {
                if v.is_infinite() {
                    return Err(not_finite(row, self.at[k], &cell, *v));
                }
                if v.is_nan() {
                    *v = 0.0;
                    missing += 1;
                }
                if v.abs() > self.largest.0 {
                    self.largest = (v.abs(), self.at[k]);
                }
            }
            match (self.widths[k], width) {
                (None, Some(width)) => missing += self.set_width(k, width),
                (Some(before), Some(width)) if before != width => {
                    let what = format!("{width} in this list, {before} in those before it");
                    return Err(row.error(Some(self.at[k]), what).remedy("write lists of one length"));
                }
                _ => {}
            }
        }
        self.rows += 1;
        Ok(missing)
    }

    /// Appends the values of a row at once, if all of them are finite numbers of a typed table. False says
    /// that nothing was appended.
    fn push_floats(&mut self, row: &dyn Row) -> bool {
        let (before, all) = (self.values.len(), self.at.len());
        let are_numbers = self.widths.len() == all && self.widths.iter().all(|width| *width == Some(1));
        if !are_numbers || !row.floats(&self.at, &mut self.values) {
            return false;
        }
        let size = |v: &f32| v.abs().to_bits();
        let new = &self.values[before..];
        // As integers, sizes are compared in vectors; those of infinity and NaN are the largest.
        let largest = f32::from_bits(new.iter().map(size).fold(0, u32::max));
        if !largest.is_finite() {
            self.values.truncate(before);
            return false;
        }
        if largest > self.largest.0 {
            let k = new.iter().position(|v| v.abs() == largest).unwrap_or(0);
            self.largest = (largest, self.at[k]);
        }
        self.rows += 1;
        true
    }

    /// Appends the values in column `k`, NaN for those that are missing; returns their number, or `None` if
    /// the cell is missing.
    #[inline]
    fn append(&mut self, k: usize, row: &dyn Row, cell: &Cell<'_>) -> Result<Option<usize>> {
        match cell {
            Cell::List(list) => {
                self.values.extend_from_slice(list);
                return Ok(Some(list.len()));
            }
            Cell::Number(value) if !value.is_nan() => self.values.push(value.to_f32()),
            cell if cell.is_missing() => {
                let width = self.widths[k].unwrap_or(1);
                self.values.resize(self.values.len() + width, f32::NAN);
                return Ok(None);
            }
            cell => {
                let at = Some(self.at[k]);
                let fault =
                    |f| row.error(at, cell.describe(f, "a feature")).remedy(cell.remedy(remedy(cell)));
                self.values.push(cell.value().map_err(fault)?.unwrap_or(f32::NAN));
            }
        }
        Ok(Some(1))
    }

    /// Takes the number of values in column `k`, which was missing in all rows so far: there, so many zeros
    /// take the place of one. Returns by how much the number of missing values grows.
    #[cold]
    fn set_width(&mut self, k: usize, width: usize) -> u64 {
        let places = |widths: &[Option<usize>]| widths.iter().map(|w| w.unwrap_or(1)).sum::<usize>();
        let (before, stride) = (places(&self.widths[..k]), places(&self.widths));
        self.widths[k] = Some(width);
        if width == 1 || self.rows == 0 {
            return 0;
        }
        let (rows, rest) = self.values.split_at(self.rows * stride);
        let mut values = Vec::with_capacity(self.rows * (stride - 1 + width) + rest.len());
        for row in rows.chunks_exact(stride) {
            values.extend_from_slice(&row[..before]);
            values.resize(values.len() + width, 0.0);
            values.extend_from_slice(&row[before + 1..]);
        }
        values.extend_from_slice(rest);
        self.values = values;
        (self.rows * width.saturating_sub(1)) as u64
    }
}

/// Returns the error for the value `v` in cell `i`, which is infinite in f32.
#[cold]
fn not_finite(row: &dyn Row, i: usize, cell: &Cell<'_>, v: f32) -> Error {
    let what = match cell {
        Cell::Number(_) => cell.describe(Fault::NotFinite, "a feature"),
        _ => Fault::NotFinite.describe(v.to_string().as_bytes(), "a feature"),
    };
    row.error(Some(i), what).remedy("write finite numbers")
}

/// Categories: one feature each.
struct OneHot {
    /// Index of the cell.
    at: usize,
    /// Category of every row; `None` if it is missing.
    of_row: Vec<Option<u32>>,
    categories: IndexSet<Box<str>>,
}

impl OneHot {
    /// Appends the category of a row; returns 1 if it is missing.
    fn push(&mut self, row: &dyn Row) -> Result<u64> {
        let cell = row.cell(self.at);
        let fault = |f| {
            row.error(Some(self.at), cell.describe(f, "a category"))
                .remedy(cell.remedy("write text in UTF-8"))
        };
        let text = cell.text().map_err(fault)?;
        if text.is_empty() {
            self.of_row.push(None);
            return Ok(1);
        }
        let category = match self.categories.get_index_of(&*text) {
            Some(category) => category,
            None if self.categories.len() < MOST_CATEGORIES => self.categories.insert_full((&*text).into()).0,
            None => {
                let what = format!("there are more than {MOST_CATEGORIES} categories, with {}", cell.shown());
                let e = row.error(Some(self.at), what);
                return Err(e.remedy("hash the column instead: --columns hashed=NAME:32"));
            }
        };
        self.of_row.push(Some(category as u32));
        Ok(0)
    }

    /// Returns the categories in the order of their names, which does not depend on the order of the rows.
    fn sorted(&self) -> Vec<Box<str>> {
        let mut categories: Vec<Box<str>> = self.categories.iter().cloned().collect();
        categories.sort();
        categories
    }

    /// Returns the number of categories and the features of all rows, in the order of their names.
    fn values(self) -> (usize, Vec<f32>) {
        let (sorted, width) = (self.sorted(), self.categories.len());
        let place: Vec<usize> =
            self.categories.iter().map(|name| sorted.binary_search(name).unwrap_or(0)).collect();
        let mut values = vec![0.0; width * self.of_row.len()];
        for (row, category) in self.of_row.iter().enumerate() {
            if let Some(category) = category {
                values[row * width + place[*category as usize]] = 1.0;
            }
        }
        (width, values)
    }
}

/// Text, whose words are hashed: every word adds 1 or -1 to one of the features.
struct Hashed {
    /// Index of the cell.
    at: usize,
    /// Number of features.
    buckets: usize,
    values: Vec<f32>,
}

impl Hashed {
    /// Appends the features of a row; returns 1 if the text is missing.
    fn push(&mut self, row: &dyn Row) -> Result<u64> {
        let cell = row.cell(self.at);
        let fault =
            |f| row.error(Some(self.at), cell.describe(f, "text")).remedy(cell.remedy("write text in UTF-8"));
        let text = cell.text().map_err(fault)?;
        hash_words(&text, self.buckets, &mut self.values);
        Ok(u64::from(text.is_empty()))
    }
}
