//! The one loop that reads every text layout.
use super::{
    ReadOptions,
    input::Input,
    layout::Layout,
    number::{Clock, Fault, parse_decimal, parse_f32, parse_id},
    records::{Record, records},
    tgl,
};
use crate::{
    data::{Features, raw::Raw},
    error::{Error, Result},
};

pub(super) const IDS: &str =
    "ids are integers from 0; number the nodes, or name other columns with --columns";
pub(super) const TIMES: &str = "write seconds, as an integer or a decimal number";
pub(super) const VALUES: &str = "write a finite number";

/// Reads all rows of `input`; stops at the first fault, with its place.
pub(super) fn read(input: Input, layout: &Layout, options: &ReadOptions) -> Result<Raw> {
    let mut raw = Raw::new(&input.path);
    let mut records = records(input, layout.delimiter);
    if layout.header {
        records.next()?;
    }
    let mut clock = Clock::default();
    let (mut labels, mut values) = (Vec::new(), Vec::new());
    let mut plan: Option<Plan> = None;
    let mut base = None;
    let mut rolls = [0; 3];
    while let Some(row) = records.next()? {
        let plan = match &plan {
            Some(plan) => plan,
            None => plan.insert(Plan::new(layout, &row)?),
        };
        if row.len() != plan.width {
            let what = format!("this row has {} columns, the first one has {}", row.len(), plan.width);
            return Err(row.error(Some(row.len().min(plan.width)), what).remedy("mend or remove the row"));
        }
        raw.src.push(take(&row, plan.src, parse_id, "a node id", IDS)?);
        raw.dst.push(take(&row, plan.dst, parse_id, "a node id", IDS)?);
        let time = take(&row, plan.time, parse_decimal, "a time", TIMES)?;
        let late = clock.push(time).map_err(|f| fault(&row, plan.time, f, "a time", TIMES))?;
        if late && options.strict {
            let remedy = "sort the file by time, or leave out --strict";
            return Err(row
                .error(Some(plan.time), "this event is earlier than one before it")
                .remedy(remedy));
        }
        if let Some(i) = plan.label {
            labels.push(take(&row, i, parse_f32, "a label", VALUES)?);
        }
        for i in plan.features.clone() {
            values.push(take(&row, i, parse_f32, "a feature", VALUES)?);
        }
        if let Some(i) = plan.roll {
            let roll = take(&row, i, parse_id, "a part", "write 0, 1 or 2")?;
            let count = usize::try_from(roll).ok().and_then(|roll| rolls.get_mut(roll));
            *count.ok_or_else(|| fault(&row, i, Fault::TooLarge, "a part", "write 0, 1 or 2"))? += 1;
        }
        if let Some(i) = plan.index {
            // Feature files are joined by position, which is only right while the numbers run on.
            let number = take(&row, i, parse_id, "an event number", IDS)?;
            let position = raw.src.len() as u64 - 1;
            raw.numbered &= number.checked_sub(position).is_some_and(|b| *base.get_or_insert(b) == b);
        }
    }
    if layout.roll.is_some() {
        raw.notes.push(tgl::note(rolls));
    }
    if let Some(plan) = plan {
        raw.label = plan.label.map(|_| labels);
        if !plan.features.is_empty() {
            raw.edge_features = Some(Features::from_vec(raw.src.len(), plan.features.len(), values)?);
        }
    }
    raw.ticks_per_second = clock.ticks_per_second();
    if clock.rounded {
        raw.notes.push("times had more than 9 digits after the point: rounded to nanoseconds".into());
    }
    raw.time = clock.ticks;
    raw.separate = layout.separate;
    raw.notes.extend_from_slice(&layout.notes);
    Ok(raw)
}

/// The columns of this very file, counted from 0 and known to exist.
struct Plan {
    width: usize,
    src: usize,
    dst: usize,
    time: usize,
    label: Option<usize>,
    index: Option<usize>,
    roll: Option<usize>,
    features: std::ops::Range<usize>,
}

impl Plan {
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
            // An open range may be empty: JODIE's header promises features even where there are none.
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

/// Field `i` as `what`, or the error that says where it is not one.
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

/// The error of field `i`, which should have been `what`.
#[cold]
pub(super) fn fault(row: &Record<'_>, i: usize, fault: Fault, what: &str, remedy: &str) -> Error {
    row.error(Some(i), fault.describe(row.field(i), what)).remedy(remedy)
}
