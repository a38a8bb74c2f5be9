use super::*;
use proptest::prelude::*;

fn seconds(format: &str, text: &str) -> Result<(i64, u32), Fault> {
    let time = format.parse::<TimeFormat>().unwrap().parse(text.as_bytes())?;
    Ok((time.mantissa, time.digits))
}

#[test]
fn iso_dates_and_times_are_read_with_and_without_zone() {
    for (text, want) in [
        ("1970-01-01", (0, 0)),
        ("1970-02", (31 * 86_400, 0)),
        ("2023-11-14T22:13:29", (1_700_000_009, 0)),
        ("2023/11/14 22:13:29", (1_700_000_009, 0)),
        ("2023-11-14 22:13:29.250", (170_000_000_925, 2)),
        ("2023-11-14T22:13:29Z", (1_700_000_009, 0)),
        ("2023-11-14 22:13:29 UTC", (1_700_000_009, 0)),
        ("2023-11-14T23:13:29+01:00", (1_700_000_009, 0)),
        ("2023-11-14T17:13:29-0500", (1_700_000_009, 0)),
        ("2023-11-14T23:13+01", (1_700_000_009 - 29, 0)),
        ("1969-12-31 23:59:59.5", (-5, 1)),
        ("2016-12-31T23:59:60Z", (1_483_228_800, 0)),
        ("1600-01-01T00:00:00.5", (-116_760_959_995, 1)),
    ] {
        assert_eq!(seconds("iso", text), Ok(want), "{text}");
    }
}

#[test]
fn what_is_no_date_is_refused() {
    for text in [
        "2023",
        "2023-13-01",
        "2023-02-30",
        "14.11.2023",
        "2023-11-14T25:00",
        "2023-11-14T10:00 CET",
        "x",
        "2023-11-14T",
    ] {
        assert_eq!(seconds("iso", text), Err(Fault::Text), "{text}");
    }
    assert_eq!(seconds("iso", ""), Err(Fault::Empty));
    assert_eq!(seconds("%d.%m.%Y", "2023-11-14"), Err(Fault::Text));
}

#[test]
fn units_and_patterns_give_exact_seconds() {
    for (format, text, want) in [
        ("s", "1.5", (15, 1)),
        ("ms", "1700000009250", (170_000_000_925, 2)),
        ("ms", "1.5", (15, 4)),
        ("us", "2500000", (25, 1)),
        ("ns", "1.6", (2, 9)),
        ("min", "2", (120, 0)),
        ("h", "0.5", (1_800, 0)),
        ("d", "3", (259_200, 0)),
        ("%d.%m.%Y", "14.11.2023", (1_699_920_000, 0)),
        ("%m/%d/%Y %H:%M", "11/14/2023 22:13", (1_699_999_980, 0)),
        ("%a %b %d %H:%M:%S %z %Y", "Tue Nov 14 23:13:29 +0100 2023", (1_700_000_009, 0)),
        ("%Y%m", "197002", (31 * 86_400, 0)),
        ("%Y", "1971", (365 * 86_400, 0)),
        ("%Y%m%d.0", "19700102.0", (86_400, 0)),
        ("%Y%m%d", "19700102.0", (86_400, 0)),
        ("%Y%m%d%H", "1970010205", (86_400 + 5 * 3_600, 0)),
        ("%Y-%m-%d %I %p", "1970-01-02 05 PM", (86_400 + 17 * 3_600, 0)),
        ("%Y%m%d%H%M%S", "19700101000105", (65, 0)),
        ("%s", "1700000009", (1_700_000_009, 0)),
        ("%Y-%j", "1970-032", (31 * 86_400, 0)),
    ] {
        assert_eq!(seconds(format, text), Ok(want), "{format} {text}");
    }
}

#[test]
fn names_of_zones_other_than_utc_are_refused_with_a_remedy() {
    let format = "%Y-%m-%d %H:%M:%S %Z";
    for zone in ["UTC", "GMT", "Z", "utc"] {
        assert_eq!(seconds(format, &format!("2023-11-14 22:13:29 {zone}")), Ok((1_700_000_009, 0)), "{zone}");
    }
    for zone in ["EST", "PST", "CET", "UTC+1", "UTCX", "Zulu", "GMT-5", ""] {
        assert_eq!(seconds(format, &format!("2023-11-14 22:13:29 {zone}")), Err(Fault::Text), "{zone}");
    }
    assert_eq!(seconds("(%Z) %s", "(UTC) 5"), Ok((5, 0)));
    let advice = format.parse::<TimeFormat>().unwrap().advice();
    assert!(advice.contains("are ambiguous: write +01:00 and give %z"), "{advice}");
    assert_eq!(TimeFormat::Pattern("%Y".into()).advice(), "write times in the format %Y");
}

