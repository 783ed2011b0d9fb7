//! Operations on a server in this test: requests, responses in parts, errors, closed connections.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use super::*;

type Objects = Arc<Mutex<HashMap<String, Vec<u8>>>>;

fn insert(objects: &Objects, name: &str, content: &[u8]) {
    let path = format!("/bucket/{name}");
    objects.lock().unwrap().insert(path, content.to_vec());
}

/// Behaviour of a server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Each response at once, on a connection that stays open.
    Plain,
    /// Each response byte by byte, and the connection is closed after it.
    InParts,
    /// No length.
    Chunked,
    Denies,
    /// Each response at once, after which the connection is closed without notice.
    ClosesSilently,
    /// As `ClosesSilently`, with a response that no request asked for.
    TimesOut,
    /// The connection is closed instead of an answer.
    Vanishes,
    /// Never.
    Silent,
}

fn server(manner: Manner) -> (SocketAddr, Objects) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let objects = Objects::default();
    let shared = objects.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, objects) = (stream.unwrap(), shared.clone());
            thread::spawn(move || serve(stream, &objects, manner));
        }
    });
    (address, objects)
}

fn serve(stream: TcpStream, objects: &Objects, manner: Manner) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    loop {
        let lines = reader.by_ref().lines().map_while(Result::ok);
        let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
        if head.is_empty() {
            return;
        }
        let field = |name: &str| head.iter().find_map(|line| line.strip_prefix(name)).expect(name);
        let mut body = vec![0; field("content-length: ").parse().unwrap()];
        reader.read_exact(&mut body).unwrap();
        field("authorization: AWS4-HMAC-SHA256 ");
        let mut words = head[0].split(' ');
        let (method, path) = (words.next().unwrap(), words.next().unwrap().to_owned());
        let mut stored = objects.lock().unwrap();
        let (status, answer) = match (manner, method) {
            (Manner::Denies, _) => ("403 Forbidden", b"<Error/>".to_vec()),
            (_, "PUT") => {
                stored.insert(path, body);
                ("200 OK", vec![])
            }
            (_, "DELETE") => {
                stored.remove(&path);
                ("204 No Content", vec![])
            }
            _ => match stored.get(&path) {
                Some(found) => ("200 OK", found.clone()),
                None => ("404 Not Found", b"<Error><Code>NoSuchKey</Code></Error>".to_vec()),
            },
        };
        drop(stored);
        let length = match manner {
            Manner::Chunked => "transfer-encoding: chunked\r\n".to_owned(),
            _ if status.starts_with("204") => String::new(),
            _ => format!("Content-Length: {}\r\n", answer.len()),
        };
        let close = ["", "connection: close\r\n"][usize::from(manner == Manner::InParts)];
        let mut response = format!("HTTP/1.1 {status}\r\nserver: test\r\n{length}{close}\r\n").into_bytes();
        response.extend_from_slice(&answer);
        if !respond(&mut stream, manner, &response) {
            return;
        }
    }
}

/// Sends a response; whether the connection stays open.
fn respond(stream: &mut TcpStream, manner: Manner, response: &[u8]) -> bool {
    match manner {
        Manner::Vanishes => return false,
        Manner::Silent => thread::park(),
        Manner::InParts => response.iter().for_each(|byte| stream.write_all(&[*byte]).unwrap()),
        _ => stream.write_all(response).unwrap(),
    }
    if manner == Manner::TimesOut {
        thread::sleep(Duration::from_millis(20));
        let unasked = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n";
        let _ = stream.write_all(unasked);
    }
    !matches!(manner, Manner::InParts | Manner::ClosesSilently | Manner::TimesOut)
}

fn store(address: SocketAddr, timeout_ns: u64) -> S3 {
    S3 {
        address,
        host: address.to_string(),
        bucket: "bucket".into(),
        signer: Signer::fixed(),
        timeout_ns,
        clock: Clock::start(),
    }
}

const LONG: u64 = 60_000_000_000;

fn finish(session: &mut dyn Session) -> Done {
    let mut done = Vec::new();
    while done.is_empty() {
        session.wait(LONG);
        session.reap(&mut done);
    }
    assert_eq!(done.len(), 1);
    done[0]
}

