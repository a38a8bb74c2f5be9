//! Tests with pickles that Python wrote, with damaged ones, and with hand-written ones.
use super::*;
use crate::scalar::Scalar;
use proptest::prelude::*;
use std::fs;

/// Pickles of TGB in protocols 2, 4 and 5.
const WRITTEN: [&str; 3] = [
    "../../tests/golden/foreign/tgbl_uci/tgbl-uci_val_ns.pkl",
    "../../tests/golden/foreign/tgbl_coin/tgbl-coin_val_ns_v2.pkl",
    "../../tests/golden/foreign/tgbl_wiki/tgbl-wiki_val_ns_v2.pkl",
];

fn read(bytes: &[u8]) -> Result<Pickle<'_>> {
    Pickle::read(Path::new("x.pkl"), bytes, 0)
}

/// Reads all keys and lists of a pickle of TGB, and returns the total length of the lists.
fn walk(pickle: &Pickle<'_>) -> Result<usize> {
    let entries = pickle.entries(pickle.root).unwrap_or_default();
    let lists = entries.iter().map(|&(key, list)| {
        let _ = pickle.members(key).map(|key| key.iter().map(|&v| pickle.whole(v)).collect::<Vec<_>>());
        Ok(pickle.numbers(list)?.iter().len())
    });
    lists.sum()
}

#[test]
fn plain_values_of_every_kind_are_read() {
    // [None, True, -2, 300, 70000, -5 (long), 1.5, 'é', b'\0', (1,), {'a': []}]
    let bytes =
        b"\x80\x03](N\x88J\xfe\xff\xff\xffM\x2c\x01J\x70\x11\x01\x00\x8a\x01\xfbG\x3f\xf8\0\0\0\0\0\0\
                  X\x02\0\0\0\xc3\xa9C\x01\0K\x01\x85}X\x01\0\0\0a]se.";
    let pickle = read(bytes).unwrap();
    let members = pickle.members(pickle.root).unwrap();
    use Value::*;
    assert_eq!(
        members[..9],
        [None, Bool(true), Int(-2), Int(300), Int(70000), Int(-5), Float(1.5), Text("é"), Bytes(b"\0")]
    );
    assert_eq!(pickle.members(members[9]).unwrap(), [Int(1)]);
    let &[(Text("a"), list)] = pickle.entries(members[10]).unwrap() else { panic!("{pickle:?}") };
    assert_eq!((pickle.members(list), pickle.end), (Some(&[][..]), bytes.len()));
}

#[test]
fn values_of_binput_and_memoize_are_recalled() {
    // (t, t) where t = (7, 8), first with BINPUT, then with MEMOIZE.
    for bytes in [&b"\x80\x02(K\x07K\x08\x86q\x05h\x05t."[..], b"\x80\x04(K\x07K\x08\x86\x94h\0t."] {
        let pickle = read(bytes).unwrap();
        let &[a, b] = pickle.members(pickle.root).unwrap() else { panic!("{pickle:?}") };
        assert_eq!((a, pickle.members(a).unwrap()), (b, &[Value::Int(7), Value::Int(8)][..]));
    }
}

#[test]
fn a_call_is_stored_and_never_made() {
    let bytes = b"\x80\x02cos\nsystem\nX\x02\0\0\0ls\x85R.";
    let pickle = read(bytes).unwrap();
    let (call, arguments) = pickle.call(pickle.root).unwrap();
    assert_eq!((call.function, arguments), (("os", "system"), &[Value::Text("ls")][..]));
    let e = pickle.numbers(pickle.root).unwrap_err().to_string();
    assert!(e.starts_with("x.pkl: byte 21: this is not an array of numbers; "), "{e}");
}

#[test]
fn numpys_old_module_names_are_known() {
    let bytes = fs::read(WRITTEN[0]).unwrap();
    let text: String = bytes.iter().map(|&b| char::from(b)).collect();
    let old: Vec<u8> = text.replace("cnumpy._core.", "cnumpy.core.").chars().map(|c| c as u8).collect();
    assert!(old.len() < bytes.len());
    let (old, new) = (read(&old).unwrap(), read(&bytes).unwrap());
    assert!(walk(&new).unwrap() > 0);
    assert_eq!(walk(&old).unwrap(), walk(&new).unwrap());
}

