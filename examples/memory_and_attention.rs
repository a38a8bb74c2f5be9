//! One step of gradient descent through TGN's memory update and temporal attention, on arrays of one's own.
use tgnn::{error::Result, ops::functions::*, runtime::NONE};

fn main() -> Result<()> {
    let wave = |n: usize, by: f32| (0..n).map(|i| (by * i as f32).sin()).collect::<Vec<f32>>();
    // Three nodes with memory of width 4, two of them with mails; two events with two features each.
    let (d, t, c) = (4, 2, 12);
    let (memory, mail, edge) = (wave(3 * d, 0.3), wave(3 * d, 0.5), wave(4, 0.7));
    let (memory_time, mail_time, mail_event) = (&[0, 5, 9], &[10, 12, 0], &[0, 1, NONE]);
    let (memory, mail, edge) = (&memory[..], &mail[..], &edge[..]);
    let tables = MemoryTables { memory, memory_time, mail, mail_event, mail_time, edge, edge_width: 2 };
    let (time_w, time_b) = (wave(t, 1.1), wave(t, 1.3));
    let (mut w_x, w_h, zeros) = (wave(3 * d * c, 0.9), wave(3 * d * d, 1.7), vec![0.0; 3 * d]);

    let mut losses = Vec::new();
    for _ in 0..20 {
        let (time_w, time_b, b) = (&time_w[..], &time_b[..], &zeros[..]);
        let weights = GruWeights { time_w, time_b, w_x: &w_x, w_h: &w_h, b_x: b, b_h: b };
        let updated = gru_memory(&[0, 1, 2], tables, weights, 1.0)?;
        // One root with two heads looks at nodes 0 and 1 through events 0 and 1.
        let (query, h) = (wave(2 * (d + 2 + t), 0.4), &updated.memory[..]);
        let (row, event, dt, count) = (&[0, 1], &[0, 1], &[3.0, 1.0], &[2]);
        let (heads, head_width, width) = (2, 4, d);
        let (query, edge_width) = (&query[..], 2);
        let roots = AttentionRows {
            heads,
            head_width,
            width,
            edge_width,
            query,
            h,
            row,
            event,
            dt,
            count,
            edge,
            time_w,
            time_b,
        };
        let out = temporal_attention(&roots)?;
        losses.push(out.mix.iter().map(|x| x * x).sum::<f32>());
        let dmix: Vec<f32> = out.mix.iter().map(|x| 2.0 * x).collect();
        let of_roots = temporal_attention_grad(&roots, &out.weight, &dmix, &[0.0; 2])?;
        let of_weights = gru_memory_grad(&updated, weights, &of_roots.h)?;
        w_x.iter_mut().zip(of_weights.w_x).for_each(|(w, g)| *w -= 0.05 * g);
    }
    println!("loss: {} at first, {} after {} steps", losses[0], losses[19], losses.len());
    assert!(losses.windows(2).all(|l| l[1] < l[0]));
    Ok(())
}
