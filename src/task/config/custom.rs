//! An event model from outside of the crate.
use crate::model::ModelConfig;
use std::{fmt, sync::Arc};

/// An event model from outside of the crate, for [`Config::custom_model`](super::Config::custom_model):
/// protocols, training, checkpoints and the predictor then treat it as one of the crate's own.
///
/// A checkpoint does not hold the model's configuration. Whoever opens it gives the same model again; other
/// sizes are refused, since the buffers do not fit.
#[derive(Clone)]
pub struct CustomModel {
    name: String,
    config: Arc<dyn ModelConfig + Send>,
}

impl CustomModel {
    /// Names a model for messages and results.
    pub fn new(name: impl Into<String>, config: impl ModelConfig + Send + 'static) -> Self {
        CustomModel { name: name.into(), config: Arc::new(config) }
    }
    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }
    pub(super) fn config(&self) -> &dyn ModelConfig {
        &*self.config
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
        self.name == other.name && Arc::ptr_eq(&self.config, &other.config)
    }
}
