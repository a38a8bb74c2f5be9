//! The classes of vertices that occur.
use super::Snapshots;
use crate::{ClassTable, ClassValue, text::shown};
use std::collections::{BTreeSet, HashMap};
use tgnn::{
    error::{Error, Result},
    runtime::NONE,
};

impl Snapshots {
    /// Returns the classes that occur: their numbers in ascending order, and what they are called; nothing if
    /// there are no classes.
    pub fn occurring_classes(&self) -> Vec<(u32, ClassValue)> {
        let known = self.classes.iter().flatten().filter(|&&class| class != NONE);
        let numbers: BTreeSet<u32> = known.copied().collect();
        numbers.into_iter().map(|number| (number, self.class_value(number))).collect()
    }

    /// Returns what a class is called.
    fn class_value(&self, number: u32) -> ClassValue {
        match &self.class_values {
            Some(values) => values[number as usize].clone(),
            None => ClassValue::Number(number.into()),
        }
    }

    /// Returns the values that a classifier of these vertices tells apart; none if there are no classes.
    pub fn class_table(&self) -> ClassTable {
        ClassTable::Values(self.occurring_classes().into_iter().map(|(_, value)| value).collect())
    }

    /// Returns the table by which earlier versions, which kept none, have read the classes: every number from
    /// 0 to the largest is a class.
    #[doc(hidden)]
    pub fn class_table_before_tables(&self) -> ClassTable {
        let last = self.occurring_classes().last().map_or(0, |(number, _)| number + 1);
        ClassTable::Values((0..last).map(|number| self.class_value(number)).collect())
    }

    /// Returns the class of each vertex in each step by a table, [`NONE`] if it is not known: that of these
    /// snapshots, or of the data on which a model was trained.
    ///
    /// # Errors
    /// Data if a vertex has a class that the table lacks.
    pub fn classes_by(&self, table: &ClassTable) -> Result<Vec<u32>> {
        let known: HashMap<String, u32> = table.names().into_iter().zip(0..).collect();
        let mut class_of = HashMap::from([(NONE, NONE)]);
        for (number, value) in self.occurring_classes() {
            let name = value.to_string();
            let class = known.get(&name).ok_or_else(|| {
                let what = format!("a vertex has the class {}, which is unknown", shown(name.as_bytes()));
                Error::data(&self.name, what)
                    .remedy(format!("the classes are {}: correct it, or train anew", table.listed()))
            })?;
            class_of.insert(number, *class);
        }
        Ok(self.classes.iter().flatten().map(|number| class_of[number]).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_that_occur_are_numbered_and_an_unknown_one_is_refused() {
        let labels = vec!["a".into()];
        let mut s = Snapshots::of_edges("s".into(), 4, vec![vec![(0, 1, 1.0)]], labels, false).unwrap();
        s.classes = Some(vec![7, NONE, 3, 7]);
        let table = s.class_table();
        assert_eq!(
            (table.to_string(), s.classes_by(&table).unwrap()),
            ("2: 3, 7".into(), vec![1, NONE, 0, 1])
        );
        let before = s.class_table_before_tables();
        assert_eq!((before.count(), s.classes_by(&before).unwrap()), (8, vec![7, NONE, 3, 7]));
        s.class_values = Some((0..8).map(|i| ClassValue::Text(format!("c{i}").into())).collect());
        assert_eq!(s.class_table().names(), ["c3", "c7"]);
        let e = s.classes_by(&table).unwrap_err().to_string();
        assert_eq!(
            e,
            "s: a vertex has the class `c3`, which is unknown; the classes are 3, 7: correct it, or train anew"
        );
    }
}
