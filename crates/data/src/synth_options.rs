//! Options of synthetic streams.
use tgnn::error::{Error, Result};

/// Options of a synthetic stream; see [`synth`](fn@super::synth).
#[derive(Clone, Debug, PartialEq)]
pub struct SynthOptions {
    /// The data set's name.
    pub name: String,
    /// Number of events.
    pub events: usize,
    /// Number of source nodes.
    pub sources: usize,
    /// Number of destination nodes; 0 for events among the sources. The stream is then not bipartite and has
    /// no self-loops.
    pub destinations: usize,
    /// Width of the edge features; 0 for none.
    pub edge_features: usize,
    /// Number of hidden groups of destinations, limited to the number of destinations.
    pub groups: usize,
    /// Probability, from 0 to 1, of meeting a known partner again.
    pub repeat: f64,
    /// Exponent of the power law of popularity, at least 0: 0 is uniform, 1 is Zipf's law.
    pub exponent: f64,
    /// Probability, from 0 to 1, that a choice follows the planted rule; with 0 only popularity and recency
    /// can be learned.
    pub signal: f64,
    /// Number of classes of the events' label sets; 0 for no sets, else at least 2.
    pub classes: usize,
    /// Labels per event if there are classes, from 1 to the number of classes.
    pub labels: usize,
    /// Width of the node features; 0 for none.
    pub node_features: usize,
    /// Mean time between two events, in seconds.
    pub mean_gap: f64,
    /// Seed of the generator; different seeds give independent streams.
    pub seed: u64,
}

impl Default for SynthOptions {
    /// Returns the options of a stream of the bundled data set's size.
    fn default() -> Self {
        SynthOptions {
            name: "synth".into(),
            events: 157_474,
            sources: 8_227,
            destinations: 1_000,
            edge_features: 16,
            groups: 16,
            repeat: 0.8,
            exponent: 1.1,
            signal: 0.9,
            classes: 0,
            labels: 3,
            node_features: 0,
            mean_gap: 17.0,
            seed: 0,
        }
    }
}

impl SynthOptions {
    /// Streams whose sizes [`like`](Self::like) knows.
    pub const LIKE: [&str; 4] = ["wikipedia", "reddit", "lastfm", "gdelt"];

    /// Returns the options of a stream with the sizes of a real one: Wikipedia, Reddit and LastFM (Kumar et
    /// al. 2019), or GDELT (Zhou et al. 2022), of whose 191 million events it has the first million, each
    /// with 6 of 56 classes (DistTGL, section 4).
    ///
    /// ```
    /// use tgnn_data::SynthOptions;
    /// assert_eq!(SynthOptions::like("gdelt")?.classes, 56);
    /// assert_eq!(SynthOptions::like("wikipedia")?, SynthOptions::default());
    /// # Ok::<(), tgnn::error::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Usage` for another name.
    pub fn like(name: &str) -> Result<Self> {
        let bipartite = SynthOptions { name: format!("{name}-like"), repeat: 0.88, ..Self::default() };
        match name {
            "wikipedia" => Ok(Self::default()),
            "reddit" => Ok(SynthOptions {
                events: 672_447,
                sources: 10_000,
                destinations: 984,
                edge_features: 172,
                mean_gap: 4.0,
                ..bipartite
            }),
            "lastfm" => Ok(SynthOptions {
                events: 1_293_103,
                sources: 980,
                edge_features: 0,
                exponent: 0.9,
                mean_gap: 106.0,
                ..bipartite
            }),
            "gdelt" => Ok(SynthOptions {
                events: 1_000_000,
                sources: 16_682,
                destinations: 0,
                edge_features: 130,
                classes: 56,
                labels: 6,
                node_features: 413,
                mean_gap: 0.83,
                ..bipartite
            }),
            _ => Err(Error::usage(format!("no sizes of a stream `{name}` are known"))
                .remedy(format!("give {}", Self::LIKE.join(", ")))),
        }
    }
}
