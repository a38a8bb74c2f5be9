//! Models: short files made of layers, recorded on a tape.
mod layers;
mod tables;
mod tgn;

pub use layers::{Attention, Decoder, Looked, TimeEncoding, TimeStart};
pub use tables::EventTables;
pub use tgn::{Forward, Negatives, Tgn, TgnConfig};
