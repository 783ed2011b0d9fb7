//! The null server's side of MariaDB's protocol.

use std::io;

use iosonde_oltp::sql::numeric;

use super::Peer;
use super::answers::{Answer, Value, to_query};

/// Capabilities below 2^32 that it offers: no `CLIENT_MYSQL`, which makes it a MariaDB.
const CAPABILITIES: u32 = 1 << 3 | 1 << 7 | 1 << 9 | 1 << 13 | 1 << 15 | 1 << 19 | 1 << 24;
const CACHE_METADATA: u32 = 1 << 4;

/// A prepared statement.
struct Prepared {
    answer: Answer,
    parameters: usize,
    types: Vec<u8>,
}

/// Answers a client until it disconnects.
pub(super) fn answer(peer: &mut Peer, warehouses: u32) -> io::Result<()> {
    greet(peer);
    packet(peer)?;
    put(peer, 2, |out| out.extend_from_slice(&[0, 0, 0, 2, 0, 0, 0]));
    let mut statements: Vec<Prepared> = Vec::new();
    loop {
        let body = packet(peer)?;
        match body[0] {
            0x16 => {
                let sql = String::from_utf8_lossy(&body[1..]).into_owned();
                let (answer, parameters) = (Answer::to(&sql), sql.matches('?').count());
                statements.push(Prepared {
                    answer,
                    parameters,
                    types: Vec::new(),
                });
                prepared(peer, statements.len() as u32, answer.columns, parameters as u16);
            }
            0x17 => {
                let number = u32::from_le_bytes(body[1..5].try_into().expect("4 bytes")) as usize;
                let params = integers(&body[10..], &mut statements[number - 1]);
                executed(peer, statements[number - 1].answer, &params);
            }
            3 => match to_query(&String::from_utf8_lossy(&body[1..]), warehouses) {
                None => put(peer, 1, |out| out.extend_from_slice(&[0, 0, 0, 2, 0, 0, 0])),
                Some(values) => text_result(peer, &values),
            },
            _ => return Ok(()),
        }
    }
}

fn greet(peer: &mut Peer) {
    put(peer, 0, |out| {
        out.push(10);
        out.extend_from_slice(b"5.5.5-99.0.0-MariaDB-null\0");
        out.extend_from_slice(&[1, 0, 0, 0]);
        out.extend_from_slice(b"12345678\0");
        out.extend_from_slice(&(CAPABILITIES as u16).to_le_bytes());
        out.push(45);
        out.extend_from_slice(&2_u16.to_le_bytes());
        out.extend_from_slice(&((CAPABILITIES >> 16) as u16).to_le_bytes());
        out.push(21);
        out.extend_from_slice(&[0; 6]);
        out.extend_from_slice(&CACHE_METADATA.to_le_bytes());
        out.extend_from_slice(b"123456789012\0");
        out.extend_from_slice(b"mysql_native_password\0");
    });
}

fn packet(peer: &mut Peer) -> io::Result<Vec<u8>> {
    let header = peer.take(4)?;
    peer.take(usize::from(header[0]) | usize::from(header[1]) << 8 | usize::from(header[2]) << 16)
}

fn put(peer: &mut Peer, sequence: u8, body: impl FnOnce(&mut Vec<u8>)) {
    let out = &mut peer.output;
    let begin = out.len();
    out.extend_from_slice(&[0, 0, 0, sequence]);
    body(out);
    let length = out.len() - begin - 4;
    out[begin..begin + 3].copy_from_slice(&(length as u32).to_le_bytes()[..3]);
}

fn column(out: &mut Vec<u8>, kind: u8) {
    for name in ["def", "", "", "", "x", ""] {
        text(out, name.as_bytes());
    }
    out.extend_from_slice(&[12, 45, 0, 0, 1, 0, 0, kind, 0, 0, 0, 0, 0]);
}