#[test]
fn nothing_that_a_pattern_has_is_skipped() {
    for (format, text, want) in [
        // A zone counts, whatever else is missing.
        ("%Y-%m-%d %H %z", "1970-01-02 01 +0100", Ok((86_400, 0))),
        ("%Y-%m-%d %z", "1970-01-02 -0100", Ok((90_000, 0))),
        ("%Y-%m-%dT%H:%M:%S%z", "1970-01-02T00:00:00Z", Ok((86_400, 0))),
        ("%H:%M %z", "00:30 +0100", Ok((-1_800, 0))),
        ("%s %z", "100 +0100", Ok((100, 0))),
        ("%+", "1970-01-02T01:00:00.5+01:00", Ok((864_005, 1))),
        ("%+", "1970-01-02T01:00:00.5", Err(Fault::Text)),
        ("%Y-%m-%d %z", "1970-01-02 EST", Err(Fault::Text)),
        ("%Y-%m-%d %:z", "1970-01-02 +01:00", Ok((82_800, 0))),
        // Times of day without a date are of the first day, and parts left out are 0.
        ("%H:%M:%S", "22:13:20", Ok((80_000, 0))),
        ("%I:%M %p", "12:05 AM", Ok((300, 0))),
        ("%M:%S%.f", "13:20.25", Ok((80_025, 2))),
        ("%Y-%m-%d %M", "1970-01-01 05", Ok((300, 0))),
        ("%d.%m.", "02.02.", Ok((32 * 86_400, 0))),
        ("%S", "59", Ok((59, 0))),
        // A fraction is one, also in Python's notation.
        ("%S.%f", "20.25", Ok((2_025, 2))),
        ("%H%M%S%f", "000020250000", Ok((2_025, 2))),
        ("%s.%f", "1700000009.5", Ok((17_000_000_095, 1))),
        ("%S.%3f", "20.250", Ok((2_025, 2))),
        ("%S.%3f", "20.2501", Err(Fault::Text)),
        ("%S%.f", "20", Ok((20, 0))),
        ("%Y%.f", "1600.5", Ok((-116_760_959_995, 1))),
        // Years have four digits, and so on where numbers follow at once.
        ("%d/%m/%Y", "14/11/23", Err(Fault::Text)),
        ("%d%m%Y", "1112023", Err(Fault::Text)),
        ("%Y%m%d", "2023111", Err(Fault::Text)),
        ("%H%M", "123", Err(Fault::Text)),
        ("%Y %m%d", "1970 12", Err(Fault::Text)),
        ("%Y%j", "197032", Err(Fault::Text)),
        ("%Y %j", "1970 32", Ok((31 * 86_400, 0))),
        ("%d/%m/%Y", "2/1/1970", Ok((86_400, 0))),
        ("%y", "69", Ok((3_124_224_000, 0))),
        ("%y", "70", Ok((0, 0))),
        // Weeks, quarters and days of a week.
        ("%Y-%U", "1970-01", Ok((3 * 86_400, 0))),
        ("%Y-%W", "1970-01", Ok((4 * 86_400, 0))),
        ("%G-W%V", "1970-W02", Ok((4 * 86_400, 0))),
        ("%G-W%V-%u", "1970-W02-3", Ok((6 * 86_400, 0))),
        ("%Y-Q%q", "1970-Q2", Ok((90 * 86_400, 0))),
        ("%a %Y-%m-%d", "Fri 1970-01-02", Ok((86_400, 0))),
        ("%a %Y-%m-%d", "Mon 1970-01-02", Err(Fault::Text)),
        ("%c", "Fri Jan  2 00:00:05 1970", Ok((86_405, 0))),
        ("%D %T", "01/02/70 00:00:05", Ok((86_405, 0))),
        // Text before and after, other letters, leap seconds, hours beyond the day.
        ("%Y-%m-%d", "1970-01-02 00:00", Err(Fault::Text)),
        ("%Y-%m-%d", "x1970-01-02", Err(Fault::Text)),
        ("%Y-%m-%d%n%H", "1970-01-02 05", Ok((86_400 + 18_000, 0))),
        ("%d %B %Y", "2 janvier 1970", Err(Fault::Text)),
        ("%Y-%m-%d %T", "1969-12-31 23:59:60", Ok((0, 0))),
        ("%H:%M", "24:00", Err(Fault::Text)),
        ("%s", "-5", Err(Fault::Text)),
        ("%s %Y", "5 1971", Err(Fault::Text)),
    ] {
        assert_eq!(seconds(format, text), want, "{format} {text}");
    }
}

