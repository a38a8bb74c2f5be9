//! An event model of one's own: learned rows of the nodes, and what a node's recent neighbours and their
//! events say. Training, checkpoints and the predictor take it like a model of the crate.
use tgnn::{
    autograd::{Parameters, ScaledInit},
    error::{Error, Result},
    ops::{Tape, epilogue::Activation, sample_neighbors::Strategy},
    runtime::{BufferId, Device, Store},
};
use tgnn_data::{Events, Features};
use tgnn_training::{
    model::{Embeddings, EventModel, EventTables, ModelConfig, Queries},
    task::{Checkpoint, Config, CustomModel, NewEvent, Predictor, PredictorOptions, RunOptions, train},
};

/// The sizes of the model.
struct RecentConfig {
    width: usize,
    neighbors: usize,
}

impl ModelConfig for RecentConfig {
    fn validate(&self) -> Result<()> {
        let positive = self.width > 0 && self.neighbors > 0;
        positive.then_some(()).ok_or_else(|| Error::usage("width and neighbors must be positive"))
    }
    fn gap_quantile(&self) -> f64 {
        1.0 // it reads no gaps
    }
    fn width(&self) -> usize {
        self.width
    }
    fn recent_events(&self) -> Result<usize> {
        Ok(self.neighbors) // so many a predictor keeps of every node
    }
    fn describe(&self) -> String {
        format!("rows of width {}, {} neighbours", self.width, self.neighbors)
    }
    fn build(
        &self,
        p: &mut Parameters,
        store: &mut Store,
        data: &EventTables,
        _seed: u64,
    ) -> Result<Box<dyn EventModel>> {
        let (d, f) = (self.width, data.features.edge_width);
        let mut add = |name, rows, cols| p.add(store, name, rows, cols, ScaledInit::FanIn(cols));
        Ok(Box::new(Recent {
            rows: add("rows", data.nodes, d)?,
            w_near: add("near.w", d, d)?,
            w_edge: add("edge.w", d, f)?,
            bias: add("bias", 1, d)?,
            neighbors: self.neighbors,
        }))
    }
}

/// `z = relu(row + W_near mean(neighbours' rows) + W_edge mean(features) + b)`
struct Recent {
    rows: BufferId,
    w_near: BufferId,
    w_edge: BufferId,
    bias: BufferId,
    neighbors: usize,
}

impl EventModel for Recent {
    fn embed(&self, t: &mut Tape, data: &EventTables, q: &Queries) -> Result<Embeddings> {
        let k = self.neighbors;
        let [rows, w_near, w_edge, bias] = t.stored_all([self.rows, self.w_near, self.w_edge, self.bias])?;
        let (tcsr, how) = (data.tcsr(t)?, data.sampling(k, Strategy::Recent));
        let near = t.sample_neighbors(tcsr, (q.node, q.time), (q.event, q.now), q.stride, how)?;
        let edge = data.edge_if(t, true)?;
        let (edge, events) = data.edge_rows(t, edge, vec![near.event])?;

        let own = t.gather_rows(rows, q.node)?;
        let others = t.gather_rows(rows, near.node)?; // a row for each slot; zeros in those not in use
        let others = t.mean_rows(others, k, Some(near.count))?;
        let features = t.gather_rows(edge, events[0])?;
        let features = t.mean_rows(features, k, Some(near.count))?;
        let z = t.linear(others, w_near, Some(bias), Some(own), Activation::Identity)?;
        Ok(Embeddings::new(t.linear(features, w_edge, None, Some(z), Activation::Relu)?))
    }
}

fn main() -> Result<()> {
    // 40 people, each of whom visits one of 10 places; the features of a visit say which.
    let n = 3_000;
    let src: Vec<u32> = (0..n as u32).map(|i| i * 7 % 40).collect();
    let dst: Vec<u32> = src.iter().map(|person| 40 + person % 10).collect();
    let of_place = |place: u32| (40..50).map(move |p| f32::from(u8::from(p == place)));
    let features: Vec<f32> = dst.iter().flat_map(|&place| of_place(place)).collect();
    let mut events = Events::new("visits", src, dst, (0..n as i64).map(|i| 60 * i).collect())?;
    events.edge_features = Some(Features::from_vec(n, 10, features)?);

    let model = CustomModel::new("recent", RecentConfig { width: 16, neighbors: 5 });
    let custom_model = Some(model);
    let config = Config { epochs: 3, batch: 100, learning_rate: 0.01, custom_model, ..Config::default() };
    let (device, dir) = (Device::cpu(1)?, std::env::temp_dir().join("tgnn-own-event-model"));
    let _ = std::fs::remove_dir_all(&dir); // of an earlier run
    let options = RunOptions { out: Some(dir.clone()), ..RunOptions::default() };
    let summary = train(&config, &events, &device, &options, &mut ())?;
    let ap = summary.test.and_then(|test| test.transductive.ap).unwrap_or(0.0);
    println!("AP of the test part: {ap:.3}");
    assert!(ap > 0.8);

    // The checkpoint knows the weights; whoever opens it gives the same model again.
    let checkpoint = Checkpoint::at(&dir);
    let mut predictor = Predictor::open(&checkpoint, &config, &device, &PredictorOptions::default())?;
    let now = predictor.latest().unwrap_or(0) + 60;
    let logits = predictor.score(&[[3, 43], [3, 48]], now)?;
    println!("person 3 visits place 43: {:.1}, place 48: {:.1}", logits[0], logits[1]);
    assert!(logits[0] > logits[1]);
    let features: Vec<f32> = of_place(43).collect();
    predictor.advance(&[NewEvent { src: 3, dst: 43, time: now, features: &features }])?;
    std::fs::remove_dir_all(&dir).map_err(|e| Error::io(&dir, "cannot remove", e))
}