fn text(out: &mut Vec<u8>, text: &[u8]) {
    match text.len() {
        length @ ..0xfb => out.push(length as u8),
        length => {
            out.push(0xfc);
            out.extend_from_slice(&(length as u16).to_le_bytes());
        }
    }
    out.extend_from_slice(text);
}

fn kind(value: &Value) -> u8 {
    match value {
        Value::Int(_) => 3,
        Value::Long(_) => 8,
        Value::Decimal(..) => 246,
        Value::Text(_) => 253,
        Value::Time(_) => 12,
    }
}

fn prepared(peer: &mut Peer, number: u32, columns: &[Value], parameters: u16) {
    put(peer, 1, |out| {
        out.push(0);
        out.extend_from_slice(&number.to_le_bytes());
        out.extend_from_slice(&(columns.len() as u16).to_le_bytes());
        out.extend_from_slice(&parameters.to_le_bytes());
        out.extend_from_slice(&[0, 0, 0]);
    });
    (0..parameters).for_each(|_| put(peer, 0, |out| column(out, 253)));
    columns
        .iter()
        .for_each(|value| put(peer, 0, |out| column(out, kind(value))));
}

fn executed(peer: &mut Peer, answer: Answer, params: &[i32]) {
    if answer.columns.is_empty() {
        put(peer, 1, |out| out.extend_from_slice(&[0, 1, 0, 2, 0, 0, 0]));
        return;
    }
    // The client has the descriptions since it prepared the statement.
    put(peer, 1, |out| out.extend_from_slice(&[answer.columns.len() as u8, 0]));
    answer.each_row(params, &mut |values| {
        put(peer, 0, |out| {
            out.push(0);
            out.resize(out.len() + (values.len() + 9) / 8, 0);
            for value in values {
                match value {
                    Value::Int(number) => out.extend_from_slice(&number.to_le_bytes()),
                    Value::Long(number) => out.extend_from_slice(&number.to_le_bytes()),
                    Value::Decimal(units, scale) => {
                        let begin = out.len();
                        out.push(0);
                        numeric::write_text(*units, *scale, out);
                        out[begin] = (out.len() - begin - 1) as u8;
                    }
                    Value::Text(value) => text(out, value.as_bytes()),
                    Value::Time(_) => out.extend_from_slice(&[4, 0xd0, 7, 1, 1]),
                }
            }
        });
    });
    put(peer, 0, |out| out.extend_from_slice(&[0xfe, 0, 0, 2, 0, 0, 0]));
}

fn text_result(peer: &mut Peer, values: &[String]) {
    put(peer, 1, |out| out.extend_from_slice(&[values.len() as u8, 1]));
    values.iter().for_each(|_| put(peer, 0, |out| column(out, 253)));
    put(peer, 0, |out| {
        values.iter().for_each(|value| text(out, value.as_bytes()))
    });
    put(peer, 0, |out| out.extend_from_slice(&[0xfe, 0, 0, 2, 0, 0, 0]));
}

/// The integers among the parameters, from the bitmap of nulls on.
fn integers(execute: &[u8], statement: &mut Prepared) -> Vec<i32> {
    if statement.parameters == 0 {
        return Vec::new();
    }
    let mut at = statement.parameters.div_ceil(8);
    at += 1;
    if execute[at - 1] == 1 {
        let types = &execute[at..at + 2 * statement.parameters];
        statement.types = types.iter().step_by(2).copied().collect();
        at += types.len();
    }
    let mut values = Vec::with_capacity(statement.parameters);
    for kind in &statement.types {
        let length = match (kind, execute[at]) {
            (8, _) => {
                values.push(i64::from_le_bytes(execute[at..at + 8].try_into().expect("8 bytes")) as i32);
                8
            }
            (_, 0xfd) => 4 + usize::from(execute[at + 1]) + (usize::from(execute[at + 2]) << 8),
            (_, short) => 1 + usize::from(short),
        };
        at += length;
    }
    values
}
