//! The files of node labels in a folder of `.npy` arrays.
use super::files::{optional, ticks};
use crate::{Ids, NodeId, NodeLabels, npy, npy::Array};
use std::{fs, path::Path};
use tgnn::error::{Error, Result};

const TIME: &str = "node_label_time.npy";
const NODE: &str = "node_label_node.npy";
const OFFSETS: &str = "node_label_offsets.npy";
const CLASS: &str = "node_label_class.npy";
const WEIGHT: &str = "node_label_weight.npy";
const IDS: &str = "node_label_ids.json";

/// Writes labels into the folder `dir`.
pub(super) fn write(dir: &Path, labels: &NodeLabels) -> Result<()> {
    let (offsets, class, weight) = labels.entries();
    npy::write(dir.join(TIME), &[labels.len()], labels.times())?;
    npy::write(dir.join(NODE), &[labels.len()], labels.nodes())?;
    npy::write(dir.join(OFFSETS), &[offsets.len()], offsets)?;
    npy::write(dir.join(CLASS), &[class.len()], class)?;
    npy::write(dir.join(WEIGHT), &[weight.len()], weight)?;
    let Some(ids) = labels.ids() else { return Ok(()) };
    let path = dir.join(IDS);
    let ids: Vec<NodeId> = ids.iter().collect();
    let text = serde_json::to_string(&ids).map_err(std::io::Error::from);
    text.and_then(|text| fs::write(&path, text)).map_err(|e| Error::io(&path, "cannot write", e))
}

/// Reads the labels of `classes` classes from the folder `dir`.
pub(super) fn read(dir: &Path, classes: usize) -> Result<NodeLabels> {
    let numbers = |name: &str| {
        let file = dir.join(name);
        let array = Array::open(&file)?;
        array.as_slice::<u32>().map(<[u32]>::to_vec).ok_or_else(|| damaged(&file, "is no vector of u32"))
    };
    let weights = || {
        let file = dir.join(WEIGHT);
        let array = Array::open(&file)?;
        array.as_slice::<f32>().map(<[f32]>::to_vec).ok_or_else(|| damaged(&file, "is no vector of f32"))
    };
    let rows = (ticks(&dir.join(TIME))?, numbers(NODE)?);
    let labels = NodeLabels::of_arrays(classes, rows, (numbers(OFFSETS)?, numbers(CLASS)?, weights()?));
    labels.and_then(|labels| labels.with_ids(ids(dir)?)).map_err(|e| e.in_file(dir))
}

/// Reads the original ids of the classes, if there are any.
fn ids(dir: &Path) -> Result<Option<Ids>> {
    let Some(file) = optional(dir, IDS) else { return Ok(None) };
    let text = fs::read(&file).map_err(|e| Error::io(&file, "cannot read", e))?;
    let ids: Vec<NodeId> =
        serde_json::from_slice(&text).map_err(|e| damaged(&file, "is no list of ids").caused_by(e))?;
    Ok(Some(ids.into_iter().collect()))
}

fn damaged(file: &Path, what: &str) -> Error {
    Error::data(file, what).remedy("import the data again")
}
