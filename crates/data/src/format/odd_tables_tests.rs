//! Tests of tables that are easily misread: a header that names too little, dates written as numbers, ids
//! that are missing or written in two ways, odd delimiters, and times in two units.
use super::tests::{columns, fault, read, read_with, write};
use crate::{Events, NodeId, ReadOptions, Stats, load};
use std::fs;

fn with(change: impl FnOnce(&mut ReadOptions)) -> ReadOptions {
    let mut options = ReadOptions::default();
    change(&mut options);
    options
}

fn has_note(e: &Events, said: &str) -> bool {
    e.notes.iter().any(|note| note.contains(said))
}

#[track_caller]
fn assert_note(e: &Events, said: &str) {
    assert!(has_note(e, said), "{said}: {:?}", e.notes);
}

/// Returns a table of 40 rows.
fn rows(header: &str, row: impl Fn(u64) -> String) -> String {
    (0..40).fold(header.to_owned(), |text, i| text + &row(i) + "\n")
}

#[test]
fn a_header_that_names_too_little_is_refused_and_not_read_by_place() {
    let text = "from,to,year,weight\na,b,1990,7.5\nb,c,1991,3.25\na,c,1992,9\nc,a,1993,1\n";
    let said = fault(text, &ReadOptions::default());
    let wanted = "events.csv: no column is named like a time; give --columns time=NAME; the columns are from, to, year";
    assert!(said.starts_with(wanted), "{said}");
    let e = read_with(text, &columns("time=year")).unwrap();
    assert_eq!(e.edge_features.as_ref().unwrap().values(), [7.5, 3.25, 9.0, 1.0]);
    assert_note(&e, "`1990` and the other times are read as dates, by --time-format %Y; if they are numbers");
    assert_eq!(e.span_seconds(), (3 * 365 + 1) as f64 * 86_400.0);
    let e = read_with("user,from,to,t\n9,1,2,3\n", &columns("src=from")).unwrap();
    assert_eq!(e.id(e.src[0]), NodeId::Number(1));
    for (text, missing) in [
        ("year,from,to,weight\n1990,a,b,7.5\n", "a time"),
        ("ts,player,opponent,weight\n5,a,b,7.5\n", "a source or a destination"),
        ("source,target,hour,weight\n1,2,3,4\n", "a time"),
        ("user,item,rating,year\n1,2,5,1990\n", "a time"),
        ("item_id,user_id,stars,year\n1,2,5,1990\n", "a time"),
        ("user_id,item_id,rating\n1,2,5\n", "a time"),
        ("a,b,c,ext_roll\n1,2,5,0\n", "a source or a destination or a time"),
    ] {
        let said = fault(text, &ReadOptions::default());
        assert!(
            said.starts_with(&format!("events.csv: no column is named like {missing}; give --columns")),
            "{said}"
        );
    }
}

#[test]
fn dates_that_are_written_as_numbers_are_dates() {
    let day = 86_400.0;
    for (name, times, pattern, span) in [
        ("date", "20200131 20200201 20200301", "%Y%m%d", 30.0 * day),
        ("time", "20200131.0 20200201.0 20200301.0", "%Y%m%d", 30.0 * day),
        ("date", "201501 201502 201503", "%Y%m", 59.0 * day),
        ("t", "201501 201502 201503", "%Y%m", 59.0 * day),
        ("date", "2015010100 2015010123 2015010200", "%Y%m%d%H", day),
        ("date", "201501010000 201501010059 201501010100", "%Y%m%d%H%M", 3_600.0),
        ("ts", "20150101000000 20150101000059 20150101000100", "%Y%m%d%H%M%S", 60.0),
    ] {
        let rows: String = times.split(' ').map(|time| format!("1,2,{time}\n")).collect();
        let e = read(format!("src,dst,{name}\n{rows}")).unwrap();
        assert_eq!(e.span_seconds(), span, "{times}");
        assert_note(
            &e,
            &format!("read as dates, by --time-format {pattern}; if they are numbers, give --time-format s"),
        );
        let seconds = read_with(
            format!("src,dst,{name}\n{rows}"),
            &with(|o| o.time_format = Some("s".parse().unwrap())),
        );
        assert!(!has_note(&seconds.unwrap(), "dates"));
    }
    let e = read("src,dst,t\n1,2,201501\n2,1,201501\n").unwrap();
    assert_note(&e, "`201501` is read as a number; if it is a date, give --time-format %Y%m");
    for text in
        ["src,dst,t\n1,2,1600000015\n", "src,dst,date\n1,2,20200131\n2,1,20200132\n", "1 2 1990\n2 1 1991\n"]
    {
        assert!(!has_note(&read(text).unwrap(), "date"), "{text}");
    }
    let late = rows("src,dst,date\n", |i| format!("1,2,202001{:02}", 1 + i % 28));
    let said = fault(
        late.clone() + &rows("", |_| "1,2,20200110".into()).repeat(2) + "1,2,20201399\n",
        &ReadOptions::default(),
    );
    assert!(
        said.contains("is not a time; write times in the format %Y%m%d, or give --time-format s"),
        "{said}"
    );
}

