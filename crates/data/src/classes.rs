//! Sets of classes as labels of events.
use rayon::prelude::*;
use std::sync::Arc;
use tgnn::{
    error::{Error, ErrorKind, Result},
    runtime::NONE,
};

/// Maximum number of classes of a stream.
const MAX_CLASSES: usize = 1 << 16;

/// A set of classes for every event; it may be empty.
///
/// The sets are stored as a training step reads them: a table with one row per event, the classes in
/// ascending order, padded with [`NONE`] to the size of the largest set. Clones share the table.
///
/// ```
/// use tgnn_data::Classes;
/// use tgnn::runtime::NONE;
/// let relations = Classes::new(5, 2, vec![4, 1, 3, NONE, NONE, NONE])?;
/// assert_eq!((relations.events(), relations.get(0), relations.get(1)), (3, &[1, 4][..], &[3][..]));
/// assert!(relations.get(2).is_empty());
/// # Ok::<(), tgnn::error::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes {
    count: usize,
    most: usize,
    table: Arc<Vec<u32>>,
}

impl Classes {
    /// Builds the sets from a row-major `table` with rows of `most` class ids below `count`, in any order.
    /// [`NONE`] and repeated ids are ignored.
    ///
    /// # Errors
    /// Shape if `most` is 0 or does not divide the length of the table; data if `count` is 0 or more than
    /// 65,536, or if an id is `count` or more.
    pub fn new(count: usize, most: usize, mut table: Vec<u32>) -> Result<Self> {
        if most == 0 || !table.len().is_multiple_of(most) {
            return Err(Error::shape("classes", format_args!("{} ids in rows of {most}", table.len())));
        }
        if !(1..=MAX_CLASSES).contains(&count) {
            return Err(Error::new(ErrorKind::Data, format!("{count} classes"))
                .remedy(format!("there can be 1 to {MAX_CLASSES}; number them densely from 0")));
        }
        table.par_chunks_mut(most).for_each(make_set);
        match table.par_iter().position_first(|&c| c != NONE && c as usize >= count) {
            None => Ok(Classes { count, most, table: Arc::new(table) }),
            Some(at) => {
                let what = format!("event {} has class {}, there are {count}", at / most, table[at]);
                Err(Error::new(ErrorKind::Data, what).remedy("classes count from 0"))
            }
        }
    }

    /// Builds the sets from one number per event. Every whole number from 0 is a class of its own. If only 0
    /// and 1 occur, 1 is the only class and 0 the empty set.
    pub(super) fn of_labels(labels: &[f32]) -> Result<Self> {
        let is_class = |l: &f32| *l >= 0.0 && l.fract() == 0.0;
        if let Some(i) = labels.par_iter().position_first(|l| !is_class(l)) {
            let what = format!("the label of event {i} is {}, which is not a class", labels[i]);
            return Err(Error::new(ErrorKind::Data, what).remedy("classes are whole numbers from 0"));
        }
        let largest = labels.iter().fold(0.0, |a: f32, &b| a.max(b));
        if largest == 0.0 {
            return Err(Error::new(ErrorKind::Data, "all labels are 0")
                .remedy("classification needs two classes, or some labels above 0"));
        }
        let class = |&l: &f32| match largest {
            1.0 if l == 0.0 => NONE,
            1.0 => 0,
            _ => l as u32,
        };
        let count = if largest == 1.0 { 1 } else { largest as usize + 1 };
        Self::new(count, 1, labels.iter().map(class).collect())
    }

    /// Returns the number of classes.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the number of events; every event has a set, possibly empty.
    pub fn events(&self) -> usize {
        self.table.len() / self.most
    }

    /// Returns the width of the table: the maximum number of classes of an event.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Returns the classes of an event in ascending order.
    ///
    /// # Panics
    /// If `event` is not below [`events`](Self::events).
    pub fn get(&self, event: usize) -> &[u32] {
        let row = &self.table[event * self.most..][..self.most];
        &row[..row.partition_point(|&c| c != NONE)]
    }

    /// Returns the table `[events, most]`, whose rows are operands of [`label_loss`](tgnn::ops::label_loss).
    pub fn table(&self) -> Arc<Vec<u32>> {
        self.table.clone()
    }

    /// Returns reordered sets: event `k` has the classes of event `order[k]` of `self`.
    pub(super) fn gather(&self, order: impl Iterator<Item = usize>) -> Self {
        let rows = order.flat_map(|i| &self.table[i * self.most..][..self.most]);
        Classes { table: Arc::new(rows.copied().collect()), ..*self }
    }
}

/// Turns a row of ids into a set: sorts it, removes duplicates and pads it with [`NONE`].
pub(super) fn make_set(row: &mut [u32]) {
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
        assert_eq!([c.get(0), c.get(1), c.get(2)], [&[0, 2][..], &[], &[0, 1, 2, 3]]);
        let back = c.gather([2, 0].into_iter());
        assert_eq!((back.get(0), back.get(1), back.events()), (c.get(2), c.get(0), 2));
    }

    #[test]
    fn ids_that_are_no_classes_are_refused() {
        let message =
            |count, most, table: &[u32]| Classes::new(count, most, table.to_vec()).unwrap_err().to_string();
        assert!(message(2, 2, &[0, 1, 0, 2]).contains("event 1 has class 2, there are 2; "));
        assert!(message(0, 1, &[]).contains("0 classes; there can be 1 to 65536"));
        assert!(message(1 << 17, 1, &[0]).contains("131072 classes"));
        assert!(message(2, 2, &[0, 1, 0]).contains("3 ids in rows of 2"));
        assert!(message(2, 0, &[]).contains("rows of 0"));
    }

    #[test]
    fn labels_are_classes_unless_they_are_only_0_and_1() {
        let c = Classes::of_labels(&[2.0, 0.0, -0.0, 1.0]).unwrap();
        assert_eq!((c.count(), [c.get(0), c.get(1), c.get(2), c.get(3)]), (3, [&[2][..], &[0], &[0], &[1]]));
        let c = Classes::of_labels(&[0.0, 1.0]).unwrap();
        assert_eq!((c.count(), c.get(0), c.get(1)), (1, &[][..], &[0][..]));
        let message = |labels: &[f32]| Classes::of_labels(labels).unwrap_err().to_string();
        assert!(message(&[0.0, 0.5]).contains("the label of event 1 is 0.5, which is not a class; "));
        assert!(message(&[0.0, -1.0]).contains("is -1"));
        assert!(message(&[0.0, 0.0]).contains("all labels are 0; "));
        assert!(message(&[0.0, 1e9]).contains("1000000001 classes; "));
    }
}
