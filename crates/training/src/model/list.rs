//! The list of models, from which names, sections of the configuration and help texts follow.

/// Passes the list of models to the macro `$with`. **A new model is its file and an entry here.**
///
/// An entry is `module: configuration, "section", reads { Name "name" "description" }`. `reads` is `events`,
/// with a configuration that implements [`ModelConfig`](super::ModelConfig), or `snapshots`, with a
/// constructor (`=> constructor`) from the configuration to a
/// [`SnapshotModelConfig`](super::SnapshotModelConfig). A section may have several models.
macro_rules! for_each_model {
    ($with:ident) => {
        $with! {
            tgn: TgnConfig, "tgn", events {
                Tgn "tgn" "node memory updated by a recurrent cell, then temporal attention over neighbours",
            }
            jodie: JodieConfig, "jodie", events {
                Jodie "jodie" "node memory updated by an RNN, projected in time",
            }
            dyrep: DyRepConfig, "dyrep", events {
                DyRep "dyrep" "node memory updated by an RNN from the partner's attention over its neighbours",
            }
            apan: ApanConfig, "apan", events {
                Apan "apan" "attention over mails, which are also delivered to neighbours",
            }
            tgat: TgatConfig, "tgat", events {
                Tgat "tgat" "temporal attention over neighbours and their neighbours; no memory",
            }
            graph_mixer: GraphMixerConfig, "graph-mixer", events {
                GraphMixer "graph-mixer" "MLP-Mixer blocks over a node's most recent events; no memory, no attention",
            }
            static_memory: StaticConfig, "static", events {
                Static "static" "one learned row per node, independent of time: a baseline, and static memory's pre-training",
            }
            wd_gcn: GcnConfig, "wd-gcn", snapshots {
                WdGcn "wd-gcn" "graph convolutions, then one LSTM per vertex" => WdGcn,
            }
            t_gcn: GcnConfig, "t-gcn", snapshots {
                TGcn "t-gcn" "a GRU whose gates are graph convolutions" => TGcn,
            }
            evolve_gcn: GcnConfig, "evolve-gcn", snapshots {
                EvolveGcnO "evolve-gcn-o" "graph convolutions whose weights a GRU evolves" => EvolveGcn::o,
                EvolveGcnH "evolve-gcn-h" "the same, and the GRU reads a summary of the vertices" => EvolveGcn::h,
            }
        }
    };
}
pub(crate) use for_each_model;

/// Declares [`ModelName`].
macro_rules! model_names {
    ($($module:ident: $config:ident, $section:literal, $reads:ident {
        $($name:ident $text:literal $about:literal $(=> $($build:ident)::+)?,)*
    })*) => {
        /// Names of the models.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum ModelName {
            $($(
                #[doc = $about]
                #[serde(rename = $text)]
                $name,
            )*)*
        }

        impl ModelName {
            /// All models: event models first, then snapshot models.
            pub const ALL: &[ModelName] = &[$($(ModelName::$name,)*)*];
            /// Returns the name used in files and flags.
            pub const fn name(self) -> &'static str {
                match self {
                    $($(ModelName::$name => $text,)*)*
                }
            }
            /// Returns a description in a few words.
            pub const fn about(self) -> &'static str {
                match self {
                    $($(ModelName::$name => $about,)*)*
                }
            }
            /// Returns the name of the model's section in a configuration.
            pub const fn section(self) -> &'static str {
                match self {
                    $($(ModelName::$name => $section,)*)*
                }
            }
            /// Whether the model reads snapshots instead of events.
            pub fn reads_snapshots(self) -> bool {
                let reads = match self {
                    $($(ModelName::$name => stringify!($reads),)*)*
                };
                reads == "snapshots"
            }
        }
    };
}

use serde::{Deserialize, Serialize};
use tgnn::error::{Error, ErrorKind, Result};
for_each_model!(model_names);

impl ModelName {
    /// Returns the names of all event models, or of all snapshot models: `tgn, jodie or apan`.
    pub fn names(snapshots: bool) -> String {
        let names = Self::ALL.iter().filter(|m| m.reads_snapshots() == snapshots).map(|m| m.name());
        let names: Vec<&str> = names.collect();
        match &names[..] {
            [] => String::new(),
            [one] => (*one).to_owned(),
            [first @ .., last] => format!("{} or {last}", first.join(", ")),
        }
    }
}

impl std::str::FromStr for ModelName {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        Self::ALL.iter().copied().find(|m| m.name() == s).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|m| m.name()).collect();
            Error::unknown(ErrorKind::Usage, "model", s, &names)
        })
    }
}
