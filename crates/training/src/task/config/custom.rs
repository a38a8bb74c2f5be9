//! An event model from outside of the crate.
use crate::model::ModelConfig;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{fmt, sync::Arc};
use tgnn::error::{Error, Result};

/// An event model from outside of the crate, for [`Config::custom_model`](super::Config::custom_model):
/// protocols, training, checkpoints and the predictor then treat it as one of the crate's own.
///
/// A configuration that is written, as that of a run or a checkpoint, holds the model's name alone. Whoever
/// reads it gives the same model again; until then, whatever needs the model is refused. Another name is
/// refused, too, and so are other sizes, since the buffers do not fit.
#[derive(Clone)]
pub struct CustomModel {
    name: String,
    /// `None` if a configuration was read, and the model not given yet.
    config: Option<Arc<dyn ModelConfig + Send>>,
}

impl CustomModel {
    /// Names a model for messages and results.
    pub fn new(name: impl Into<String>, config: impl ModelConfig + Send + 'static) -> Self {
        CustomModel { name: name.into(), config: Some(Arc::new(config)) }
    }
    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Returns the configuration.
    pub(super) fn config(&self) -> Result<&dyn ModelConfig> {
        match &self.config {
            Some(config) => Ok(&**config),
            None => Err(Error::usage(format!("the model `{}` is from outside of the crate", self.name))
                .remedy("use the program that trained it, which gives it in Config::custom_model")),
        }
    }
}

impl fmt::Debug for CustomModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CustomModel({})", self.name)
    }
}

/// Two are equal if they share their configuration.
impl PartialEq for CustomModel {
    fn eq(&self, other: &Self) -> bool {
        let same = match (&self.config, &other.config) {
            (Some(ours), Some(theirs)) => Arc::ptr_eq(ours, theirs),
            (ours, theirs) => ours.is_none() && theirs.is_none(),
        };
        same && self.name == other.name
    }
}

/// The name is written.
impl Serialize for CustomModel {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.name)
    }
}

/// The name is read.
impl<'de> Deserialize<'de> for CustomModel {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(CustomModel { name: String::deserialize(from)?, config: None })
    }
}
