//! The behaviour that every store must have, as one test for all of them.

use std::path::Path;

use iosonde_harness::RunError;
use iosonde_protocol::{Direction, StoreDurability};

use crate::store::{Demands, Opener, Place, Session, Store};

/// The requirements of the contract.
pub const DEMANDS: Demands = Demands {
    key_bytes_max: 16,
    value_bytes_max: 4000,
    sessions: 4,
};

/// Opens a database at an empty place and verifies everything that the workload relies on.
///
/// # Panics
/// When the store behaves differently.
pub fn verify(opener: &dyn Opener, place: &Place) {
    opener.check(place, &DEMANDS).expect("the store supports the place");
    let store = opener.open(place, &DEMANDS).expect("an empty place is opened");
    store.set_sync(false).expect("durability can be chosen");
    assert!(store.durability(true) >= store.durability(false));
    let mut session = store.session().expect("a session is created");
    records_are_read_back(&mut *session);
    iterators_go_both_ways(&mut *session);
    writes_are_visible_to_other_sessions(&*store, &mut *session);
    drop(session);
    store.flush().expect("it flushes");
    while store.is_busy() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let about = store.about().expect("it reports its options");
    assert!(!about.version.is_empty());
    assert!(!about.options.is_empty());
    assert!(!store.statistics().is_empty());
    store.close().expect("it closes");
    let store = opener.open(place, &DEMANDS).expect("it opens again");
    let mut session = store.session().expect("a session is created");
    assert_eq!(session.get(b"d").unwrap(), Some(&b"4"[..]), "records survive closing");
}

/// A directory with the log in it.
pub fn directory(path: &Path) -> Place {
    Place::Directory {
        path: path.into(),
        log: None,
        read_cache: None,
    }
}

/// A directory with the log in another.
pub fn log_apart(path: &Path, log: &Path) -> Place {
    Place::Directory {
        path: path.into(),
        log: Some(log.into()),
        read_cache: None,
    }
}

/// A block device, which is never opened.
pub fn device(bytes: u64) -> Place {
    Place::Device {
        path: "/dev/null".into(),
        bytes,
    }
}

/// Opens the store in a directory.
pub fn opened(opener: &dyn Opener, path: &Path) -> Box<dyn Store> {
    opener.open(&directory(path), &DEMANDS).expect("it opens")
}

/// The error with which a place is refused before it is opened.
pub fn refusal(opener: &dyn Opener, place: &Place) -> RunError {
    opener.check(place, &DEMANDS).expect_err("it is refused")
}

/// What survives after writes with and without sync.
pub fn durability(store: &dyn Store) -> [StoreDurability; 2] {
    [store.durability(true), store.durability(false)]
}

/// Files of a directory whose name contains this.
pub fn files_named(path: &Path, part: &str) -> usize {
    let entries = std::fs::read_dir(path).expect("a directory").flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains(part)).count()
}

fn records_are_read_back(session: &mut dyn Session) {
    assert_eq!(session.get(b"a").unwrap(), None);
    session.release();
    session.put(b"a", b"1").unwrap();
    session.commit(false).unwrap();
    assert_eq!(session.get(b"a").unwrap(), Some(&b"1"[..]));
    session.release();
    let large = vec![7; 4000];
    session.put(b"a", &large).unwrap();
    session.put(b"b", b"2").unwrap();
    session.delete(b"never").unwrap();
    session.commit(true).unwrap();
    assert_eq!(session.get(b"a").unwrap(), Some(&large[..]));
    session.release();
    session.delete(b"a").unwrap();
    session.commit(false).unwrap();
    assert_eq!(session.get(b"a").unwrap(), None);
    session.release();
    session.commit(false).expect("an empty write is no error");
}

fn found(session: &mut dyn Session, key: Option<&[u8]>, direction: Direction) -> String {
    session.seek(key, direction).unwrap();
    let mut keys = String::new();
    while let Some((key, value)) = session.next().unwrap() {
        assert_eq!(value.len(), 1);
        keys.push(char::from(key[0]));
    }
    assert!(session.next().unwrap().is_none(), "no record follows the last one");
    session.release();
    keys
}

/// Records b, d, f; iterators start at, between, before and beyond them.
fn iterators_go_both_ways(session: &mut dyn Session) {
    for (key, value) in [(b"d", b"4"), (b"f", b"6")] {
        session.put(key, value).unwrap();
    }
    session.commit(false).unwrap();
    for (from, forward, reverse) in [
        (None, "bdf", "fdb"),
        (Some(&b"d"[..]), "df", "db"),
        (Some(b"c"), "df", "b"),
        (Some(b"a"), "bdf", ""),
        (Some(b"z"), "", "fdb"),
    ] {
        assert_eq!(
            found(session, from, Direction::Forward),
            forward,
            "forward from {from:?}"
        );
        assert_eq!(
            found(session, from, Direction::Reverse),
            reverse,
            "reverse from {from:?}"
        );
    }
}

fn writes_are_visible_to_other_sessions(store: &dyn Store, session: &mut dyn Session) {
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let mut writer = store.session().unwrap();
            writer.put(b"x", b"9").unwrap();
            writer.commit(false).unwrap();
        });
        writing.join().unwrap();
    });
    assert_eq!(session.get(b"x").unwrap(), Some(&b"9"[..]));
    session.release();
}
