//! Numbers for names, in the order in which the names appear: how `py-tgb` numbers nodes and types of edges.
use super::super::{number::Fault, records::Record, table::fault};
use std::collections::HashMap;
use tgnn::error::Result;

/// Names and their numbers.
#[derive(Default)]
pub(super) struct Appearance(HashMap<Box<[u8]>, u64>);

impl Appearance {
    /// Returns how many names have appeared.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the number of a name that has appeared.
    pub(super) fn get(&self, name: &[u8]) -> Option<usize> {
        self.0.get(name).map(|&number| number as usize)
    }

    /// Returns the number of a name; a new one gets the next.
    pub(super) fn number(&mut self, name: &[u8]) -> u64 {
        let next = self.0.len() as u64;
        match self.0.get(name) {
            Some(&number) => number,
            None => *self.0.entry(name.into()).or_insert(next),
        }
    }

    /// Returns the number of the name in field `i`, which must not be empty.
    pub(super) fn number_in(&mut self, row: &Record<'_>, i: usize, what: &str) -> Result<u64> {
        match row.field(i) {
            [] => Err(fault(row, i, Fault::Empty, what, "name it")),
            name => Ok(self.number(name)),
        }
    }
}
