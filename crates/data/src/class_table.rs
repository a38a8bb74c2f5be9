//! What the classes of a classifier are called in the data.
use super::{
    Classes, Events,
    classes::MAX_CLASSES,
    text::{counted, grouped, shown, some_of},
};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    fmt,
};
use tgnn::{
    error::{Error, ErrorKind, Result},
    runtime::NONE,
};

/// Maximum number of classes if a label has a fraction. More such numbers are measured, not classes.
const MOST_FRACTIONS: usize = 100;
/// The number that means "no label" beside two other whole numbers of 0 and more.
const NO_LABEL: f64 = -1.0;

/// A label of events: a number or a text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ClassValue {
    /// A finite number: the shortest decimal that is the label.
    Number(f64),
    /// A text.
    Text(Box<str>),
}

impl ClassValue {
    /// Returns the value of a label in 32 bits.
    fn of_number(label: f32) -> Self {
        // 0.1 in 32 bits is 0.1, not 0.10000000149.
        ClassValue::Number(label.to_string().parse().unwrap_or(f64::from(label)))
    }

    /// Whether it is a whole number of 0 or more.
    fn counts(&self) -> bool {
        matches!(self, ClassValue::Number(n) if *n >= 0.0 && n.fract() == 0.0)
    }

    /// Whether it is the value that a user writes as `text`.
    fn is(&self, text: &str) -> bool {
        let number = match text {
            "true" => Ok(1.0),
            "false" => Ok(0.0),
            text => text.trim().parse::<f64>(),
        };
        self.to_string() == text || matches!((self, number), (ClassValue::Number(a), Ok(b)) if *a == b)
    }
}

impl fmt::Display for ClassValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClassValue::Number(number) => number.fmt(f),
            ClassValue::Text(text) => f.write_str(text),
        }
    }
}

/// The values that the classes of a stream stand for: those that occur in it, numbers in ascending order and
/// texts in the order of their letters.
///
/// A model remembers the table of the data that it was trained on, so that later data are read alike.
///
/// ```
/// let mut events = tgnn_data::bundled()?;
/// events.label.as_mut().unwrap().iter_mut().for_each(|label| *label += 1.0);
/// let table = events.class_table()?;
/// assert_eq!((table.count(), table.to_string()), (1, "1 is no, 2 is yes".into()));
/// # Ok::<(), tgnn::error::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ClassTable {
    /// Two values are one decision: the first is no, the second yes.
    Decision([ClassValue; 2]),
    /// Every event has one of these values, which are the classes.
    Values(Vec<ClassValue>),
    /// Every event has a set of classes, which have these ids.
    Sets(Vec<u32>),
}

impl ClassTable {
    /// Returns the table of an event stream with labels.
    fn of_values(values: Vec<ClassValue>) -> Self {
        match <[ClassValue; 2]>::try_from(values) {
            Ok(two) => ClassTable::Decision(two),
            Err(values) => ClassTable::Values(values),
        }
    }

    /// Returns the table by which earlier versions, which kept none, have read the classes of `events`: every
    /// number from 0 to the largest is a class.
    ///
    /// # Errors
    /// Data if the events have no labels, or a label is not a whole number from 0.
    #[doc(hidden)]
    pub fn before_tables(events: &Events) -> Result<Self> {
        if let (Some(classes), _) = (&events.classes, &events.label) {
            return Ok(ClassTable::Sets((0..classes.count() as u32).collect()));
        }
        let (values, _) = events.label_values()?;
        match values.last() {
            Some(ClassValue::Number(last)) if values.iter().all(ClassValue::counts) => {
                check_count((*last as usize).saturating_add(1))?;
                let numbers = (0..=*last as u32).map(|n| ClassValue::Number(n.into()));
                Ok(Self::of_values(numbers.collect()))
            }
            _ => {
                let what = "the labels are not numbers from 0, which the model was trained on";
                Err(Error::data(&events.name, what).remedy("give the data that it was trained on"))
            }
        }
    }

