//! Sets of classes as labels of events.
use rayon::prelude::*;
use std::{borrow::Cow, sync::Arc};
use tgnn::{
    error::{Error, ErrorKind, Result},
    runtime::NONE,
};

/// Maximum number of classes of a stream.
pub(super) const MAX_CLASSES: usize = 1 << 16;

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
    /// Whether each event has a label; `None` if all of them have.
    labelled: Option<Arc<Vec<bool>>>,
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
            None => Ok(Classes { count, most, table: Arc::new(table), labelled: None }),
            Some(at) => {
                let what = format!("event {} has class {}, there are {count}", at / most, table[at]);
                Err(Error::new(ErrorKind::Data, what).remedy("classes count from 0"))
            }
        }
    }

    /// Says which events have a label.
    pub(super) fn with_labelled(mut self, labelled: Vec<bool>) -> Self {
        self.labelled = labelled.contains(&false).then(|| labelled.into());
        self
    }

    /// Whether nothing is known of some events.
    pub fn lack_labels(&self) -> bool {
        self.labelled.is_some()
    }

    /// Whether an event has a label. An event without one has the empty set, which says nothing.
    ///
    /// # Panics
    /// If `event` is not below [`events`](Self::events).
    pub fn is_labelled(&self, event: usize) -> bool {
        self.labelled.as_ref().is_none_or(|labelled| labelled[event])
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

    /// Returns the classes that occur, in ascending order.
    pub(super) fn occurring(&self) -> Vec<u32> {
        let mut occurs = vec![false; self.count];
        self.table.iter().filter(|&&class| class != NONE).for_each(|&class| occurs[class as usize] = true);
        (0..self.count as u32).filter(|&class| occurs[class as usize]).collect()
    }

    /// Returns the same sets with new numbers: class `ids[c]` becomes class `c`. The error is the first event
    /// with a class that is not in `ids`, and the class.
    pub(super) fn numbered(&self, ids: &[u32]) -> Result<Cow<'_, Self>, (usize, u32)> {
        if ids.len() == self.count && ids.iter().zip(0..).all(|(&id, class)| id == class) {
            return Ok(Cow::Borrowed(self));
        }
        let mut class_of = vec![NONE; self.count];
        for (&id, class) in ids.iter().zip(0..).filter(|(id, _)| (**id as usize) < self.count) {
            class_of[id as usize] = class;
        }
        let unknown = |id: &u32| *id != NONE && class_of[*id as usize] == NONE;
        if let Some(at) = self.table.par_iter().position_first(unknown) {
            return Err((at / self.most, self.table[at]));
        }
        let table =
            self.table.par_iter().map(|&id| class_of.get(id as usize).copied().unwrap_or(NONE)).collect();
        Ok(Cow::Owned(Classes { count: ids.len().max(1), table: Arc::new(table), ..self.clone() }))
    }

    /// Returns reordered sets: event `k` has the classes of event `order[k]` of `self`.
    pub(super) fn gather(&self, order: impl Iterator<Item = usize>) -> Self {
        let rows = order.flat_map(|i| &self.table[i * self.most..][..self.most]);
        Classes {
            count: self.count,
            most: self.most,
            table: Arc::new(rows.copied().collect()),
            labelled: None,
        }
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
}
