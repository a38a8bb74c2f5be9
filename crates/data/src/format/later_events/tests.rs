//! Tests of events that are read row by row.
use super::*;
use crate::{EncodedColumn, TimeFormat};

/// Returns the ids of source and destination.
fn ends(event: &LaterEvent) -> [NodeId; 2] {
    [event.src.clone(), event.dst.clone().unwrap()]
}

fn format(encoding: FeatureEncoding, has_names: bool) -> EventFormat {
    let scale = TimeScale { ticks_per_second: 1.0, origin: 0, format: TimeFormat::Seconds };
    let (columns, missing) = (Columns::default(), Missing::Zero);
    EventFormat {
        scale,
        encoding,
        has_names,
        columns,
        delimiter: None,
        missing,
        ids: IdRule::default(),
        asks: false,
    }
}

fn lines(width: usize, ticks_per_second: f64, origin: i64) -> LaterEvents {
    let scale = TimeScale { ticks_per_second, origin, format: TimeFormat::Seconds };
    let format = EventFormat { scale, ..format(FeatureEncoding::numbers(width), false) };
    LaterEvents::new(Path::new("events.csv"), format)
}

/// Returns the event of a line, if it has one.
fn parse(lines: &mut LaterEvents, line: &str) -> Result<Option<LaterEvent>> {
    let mut found = None;
    lines.line(line.as_bytes(), &mut |event, _| {
        found = Some(event);
        Ok(())
    })?;
    Ok(found)
}

/// Returns the events of all lines of a text.
fn all(lines: &mut LaterEvents, text: &str) -> Result<Vec<LaterEvent>> {
    text.split('\n').filter_map(|line| parse(lines, line).transpose()).collect()
}

fn named(names: &[&str]) -> LaterEvents {
    let column = |name: &&str| EncodedColumn { name: (*name).into(), values: Encoding::Numbers(1) };
    let encoding = FeatureEncoding(names.iter().map(column).collect());
    LaterEvents::new(Path::new("x.csv"), format(encoding, true))
}

#[test]
fn a_header_counts_or_is_refused_by_the_name_that_it_lacks() {
    let right = all(&mut named(&["value"]), "item_id,user_id,timestamp,value\n5,3,10,0.5").unwrap();
    assert_eq!((&ends(&right[0]), right[0].time), (&[3, 5].map(NodeId::Number), 10));
    let plain = all(&mut named(&["value"]), "3,5,10,0.5").unwrap();
    assert_eq!(plain, right);
    for (text, said) in [
        (
            "item_id,user_id,timestamp,amount\n5,3,10,0.5",
            "x.csv:1: the header does not name the feature `value`; its columns are item_id, user_id, timestamp, amount; ",
        ),
        (
            "# c\nuser_id,item_id,value\n3,5,0.5",
            "x.csv:2: the header names no time; its columns are user_id, item_id, value; ",
        ),
        ("Kunde,Ware,time,value\n3,5,10,1", "x.csv:1: the header names no source; its columns are Kunde, "),
        ("[{\"src\":3}]", "x.csv:1: the line is not a JSON object; write one object per line"),
        (
            "{\"src\":3,\"time\":10,\"value\":1}",
            "x.csv:1: the header names no destination; its columns are src, time, value; ",
        ),
    ] {
        let e = all(&mut named(&["value"]), text).unwrap_err().to_string();
        assert!(e.starts_with(said), "{e}");
    }
    // Of features that a header names only once, the others follow.
    let header = "user_id,item_id,timestamp,state_label,comma_separated_list_of_features";
    let mut jodie = named(&["comma_separated_list_of_features", "6"]);
    let found = all(&mut jodie, &format!("{header}\n3,5,10,0,0.5,0.25")).unwrap();
    assert_eq!((&ends(&found[0]), &found[0].features[..]), (&[3, 5].map(NodeId::Number), &[0.5, 0.25][..]));
    // A column that no name tells is told.
    let mut movies = named(&[]);
    assert_eq!(
        ends(&all(&mut movies, "timestamp,user,movie\n10,3,5").unwrap()[0]),
        [3, 5].map(NodeId::Number)
    );
    assert_eq!(movies.notes(), ["no column is named like a destination: read `movie`"]);
    // Features without names of their own are the other columns.
    let labelled = all(&mut lines(1, 1.0, 0), "idx,u,i,ts,label,a\n7,3,5,10,1,0.5").unwrap();
    assert_eq!((&ends(&labelled[0]), labelled[0].time), (&[3, 5].map(NodeId::Number), 10));
    assert_eq!(labelled[0].features, [0.5]);
    let other = all(&mut lines(2, 1.0, 0), "t,a,i,u,b\n10,0.5,5,3,0.25").unwrap();
    assert_eq!((&ends(&other[0]), &other[0].features[..]), (&[3, 5].map(NodeId::Number), &[0.5, 0.25][..]));
    assert!(all(&mut lines(2, 1.0, 0), "t,a,i,u\n10,0.5,5,3").is_err());
}