#[test]
fn objects_are_written_read_and_deleted() {
    for manner in [Manner::Plain, Manner::InParts] {
        let (address, objects) = server(manner);
        let store = store(address, LONG);
        let mut session = store.session(2, 100_000).unwrap();
        session.buffer(1).fill(7);
        session.write(1, 12).unwrap();
        assert_eq!(finish(session.as_mut()).result, 0);
        let stored = objects.lock().unwrap()["/bucket/iosonde-000000000012"].clone();
        assert_eq!(stored, vec![7; 100_000]);
        session.read(0, 12).unwrap();
        let done = finish(session.as_mut());
        assert_eq!((done.slot, done.result), (0, 100_000));
        assert!(session.buffer(0).iter().all(|byte| *byte == 7));
        session.delete(0, 12).unwrap();
        assert_eq!(finish(session.as_mut()).result, 0);
        session.read(0, 12).unwrap();
        assert_eq!(finish(session.as_mut()).result, -libc::ENOENT);
    }
}

/// A thread may lose its CPU between sending a request and looking for the answer.
#[test]
fn an_answer_that_arrives_while_a_request_is_started_is_not_lost() {
    let (address, objects) = server(Manner::Plain);
    insert(&objects, "iosonde-000000000001", &[5; 100]);
    let store = store(address, LONG);
    let mut session = store.open(1, 100).unwrap();
    for _ in 0..50 {
        let head = session.head("GET", &session.path(1), 0);
        session.slots[0].buffer.fill(0);
        session.begin(0, head, false).unwrap();
        thread::sleep(Duration::from_millis(1));
        assert_eq!(finish(&mut session).result, 100);
        assert_eq!(session.buffer(0), [5; 100]);
    }
}

#[test]
fn a_connection_that_the_server_closed_while_it_was_idle_is_opened_again() {
    for manner in [Manner::ClosesSilently, Manner::TimesOut] {
        let (address, _) = server(manner);
        let store = store(address, LONG);
        let mut session = store.open(1, 100).unwrap();
        for object in 0..3 {
            session.write(0, object).unwrap();
            assert_eq!(finish(&mut session).result, 0);
            while !session.slots[0].connection.is_closed() {
                thread::sleep(Duration::from_millis(1));
            }
        }
        session.read(0, 2).unwrap();
        assert_eq!(finish(&mut session).result, 100);
    }
}

#[test]
fn what_a_server_does_wrong_has_a_code_of_its_own() {
    for (manner, code) in [
        (Manner::Denies, "authentication"),
        (Manner::Vanishes, "server_vanished"),
        (Manner::Chunked, "unsupported"),
    ] {
        let (address, objects) = server(manner);
        insert(&objects, "created-by-iosonde", b"");
        let error = store(address, LONG).require_own_bucket().unwrap_err().to_failure();
        assert_eq!(error.code, code, "{}", error.message);
        assert!(error.message.contains(&address.to_string()));
    }
    let (address, objects) = server(Manner::Plain);
    let error = store(address, LONG).require_own_bucket().unwrap_err();
    assert_eq!(error.to_failure().code, "foreign_data");
    insert(&objects, "created-by-iosonde", b"iosonde");
    store(address, LONG).require_own_bucket().unwrap();
}

#[test]
fn an_operation_that_takes_longer_than_the_timeout_and_an_object_of_another_length_fail() {
    let (address, _) = server(Manner::Silent);
    let store = store(address, 1_000_000);
    let mut session = store.session(1, 100).unwrap();
    session.read(0, 1).unwrap();
    let mut done = Vec::new();
    while done.is_empty() {
        session.wait(1_000_000);
        session.reap(&mut done);
    }
    assert_eq!(store.explain(done[0].result).code, Code::Timeout);
    let (address, objects) = server(Manner::Plain);
    insert(&objects, "iosonde-000000000001", &[1; 50_000]);
    insert(&objects, "iosonde-000000000002", &[1; 10]);
    let store = self::store(address, LONG);
    let mut session = store.session(1, 100).unwrap();
    for (object, expected) in [(1, 0), (2, 10), (1, 0)] {
        session.read(0, object).unwrap();
        assert_eq!(finish(session.as_mut()).result, expected);
    }
}

#[test]
fn names_of_buckets_need_no_encoding_and_a_server_that_is_not_there_refuses_connections() {
    for bucket in ["", "ab", "a/b", "A-bucket", "a bucket", "../up"] {
        let endpoint = Endpoint {
            host: "127.0.0.1",
            port: 1,
            bucket,
            region: "us-east-1",
            timeout_ns: LONG,
        };
        let error = S3::connect(&endpoint, Clock::start()).err().expect("it is refused");
        assert_eq!(error.to_failure().context, "`store.bucket`", "{bucket}");
    }
    // Port 1 of loopback is reserved, and nothing listens there.
    let nobody = store(([127, 0, 0, 1], 1).into(), LONG);
    let error = nobody.require_own_bucket().unwrap_err();
    assert_eq!(error.to_failure().code, "connection_refused");
}