    /// Returns the same with `value` as yes.
    ///
    /// # Errors
    /// Usage if there are not two values, or `value` is none of them.
    pub fn with_positive(self, value: &str) -> Result<Self> {
        match self {
            ClassTable::Decision([no, yes]) if yes.is(value) => Ok(ClassTable::Decision([no, yes])),
            ClassTable::Decision([yes, no]) if yes.is(value) => Ok(ClassTable::Decision([no, yes])),
            ClassTable::Decision([a, b]) => {
                Err(Error::usage(format!("no label is {}", shown(value.as_bytes())))
                    .remedy(format!("give {a} or {b}")))
            }
            other => Err(Error::usage(format!(
                "a positive label is of data with two labels, and these have {}: {}",
                other.len(),
                other.listed()
            ))
            .remedy("leave it out")),
        }
    }

    /// Returns the number of classes that a model predicts: 1 for a decision.
    pub fn count(&self) -> usize {
        match self {
            ClassTable::Decision(_) => 1,
            _ => self.len(),
        }
    }

    /// Returns the number of values.
    fn len(&self) -> usize {
        match self {
            ClassTable::Decision(_) => 2,
            ClassTable::Values(values) => values.len(),
            ClassTable::Sets(ids) => ids.len(),
        }
    }

    /// Returns the values, as they are written in the data: no, then yes, if they are a decision.
    pub fn names(&self) -> Vec<String> {
        match self {
            ClassTable::Decision(values) => values.iter().map(ToString::to_string).collect(),
            ClassTable::Values(values) => values.iter().map(ToString::to_string).collect(),
            ClassTable::Sets(ids) => ids.iter().map(ToString::to_string).collect(),
        }
    }

    /// Lists the values, at most 20 of them; a range if they are all numbers of a range.
    pub fn listed(&self) -> String {
        const MOST: usize = 20;
        let names = self.names();
        let number = |name: &String| name.parse::<i64>().ok();
        let consecutive = |w: &[String]| number(&w[0]).and_then(|n| n.checked_add(1)) == number(&w[1]);
        match &names[..] {
            [first, .., last]
                if names.len() > 3 && number(first).is_some() && names.windows(2).all(consecutive) =>
            {
                format!("{first} to {last}")
            }
            names => some_of(names, MOST),
        }
    }

    /// Whether a label of -1 means that there is none.
    fn has_no_label_number(&self) -> bool {
        match self {
            ClassTable::Decision(values) => values.iter().all(ClassValue::counts),
            ClassTable::Values(values) => values.len() > 1 && values.iter().all(ClassValue::counts),
            ClassTable::Sets(_) => false,
        }
    }
}

impl fmt::Display for ClassTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listed = self.listed();
        match self {
            ClassTable::Decision([no, yes]) => {
                // A label may be one of these words.
                let is_word = |class: &str| ["no", "yes"].iter().any(|word| class.eq_ignore_ascii_case(word));
                match is_word(&no.to_string()) || is_word(&yes.to_string()) {
                    true => write!(f, "{yes} is positive, {no} is negative"),
                    false => write!(f, "{no} is no, {yes} is yes"),
                }
            }
            ClassTable::Values(values) => write!(f, "{}: {listed}", grouped(values.len() as u64)),
            ClassTable::Sets(ids) => write!(f, "sets of {}: {listed}", grouped(ids.len() as u64)),
        }
    }
}

/// Refuses more classes than there can be.
fn check_count(count: usize) -> Result<()> {
    if count <= MAX_CLASSES {
        return Ok(());
    }
    let (count, most) = (grouped(count as u64), grouped(MAX_CLASSES as u64));
    Err(Error::new(ErrorKind::Data, format!("{count} different labels of events"))
        .remedy(format!("there can be {most} classes")))
}

impl Events {
    /// Returns the values that a classifier of these events tells apart: those of
    /// [`classes`](Self::classes) if there are any, else those of [`label`](Self::label). Exactly two labels
    /// are one decision, and the larger one is yes. -1 is no label if all others are whole numbers of 0 and
    /// more, and at least two.
    ///
    /// # Errors
    /// Data if no event has a label, or there are too many different ones.
    pub fn class_table(&self) -> Result<ClassTable> {
        if let Some(classes) = &self.classes {
            return Ok(ClassTable::Sets(classes.occurring()));
        }
        self.label_table()
    }

