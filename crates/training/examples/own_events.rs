//! Events of one's own, from arrays to a trained TGN that scores pairs and follows the stream.
use tgnn::{
    error::{Error, Result},
    runtime::Device,
};
use tgnn_data::{Events, Features};
use tgnn_training::task::{Checkpoint, Config, NewEvent, Predictor, PredictorOptions, RunOptions, train};

fn main() -> Result<()> {
    // 40 people meet the same one of 10 things again and again; features of a meeting tell the thing.
    let src: Vec<u32> = (0..4_000).map(|i| i * 7 % 40).collect();
    let dst: Vec<u32> = src.iter().map(|p| 40 + p % 10).collect();
    let feature = |d: u32| (40..50).map(move |thing| f32::from(u8::from(thing == d)));
    let features = Features::from_vec(4_000, 10, dst.iter().flat_map(|&d| feature(d)).collect())?;
    let mut events = Events::new("meetings", src, dst, (0..4_000).map(|i| 60 * i).collect())?;
    (events.first_destination, events.edge_features) = (Some(40), Some(features));

    let mut config = Config { epochs: 20, batch: 100, learning_rate: 0.003, ..Config::default() };
    (config.tgn.memory, config.tgn.time, config.tgn.embedding) = (16, 8, 16);
    let folder = std::env::temp_dir().join(format!("own-events-{}", std::process::id()));
    let options = RunOptions { out: Some(folder.clone()), ..RunOptions::default() };
    let device = Device::cpu(0)?;
    let summary = train(&config, &events, &device, &options, &mut ())?;
    println!("trained; on the test events: {:?}", summary.test.map(|t| t.transductive.ap));

    let (checkpoint, options) = (Checkpoint::at(&folder), PredictorOptions::default());
    let mut predictor = Predictor::open(&checkpoint, &config, &device, &options)?;
    let now = events.time[3_999] + 60;
    let pairs = |by: u32| (0..40).map(|p| [p, 40 + (p + by) % 10]).collect::<Vec<_>>();
    let [usual, others] = [0, 5].map(|by| predictor.score(&pairs(by), now));
    let [usual, others] = [usual?, others?].map(|scores| scores.iter().sum::<f32>() / 40.0);
    println!("mean score of the usual pairs: {usual:.2}, of others: {others:.2}");
    assert!(usual > others);
    // What happens next is scored, and becomes history.
    let features: Vec<f32> = feature(43).collect();
    let logits = predictor.advance(&[NewEvent { src: 3, dst: 43, time: now, features: &features }])?;
    println!("person 3 meets thing 43 again, with a score of {:.2}", logits[0]);
    std::fs::remove_dir_all(&folder).map_err(|e| Error::io(&folder, "cannot remove", e))
}
