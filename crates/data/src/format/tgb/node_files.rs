//! Node features of TGB: the types of the nodes of `thgl-*`, and the airports of `tgbl-flight`.
use super::{
    super::{
        delimiter::Delimiter,
        input::Input,
        number::{parse_f32, parse_id},
        records::{Record, Shape, records},
        table::{IDS, VALUES, take},
    },
    appearance::Appearance,
    parse_code,
};
use crate::{
    Features, LineCounts,
    node_rows::NodeRows,
    text::{counted, shown},
};
use std::{collections::BTreeMap, path::Path};
use tgnn::error::Result;

/// Number of characters to which the code of a region is padded.
const REGION: usize = 7;

/// Calls `each` with every row of `file` but the header. Returns what its lines are.
pub(super) fn for_each_row(
    file: &Path,
    columns: usize,
    mut each: impl FnMut(&Record<'_>) -> Result<()>,
) -> Result<LineCounts> {
    let input =
        Input::open(file).map_err(|e| e.remedy("fetch the data set again: the file belongs to it"))?;
    let mut records = records(input, Shape::of(Delimiter::Byte(b',')));
    records.header()?;
    while let Some(row) = records.next()? {
        if row.len() < columns {
            let what = format!("this row has {} columns, expected {columns}", row.len());
            return Err(row.error(None, what).remedy("fix or remove the row"));
        }
        each(&row)?;
    }
    Ok(records.counts())
}

/// Reads the types of nodes, rows `node_id,type`, as one-hot features by TGB's number of the node. A node
/// that the file lacks has type 0, as in `py-tgb`.
pub(super) fn types(file: &Path, nodes: &Appearance, notes: &mut Vec<String>) -> Result<NodeRows> {
    let (mut type_of, mut has_type) = (vec![0u64; nodes.len()], vec![false; nodes.len()]);
    let lines = for_each_row(file, 2, |row| {
        take(row, 0, parse_id, "a node id", IDS)?;
        let Some(node) = nodes.get(row.field(0)) else {
            let what = format!("{} is not a node of the edge list", shown(row.field(0)));
            return Err(row.error(Some(0), what).remedy("fetch the data set again"));
        };
        (type_of[node], has_type[node]) = (take(row, 1, parse_id, "a type", IDS)?, true);
        Ok(())
    })?;
    notes.extend(lines.note(file));
    notes.extend(lacking(&has_type).map(|nodes| format!("{nodes} without a type have type 0, as TGB does")));
    let mut count = BTreeMap::new();
    type_of.iter().for_each(|&t| *count.entry(t).or_insert(0u64) += 1);
    let sizes: Vec<String> = count.iter().map(|(t, &n)| format!("{t} has {}", counted(n, "node"))).collect();
    notes.push(format!("{} of nodes: {}", counted(count.len() as u64, "type"), sizes.join(", ")));
    let place: BTreeMap<u64, usize> = count.into_keys().zip(0..).collect();
    let width = place.len();
    let mut values = vec![0.0; nodes.len() * width];
    for (row, t) in values.chunks_exact_mut(width).zip(&type_of) {
        row[place[t]] = 1.0;
    }
    Ok(NodeRows::Numbered(Features::from_vec(nodes.len(), width, values)?))
}

/// Returns how many nodes are not marked, as text; `None` if all are.
fn lacking(marked: &[bool]) -> Option<String> {
    let lacking = marked.iter().filter(|marked| !**marked).count();
    (lacking > 0).then(|| counted(lacking as u64, "node"))
}

/// Reads what is known of airports, rows `code,type,continent,region,longitude,latitude`, as `py-tgb` does:
/// type and continent one-hot in the order they appear, a number for each of seven characters of the region,
/// and the coordinates. An airport that the file lacks has zeros, and one that the edge list lacks is not
/// read.
pub(super) fn airports(file: &Path, nodes: &Appearance, notes: &mut Vec<String>) -> Result<NodeRows> {
    let (mut kinds, mut continents) = (Appearance::default(), Appearance::default());
    let (mut read, mut has_row, mut unknown) = (Vec::new(), vec![false; nodes.len()], 0);
    let lines = for_each_row(file, 6, |row| {
        let Some(node) = nodes.get(row.field(0)) else {
            unknown += 1;
            return Ok(());
        };
        has_row[node] = true;
        let region = |field: &[u8]| parse_code::<REGION>(field).ok_or(super::Fault::TooLarge);
        let region = take(row, 3, region, "a region", "write at most seven characters")?;
        let [x, y] = [4, 5].map(|i| take(row, i, parse_f32, "a coordinate", VALUES));
        read.push((node, kinds.number(row.field(1)), continents.number(row.field(2)), region, [x?, y?]));
        Ok(())
    })?;
    notes.extend(lines.note(file));
    notes.extend((unknown > 0).then(|| format!("left out {} without a flight", counted(unknown, "airport"))));
    notes.extend(lacking(&has_row).map(|nodes| format!("{nodes} without a row of features have zeros")));
    let (kinds, continents) = (kinds.len(), continents.len());
    let width = kinds + continents + REGION + 2;
    let mut values = vec![0.0; nodes.len() * width];
    for (node, kind, continent, region, place) in read {
        let row = &mut values[node * width..][..width];
        row[..kinds + continents].fill(0.0);
        row[kind as usize] = 1.0;
        row[kinds + continent as usize] = 1.0;
        row[kinds + continents..][..REGION].copy_from_slice(&region);
        row[width - 2..].copy_from_slice(&place);
    }
    Ok(NodeRows::Numbered(Features::from_vec(nodes.len(), width, values)?))
}