#[test]
fn json_lines_are_read_by_their_keys_in_any_order_and_may_lack_a_feature() {
    let text = "{\"value\": 0.5, \"to\": 5, \"from\": \"3\", \"time\": 10}\n\n\
                {\"from\": 4, \"to\": 5, \"time\": \"11\"}\n\
                {\"from\": 4, \"time\": 12}";
    let mut lines = named(&["value"]);
    let e = all(&mut lines, text).unwrap_err().to_string();
    assert!(e.starts_with("x.csv:4: `to`: an empty field is not a node id; "), "{e}");
    let mut lines = named(&["value"]);
    let found = all(&mut lines, &text[..text.rfind('\n').unwrap()]).unwrap();
    assert_eq!((&ends(&found[0]), &found[0].features[..]), (&[3, 5].map(NodeId::Number), &[0.5][..]));
    assert_eq!((found[1].text.as_str(), &found[1].features[..]), ("4,5,11", &[0.0][..]));
    assert_eq!(lines.notes(), ["1 missing feature read as 0"]);
}

#[test]
fn times_between_two_ticks_are_cut_with_a_note() {
    let mut lines = lines(0, 1.0, -1);
    let found = all(&mut lines, "1,2,0.5\n1,2,1.75\n1,2,2").unwrap();
    assert_eq!(found.iter().map(|e| e.time).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(lines.notes(), ["2 times cut to the ticks of the data"]);
    assert_eq!(parse(&mut self::lines(0, 10.0, 0), "1,2,-0.25").unwrap().unwrap().time, -3);
}

#[test]
fn headers_comments_and_blank_lines_are_skipped_and_any_delimiter_is_taken() {
    for text in ["u,i,t\n# x\n\n3,4,10", "3;4;10", "3\t4\t10", " 3  4 10 "] {
        let found = all(&mut lines(0, 1.0, 4), text).unwrap();
        let want = LaterEvent {
            src: NodeId::Number(3),
            dst: Some(NodeId::Number(4)),
            candidates: None,
            has_candidates: false,
            time: 6,
            features: vec![],
            text: "3,4,10".into(),
            written: "10".into(),
        };
        assert_eq!(found, [want], "{text}");
    }
}

#[test]
fn times_are_exact_ticks_and_features_are_read() {
    let mut lines = lines(2, 1000.0, -500);
    let event = parse(&mut lines, "1,2,12.345,0.5,-1e1").unwrap().unwrap();
    assert_eq!((event.time, event.features), (12_845, vec![0.5, -10.0]));
}

#[test]
fn errors_name_line_and_column() {
    for (text, place, said) in [
        ("1,2,3\n1,2", (2, 0), "2 fields; give src,dst,time"),
        ("1,2,3,4", (1, 0), "4 fields"),
        ("1,2,3\n\n1,,4", (3, 3), "an empty field is not a node"),
        ("1,2,3\n1,2,soon", (2, 5), "`soon` is not a time"),
        ("1,2,9223372036854775807", (1, 5), "is not a valid time"),
    ] {
        let e = all(&mut lines(0, 1.0, 0), text).unwrap_err();
        assert_eq!(e.position(), Some(place), "{e}");
        assert!(e.to_string().starts_with("events.csv:") && e.to_string().contains(said), "{e}");
    }
    let e = parse(&mut lines(1, 1.0, 0), "1,2,3,inf").unwrap_err();
    assert!(e.to_string().starts_with("events.csv:1:7: `inf` is not a finite number"), "{e}");
}

#[test]
fn a_header_places_the_columns_of_the_data_set() {
    let column = |name: &str, values| EncodedColumn { name: name.into(), values };
    let format = EventFormat {
        scale: TimeScale { ticks_per_second: 1.0, origin: 0, format: TimeFormat::Iso },
        encoding: FeatureEncoding(vec![
            column("km", Encoding::Numbers(1)),
            column("carrier", Encoding::OneHot(["AA".into(), "UA".into()].to_vec())),
        ]),
        has_names: true,
        columns: "time=day+clock".parse().unwrap(),
        delimiter: None,
        missing: Missing::Zero,
        ids: IdRule::default(),
        asks: false,
    };
    let mut lines = LaterEvents::new(Path::new("x.csv"), format.clone());
    assert_eq!(parse(&mut lines, "day,clock,carrier,dest,origin,km,note").unwrap(), None);
    let event = parse(&mut lines, "1970-01-02,00:00:05,UA,\"LAX, CA\",EWR,,x").unwrap().unwrap();
    assert_eq!((ends(&event), event.time), (["EWR", "LAX, CA"].map(NodeId::parse), 86_405));
    assert_eq!(
        (event.features, event.text.as_str()),
        (vec![0.0, 0.0, 1.0], "EWR,\"LAX, CA\",1970-01-02 00:00:05")
    );
    let e = parse(&mut lines, "1,2").unwrap_err().to_string();
    assert_eq!(e, "x.csv:3: 2 fields; give the 7 fields of the header");
    let mut plain =
        LaterEvents::new(Path::new("x.csv"), EventFormat { columns: Columns::default(), ..format });
    assert_eq!(parse(&mut plain, "a,b,1970-01-01,7,AA").unwrap().unwrap().features, [7.0, 1.0, 0.0]);
    let e = parse(&mut plain, "a,b,1970-01-01").unwrap_err().to_string();
    assert_eq!(e, "x.csv:2: 3 fields; give src,dst,time,km,carrier");
}

#[test]
fn among_numbers_a_number_in_any_notation_is_a_node_and_a_word_for_nothing_is_none() {
    let numbers = EventFormat { ids: IdRule::among(true), ..format(FeatureEncoding::numbers(0), false) };
    let mut among_numbers = LaterEvents::new(Path::new("x.csv"), numbers);
    let event = parse(&mut among_numbers, "1e+05,+25,7").unwrap().unwrap();
    assert_eq!((ends(&event), event.text.as_str()), ([100_000, 25].map(NodeId::Number), "1e+05,+25,7"));
    let e = parse(&mut among_numbers, "3,nan,7").unwrap_err().to_string();
    assert_eq!(e, "x.csv:2:3: `nan` is not a node id among numbers; give the id of a node, as in the data");
    let e = parse(&mut among_numbers, "3,-1,7").unwrap_err().to_string();
    assert_eq!(
        e,
        "x.csv:3:3: -1 is not a node id among numbers from 0; give the id of a node, as in the data"
    );
    let mut names = lines(0, 1.0, 0);
    let event = parse(&mut names, "1e+05,nan,7").unwrap().unwrap();
    assert_eq!(ends(&event), ["1e+05", "nan"].map(|name| NodeId::Text(name.into())));
}

#[test]
fn a_row_may_ask_for_destinations_and_may_list_them_in_csv_and_json() {
    let asking = || {
        let format = EventFormat { asks: true, ..format(FeatureEncoding::numbers(1), false) };
        LaterEvents::new(Path::new("x"), format)
    };
    let listed = |text: &str| {
        let found = all(&mut asking(), text).unwrap();
        let ids =
            |e: &LaterEvent| e.candidates.as_ref().map(|ids| ids.iter().map(ToString::to_string).collect());
        found.iter().map(|e| (e.dst.is_none(), ids(e))).collect::<Vec<(bool, Option<Vec<String>>)>>()
    };
    let some = |ids: &[&str]| Some(ids.iter().map(ToString::to_string).collect::<Vec<_>>());
    let csv = "src,dst,time,weight,candidates\n3,4,10,1,\"5,u7\"\n3,,11,,\"[5, \"\"a,b\"\"]\"\n3,4,12,1,\n";
    let want = [(false, some(&["5", "u7"])), (true, some(&["5", "a,b"])), (false, None)];
    assert_eq!(listed(csv), want);
    let json = r#"{"src": 3, "dst": 4, "time": 10, "weight": 1, "candidates": [5, "u7"]}
{"src": 3, "dst": null, "time": 11, "candidates": ["5", "a,b"]}
{"src": 3, "dst": 4, "time": 12, "weight": 1}
"#;
    assert_eq!(listed(json), want);
    for (text, said) in [
        (
            "{\"src\": 3, \"dst\": 4, \"time\": 1, \"weight\": 1, \"candidates\": 5}",
            "the candidates are no list",
        ),
        ("{\"src\": 3, \"dst\": 4, \"time\": 1, \"weight\": 1, \"candidates\": [[5]]}", "are no ids"),
        (
            "src,dst,time,weight,candidates\n3,4,1,1,\"[5\"",
            "x:2:10: the candidates are no list of JSON; give",
        ),
        ("src,dst,time,weight,candidates\n3,4,1,1,\"5,,7\"", "the candidates are no ids: one is empty; give"),
        (r#"{"src": 3, "dst": 4, "time": 1, "weight": 1, "candidates": [5, ""]}"#, "no ids: one is empty"),
    ] {
        let e = all(&mut asking(), text).unwrap_err().to_string();
        assert!(e.contains(said), "{e}");
    }
    let json = "{\"src\": 3, \"time\": 1}\n{\"src\": 3, \"target\": 4, \"time\": 1, \"weight\": 2}";
    assert_eq!(listed(json), [(true, None), (false, None)]);
    let e = all(&mut asking(), &format!("{json}\n{{\"src\": 3, \"to\": 4, \"time\": 1, \"weight\": 2}}"));
    let said = "x:3: the destination is `target` in earlier lines, here `to`; call it the same";
    assert!(e.unwrap_err().to_string().starts_with(said));
    let mut strict = LaterEvents::new(Path::new("x"), format(FeatureEncoding::numbers(0), false));
    assert!(all(&mut strict, "3,,10").is_err(), "a destination is missing");
    // A feature may have the name of the list.
    let encoding = named(&["candidates"]).rows.format.encoding;
    let mut feature = LaterEvents::new(Path::new("x"), format(encoding, true));
    let found = all(&mut feature, "src,dst,time,candidates\n3,4,10,0.5").unwrap();
    assert_eq!((&found[0].features[..], &found[0].candidates), (&[0.5][..], &None));
}

#[test]
fn every_line_is_counted_and_a_row_may_start_like_a_comment() {
    let mut header = lines(0, 1.0, 0);
    let text = "# about, these\nsource,target,time\n#ai,user1,10\n\nrust,#x,11\n%y,\"a \\\"b\\\", c\",12";
    let found = all(&mut header, text).unwrap();
    let ends: Vec<String> = found.iter().map(|event| event.src.to_string()).collect();
    assert_eq!(
        (ends, found[0].text.as_str()),
        (vec!["#ai".into(), "rust".into(), "%y".into()], "\"#ai\",user1,10")
    );
    assert_eq!(found[2].text, "\"%y\",\"a \"\"b\"\", c\",12");
    let counts = LineCounts { header: 1, comments: 1, blank: 1, events: 3, incomplete: 0 };
    assert_eq!(header.lines(), counts);
    // Without a header, a row has the width of the data and a time.
    let mut plain = lines(0, 1.0, 0);
    assert_eq!(all(&mut plain, "# a b\n#ai,user1,10\n#ml,user1,11").unwrap().len(), 2);
    assert_eq!(plain.lines(), LineCounts { comments: 1, events: 2, ..LineCounts::default() });
    let mut ordered = lines(0, 1.0, 0);
    let found = all(&mut ordered, "# time,dst,src\n10,5,3").unwrap();
    assert_eq!((found[0].src.clone(), found[0].time, ordered.lines().header), (NodeId::Number(3), 10, 1));
    for (text, said) in [
        ("1,2,3\n# end", "events.csv:2: 1 field; give src,dst,time"),
        ("\"a\"b,2,3", "events.csv:1:4: `b,2,3` follows a closing quote; "),
        ("1,\"2,3", "events.csv:1:3: a quote is opened and never closed; "),
    ] {
        let mut given = lines(0, 1.0, 0);
        let e = all(&mut given, text).and_then(|_| given.finish()).unwrap_err().to_string();
        assert!(e.starts_with(said), "{e}");
    }
}

#[test]
fn a_quoted_field_may_have_lines_and_one_that_is_never_closed_is_an_error_of_its_first_line() {
    let mut header = lines(0, 1.0, 0);
    let found = all(&mut header, "src,dst,time\n\"a\nb\",4,10\n3,4,11").unwrap();
    assert_eq!(ends(&found[0])[0], NodeId::parse("a\nb"));
    assert_eq!((found.len(), header.lines().events, header.lines().all()), (2, 3, 4));
    let mut open = lines(0, 1.0, 0);
    assert_eq!(all(&mut open, "3,4,10\n\"a,4,11\n5,4,12").unwrap().len(), 1);
    let e = open.finish().unwrap_err().to_string();
    assert!(e.starts_with("events.csv:2:1: "), "{e}");
}

#[test]
fn columns_that_are_not_read_and_words_for_missing_nodes_are_told_and_none_is_taken_of_two() {
    let mut header = named(&["value"]);
    all(&mut header, "src,dst,time,value,label,city\nnull,4,10,1,0,x\n3,NA,11,1,0,y\nnull,4,12,1,0,z")
        .unwrap();
    let notes = header.notes();
    assert_eq!(notes[0], "columns not read: label, city");
    assert!(notes.iter().any(|note| note.starts_with("`null` is a node, at 2 ends of events")), "{notes:?}");
    for (names, said) in [
        (
            "src,dst,time,value,value",
            "the header has the feature `value` more often than the data; its columns",
        ),
        ("src,dst,time,value,candidates,Candidates", "the header has candidates twice; its columns are"),
    ] {
        let e = all(&mut named(&["value"]), &format!("{names}\n1,2,3,4,5,6")).unwrap_err().to_string();
        assert!(e.starts_with(&format!("x.csv:1: {said}")), "{e}");
    }
}