#[test]
fn among_numbers_a_word_is_a_missing_id_and_not_a_node() {
    for word in ["nan", "NULL", "None", "NA", "NaN"] {
        let text = rows("src,dst,time\n", |i| match i {
            0 => format!("{word},7,0"),
            i => format!("{}.0,{},{i}", i % 5, 10 + i % 3),
        });
        let said = fault(&text, &ReadOptions::default());
        let wanted =
            format!("events.csv:2:1: `{word}` is not a node id among numbers; fill it in, or leave out such");
        assert!(said.starts_with(&wanted), "{said}");
        let e = read_with(&text, &with(|o| o.missing = "drop".parse().unwrap())).unwrap();
        assert_eq!((e.len(), Stats::new(&e).sources), (39, 5));
        assert_note(&e, "left out 1 row with a missing value");
        let names = text.replace(".0,", "x,");
        assert_eq!(Stats::new(&read(names).unwrap()).sources, 6);
    }
    let text = rows("src,dst,time\n", |i| format!("{},{},{i}", if i % 10 == 0 { -1 } else { 1 }, 10 + i % 3));
    assert_note(
        &read(&text).unwrap(),
        "4 ids `-1` among ids from 0: if that means a missing node, --missing drop",
    );
    assert_eq!(read_with(&text, &with(|o| o.missing = "drop".parse().unwrap())).unwrap().len(), 36);
}

#[test]
fn a_number_in_two_notations_is_one_node_or_is_told() {
    let text = rows("src,dst,time\n", |i| match i {
        7 => "1e+05,3,7".into(),
        8 => "+25,\u{a0}3\u{a0},8".into(),
        i => format!("{},3,{i}", if i % 2 == 0 { 100_000 } else { 25 }),
    });
    let e = read(&text).unwrap();
    assert_eq!((Stats::new(&e).sources, e.ids.unwrap().numbers().map(<[u64]>::len)), (2, Some(3)));
    for (odd, plain) in [("007", "7"), ("\"1,025\"", "1025")] {
        let e = read(rows("src,dst,time\n", |i| format!("{},x{i},{i}", if i == 30 { odd } else { plain })))
            .unwrap();
        assert_note(
            &e,
            "are different nodes, although they are the same number (1 such number); write ids in one way",
        );
    }
    assert!(!has_note(&read("src,dst,time\n007,008,1\n008,007,2\n").unwrap(), "same number"));
}

