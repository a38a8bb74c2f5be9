//! Sets of classes that events are labelled with.
use crate::{
    error::{Error, ErrorKind, Result},
    runtime::NONE,
};
use rayon::prelude::*;
use std::sync::Arc;

/// Most classes of a stream.
const MOST: usize = 1 << 16;

/// A set of classes for every event; it may be empty.
///
/// They lie as a step reads them: a table of a row an event, classes ascending, then [`NONE`] up to the largest set. A clone
/// shares it.
///
/// ```
/// use tgnn::{data::Classes, runtime::NONE};
/// let relations = Classes::new(5, 2, vec![4, 1, 3, NONE, NONE, NONE])?;
/// assert_eq!((relations.events(), relations.of(0), relations.of(1)), (3, &[1, 4][..], &[3][..]));
/// assert!(relations.of(2).is_empty());
/// # Ok::<(), tgnn::error::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes {
    count: usize,
    most: usize,
    table: Arc<Vec<u32>>,
}

impl Classes {
    /// Takes rows of `most` ids below `count`, in any order; [`NONE`] and what is named twice do not count.
    ///
    /// # Errors
    /// Shape if the table is not rows of `most`, which is at least 1; data if there are no classes or more than 65,536, or an
    /// id names none.
    pub fn new(count: usize, most: usize, mut table: Vec<u32>) -> Result<Self> {
        if most == 0 || !table.len().is_multiple_of(most) {
            return Err(Error::shape("classes", format_args!("{} ids in rows of {most}", table.len())));
        }
        if !(1..=MOST).contains(&count) {
            return Err(Error::new(ErrorKind::Data, format!("{count} classes"))
                .remedy(format!("there can be 1 to {MOST}; number them densely from 0")));
        }
        table.par_chunks_mut(most).for_each(tidy);
        match table.par_iter().position_first(|&c| c != NONE && c as usize >= count) {
            None => Ok(Classes { count, most, table: Arc::new(table) }),
            Some(at) => {
                let what = format!("event {} has class {}, there are {count}", at / most, table[at]);
                Err(Error::new(ErrorKind::Data, what).remedy("classes count from 0"))
            }
        }
    }

    /// Of a number an event: whole numbers from 0 name a class each; where there are but 0 and 1, 1 is the only class and 0
    /// the empty set.
    pub(super) fn of_labels(labels: &[f32]) -> Result<Self> {
        let is_class = |l: &f32| *l >= 0.0 && l.fract() == 0.0;
        if let Some(i) = labels.par_iter().position_first(|l| !is_class(l)) {
            let what = format!("the label of event {i} is {}, which names no class", labels[i]);
            return Err(Error::new(ErrorKind::Data, what).remedy("classes are whole numbers from 0"));
        }
        let largest = labels.iter().fold(0.0, |a: f32, &b| a.max(b));
        if largest == 0.0 {
            return Err(Error::new(ErrorKind::Data, "all labels are 0")
                .remedy("classification wants two classes, or some labels above 0"));
        }
        let class = |&l: &f32| match largest {
            1.0 if l == 0.0 => NONE,
            1.0 => 0,
            _ => l as u32,
        };
        let count = if largest == 1.0 { 1 } else { largest as usize + 1 };
        Self::new(count, 1, labels.iter().map(class).collect())
    }

    /// How many classes there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// How many events have a set.
    pub fn events(&self) -> usize {
        self.table.len() / self.most
    }

    /// Columns of the table: room for the largest set.
    pub fn most(&self) -> usize {
        self.most
    }

    /// The classes of an event, ascending.
    pub fn of(&self, event: usize) -> &[u32] {
        let row = &self.table[event * self.most..][..self.most];
        &row[..row.partition_point(|&c| c != NONE)]
    }

    /// The table `[events, most]`, for a store: what [`label_loss`](crate::ops::label_loss) takes rows of.
    pub fn table(&self) -> Arc<Vec<u32>> {
        self.table.clone()
    }

    /// New sets whose event `k` has those of event `order[k]`.
    pub(super) fn gather(&self, order: impl Iterator<Item = usize>) -> Self {
        let rows = order.flat_map(|i| &self.table[i * self.most..][..self.most]);
        Classes { table: Arc::new(rows.copied().collect()), ..*self }
    }
}

/// Makes a set of a row: classes ascend, each once, and [`NONE`] fills the rest.
pub(super) fn tidy(row: &mut [u32]) {
    row.sort_unstable();
    let mut kept = 0;
    for i in 0..row.len() {
        if kept == 0 || row[i] != row[kept - 1] {
            row[kept] = row[i];
            kept += 1;
        }
    }
    row[kept..].fill(NONE);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_in_any_order_with_gaps_and_repeats_is_a_set() {
        let c = Classes::new(4, 4, vec![NONE, 2, 0, 2, NONE, NONE, NONE, NONE, 3, 2, 1, 0]).unwrap();
        assert_eq!((c.events(), c.count(), c.most()), (3, 4, 4));
        assert_eq!(*c.table(), [0, 2, NONE, NONE, NONE, NONE, NONE, NONE, 0, 1, 2, 3]);
        assert_eq!([c.of(0), c.of(1), c.of(2)], [&[0, 2][..], &[], &[0, 1, 2, 3]]);
        let back = c.gather([2, 0].into_iter());
        assert_eq!((back.of(0), back.of(1), back.events()), (c.of(2), c.of(0), 2));
    }

    #[test]
    fn what_is_no_class_is_refused() {
        let said =
            |count, most, table: &[u32]| Classes::new(count, most, table.to_vec()).unwrap_err().to_string();
        assert!(said(2, 2, &[0, 1, 0, 2]).contains("event 1 has class 2, there are 2; "));
        assert!(said(0, 1, &[]).contains("0 classes; there can be 1 to 65536"));
        assert!(said(1 << 17, 1, &[0]).contains("131072 classes"));
        assert!(said(2, 2, &[0, 1, 0]).contains("3 ids in rows of 2"));
        assert!(said(2, 0, &[]).contains("rows of 0"));
    }

    #[test]
    fn labels_name_a_class_each_unless_they_say_yes_or_no() {
        let c = Classes::of_labels(&[2.0, 0.0, -0.0, 1.0]).unwrap();
        assert_eq!((c.count(), [c.of(0), c.of(1), c.of(2), c.of(3)]), (3, [&[2][..], &[0], &[0], &[1]]));
        let c = Classes::of_labels(&[0.0, 1.0]).unwrap();
        assert_eq!((c.count(), c.of(0), c.of(1)), (1, &[][..], &[0][..]));
        let said = |labels: &[f32]| Classes::of_labels(labels).unwrap_err().to_string();
        assert!(said(&[0.0, 0.5]).contains("the label of event 1 is 0.5, which names no class; "));
        assert!(said(&[0.0, -1.0]).contains("is -1"));
        assert!(said(&[0.0, 0.0]).contains("all labels are 0; "));
        assert!(said(&[0.0, 1e9]).contains("1000000001 classes; "));
    }
}
