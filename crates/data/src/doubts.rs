//! What is implausible about events, for their notes: times in a wrong unit, times that are all equal, and
//! equal numbers of users and items.
use super::{
    text::{counted, span},
    time_format::TimeFormat,
};

/// Number of events from which on there are doubts.
const ENOUGH: usize = 10;
/// Seconds of a year.
const YEAR: f64 = 365.25 * 86_400.0;
/// Number of years that numbers and dates seldom span.
const LONG: [f64; 2] = [100.0, 200.0];
/// Number of years without an event, in the midst of events, that are seldom.
const GAP: f64 = 20.0;

/// Returns the doubts about times, which ascend and are in ticks since second 0 of `format`.
pub(super) fn of_times(times: &[i64], ticks_per_second: f64, format: &TimeFormat) -> Vec<String> {
    let dateless = format.lacks_date().then(|| {
        format!(
            "times in the format {format} have no date: all are of 1970-01-01, and start again at midnight; to add \
             a column of dates, give --columns time=DATE+CLOCK"
        )
    });
    dateless.into_iter().chain(implausible(times, ticks_per_second, format)).collect()
}

/// Returns what is implausible about times.
fn implausible(times: &[i64], ticks_per_second: f64, format: &TimeFormat) -> Option<String> {
    let (Some(first), Some(last), true) = (times.first(), times.last(), times.len() >= ENOUGH) else {
        return None;
    };
    let seconds = |from: i64, to: i64| (to as f64 - from as f64) / ticks_per_second;
    let whole = seconds(*first, *last);
    let at = (1..times.len()).max_by_key(|&i| times[i].abs_diff(times[i - 1]))?;
    let gap = seconds(times[at - 1], times[at]);
    let text = |ticks| format.text(ticks, ticks_per_second);
    let is_date = format.is_date();
    match times.chunk_by(|a, b| a == b).take(4).count() {
        1 => Some(format!("all events have one time, {}: {FINER}", text(*first))),
        n @ 2..4 => Some(format!("the events have only {n} different times: {FINER}")),
        _ if gap > GAP * YEAR && gap > whole / 2.0 => Some(format!(
            "{} until {}, and {} from {} on, {} later: is a time in a wrong unit, mistyped, or missing?",
            counted(at as u64, "event"),
            text(times[at - 1]),
            counted((times.len() - at) as u64, "event"),
            text(times[at]),
            span(gap)
        )),
        _ if whole > LONG[usize::from(is_date)] * YEAR => Some(format!(
            "the times span {}: {}",
            span(whole),
            if is_date { "is one mistyped?" } else { "a wrong unit? give it, such as --time-format ms" }
        )),
        _ => None,
    }
}

/// What to do about events that times do not tell apart.
const FINER: &str = "they cannot be divided into training, validation and test; is another column the time?";

/// Returns the note on events that all have the same destination.
pub(super) fn of_destinations(dst: &[u64]) -> Option<String> {
    (dst.len() >= ENOUGH && dst.iter().all(|id| *id == dst[0])).then(|| {
        "all events have one destination, so a negative drawn from the destinations equals its event: AP and AUC \
         of links are 0.5 by construction"
            .to_owned()
    })
}

/// Returns the hint for a table without a header whose sources and destinations seem to be numbered
/// separately: either have nearly all numbers from 0 or 1 on, but not equally many. The ids ascend.
pub(super) fn of_numbers(sources: &[u64], destinations: &[u64]) -> Option<String> {
    let last = |ids: &[u64]| ids.last().copied().unwrap_or(0);
    let is_dense = |ids: &[u64]| {
        ids.len() >= ENOUGH && ids[0] <= 1 && ids.len() as u64 * 10 >= (last(ids) + 1 - ids[0]) * 9
    };
    let [few, many] = [last(sources).min(last(destinations)), last(sources).max(last(destinations))];
    (is_dense(sources) && is_dense(destinations) && many > few + few / 10).then(|| {
        format!(
            "sources have the ids up to {}, destinations up to {}: if equal ids are different nodes, such as \
             users and items, give --bipartite",
            last(sources),
            last(destinations)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doubt(times: impl Fn(i64) -> i64, format: &str) -> String {
        let mut times: Vec<i64> = (0..20).map(times).collect();
        times.sort_unstable();
        of_times(&times, 1.0, &format.parse().unwrap()).concat()
    }

    #[test]
    fn times_in_a_wrong_unit_are_doubted() {
        let start = 1_600_000_000;
        assert_eq!(doubt(|i| start + i * 86_400 * 365, "s"), "");
        let mixed = doubt(|i| if i % 2 == 0 { start + i } else { start / 1000 + i }, "ms");
        assert!(
            mixed.starts_with("10 events until") && mixed.contains("50.7 years later: is a time in a wrong"),
            "{mixed}"
        );
        assert!(
            doubt(|i| if i == 0 { 0 } else { start + i }, "s").contains("1 event until 0, and 19 events")
        );
        assert!(doubt(|i| i * 1_000_000_000, "s").contains("give it, such as --time-format ms"));
        assert!(doubt(|i| i * 1_000_000_000, "iso").ends_with("is one mistyped?"));
        assert_eq!(doubt(|i| i * 86_400 * 365 * 8, "iso"), "");
    }

    #[test]
    fn times_that_are_nearly_equal_are_told() {
        assert!(doubt(|_| 7, "s").starts_with("all events have one time, 7: they cannot be divided"));
        assert!(doubt(|i| i / 10, "s").starts_with("the events have only 2 different times: "));
        assert_eq!(doubt(|i| i / 4, "s"), "");
        assert!(of_times(&[1, 1], 1.0, &TimeFormat::Seconds).is_empty());
        let clock: TimeFormat = "%H:%M:%S".parse().unwrap();
        assert!(
            of_times(&[1, 1], 1.0, &clock)[0].starts_with("times in the format %H:%M:%S have no date: all")
        );
    }

    #[test]
    fn one_destination_and_numbers_of_two_kinds_are_told() {
        assert!(of_destinations(&[3; 10]).is_some());
        assert!(
            of_destinations(&[3; 9]).is_none() && of_destinations(&[1, 2, 1, 2, 1, 2, 1, 2, 1, 2]).is_none()
        );
        let ids = |range: std::ops::RangeInclusive<u64>| range.collect::<Vec<_>>();
        let hint = of_numbers(&ids(1..=40), &ids(1..=30)).unwrap();
        assert!(hint.starts_with("sources have the ids up to 40, destinations up to 30: "), "{hint}");
        assert!(of_numbers(&ids(1..=40), &ids(1..=40)).is_none());
        assert!(of_numbers(&ids(1..=40), &[1, 90, 180]).is_none());
    }
}
