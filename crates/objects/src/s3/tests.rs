//! Operations on a server in this test: requests, responses in parts, errors, closed connections.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use super::*;

type Objects = Arc<Mutex<HashMap<String, Vec<u8>>>>;

/// Behaviour of a server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Each response at once, on a connection that stays open.
    Plain,
    /// Each response byte by byte, and the connection is closed after it.
    InParts,
    /// No length.
    Chunked,
    /// Every request is denied.
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

/// Answers requests until the client closes the connection.
fn serve(stream: TcpStream, objects: &Objects, manner: Manner) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    loop {
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if line == "\r\n" {
                break;
            }
            head.push(line.trim_end().to_owned());
        }
        let length = head
            .iter()
            .find_map(|line| line.strip_prefix("content-length: "))
            .unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        reader.read_exact(&mut body).unwrap();
        assert!(
            head.iter()
                .any(|line| line.starts_with("authorization: AWS4-HMAC-SHA256 ")),
            "{head:?}"
        );
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
        let close = if manner == Manner::InParts {
            "connection: close\r\n"
        } else {
            ""
        };
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
        Manner::InParts => {
            for byte in response {
                stream.write_all(&[*byte]).unwrap();
            }
        }
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
        assert_eq!(
            objects.lock().unwrap()["/bucket/iosonde-000000000012"],
            vec![7; 100_000]
        );
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
    objects
        .lock()
        .unwrap()
        .insert("/bucket/iosonde-000000000001".into(), vec![5; 100]);
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
fn an_object_of_another_length_is_a_wrong_one() {
    let (address, objects) = server(Manner::Plain);
    objects
        .lock()
        .unwrap()
        .insert("/bucket/iosonde-000000000001".into(), vec![1; 50_000]);
    objects
        .lock()
        .unwrap()
        .insert("/bucket/iosonde-000000000002".into(), vec![1; 10]);
    let store = store(address, LONG);
    let mut session = store.session(1, 100).unwrap();
    for (object, expected) in [(1, 0), (2, 10), (1, 0)] {
        session.read(0, object).unwrap();
        assert_eq!(finish(session.as_mut()).result, expected);
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
        objects
            .lock()
            .unwrap()
            .insert("/bucket/created-by-iosonde".into(), vec![]);
        let error = store(address, LONG).require_own_bucket().unwrap_err().to_failure();
        assert_eq!(error.code, code, "{}", error.message);
        assert!(error.message.contains(&address.to_string()));
    }
}

#[test]
fn an_operation_that_takes_longer_than_the_timeout_fails() {
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
}

#[test]
fn a_bucket_that_iosonde_did_not_create_is_refused() {
    let (address, objects) = server(Manner::Plain);
    let error = store(address, LONG).require_own_bucket().unwrap_err();
    assert_eq!(error.to_failure().code, "foreign_data");
    objects
        .lock()
        .unwrap()
        .insert("/bucket/created-by-iosonde".into(), b"iosonde".to_vec());
    store(address, LONG).require_own_bucket().unwrap();
}

#[test]
fn names_of_buckets_need_no_encoding() {
    let endpoint = |bucket| Endpoint {
        host: "127.0.0.1",
        port: 1,
        bucket,
        region: "us-east-1",
        timeout_ns: LONG,
    };
    for wrong in ["", "ab", "a/b", "A-bucket", "a bucket", "../up"] {
        let error = S3::connect(&endpoint(wrong), Clock::start())
            .err()
            .expect("the name is refused");
        assert_eq!(error.to_failure().context, "`store.bucket`", "{wrong}");
    }
}

#[test]
fn a_server_that_is_not_there_refuses_connections() {
    // Port 1 of loopback is reserved, and nothing listens there.
    let error = store(([127, 0, 0, 1], 1).into(), LONG)
        .require_own_bucket()
        .unwrap_err();
    assert_eq!(error.to_failure().code, "connection_refused");
}
