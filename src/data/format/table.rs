//! Reader of every text layout with one event per row.
use super::{
    input::Input,
    layout::Layout,
    number::{Clock, Fault, parse_decimal, parse_f32, parse_id},
    options::ReadOptions,
    records::{Record, records},
    tgl,
};
use crate::{
    data::{Features, raw::Raw},
    error::{Error, Result},
};

/// Remedies for fields that are not an id, a time or a feature.
pub(super) const IDS: &str =
    "ids are integers from 0; number the nodes, or name other columns with --columns";
pub(super) const TIMES: &str = "write seconds, as an integer or a decimal number";
pub(super) const VALUES: &str = "write a finite number";

/// Reads all rows of `input`. Stops at the first fault and reports its line and column.
pub(super) fn read(input: Input, layout: &Layout, options: &ReadOptions) -> Result<Raw> {
    let mut rows = Rows::new(Raw::new(&input.path), options.strict);
    let mut records = records(input, layout.delimiter);
    if layout.header {
        records.next()?;
    }
    let mut plan: Option<Plan> = None;
    while let Some(row) = records.next()? {
        let plan = match &plan {
            Some(plan) => plan,
            None => plan.insert(Plan::new(layout, &row)?),
        };
        rows.push(&row, plan)?;
    }
    rows.finish(layout, plan)
}

/// Values of the rows read so far.
struct Rows {
    /// Receives the source and destination ids row by row, and the rest in [`finish`](Self::finish).
    raw: Raw,
    /// Whether to refuse events that are out of time order.
    strict: bool,
    clock: Clock,
    labels: Vec<f32>,
    /// Edge features, row after row.
    features: Vec<f32>,
    /// Numbers of events of each part of the split.
    rolls: [u64; 3],
    /// Event number of the first row.
    first_number: Option<u64>,
}

impl Rows {
    fn new(raw: Raw, strict: bool) -> Self {
        Rows {
            raw,
            strict,
            clock: Clock::default(),
            labels: Vec::new(),
            features: Vec::new(),
            rolls: [0; 3],
            first_number: None,
        }
    }

    /// Appends the values of `row`.
    fn push(&mut self, row: &Record<'_>, plan: &Plan) -> Result<()> {
        if row.len() != plan.width {
            let what = format!("this row has {} columns, the first one has {}", row.len(), plan.width);
            return Err(row.error(Some(row.len().min(plan.width)), what).remedy("fix or remove the row"));
        }
        self.raw.src.push(take(row, plan.src, parse_id, "a node id", IDS)?);
        self.raw.dst.push(take(row, plan.dst, parse_id, "a node id", IDS)?);
        let time = take(row, plan.time, parse_decimal, "a time", TIMES)?;
        let late = self.clock.push(time).map_err(|f| fault(row, plan.time, f, "a time", TIMES))?;
        if late && self.strict {
            let remedy = "sort the file by time, or leave out --strict";
            return Err(row
                .error(Some(plan.time), "this event is earlier than one before it")
                .remedy(remedy));
        }
        if let Some(i) = plan.label {
            self.labels.push(take(row, i, parse_f32, "a label", VALUES)?);
        }
        for i in plan.features.clone() {
            self.features.push(take(row, i, parse_f32, "a feature", VALUES)?);
        }
        if let Some(i) = plan.roll {
            let roll = take(row, i, parse_id, "a part", "write 0, 1 or 2")?;
            let count = usize::try_from(roll).ok().and_then(|roll| self.rolls.get_mut(roll));
            *count.ok_or_else(|| fault(row, i, Fault::TooLarge, "a part", "write 0, 1 or 2"))? += 1;
        }
        if let Some(i) = plan.index {
            // Feature files are joined by position, which is correct only if event numbers are consecutive.
            let number = take(row, i, parse_id, "an event number", IDS)?;
            let position = self.raw.src.len() as u64 - 1;
            let first = number.checked_sub(position);
            self.raw.numbered &= first.is_some_and(|first| *self.first_number.get_or_insert(first) == first);
        }
        Ok(())
    }

    /// Returns the events; `plan` is `None` if there was no row.
    fn finish(self, layout: &Layout, plan: Option<Plan>) -> Result<Raw> {
        let mut raw = self.raw;
        if layout.roll.is_some() {
            raw.notes.push(tgl::note(self.rolls));
        }
        if let Some(plan) = plan {
            raw.label = plan.label.map(|_| self.labels);
            if !plan.features.is_empty() {
                let width = plan.features.len();
                raw.edge_features = Some(Features::from_vec(raw.src.len(), width, self.features)?);
            }
        }
        raw.ticks_per_second = self.clock.ticks_per_second();
        if self.clock.rounded {
            raw.notes.push("times had more than 9 digits after the point: rounded to nanoseconds".into());
        }
        raw.time = self.clock.ticks;
        raw.separate = layout.separate;
        raw.notes.extend_from_slice(&layout.notes);
        Ok(raw)
    }
}

/// Columns of a file, counted from 0; all of them exist.
struct Plan {
    /// Number of columns of every row.
    width: usize,
    src: usize,
    dst: usize,
    time: usize,
    label: Option<usize>,
    /// Event numbers.
    index: Option<usize>,
    /// Parts of the split.
    roll: Option<usize>,
    features: std::ops::Range<usize>,
}

impl Plan {
    /// Resolves the columns of `layout` by the width of the first row.
    fn new(layout: &Layout, first: &Record<'_>) -> Result<Self> {
        let width = first.len();
        let column = |i: usize, what: &str| {
            let missing = || {
                let text =
                    format!("the row has {width} columns, so there is no column {i} to hold the {what}");
                first.error(None, text).remedy("name the columns with --columns src=1,dst=2,time=3")
            };
            if i <= width { Ok(i - 1) } else { Err(missing()) }
        };
        let features = match layout.columns.features {
            None => 0..0,
            // An open range may be empty: JODIE's header names features even if there are none.
            Some((start, None)) => (start - 1).min(width)..width,
            Some((start, Some(end))) => start - 1..column(end, "features")? + 1,
        };
        Ok(Plan {
            width,
            src: column(layout.columns.src, "source")?,
            dst: column(layout.columns.dst, "destination")?,
            time: column(layout.columns.time, "time")?,
            label: layout.columns.label.map(|i| column(i, "label")).transpose()?,
            index: layout.index.map(|i| column(i, "event number")).transpose()?,
            roll: layout.roll.map(|i| column(i, "part")).transpose()?,
            features,
        })
    }
}

/// Parses field `i`. If it is not a valid `what`, returns an error with line, column and `remedy`.
#[inline]
pub(super) fn take<T>(
    row: &Record<'_>,
    i: usize,
    parse: impl Fn(&[u8]) -> Result<T, Fault>,
    what: &str,
    remedy: &str,
) -> Result<T> {
    parse(row.field(i)).map_err(|f| fault(row, i, f, what, remedy))
}

/// Returns the error for field `i`, which should have been `what`.
#[cold]
pub(super) fn fault(row: &Record<'_>, i: usize, fault: Fault, what: &str, remedy: &str) -> Error {
    row.error(Some(i), fault.describe(row.field(i), what)).remedy(remedy)
}