#[test]
fn any_delimiter_is_recognised_or_given() {
    for text in [
        "u|i|t|label\n1|2|3|0\n2|1|4|0\n",
        "sep=;\nu;i;t;label\n1;2;3;0\n2;1;4;0\n",
        "u\ti\tt\tlabel\tnote, free\n1\t2\t3\t0\ta, b\n2\t1\t4\t0\tc\n",
        "u::i::t::label\n1::2::3::0\n2::1::4::0\n",
    ] {
        let e = read(text).unwrap();
        assert_eq!(
            (e.src.to_vec(), e.dst.to_vec(), e.time.to_vec()),
            (vec![0, 1], vec![1, 0], vec![0, 1]),
            "{text}"
        );
    }
    let e = read(rows("", |i| format!("{}::{}::{}::{}", i % 7, i % 5, i % 4, 1_600_000_000 + i))).unwrap();
    assert_eq!((e.len(), e.edge_width()), (40, 1));
    assert_note(
        &e,
        "read as source, destination, rating, time; if users and items are numbered separately, give --bip",
    );
    let given = |text: &str| with(|o| o.delimiter = Some(text.parse().unwrap()));
    let e = read_with("u~~i~~t\n1~~2~~3\n", &given("~~")).unwrap();
    assert_eq!((e.src.to_vec(), e.dst.to_vec()), (vec![0], vec![1]));
    let said = fault("u~i~t\n1~2~3\n", &ReadOptions::default());
    assert!(
        said.starts_with("events.csv: there is only one column: `u~i~t`; give what separates its"),
        "{said}"
    );
    let said = fault("1~2~3\n2~1~4\n", &ReadOptions::default());
    assert!(
        said.starts_with("events.csv: there is only one column: `1~2~3`; give what separates its"),
        "{said}"
    );
    for (name, text) in [("a.jsonl", "{\"src\":1,\"dst\":2,\"time\":3}\n"), ("src.npy", "")] {
        let (dir, path) = write(name, text);
        fs::write(dir.path().join("dst.npy"), "").unwrap();
        fs::write(dir.path().join("time.npy"), "").unwrap();
        let path = if text.is_empty() { dir.path().to_str().unwrap() } else { &path };
        let e = load(path, &given(";")).unwrap_err().to_string();
        assert!(e.contains("leave out --delimiter"), "{e}");
    }
}

#[test]
fn a_file_that_is_no_table_says_what_it_is() {
    let utf_16: Vec<u8> = "src,dst,time\n1,2,3\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let marked = [b"\xff\xfe".to_vec(), utf_16.clone()].concat();
    for (content, said) in [
        (marked, "is text in UTF-16; save it as UTF-8"),
        (utf_16, "is text in UTF-16; save it as UTF-8"),
        (
            b"BZh91AY&SY\x00\xff".to_vec(),
            "is compressed by bzip2; unpack it by bunzip2, or compress it by gzip",
        ),
        (b"\xfd7zXZ\0\0\x04".to_vec(), "is compressed by xz; "),
        (b"PK\x03\x04\0\0".to_vec(), "is a zip archive, or an Excel workbook; "),
        (
            b"[{\"src\":1,\"dst\":2,\"time\":3}]".to_vec(),
            "is a JSON array; write one object per line, in pandas by ",
        ),
        (b"src,dst,time\r1,2,3\r2,1,4\r".to_vec(), "ends its lines like an old Mac, in CR only; convert it"),
        (b"<!DOCTYPE html>\n<html>".to_vec(), "is a page of the web; "),
    ] {
        let text = fault(&content, &ReadOptions::default());
        assert!(text.starts_with(&format!("events.csv: {said}")), "{text}");
    }
    assert_eq!(read("BZh,ORC,1\nORC,BZh,2\n").unwrap().id(0), NodeId::parse("BZh"));
    let said = fault("src;dst;time;f0\n1;2;3;0,5\n", &ReadOptions::default());
    assert!(said.starts_with("events.csv:2:7: `0,5` is not a feature; write 0.5, not 0,5: "), "{said}");
}

