//! Ablation of the TGN: on a stream whose signal needs both memory and attention, a TGN without either scores
//! far lower.
use crate::support::trainings::{run, small_config, stream};
use tgnn::runtime::philox::Key;
use tgnn_data::{Events, Features};
use tgnn_training::{
    model::ModelName,
    task::{Config, TaskName},
};

const MOODS: usize = 4;
const HOUSES: usize = 8;
const MEMBERS: usize = 320;

/// Generates a stream of members who visit their club's house. Each house has a mood, which is redrawn at one
/// visit in 33. The features of a visit encode the mood after it; its label is the mood before it.
///
/// A house has forty members, so its mood has most likely changed between two visits of the same member.
/// Neither the member's memory nor the member's latest visits predict the label. The house's memory does, and
/// attention over the member's neighbours reads that memory.
fn clubs(events: usize, seed: u64) -> Events {
    let mut mood = [0; HOUSES];
    let (mut ends, mut labels) = (Vec::new(), Vec::new());
    let mut features = vec![0.0; MOODS * events];
    for (i, row) in features.chunks_exact_mut(MOODS).enumerate() {
        let draw = |j, n: usize| Key::new(seed, 1, [i as u32, 0]).below(j, n as u32) as usize;
        let member = draw(0, MEMBERS);
        let mood = &mut mood[member % HOUSES];
        labels.push(*mood as f32);
        if draw(1, 33) == 0 {
            *mood = draw(2, MOODS);
        }
        ends.push((member, MEMBERS + member % HOUSES));
        row[*mood] = 1.0;
    }
    let mut visits = stream(MEMBERS + HOUSES, &ends, (0..events as i64).map(|i| 20 * i).collect());
    visits.edge_features = Some(Features::from_vec(events, MOODS, features).unwrap());
    visits.label = Some(labels);
    visits
}

#[test]
fn a_tgn_without_attention_or_without_memory_scores_far_lower() {
    for seed in 1..=3 {
        let events = clubs(10_000, seed);
        let score = |model, layers| {
            let (batch, learning_rate) = (20, 4e-4);
            let mut c = Config {
                seed,
                task: TaskName::Node,
                epochs: 10,
                batch,
                eval_batch: batch,
                learning_rate,
                ..small_config(model, 48)
            };
            // A TGAT with one layer is this TGN without the memory.
            (c.tgn.layers, c.tgn.neighbors, c.tgn.dropout) = (layers, 2, 0.0);
            (c.tgat.layers, c.tgat.neighbors, c.tgat.dropout) = (layers, 2, 0.0);
            run(&c, &events, None, false).unwrap().test.unwrap().transductive.ap.unwrap()
        };
        let both = score(ModelName::Tgn, 1);
        let (memory, attention) = (score(ModelName::Tgn, 0), score(ModelName::Tgat, 1));
        // Over eight seeds the model with both scored 0.93 to 0.98, and the smallest gap was 0.26. At a
        // learning rate of 1e-3 one seed in three collapses to 0.25, which says nothing of the parts.
        assert!(both > 0.85, "seed {seed}: {both}");
        assert!(memory < both - 0.2 && attention < both - 0.2, "seed {seed}: {both}, {memory}, {attention}");
    }
}