#[test]
fn an_array_must_fill_its_shape_and_hold_numbers() {
    let bytes = fs::read(WRITTEN[2]).unwrap();
    let at = bytes.windows(2).position(|w| w == b"f8").unwrap();
    for (with, expected) in [(b"f4", "values has"), (b"O8", "not an array of numbers")] {
        let mut damaged = bytes.clone();
        damaged[at..at + 2].copy_from_slice(with);
        let e = walk(&read(&damaged).unwrap()).unwrap_err().to_string();
        assert!(e.starts_with("x.pkl: byte ") && e.contains(expected), "{e}");
    }
    let pickle = read(b"\x80\x02](K\x07J\xff\xff\xff\xffe.").unwrap();
    let numbers: Vec<Scalar> = pickle.numbers(pickle.root).unwrap().iter().collect();
    assert_eq!(numbers, [Scalar::Int(7), Scalar::Int(-1)]);
}

#[test]
fn a_pickle_cut_short_anywhere_is_an_error_that_names_the_byte() {
    for file in WRITTEN {
        let bytes = fs::read(file).unwrap();
        assert!(walk(&read(&bytes).unwrap()).unwrap() > 0, "{file} has no negatives");
        for n in 0..bytes.len() {
            let e = read(&bytes[..n]).unwrap_err().to_string();
            assert_eq!(e, format!("x.pkl: byte {n}: the pickle is cut short; fetch or write the file again"));
        }
    }
}

#[test]
fn invalid_or_unsupported_opcodes_are_errors_that_name_the_byte() {
    for (bytes, expected) in [
        (&b"world"[..], "byte 0: opcode 0x77 is not supported"),
        (b"\x80\x06N.", "byte 0: protocol 6 is not supported"),
        (b"\x80\x02I7\n.", "byte 2: opcode 0x49 is not supported"),
        (b"\x80\x02.", "byte 2: the stack has no value for this opcode"),
        (b"\x80\x02K\x01\x86.", "byte 4: the stack has no value"),
        (b"\x80\x02t.", "byte 2: there is no mark"),
        (b"\x80\x02K\x01(0.", "byte 5: the stack has no value"),
        (b"\x80\x02h\x00.", "byte 2: a memo key is read before it is written"),
        (b"\x80\x02K\x01K\x02a.", "byte 6: there is no list to append to"),
        (b"\x80\x02K\x01K\x02K\x03s.", "byte 8: there is no dictionary to add to"),
        (b"\x80\x02}(K\x01u.", "byte 6: a key has no value"),
        (b"\x80\x02K\x01)R.", "byte 5: a call lacks its function"),
        (b"\x80\x02K\x01Nb.", "byte 5: there is no object to give a state"),
        (b"\x80\x02K\x01Q.", "byte 4: a persistent id is not a tuple"),
        (b"\x80\x04K\x01K\x02\x93.", "byte 6: the module or name of a global is not a string"),
        (b"\x80\x02X\x01\0\0\0\xff.", "byte 2: a string is not valid UTF-8"),
        (b"\x80\x04\x94.", "byte 2: there is no value to memoize"),
        // Lengths beyond the end of the file.
        (b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\xff.", "byte 12: the pickle is cut short"),
        (b"\x80\x04B\xff\xff\xff\xff.", "byte 8: the pickle is cut short"),
    ] {
        let e = read(bytes).map(|p| p.root).unwrap_err().to_string();
        assert!(e.starts_with(&format!("x.pkl: {expected}")), "{e}");
    }
}

proptest! {
    #[test]
    fn no_damage_panics(
        file in 0usize..3, changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = fs::read(WRITTEN[file]).unwrap();
        for (at, with) in changes {
            let at = at.index(bytes.len());
            bytes[at] = with;
        }
        let _ = read(&bytes).and_then(|pickle| walk(&pickle));
    }

    #[test]
    fn no_opcodes_panic(
        codes in proptest::collection::vec(prop::sample::select(&b"(.01N\x88JKM\x8aGUCX\x8c]lae)t\x85\x86}dsu\x93RbQqh\x94"[..]), 0..60),
    ) {
        let mut bytes = b"\x80\x04".to_vec();
        for code in codes {
            bytes.push(code);
            bytes.extend_from_slice(&[1, 0, 0, 0][..usize::from(b"KCUqh\x8c\x8a".contains(&code))]);
        }
        let _ = read(&bytes).and_then(|pickle| walk(&pickle));
    }
}