#[test]
fn digits_beyond_a_nanosecond_are_told() {
    for (format, text, rounded) in [
        ("%S%.f", "20.0000000001", true),
        ("%S%.f", "20.0000000010", false),
        ("iso", "1970-01-01T00:00:00.12345678901", true),
        ("d", "0.00000000000001", true),
        ("d", "0.0000000001", false),
    ] {
        let time = format.parse::<TimeFormat>().unwrap().parse(text.as_bytes()).unwrap();
        assert_eq!(time.rounded, rounded, "{format} {text}");
    }
}

#[test]
fn patterns_whose_parts_are_no_time_are_refused() {
    for (pattern, why) in [
        ("%Y-%m-%d %I:%M", "`%Y-%m-%d %I:%M` is not a format of times: `%I` needs `%p`; give s, ms,"),
        ("%Y-%m-%d %p", "is not a format of times: `%p` needs `%I`"),
        ("%a %H:%M", "its parts do not make up one time"),
        ("%Y-%V", "its parts do not make up one time"),
        ("%C", "its parts do not make up one time"),
        ("%-d%-m%Y", "its parts do not make up one time"),
        ("%H %Q", "`%H %Q` is not a format of times; give s"),
        ("%z", "it has no part of a date or a time"),
        ("100%%", "it has no part of a date or a time"),
    ] {
        let e = pattern.parse::<TimeFormat>().unwrap_err().to_string();
        assert!(e.contains(why), "{pattern}: {e}");
    }
}

#[test]
fn every_count_of_days_or_ticks_is_exact_and_reads_back() {
    for (format, text, want) in [
        ("w", "2", "1970-01-15"),
        ("excel", "43831", "2020-01-01"),
        ("excel", "45244.5", "2023-11-14T12:00:00"),
        ("excel", "61", "1900-03-01"),
        ("julian", "2440587.5", "1970-01-01"),
        ("julian", "2460263.425", "2023-11-14T22:12:00"),
        ("mjd", "60262.25", "2023-11-14T06:00:00"),
        ("matlab", "738000", "2020-07-28"),
        ("matlab", "739204.75", "2023-11-14T18:00:00"),
        ("dotnet", "638355968005000000", "2023-11-14T22:13:20.500"),
        ("dotnet", "621355968000000001", "1970-01-01T00:00:00.000000100"),
        ("filetime", "133444736000000000", "2023-11-14T22:13:20"),
        ("webkit", "13344473600000001", "2023-11-14T22:13:20.000001"),
        ("cocoa", "721692800.25", "2023-11-14T22:13:20.250"),
    ] {
        let format: TimeFormat = format.parse().unwrap();
        let time = format.parse(text.as_bytes()).unwrap();
        assert_eq!(Ok(time), TimeFormat::Iso.parse(want.as_bytes()), "{format} {text}");
        let per_second = 10f64.powi(time.digits as i32);
        assert_eq!(format.text(time.mantissa, per_second), text, "{format}");
        let finer = time.mantissa.checked_mul(10).map(|ticks| format.text(ticks, per_second * 10.0));
        assert!(time.digits == 9 || finer.is_none_or(|finer| finer == text), "{format} {text}");
    }
    // The days of a float are exact to the nanosecond.
    let time = TimeFormat::Excel.parse(b"45244.92592592593").unwrap();
    assert_eq!((time.mantissa, time.digits), (1_700_000_000_000_000_352, 9));
    assert_eq!(TimeFormat::Excel.text(time.mantissa, 1e9), "45244.92592592593");
    assert_eq!(TimeFormat::Julian.parse(b"2460263.42592592592592592").unwrap().digits, 9);
    assert_eq!(TimeFormat::DotNet.parse(b"99999999999999999999"), Err(Fault::TooLarge));
}

