//! The client against a server in a thread that answers as memcached does, in pieces that cut answers anywhere.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};

use super::*;
use iosonde_harness::Code;
use iosonde_protocol::Direction;
use serde_json::Value;

type Records = Arc<Mutex<HashMap<String, Vec<u8>>>>;

struct Server {
    directory: tempfile::TempDir,
    records: Records,
}

impl Server {
    /// Serves connections until the process ends; sends answers in pieces of that many bytes.
    fn start(piece: usize) -> Server {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("socket")).unwrap();
        let records = Records::default();
        let shared = records.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let records = shared.clone();
                std::thread::spawn(move || serve(stream.unwrap(), &records, piece));
            }
        });
        Server { directory, records }
    }

    fn place(&self) -> Place {
        Place::Socket {
            path: self.directory.path().join("socket"),
        }
    }

    fn open(&self, connections: u64) -> Box<dyn Store> {
        let options = BTreeMap::from([("connections".to_owned(), connections.into())]);
        let opener = Settings::read(&options).unwrap();
        opener.check(&self.place(), &DEMANDS).unwrap();
        opener.open(&self.place(), &DEMANDS).unwrap()
    }
}

const DEMANDS: Demands = Demands {
    key_bytes_max: 20,
    value_bytes_max: 1_000_000,
    sessions: 1,
};

fn serve(stream: UnixStream, records: &Records, piece: usize) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
        let answer = respond(&line, &mut reader, records);
        line.clear();
        match answer {
            None => return,
            Some(answer) => {
                let mut stream = &stream;
                answer.chunks(piece).for_each(|part| stream.write_all(part).unwrap());
            }
        }
    }
}

