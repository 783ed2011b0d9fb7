//! The null server's side of PostgreSQL's protocol.

use std::io;

use iosonde_oltp::sql::numeric;

use super::Peer;
use super::answers::{Answer, Value, to_query};

const INT4: u32 = 23;

/// Answers a client until it disconnects.
pub(super) fn answer(peer: &mut Peer, warehouses: u32) -> io::Result<()> {
    let length = peer.take(4)?;
    peer.take(u32::from_be_bytes(length.try_into().expect("4 bytes")) as usize - 4)?;
    put(peer, b'R', |out| out.extend_from_slice(&[0; 4]));
    put(peer, b'S', |out| {
        out.extend_from_slice(b"server_version\x0099.0 (null)\0")
    });
    ready(peer);
    let mut statements: Vec<(Vec<u8>, Answer)> = Vec::new();
    let mut bound: Option<(Answer, Vec<i32>)> = None;
    loop {
        let header = peer.take(5)?;
        let length = u32::from_be_bytes(header[1..].try_into().expect("4 bytes")) as usize;
        let body = peer.take(length - 4)?;
        match header[0] {
            b'P' => {
                let mut parts = body.split(|byte| *byte == 0);
                let name = parts.next().unwrap_or_default().to_vec();
                let sql = String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
                statements.push((name, Answer::to(&sql)));
                put(peer, b'1', |_| ());
                let parameters = sql.matches('$').count() as u16;
                put(peer, b't', |out| {
                    out.extend_from_slice(&parameters.to_be_bytes());
                    (0..parameters).for_each(|_| out.extend_from_slice(&INT4.to_be_bytes()));
                });
                put(peer, b'n', |_| ());
            }
            b'B' => {
                let name = body[1..].split(|byte| *byte == 0).next().unwrap_or_default();
                let known = statements.iter().find(|(known, _)| known == name);
                bound = known.map(|(_, answer)| (*answer, integers(&body[name.len() + 2..])));
                put(peer, b'2', |_| ());
            }
            b'E' => {
                if let Some((answer, params)) = &bound {
                    answer.each_row(params, &mut |values| data_row(peer, values));
                }
                put(peer, b'C', |out| out.extend_from_slice(b"UPDATE 1\0"));
            }
            b'Q' => {
                let sql = String::from_utf8_lossy(&body);
                if let Some(values) = to_query(&sql, warehouses) {
                    put(peer, b'D', |out| {
                        out.extend_from_slice(&(values.len() as u16).to_be_bytes());
                        for value in &values {
                            out.extend_from_slice(&(value.len() as u32).to_be_bytes());
                            out.extend_from_slice(value.as_bytes());
                        }
                    });
                }
                put(peer, b'C', |out| out.extend_from_slice(b"SELECT 1\0"));
                ready(peer);
            }
            b'S' => ready(peer),
            b'X' => return Ok(()),
            _ => {}
        }
    }
}

/// The parameters of four bytes, from the count of format codes on.
fn integers(bind: &[u8]) -> Vec<i32> {
    let word = |at: usize| usize::from(u16::from_be_bytes([bind[at], bind[at + 1]]));
    let formats = word(0);
    let (count, mut at) = (word(2 + 2 * formats), 4 + 2 * formats);
    let mut values = Vec::with_capacity(count);
    for _ in 0..count {
        let length = i32::from_be_bytes(bind[at..at + 4].try_into().expect("4 bytes")).max(0) as usize;
        at += 4;
        if length == 4 {
            values.push(i32::from_be_bytes(bind[at..at + 4].try_into().expect("4 bytes")));
        }
        at += length;
    }
    values
}

fn data_row(peer: &mut Peer, values: &[Value]) {
    put(peer, b'D', |out| {
        out.extend_from_slice(&(values.len() as u16).to_be_bytes());
        for value in values {
            let begin = out.len();
            out.extend_from_slice(&[0; 4]);
            match value {
                Value::Int(number) => out.extend_from_slice(&number.to_be_bytes()),
                Value::Long(number) | Value::Time(number) => out.extend_from_slice(&number.to_be_bytes()),
                Value::Decimal(units, scale) => numeric::encode(*units, *scale, out),
                Value::Text(text) => out.extend_from_slice(text.as_bytes()),
            }
            let length = (out.len() - begin - 4) as u32;
            out[begin..begin + 4].copy_from_slice(&length.to_be_bytes());
        }
    });
}

fn ready(peer: &mut Peer) {
    put(peer, b'Z', |out| out.push(b'I'));
}

fn put(peer: &mut Peer, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
    let out = &mut peer.output;
    out.push(kind);
    let begin = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    let length = (out.len() - begin) as u32;
    out[begin..begin + 4].copy_from_slice(&length.to_be_bytes());
}
