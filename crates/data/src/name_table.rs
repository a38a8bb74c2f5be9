//! Names in order of first appearance, for millions of them: their letters are in one text, and their hashes
//! are kept, so that a name is hashed once, by any thread.
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use std::{hash::BuildHasher, sync::LazyLock};

/// The hash of all names of a process.
static HASH: LazyLock<RandomState> = LazyLock::new(RandomState::default);

/// Texts, one after the other, with their hashes.
#[derive(Debug, Default)]
pub(super) struct Texts {
    letters: String,
    /// The end of each text in `letters`.
    ends: Vec<usize>,
    hashes: Vec<u64>,
}

impl Texts {
    /// Appends a text.
    pub(super) fn push(&mut self, text: &str) {
        self.push_hashed(text, HASH.hash_one(text));
    }

    fn push_hashed(&mut self, text: &str, hash: u64) {
        self.letters.push_str(text);
        self.ends.push(self.letters.len());
        self.hashes.push(hash);
    }

    /// Returns the number of texts.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns text `i`, which must exist.
    pub(super) fn get(&self, i: usize) -> &str {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.letters[start..self.ends[i]]
    }
}

/// Different names, numbered in order of first appearance.
#[derive(Debug, Default)]
pub(super) struct NameTable {
    names: Texts,
    places: HashTable<Place>,
}

/// Where a name is. Its letters are named here, too, because a look into `ends` would be one more into memory
/// that is far away.
#[derive(Debug)]
struct Place {
    hash: u64,
    start: usize,
    end: usize,
    number: usize,
}

impl NameTable {
    /// Returns the number of a name, which is added if it is new.
    pub(super) fn number(&mut self, name: &str) -> u64 {
        self.number_hashed(name, HASH.hash_one(name))
    }

    /// Returns the numbers of texts, in order.
    pub(super) fn numbers<'t>(&'t mut self, texts: &'t Texts) -> impl Iterator<Item = u64> + 't {
        (0..texts.len()).map(|i| self.number_hashed(texts.get(i), texts.hashes[i]))
    }

    fn number_hashed(&mut self, name: &str, hash: u64) -> u64 {
        let letters = self.names.letters.as_bytes();
        let is_it = |place: &Place| {
            place.hash == hash && letters.get(place.start..place.end) == Some(name.as_bytes())
        };
        if let Some(place) = self.places.find(hash, is_it) {
            return place.number as u64;
        }
        let (number, start) = (self.names.len(), self.names.letters.len());
        self.names.push_hashed(name, hash);
        let place = Place { hash, start, end: start + name.len(), number };
        self.places.insert_unique(hash, place, |place| place.hash);
        number as u64
    }

    /// Returns the number of names.
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns the name with a number, which must exist.
    pub(super) fn get(&self, number: usize) -> &str {
        self.names.get(number)
    }

    /// Returns the names in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|i| self.get(i))
    }
}

impl<'a> FromIterator<&'a str> for NameTable {
    fn from_iter<I: IntoIterator<Item = &'a str>>(names: I) -> Self {
        let mut table = NameTable::default();
        names.into_iter().for_each(|name| {
            table.number(name);
        });
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_numbered_in_order_of_first_appearance_whoever_hashed_them() {
        let mut table: NameTable = ["b", "", "a", "b"].into_iter().collect();
        let mut texts = Texts::default();
        ["a", "ab", "", "ab"].iter().for_each(|text| texts.push(text));
        assert_eq!(table.numbers(&texts).collect::<Vec<_>>(), [2, 3, 1, 3]);
        assert_eq!((table.number("b"), table.len()), (0, 4));
        assert_eq!(table.iter().collect::<Vec<_>>(), ["b", "", "a", "ab"]);
    }
}