/// The answer to one request; `None` closes the connection.
fn respond(line: &str, reader: &mut impl Read, records: &Records) -> Option<Vec<u8>> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut records = records.lock().unwrap();
    Some(match words[..] {
        ["version"] => b"VERSION 1.6.18\r\n".to_vec(),
        ["mn"] => b"MN\r\n".to_vec(),
        ["stats"] => b"STAT version 1.6.18\r\nSTAT bytes 1000\r\nSTAT extstore_bytes_used 234\r\nEND\r\n".to_vec(),
        ["mg", key, "v"] => match records.get(key) {
            Some(value) => [format!("VA {}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat(),
            None => b"EN\r\n".to_vec(),
        },
        ["md", key, "q"] => match records.remove(key) {
            Some(_) => Vec::new(),
            // memcached 1.6.18 answers this in quiet mode too.
            None => b"NF\r\n".to_vec(),
        },
        ["ms", key, size, ..] => {
            let mut value = vec![0; size.parse::<usize>().unwrap() + 2];
            reader.read_exact(&mut value).unwrap();
            value.truncate(value.len() - 2);
            match &value[..] {
                b"vanish" => return None,
                b"too large" => b"SERVER_ERROR object too large for cache\r\n".to_vec(),
                _ => {
                    records.insert(key.to_owned(), value);
                    Vec::new()
                }
            }
        }
        _ => b"ERROR\r\n".to_vec(),
    })
}

fn key(number: u64) -> Vec<u8> {
    [&number.to_be_bytes()[..], &[b'0'; 12]].concat()
}

fn value(number: u64) -> Vec<u8> {
    vec![number as u8; (number * number) as usize]
}

#[test]
fn records_are_set_read_back_and_deleted() {
    let server = Server::start(3);
    let store = server.open(1);
    let mut session = store.session().unwrap();
    assert_eq!(session.get(&key(1)).unwrap(), None);
    session.put(&key(1), b"one").unwrap();
    session.put(&key(2), &value(200)).unwrap();
    session.commit(false).unwrap();
    assert_eq!(session.get(&key(1)).unwrap(), Some(&b"one"[..]));
    assert_eq!(session.get(&key(2)).unwrap(), Some(&value(200)[..]));
    // Most of them are not there, which is no error.
    for number in [0, 1, 3, 4] {
        session.delete(&key(number)).unwrap();
    }
    session.commit(false).unwrap();
    assert_eq!(session.get(&key(1)).unwrap(), None);
    session.commit(false).expect("an empty write is no error");
    assert!(server.records.lock().unwrap().contains_key("00000000000000020000"));
}

#[test]
fn gets_on_several_connections_return_each_key_its_own_value() {
    for (connections, piece, gets) in [(1, 7, 100), (3, 5, 100), (8, 1 << 20, 3), (4, 1 << 20, 64)] {
        let server = Server::start(piece);
        let store = server.open(connections);
        let mut session = store.session().unwrap();
        (0..gets)
            .filter(|number| number % 3 > 0)
            .for_each(|number| session.put(&key(number), &value(number)).unwrap());
        session.commit(false).unwrap();
        for _ in 0..2 {
            gets_are_answered(&mut *session, connections, gets);
        }
    }
}

fn gets_are_answered(session: &mut dyn Session, connections: u64, gets: u64) {
    assert_eq!(session.connections() as u64, connections);
    let of_connection = |connection| (0..gets).filter(|number| number % connections == connection).collect();
    let numbers: Vec<Vec<u64>> = (0..connections).map(of_connection).collect();
    let mut arrived: Vec<Vec<u32>> = numbers.iter().map(|numbers| vec![0; numbers.len()]).collect();
    for (connection, numbers) in numbers.iter().enumerate() {
        let mut keys = Keys::default();
        numbers.iter().for_each(|number| keys.add(&key(*number)));
        session.send_gets(connection, &keys).unwrap();
    }
    while arrived.iter().flatten().any(|count| *count == 0) {
        let mut count = |connection: usize, places: std::ops::Range<usize>| {
            arrived[connection][places].iter_mut().for_each(|count| *count += 1)
        };
        session.receive_answers(&mut count).unwrap();
    }
    // Each answer arrives once.
    assert!(arrived.iter().flatten().all(|count| *count == 1));
    for (connection, numbers) in numbers.iter().enumerate() {
        for (place, number) in numbers.iter().enumerate() {
            let expected = (number % 3 > 0).then(|| value(*number));
            assert_eq!(session.answer(connection, place), expected.as_deref());
        }
    }
}

#[test]
fn more_writes_than_fit_into_a_socket_are_sent_in_parts_and_a_refused_value_is_an_error() {
    let server = Server::start(1 << 20);
    let store = server.open(2);
    let mut session = store.session().unwrap();
    (0..1000).for_each(|number| session.put(&key(number), b"x").unwrap());
    session.commit(false).unwrap();
    assert_eq!(server.records.lock().unwrap().len(), 1000);
    session.put(&key(1), b"too large").unwrap();
    let error = session.commit(false).unwrap_err();
    assert_eq!(error.code, Code::StoreError);
    assert!(error.message.ends_with("object too large for cache"), "{error}");
    assert!(error.hint.contains("max-item-size"), "{}", error.hint);
}

#[test]
fn a_server_that_goes_away_or_was_never_there_is_an_error() {
    let server = Server::start(1 << 20);
    let store = server.open(1);
    let mut session = store.session().unwrap();
    session.put(&key(1), b"vanish").unwrap();
    assert_eq!(session.commit(false).unwrap_err().code, Code::ServerVanished);
    let nowhere = Place::Socket {
        path: server.directory.path().join("nowhere"),
    };
    let opener = Settings::read(&BTreeMap::new()).unwrap();
    let error = opener.open(&nowhere, &DEMANDS).err().expect("there is no server");
    assert_eq!(error.code, Code::ConnectionRefused);
}

#[test]
fn directories_scans_and_large_keys_are_unsupported() {
    let opener = Settings::read(&BTreeMap::new()).unwrap();
    let mut large = DEMANDS;
    large.key_bytes_max = 251;
    let server = Server::start(10);
    let store = server.open(1);
    let mut session = store.session().unwrap();
    let mut keys = Keys::default();
    (0..=GETS_MAX as u64).for_each(|number| keys.add(&key(number)));
    for refused in [
        opener.check(&Place::Virtual, &DEMANDS),
        opener.check(&server.place(), &large),
        session.seek(None, Direction::Forward),
        session.next().map(|_| ()),
        session.send_gets(0, &keys),
    ] {
        assert_eq!(refused.unwrap_err().code, Code::Unsupported);
    }
}

#[test]
fn options_are_read_by_their_names_and_used_memory_is_that_of_all_storage() {
    let read = |name: &str, value: Value| Settings::read(&BTreeMap::from([(name.to_owned(), value)]));
    assert_eq!(read("connections", 16.into()).unwrap().connections, 16);
    assert_eq!(read("ttl_s", 60.into()).unwrap().ttl_s, 60);
    assert!(read("connections", 0.into()).is_err());
    assert!(read("ttl_s", (TTL_MAX_S + 1).into()).is_err());
    assert!(read("connection", 1.into()).unwrap_err().hint.contains("`connections`"));
    let server = Server::start(10);
    let store = server.open(1);
    assert_eq!(store.used_bytes(), Some(1234));
    assert_eq!(store.about().unwrap().version, "1.6.18");
    assert_eq!(store.durability(true), StoreDurability::Nothing);
}
