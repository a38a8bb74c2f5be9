//! Events of one's own, from arrays to a trained TGN that scores pairs and follows the stream.
use tgnn::{
    data::Events,
    error::Result,
    runtime::Device,
    task::{Checkpoint, Config, NewEvent, Predictor, PredictorOptions, RunOptions, train},
};

fn main() -> Result<()> {
    // 40 people meet the same one of 10 things again and again: person p meets thing 40 + p % 10.
    let src: Vec<u32> = (0..4_000).map(|i| i * 7 % 40).collect();
    let dst = src.iter().map(|p| 40 + p % 10).collect();
    let time = (0..4_000).map(|i| 1_700_000_000 + 60 * i).collect();
    let mut events = Events::of("meetings", src, dst, time)?;
    events.first_destination = Some(40);

    let mut config = Config { epochs: 5, learning_rate: 0.003, ..Config::default() };
    (config.tgn.memory, config.tgn.time, config.tgn.embedding) = (16, 8, 16);
    let folder = std::env::temp_dir().join(format!("own-events-{}", std::process::id()));
    let options = RunOptions { out: Some(folder.clone()), ..RunOptions::default() };
    let device = Device::cpu(0)?;
    let summary = train(&config, &events, &device, &options, &mut ())?;
    println!("{:?}", summary.test);

    let (checkpoint, options) = (Checkpoint::at(&folder), PredictorOptions::default());
    let mut predictor = Predictor::open(&checkpoint, &config, &events, &device, &options)?;
    let now = events.time[events.len() - 1] + 60;
    let [usual, unusual] = predictor.score(&[[3, 43], [3, 48]], now)?[..] else { unreachable!("two pairs") };
    println!("person 3 and thing 43: {usual:.2}; and thing 48: {unusual:.2}");
    assert!(usual > unusual);
    // What happens next is scored, and becomes history.
    let logits = predictor.advance(&[NewEvent { src: 3, dst: 43, time: now, features: &[] }])?;
    println!("they meet, with a score of {:.2}", logits[0]);
    std::fs::remove_dir_all(&folder).map_err(|e| tgnn::error::Error::io(&folder, "cannot remove", e))
}