#[test]
fn values_in_json_that_are_no_ids_are_refused_by_their_type() {
    let line = |id: &str, i: u64| format!("{{\"user\": {id}, \"item\": {i}, \"time\": {i}}}");
    for (id, said) in [
        (
            "[\"a\"]",
            "`user`: a value of type list of other things than numbers is not a node id; save the column as",
        ),
        (
            "{\"id\": 3}",
            "`user`: a value of type object is not a node id; save the column as text or numbers",
        ),
        (
            "36893488147419103232",
            "`user`: `36893488147419103000` is too large for a node id; save ids as integers or text",
        ),
        ("[1, 2]", "`user`: a list of 2 numbers is not a node id; save the column as text or numbers"),
    ] {
        for first in [0, 3] {
            let text = rows("", |i| line(if i >= first { id } else { "7" }, i));
            let text = fault(text, &ReadOptions::default());
            assert!(text.starts_with(&format!("events.csv:{}: {said}", first + 1)), "{text}");
        }
        let text = rows("", |i| format!("{{\"user\": 1, \"item\": 2, \"time\": {i}, \"cat\": {id}}}"));
        for how in ["one-hot=cat", "hashed=cat:8"].into_iter().filter(|_| !id.starts_with('3')) {
            let text = fault(&text, &columns(how));
            assert!(text.starts_with("events.csv:1: `cat`: a ") && text.contains(" is not "), "{text}");
        }
    }
}

#[test]
fn implausible_events_are_told() {
    let text = |i: u64| 1_600_000_000 + 60 * i;
    let mixed =
        read(rows("src,dst,time\n", |i| format!("1,2,{}", text(i) * if i % 2 == 0 { 1000 } else { 1 })));
    assert_note(&mixed.unwrap(), "50.7 years later: is a time in a wrong unit, mistyped, or missing?");
    let far = read(rows("src,dst,time\n", |i| format!("1,{},{}", i % 3, i * 1_000_000_000))).unwrap();
    assert_note(&far, "the times span 1235.8 years: a wrong unit? give it, such as --time-format ms");
    let equal = read(rows("src,dst,time\n", |i| format!("1,{},5", i % 3))).unwrap();
    assert_note(
        &equal,
        "all events have one time, 5: they cannot be divided into training, validation and test",
    );
    assert_note(
        &read(rows("src,dst,time\n", |i| format!("{i},7,{i}"))).unwrap(),
        "all events have one destination, so",
    );
    let wei =
        read(rows("src,dst,time,value\n", |i| format!("1,{},{i},{i}000000000000000000", i % 3))).unwrap();
    assert_note(&wei, "features of `value` are as large as 3.9e19, which models hardly learn from");
    let kinds = read(rows("", |i| format!("{} {} {i}", 1 + i % 20, 1 + i % 12))).unwrap();
    assert_note(
        &kinds,
        "sources have the ids up to 20, destinations up to 12: if equal ids are different nodes",
    );
    let typed = |kind: &str| {
        let text =
            rows("src_type,src,dst_type,dst,time\n", |i| format!("user,{},{kind},{},{i}", i % 9, i % 5));
        read(text).unwrap()
    };
    assert_eq!((typed("item").nodes, typed("user").nodes), (14, 9));
    assert_note(
        &typed("item"),
        "sources are other nodes than destinations with equal ids; --bipartite=false says",
    );
    assert_note(
        &typed("user"),
        "`src_type` and `dst_type` are not read: nodes of different types with equal ids",
    );
}

#[test]
fn copies_of_events_and_of_files_are_told() {
    let e =
        read("src,dst,time,f0\n1,2,3,0.5\n1,2,3,0.5\n1,2,3,0.25\n2,1,3,0.5\n1,2,3,0.5\n1,2,4,0.5\n").unwrap();
    assert_eq!(Stats::new(&e).duplicates, 2);
    let (dir, _) = write("events_3.csv", "src,dst,time\n1,2,3\n");
    fs::write(dir.path().join("events_3 (copy).csv"), "src,dst,time\n1,2,3\n").unwrap();
    fs::write(dir.path().join("events_4.csv"), "src,dst,time\n1,2,4\n").unwrap();
    let e = load(dir.path().to_str().unwrap(), &ReadOptions::default()).unwrap();
    assert_note(&e, "has the same content as events_3");
    assert_eq!((e.len(), Stats::new(&e).duplicates), (3, 1));
}
