//! Requests and answers of memcached's meta protocol (`doc/protocol.txt` of its source).
//!
//! A key is text: the eight bytes that identify a record are written as 16 hexadecimal digits, which replace the first 16
//! bytes of the key, so that its length stays as it is.

use std::io::Write;

/// memcached's own limit.
pub(crate) const KEY_BYTES_MAX: u64 = 250;

/// Bytes of a key that are written as digits, and their digits.
const NUMBER_BYTES: usize = 8;
const DIGITS: usize = 16;

/// Requests that are sent together.
#[derive(Default)]
pub(crate) struct Requests {
    bytes: Vec<u8>,
    number: usize,
}

impl Requests {
    pub(crate) fn writes(&self) -> usize {
        self.number
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.number = 0;
    }

    /// Meta get that returns the value, or `EN`.
    #[inline]
    pub(crate) fn get(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(b"mg ");
        self.key(key);
        self.bytes.extend_from_slice(b" v\r\n");
    }

    /// Meta set that answers errors only; `ttl_s` 0: the record does not expire.
    pub(crate) fn set(&mut self, key: &[u8], value: &[u8], ttl_s: u64) {
        self.bytes.extend_from_slice(b"ms ");
        self.key(key);
        let written = match ttl_s {
            0 => write!(self.bytes, " {} q\r\n", value.len()),
            _ => write!(self.bytes, " {} T{ttl_s} q\r\n", value.len()),
        };
        written.expect("memory takes everything");
        self.bytes.extend_from_slice(value);
        self.bytes.extend_from_slice(b"\r\n");
        self.number += 1;
    }

    /// Meta delete that answers errors only.
    pub(crate) fn delete(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(b"md ");
        self.key(key);
        self.bytes.extend_from_slice(b" q\r\n");
        self.number += 1;
    }

    /// Bytes to send, with a final request whose response follows all others.
    pub(crate) fn with_end(&mut self) -> &[u8] {
        self.bytes.extend_from_slice(b"mn\r\n");
        &self.bytes
    }

    /// Bytes to send.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    #[inline]
    fn key(&mut self, key: &[u8]) {
        let mut digits = [0; DIGITS];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(&key[..NUMBER_BYTES]) {
            pair[0] = digit(byte >> 4);
            pair[1] = digit(byte & 15);
        }
        self.bytes.extend_from_slice(&digits);
        self.bytes.extend_from_slice(&key[DIGITS..]);
    }
}

#[inline]
fn digit(value: u8) -> u8 {
    // Without a branch or a table: `a` is 39 after `0` + 10.
    b'0' + value + 39 * u8::from(value > 9)
}

/// The answer to a get at the start of received bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// More bytes are needed, this many at least.
    Incomplete(usize),
    /// The value is in this part of the bytes, and the answer ends there.
    Value {
        begin: usize,
        end: usize,
        answer_end: usize,
    },
    /// The record is not there; the answer ends there.
    Miss { answer_end: usize },
    /// Anything else, such as `SERVER_ERROR`.
    Unexpected,
}

/// Reads the answer to a get.
#[inline]
pub(crate) fn answer(bytes: &[u8]) -> Answer {
    match bytes {
        [b'V', b'A', b' ', rest @ ..] => value(rest),
        [b'E', b'N', b'\r', b'\n', ..] => Answer::Miss { answer_end: 4 },
        _ if b"VA ".starts_with(bytes) || b"EN\r\n".starts_with(bytes) => Answer::Incomplete(4 - bytes.len().min(3)),
        _ => Answer::Unexpected,
    }
}

/// `<size> <flags>*\r\n<value>\r\n`
#[inline]
fn value(rest: &[u8]) -> Answer {
    const HEAD: usize = 3;
    let (mut size, mut place) = (0_usize, 0);
    while let Some(digit @ b'0'..=b'9') = rest.get(place) {
        size = size.saturating_mul(10).saturating_add(usize::from(digit - b'0'));
        place += 1;
    }
    if place == 0 && !rest.is_empty() || size > 1 << 40 {
        return Answer::Unexpected;
    }
    let Some(line_end) = rest[place..].iter().position(|byte| *byte == b'\n') else {
        return Answer::Incomplete(1);
    };
    let begin = HEAD + place + line_end + 1;
    let end = begin + size;
    match (HEAD + rest.len()).checked_sub(end + 2) {
        None => Answer::Incomplete(end + 2 - HEAD - rest.len()),
        Some(_) if &rest[end - HEAD..end + 2 - HEAD] != b"\r\n" => Answer::Unexpected,
        Some(_) => Answer::Value {
            begin,
            end,
            answer_end: end + 2,
        },
    }
}

/// The first line of received bytes without its end, for errors.
pub(crate) fn first_line(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == b'\r' || *byte == b'\n');
    let line = &bytes[..end.unwrap_or(bytes.len()).min(200)];
    String::from_utf8_lossy(line).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: &[u8] = b"\0\0\0\0\0\x01\xab\xff000000000000";

    fn text(fill: impl Fn(&mut Requests)) -> String {
        let mut requests = Requests::default();
        fill(&mut requests);
        String::from_utf8(requests.as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn requests_have_keys_of_the_same_length_and_errors_one_line() {
        assert_eq!(text(|requests| requests.get(KEY)), "mg 000000000001abff0000 v\r\n");
        let set = |value, ttl_s| text(|requests| requests.set(KEY, value, ttl_s));
        assert_eq!(set(b"value", 0), "ms 000000000001abff0000 5 q\r\nvalue\r\n");
        assert_eq!(set(b"", 60), "ms 000000000001abff0000 0 T60 q\r\n\r\n");
        assert_eq!(text(|requests| requests.delete(KEY)), "md 000000000001abff0000 q\r\n");
        let mut requests = Requests::default();
        assert_eq!(requests.with_end(), b"mn\r\n");
        assert_eq!(first_line(b"SERVER_ERROR large\r\nMN\r\n"), "SERVER_ERROR large");
        assert_eq!(first_line(&[b'x'; 1000]).len(), 200);
    }

    #[test]
    fn answers_are_values_misses_and_errors() {
        let value = |begin, end| Answer::Value {
            begin,
            end,
            answer_end: end + 2,
        };
        assert_eq!(answer(b"VA 5\r\nhello\r\nEN\r\n"), value(6, 11));
        assert_eq!(answer(b"VA 0 f1 t60\r\n\r\n"), value(13, 13));
        assert_eq!(answer(b"EN\r\nVA"), Answer::Miss { answer_end: 4 });
        let huge = "VA 99999999999999999999\r\n";
        for wrong in [
            "SERVER_ERROR out of memory\r\n",
            "VA x\r\n",
            "VA 1\r\nabcd",
            "END\r\n",
            huge,
        ] {
            assert_eq!(answer(wrong.as_bytes()), Answer::Unexpected, "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn an_answer_is_complete_when_all_its_bytes_are_there_and_any_bytes_have_one(value: Vec<u8>, cut in 0_usize..100) {
            answer(&value);
            answer(&[b"VA ", &value[..]].concat());
            let bytes = [format!("VA {}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat();
            let cut = cut.min(bytes.len());
            match answer(&bytes[..cut]) {
                Answer::Incomplete(missing) => prop_assert!(cut < bytes.len() && missing <= bytes.len() - cut),
                Answer::Value { begin, end, answer_end } => {
                    prop_assert_eq!(&bytes[begin..end], &value[..]);
                    prop_assert_eq!(answer_end, bytes.len());
                }
                other => prop_assert!(false, "{:?}", other),
            }
        }
    }
}