#[test]
fn the_unit_is_guessed_from_the_size_of_the_first_time() {
    for (field, format) in [
        ("0", TimeFormat::Seconds),
        ("1700000009.5", TimeFormat::Seconds),
        ("1700000009250", TimeFormat::Milliseconds),
        ("1700000009250000", TimeFormat::Microseconds),
        ("1700000009250000000", TimeFormat::Nanoseconds),
        ("13344473600000000", TimeFormat::WebKit),
        ("133444736000000000", TimeFormat::FileTime),
        ("638355968000000000", TimeFormat::DotNet),
        ("-13344473600000000", TimeFormat::Microseconds),
        ("2023-11-14", TimeFormat::Iso),
    ] {
        assert_eq!(TimeFormat::guess(field.as_bytes()), format, "{field}");
    }
}

#[test]
fn whole_numbers_may_be_dates() {
    let of_dates = |fields: &[&str]| {
        let formats = TimeFormat::of_dates(fields.iter().map(|f| f.as_bytes()));
        formats.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
    };
    for (fields, pattern) in [
        (&["201501", "201512"][..], "%Y%m"),
        (&["20200131", "20200201"], "%Y%m%d"),
        (&["20200131.0"], "%Y%m%d"),
        (&["201101", "201112"], "%Y%m"),
        (&["231101", "231130"], "%y%m%d"),
        (&["2023001", "2023365"], "%Y%j"),
        (&["05112023", "06122023"], "%d%m%Y or %m%d%Y"),
        (&["13112023"], "%d%m%Y"),
        (&["11132023"], "%m%d%Y"),
        (&["2015010100", "2015010123"], "%Y%m%d%H"),
        (&["201501010059"], "%Y%m%d%H%M"),
        (&["20150101000000"], "%Y%m%d%H%M%S"),
        (&["1986", "2016"], "%Y"),
    ] {
        assert_eq!(of_dates(fields), pattern, "{fields:?}");
    }
    for none in
        [&["1600000015"][..], &["20200131", "20200132"], &["201501", "20150101"], &["-2015"], &["x"], &[]]
    {
        assert_eq!(of_dates(none), "", "{none:?}");
    }
}

/// Returns the format of numbers in a column called `name`, and the note on it.
fn of_numbers(name: &str, fields: &[&str]) -> (Option<String>, String) {
    let fields: Vec<&[u8]> = fields.iter().map(|field| field.as_bytes()).collect();
    let (format, note) = TimeFormat::of_numbers(name, &fields);
    (format.map(|format| format.to_string()), note.unwrap_or_default())
}

#[test]
fn numbers_that_the_columns_name_explains_are_read_by_it() {
    for (name, fields, format, date) in [
        ("date", ["19675", "19775"], "d", "2023-11-14"),
        ("orderDate", ["43831", "43900"], "excel", "2020-01-01"),
        ("Datum", ["45244.5", "45245"], "excel", "2023-11-14"),
        ("obs_date", ["60262.9", "60263"], "mjd", "2023-11-14"),
        ("jd", ["2460263.4", "2460263.5"], "julian", "2023-11-14"),
        ("datenum", ["739204.9", "739205"], "matlab", "2023-11-14"),
        ("minutes", ["28333333", "28333400"], "min", "2023-11-14"),
        ("hours", ["472222", "472223"], "h", "2023-11-14"),
        ("cocoa_time", ["721692800", "721692900"], "cocoa", "2023-11-14"),
    ] {
        let (found, note) = of_numbers(name, &fields);
        assert_eq!(found.as_deref(), Some(format), "{name}");
        assert!(note.contains(&format!("the first is {date}; if they are seconds")), "{note}");
    }
    let (format, note) = of_numbers("gps_week", &["2288", "2290"]);
    assert!(
        format.as_deref() == Some("w") && note.contains("`2288` and the other times are read in w"),
        "{note}"
    );
    assert!(note.contains("GPS, which counts from 1980-01-06"), "{note}");
}