    /// Returns the table of the [`label`](Self::label)s.
    pub(super) fn label_table(&self) -> Result<ClassTable> {
        let (values, _) = self.label_values()?;
        if values.is_empty() {
            return Err(Error::data(&self.name, "no event has a label").remedy("name another column"));
        }
        check_count(values.len()).map_err(|e| e.in_file(&self.name))?;
        let has_fraction = |value: &ClassValue| matches!(value, ClassValue::Number(n) if n.fract() != 0.0);
        if let (Some(value), true) = (values.iter().find(|v| has_fraction(v)), values.len() > MOST_FRACTIONS)
        {
            let count = grouped(values.len() as u64);
            let what = format!("{count} different labels with fractions, such as {value}, are no classes");
            return Err(Error::data(&self.name, what)
                .remedy(format!("write whole numbers or text, or at most {MOST_FRACTIONS} numbers")));
        }
        Ok(ClassTable::of_values(values))
    }

    /// Returns the classes of the events by a table: that of these events, or of the data on which a model
    /// was trained.
    ///
    /// # Errors
    /// Data if the events have no labels, or an event has a label that the table lacks.
    pub fn classes_by(&self, table: &ClassTable) -> Result<Cow<'_, Classes>> {
        let unknown = |event: usize, label: &str| self.unknown(table, event, label);
        match (table, &self.classes) {
            (ClassTable::Sets(ids), Some(classes)) => {
                classes.numbered(ids).map_err(|(event, id)| unknown(event, &id.to_string()))
            }
            (ClassTable::Sets(_), None) | (_, Some(_)) => {
                let what = "the model was trained on labels and these are sets of classes, or the reverse";
                Err(Error::data(&self.name, what).remedy("give data like those that it was trained on"))
            }
            (_, None) => self.classes_of_labels(table, &unknown).map(Cow::Owned),
        }
    }

    fn unknown(&self, table: &ClassTable, event: usize, label: &str) -> Error {
        let what = format!("event {event} has the label {}, which is no class", shown(label.as_bytes()));
        Error::data(&self.name, what)
            .remedy(format!("the classes are {}: correct it, or train anew", table.listed()))
    }

    /// Returns the class of each event by its label, [`NONE`] if it has none, and what the classes are called
    /// unless they are numbers of their own.
    pub(super) fn single_classes(&self) -> Result<(Vec<u32>, Option<Vec<ClassValue>>)> {
        let table = self.label_table()?;
        let positions = self.positions(&table, &|event, label| self.unknown(&table, event, label))?;
        let values = match table {
            ClassTable::Decision(values) => values.to_vec(),
            ClassTable::Values(values) => values,
            ClassTable::Sets(_) => Vec::new(),
        };
        let number = |value: &ClassValue| match value {
            ClassValue::Number(n) if value.counts() && *n < f64::from(NONE) => Some(*n as u32),
            _ => None,
        };
        let numbers: Option<Vec<u32>> = values.iter().map(number).collect();
        let class = |at: Option<u32>| match (at, &numbers) {
            (None, _) => NONE,
            (Some(at), Some(numbers)) => numbers[at as usize],
            (Some(at), None) => at,
        };
        Ok((positions.into_iter().map(class).collect(), numbers.is_none().then_some(values)))
    }

    /// Returns the position in `table` of the label of each event that has one.
    fn positions(
        &self,
        table: &ClassTable,
        unknown: &dyn Fn(usize, &str) -> Error,
    ) -> Result<Vec<Option<u32>>> {
        let labels = self.labels_or_error()?;
        let class_of: HashMap<String, u32> = table.names().into_iter().zip(0..).collect();
        let mut class_of_bits = HashMap::new();
        let minus = table.has_no_label_number();
        for bits in different(labels) {
            let name = self.label_value(f32::from_bits(bits)).to_string();
            let class = match class_of.get(&name) {
                Some(&class) => Some(class),
                None if minus && name == NO_LABEL.to_string() => None,
                None => {
                    let event = labels.iter().position(|&l| bits_of(l) == bits).unwrap_or(0);
                    return Err(unknown(event, &name));
                }
            };
            class_of_bits.insert(bits, class);
        }
        let class = |&label: &f32| class_of_bits.get(&bits_of(label)).copied().flatten();
        Ok(labels.par_iter().map(class).collect())
    }

    fn classes_of_labels(
        &self,
        table: &ClassTable,
        unknown: &dyn Fn(usize, &str) -> Error,
    ) -> Result<Classes> {
        let classes = self.positions(table, unknown)?;
        let labelled: Vec<bool> = classes.iter().map(Option::is_some).collect();
        let number = |class: Option<u32>| match (table, class) {
            // The decision is the only class of an event that has it.
            (ClassTable::Decision(_), Some(1)) => 0,
            (ClassTable::Decision(_), _) | (_, None) => NONE,
            (_, Some(class)) => class,
        };
        let sets = classes.into_iter().map(number).collect();
        Ok(Classes::new(table.count(), 1, sets)?.with_labelled(labelled))
    }

    /// Returns what a classifier learns of these events, by [`class_table`](Self::class_table).
    ///
    /// # Errors
    /// Those of [`class_table`](Self::class_table); data if all labels are equal.
    pub fn class_labels(&self) -> Result<Cow<'_, Classes>> {
        let table = self.class_table()?;
        self.two_classes(&table)?;
        self.classes_by(&table)
    }

    /// Refuses labels that are all equal.
    #[doc(hidden)]
    pub fn two_classes(&self, table: &ClassTable) -> Result<()> {
        match table {
            ClassTable::Values(values) if values.len() < 2 => {
                let what = format!("all labels are {}", table.listed());
                Err(Error::data(&self.name, what).remedy("classification needs two different labels"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the different labels in ascending order without a -1 that means none, and whether there is
    /// one.
    pub(super) fn label_values(&self) -> Result<(Vec<ClassValue>, bool)> {
        let mut labels: Vec<f32> =
            different(self.labels_or_error()?).into_iter().map(f32::from_bits).collect();
        // Codes of texts are in the order of the texts.
        labels.sort_by(f32::total_cmp);
        let values: Vec<ClassValue> = labels.into_iter().map(|label| self.label_value(label)).collect();
        let is_none = |value: &ClassValue| *value == ClassValue::Number(NO_LABEL);
        let others: Vec<ClassValue> = values.iter().filter(|value| !is_none(value)).cloned().collect();
        let has_none = others.len() < values.len() && others.len() > 1;
        match has_none && others.iter().all(ClassValue::counts) {
            true => Ok((others, true)),
            false => Ok((values, false)),
        }
    }

    /// Returns the value of a label.
    fn label_value(&self, label: f32) -> ClassValue {
        match self.label_names.as_ref().and_then(|names| names.get(label as usize)) {
            Some(text) => ClassValue::Text(text.clone()),
            None => ClassValue::of_number(label),
        }
    }

    /// Returns the label of a value that [`label_values`](Self::label_values) returned.
    pub(super) fn label_of(&self, value: &ClassValue) -> f32 {
        match value {
            ClassValue::Number(number) => *number as f32,
            ClassValue::Text(text) => {
                let names = self.label_names.as_deref().unwrap_or_default();
                names.binary_search(text).map_or(f32::NAN, |at| at as f32)
            }
        }
    }

    fn labels_or_error(&self) -> Result<&[f32]> {
        self.label.as_deref().ok_or_else(|| {
            Error::new(ErrorKind::Data, format!("{} has no labels", self.name)).remedy(
                "name a column with --columns src=1,dst=2,time=3,label=4, or add classes.npy to a folder of .npy",
            )
        })
    }

    /// Notes how many events have no label, and removes labels if none has one.
    pub(super) fn note_labels(&mut self) {
        let Some(labels) = &self.label else { return };
        let missing = labels.iter().filter(|label| label.is_nan()).count();
        match missing {
            0 => {}
            1 if labels.len() > 1 => self.notes.push("1 event has no label".into()),
            n if n == labels.len() => {
                self.notes.push("no event has a label".into());
                (self.label, self.label_names) = (None, None);
            }
            n => self.notes.push(format!("{} events have no label", grouped(n as u64))),
        }
    }

    /// Returns a note about the labels that mean that there is none, if there are some by `table`, or else by
    /// the labels themselves.
    #[doc(hidden)]
    pub fn note_of_no_label(&self, table: Option<&ClassTable>) -> Option<String> {
        let (values, true) = self.label_values().ok()? else { return None };
        if table.is_some_and(|table| !table.has_no_label_number()) {
            return None;
        }
        let minus = self.label.iter().flatten().filter(|&&l| f64::from(l) == NO_LABEL).count();
        let listed = ClassTable::Values(values).listed();
        let labels = counted(minus as u64, "label");
        Some(format!("{labels} -1 beside {listed}: no label; if -1 is a class, write another number for it"))
    }
}

/// Returns the bits of a label; 0 and -0 have the same.
fn bits_of(label: f32) -> u32 {
    (label + 0.0).to_bits()
}

/// Returns the bits of the different labels that are not missing.
fn different(labels: &[f32]) -> Vec<u32> {
    let of_part = |labels: &[f32]| -> HashSet<u32> {
        labels.iter().filter(|label| !label.is_nan()).map(|&label| bits_of(label)).collect()
    };
    let all = labels.par_chunks(1 << 16).map(of_part).reduce(HashSet::new, |mut a, b| {
        a.extend(b);
        a
    });
    all.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(labels: &[f32]) -> Events {
        let n = labels.len();
        let mut events = Events::new("test", vec![0; n], vec![1; n], (0..n as i64).collect()).unwrap();
        events.label = Some(labels.to_vec());
        events
    }

    fn table(labels: &[f32]) -> String {
        events(labels).class_table().map_or_else(|e| e.to_string(), |table| table.to_string())
    }

    /// The class of each event; -1 for none of them, and -2 for no label.
    fn classes(events: &Events, table: &ClassTable) -> Result<Vec<i64>> {
        let classes = events.classes_by(table)?;
        let of = |i: usize| match (classes.is_labelled(i), classes.get(i)) {
            (false, _) => -2,
            (true, set) => set.first().map_or(-1, |&class| class.into()),
        };
        Ok((0..events.len()).map(of).collect())
    }

    #[test]
    fn classes_are_the_values_that_occur_in_ascending_order_and_two_are_one_decision() {
        assert_eq!(table(&[0.0, 1.0, -0.0]), "0 is no, 1 is yes");
        assert_eq!(table(&[2.0, 1.0]), "1 is no, 2 is yes");
        assert_eq!(table(&[10.0, 0.0]), "0 is no, 10 is yes");
        assert_eq!(table(&[1.5, 0.5]), "0.5 is no, 1.5 is yes");
        assert_eq!(table(&[0.1, 0.2, 0.3]), "3: 0.1, 0.2, 0.3");
        assert_eq!(table(&[7.0, 3.0, 11.0, 3.0]), "3: 3, 7, 11");
        assert_eq!(table(&[0.0, 1.0, 2.0, 3.0]), "4: 0 to 3");
        assert_eq!(table(&[5.0, 5.0]), "1: 5");
        assert_eq!(table(&[1e9, 0.0, 2.0]), "3: 0, 2, 1000000000");
    }

    #[test]
    fn a_missing_label_is_nan_or_minus_one_beside_two_numbers_from_0() {
        assert_eq!(table(&[0.0, f32::NAN, 1.0]), "0 is no, 1 is yes");
        assert_eq!(table(&[0.0, -1.0, 1.0]), "0 is no, 1 is yes");
        assert_eq!(table(&[-1.0, 1.0]), "-1 is no, 1 is yes");
        assert_eq!(table(&[-1.0, 0.0]), "-1 is no, 0 is yes");
        assert_eq!(table(&[-2.0, -1.0, 0.0, 1.0]), "4: -2 to 1");
        assert_eq!(table(&[-1.0, 0.5, 1.0]), "3: -1, 0.5, 1");
        assert_eq!(table(&[f32::NAN]), "test: no event has a label; name another column");
        let events = events(&[0.0, -1.0, 1.0, f32::NAN]);
        assert_eq!(classes(&events, &events.class_table().unwrap()).unwrap(), [-1, -2, 0, -2]);
        let note = events.note_of_no_label(None).unwrap();
        assert!(note.starts_with("1 label -1 beside 0, 1: no label; "), "{note}");
    }

    #[test]
    fn numbers_without_gaps_keep_their_meaning() {
        let events = events(&[2.0, 0.0, -0.0, 1.0]);
        let table = events.class_table().unwrap();
        assert_eq!((table.count(), classes(&events, &table).unwrap()), (3, vec![2, 0, 0, 1]));
        assert_eq!(table, ClassTable::before_tables(&events).unwrap());
        let said = ClassTable::before_tables(&self::events(&[0.0, 1e20])).unwrap_err().to_string();
        assert!(said.contains("18,446,744,073,709,551,615 different labels of events"), "{said}");
    }

    #[test]
    fn later_data_are_read_by_the_table_and_an_unknown_label_is_refused() {
        let table = events(&[1.0, 3.0, 5.0]).class_table().unwrap();
        assert_eq!(classes(&events(&[5.0, 5.0, -1.0]), &table).unwrap(), [2, 2, -2]);
        let e = classes(&events(&[5.0, 4.0]), &table).unwrap_err().to_string();
        let said = "test: event 1 has the label `4`, which is no class; the classes are 1, 3, 5: correct it, or \
                    train anew";
        assert_eq!(e, said);
        let json = serde_json::to_string(&table).unwrap();
        assert_eq!(json, r#"{"values":[1.0,3.0,5.0]}"#);
        assert_eq!(serde_json::from_str::<ClassTable>(&json).unwrap(), table);
    }

    #[test]
    fn texts_are_in_the_order_of_their_letters_and_either_may_be_positive() {
        let mut named = events(&[1.0, 0.0, f32::NAN]);
        named.label_names = Some(vec!["fraud".into(), "legit".into()].into());
        let table = named.class_table().unwrap();
        assert_eq!(table.to_string(), "fraud is no, legit is yes");
        let table = table.with_positive("fraud").unwrap();
        assert_eq!(
            (table.to_string(), classes(&named, &table).unwrap()),
            ("legit is no, fraud is yes".into(), vec![-1, 0, -2])
        );
        let e = table.with_positive("fraudulent").unwrap_err().to_string();
        assert_eq!(e, "no label is `fraudulent`; give legit or fraud");
        let numbers = events(&[1.0, 2.0]).class_table().unwrap();
        assert_eq!(numbers.with_positive("1.0").unwrap().to_string(), "2 is no, 1 is yes");
        let truths = events(&[0.0, 1.0]).class_table().unwrap();
        assert_eq!(truths.with_positive("false").unwrap().to_string(), "1 is no, 0 is yes");
        let e = events(&[1.0, 2.0, 4.0]).class_table().unwrap().with_positive("1").unwrap_err().to_string();
        assert!(e.contains("of data with two labels, and these have 3: 1, 2, 4; leave it out"), "{e}");
    }

    #[test]
    fn numbers_that_became_text_because_of_another_label_keep_their_classes() {
        let table = events(&[1.0, 2.0]).class_table().unwrap();
        let mut later = events(&[0.0, 1.0]);
        later.label_names = Some(vec!["1".into(), "2".into()].into());
        assert_eq!(classes(&later, &table).unwrap(), [-1, 0]);
    }

    #[test]
    fn sets_have_the_classes_that_occur() {
        let mut events = events(&[0.0, 0.0, 0.0]);
        events.classes = Classes::new(9, 2, vec![7, 3, NONE, NONE, 7, NONE]).ok();
        let table = events.class_table().unwrap();
        assert_eq!((table.to_string(), table.count()), ("sets of 2: 3, 7".into(), 2));
        let classes = events.classes_by(&table).unwrap();
        assert_eq!([classes.get(0), classes.get(1), classes.get(2)], [&[0, 1][..], &[], &[1]]);
        let e = events.classes_by(&ClassTable::Sets(vec![3])).unwrap_err().to_string();
        assert!(
            e.starts_with("test: event 0 has the label `7`, which is no class; the classes are 3: "),
            "{e}"
        );
        let e = events.classes_by(&ClassTable::Values(vec![])).unwrap_err().to_string();
        assert!(e.contains("trained on labels and these are sets"), "{e}");
    }

    #[test]
    fn what_cannot_be_classes_is_refused() {
        let many: Vec<f32> = (0..101).map(|i| i as f32 / 2.0).collect();
        let e = table(&many);
        assert!(
            e.starts_with("test: 101 different labels with fractions, such as 0.5, are no classes; "),
            "{e}"
        );
        let e = events(&[4.0]).class_labels().unwrap_err().to_string();
        assert_eq!(e, "test: all labels are 4; classification needs two different labels");
        let too_many: Vec<f32> = (0..70_000).map(|i| i as f32).collect();
        assert!(
            table(&too_many).starts_with("test: 70,000 different labels of events; "),
            "{}",
            table(&too_many)
        );
        let mut none = events(&[1.0]);
        none.label = None;
        let e = none.class_labels().unwrap_err().to_string();
        assert!(e.starts_with("test has no labels; name a column "), "{e}");
    }
}