#[test]
fn numbers_that_may_be_in_another_unit_are_doubted() {
    for (name, fields, said) in [
        (
            "time",
            ["2460263.425926", "2460264"],
            "which is 1970-01-29; in julian (Julian days) it is 2023-11-14: if so",
        ),
        ("t", ["28333333", "28333400"], "in min it is 2023-11-14: if so, give --time-format min"),
        ("t", ["472222", "472300"], "in h it is 2023-11-14"),
        ("time", ["19675", "19775"], "in d it is 2023-11-14: if so, give --time-format d"),
        (
            "t",
            ["50000", "50001"],
            "it is 2036-11-21, in mjd (modified Julian days) it is 1995-10-10: if so, give",
        ),
        (
            "date",
            ["5112023", "6112023"],
            "if it is a date, as the column's name says, give its format, such as",
        ),
        (
            "day",
            ["0", "149"],
            "`0` is read in s; if it is in d, as the column's name says, give --time-format d",
        ),
        ("time_us", ["1700000000", "1700000001"], "if it is in us, as the column's name says"),
        ("gps_time", ["1384035218", "1384035219"], "GPS, which counts from 1980-01-06"),
        (
            "ntp",
            ["3908988800", "3908988801"],
            "is read in s since 1970, which is 2093-11-13: is it in another",
        ),
        ("ts", ["17000000000", "17000000010"], "which is 2508-09-16: is it in another unit?"),
        ("ts", ["17000000000000", "17000000000010"], "is read in ms since 1970, which is 2508-09-16: is it"),
    ] {
        let (found, note) = of_numbers(name, &fields);
        assert!(found.is_none() && note.contains(said), "{name} {fields:?}: {found:?} {note}");
    }
    for (name, fields) in [
        ("time", ["5", "19775"]),
        ("time", ["0", "2460263"]),
        ("date", ["1700000000", "1700000001"]),
        ("date", ["2023-11-14", "2023-11-15"]),
        ("seconds", ["0", "5"]),
        ("timestamp_ms", ["1700000000000", "1700000000001"]),
        ("updated", ["1700000000", "1700000001"]),
    ] {
        assert_eq!(of_numbers(name, &fields), (None, String::new()), "{name} {fields:?}");
    }
}

#[test]
fn times_are_written_as_they_were_read() {
    for (format, ticks_per_second, text) in [
        ("s", 1.0, "1700000009"),
        ("s", 100.0, "1.25"),
        ("ms", 1000.0, "1700000009250"),
        ("iso", 10.0, "2023-11-14T22:13:29.500"),
        ("iso", 1.0, "1969-12-31T23:59:59"),
        ("%d.%m.%Y", 1.0, "14.11.2023"),
    ] {
        let format: TimeFormat = format.parse().unwrap();
        let scale = TimeScale { ticks_per_second, origin: 7, format };
        assert_eq!(scale.text(scale.ticks(text).unwrap()), text);
    }
}

#[test]
fn a_time_that_is_not_of_the_data_says_how_to_write_it() {
    let scale = TimeScale { ticks_per_second: 1.0, origin: 0, format: TimeFormat::Iso };
    let e = scale.ticks("5").unwrap_err().to_string();
    assert_eq!(e, "`5` is not a time; write a date and time as in the data, such as 2023-11-14T22:13:29");
    let e = TimeScale { format: TimeFormat::Seconds, ..scale }.ticks("0.5").unwrap_err().to_string();
    assert!(e.starts_with("`0.5` is not a valid time of the data set (ticks per second: 1); "), "{e}");
}

proptest! {
    #[test]
    fn no_bytes_panic(field in proptest::collection::vec(any::<u8>(), 0..40)) {
        for format in ["iso", "ns", "julian", "dotnet", "%Y-%m-%d", "%d %H%M%S%f %Z"] {
                let format: TimeFormat = format.parse().unwrap();
            let _ = format.parse(&field);
        }
        let _ = TimeFormat::guess(&field);
    }

    #[test]
    fn every_text_reads_back(ticks in any::<i64>(), digits in 0i32..=9) {
        for unit in unit::UNITS.iter().filter(|unit| unit.seconds == 1) {
            let text = unit.text(ticks, 10f64.powi(digits));
            if let Ok(time) = unit.parse(text.as_bytes()) {
                prop_assert!(time.rounded || time == Decimal::new(ticks, digits as u32), "{} {text}", unit.name);
            }
        }
    }

    #[test]
    fn iso_reads_back(seconds in -60_000_000_000i64..60_000_000_000) {
        let scale = TimeScale { ticks_per_second: 1.0, origin: 0, format: TimeFormat::Iso };
        prop_assert_eq!(scale.ticks(&scale.text(seconds)).unwrap(), seconds);
    }
}
