//! A store that returns immediately and stores nothing, to measure the cost of the harness.
//!
//! Its values are correct, so verifying them costs the same as with other stores. A session has its own copy of the random
//! text and writes only a value's 16-byte header in front of the value's text. So reads are cheap, and verification touches
//! as much memory as with a real store.

use std::sync::Arc;

use iosonde_harness::RunError;
use iosonde_protocol::{Direction, StoreDurability};

use crate::options::{self, Given};
use crate::records::{Contents, HEADER_BYTES, PIECE};
use crate::store::{About, Demands, Lent, Opener, Place, Session, Store};

/// Opens the null store.
pub struct NullOpener {
    contents: Arc<Contents>,
    options: Given,
}

impl NullOpener {
    /// A store that returns these contents, all in generation 0; it has no options.
    pub fn new(contents: Arc<Contents>, options: Given) -> NullOpener {
        NullOpener { contents, options }
    }
}

impl Opener for NullOpener {
    fn check(&self, place: &Place, _demands: &Demands) -> Result<(), RunError> {
        if let Some(option) = options::each("null", &self.options).next() {
            return Err(option.unknown([]));
        }
        match place {
            Place::Virtual => Ok(()),
            _ => Err(place.unsupported("null")),
        }
    }

    fn open(&self, _place: &Place, _demands: &Demands) -> Result<Box<dyn Store>, RunError> {
        Ok(Box::new(Null {
            contents: self.contents.clone(),
        }))
    }
}

struct Null {
    contents: Arc<Contents>,
}

impl Store for Null {
    fn session(&self) -> Result<Box<dyn Session + '_>, RunError> {
        let text = self.contents.text();
        let mut memory = vec![0; HEADER_BYTES + text.len()];
        memory[HEADER_BYTES..].copy_from_slice(text);
        Ok(Box::new(NullSession {
            contents: &self.contents,
            memory,
            covered: [0; HEADER_BYTES],
            covered_at: None,
            large: Vec::new(),
            key: Vec::new(),
            position: None,
        }))
    }

    fn about(&self) -> Result<About, RunError> {
        Ok(About {
            version: env!("CARGO_PKG_VERSION").into(),
            ..About::default()
        })
    }

    fn durability(&self, _sync: bool) -> StoreDurability {
        StoreDurability::Nothing
    }
}

struct NullSession<'a> {
    contents: &'a Contents,
    /// Space for a header, then the text.
    memory: Vec<u8>,
    /// Text that the last header overwrote.
    covered: [u8; HEADER_BYTES],
    covered_at: Option<usize>,
    /// A value longer than the text.
    large: Vec<u8>,
    key: Vec<u8>,
    position: Option<(u64, Direction)>,
}

impl NullSession<'_> {
    #[inline]
    fn value(&mut self, number: u64) -> &[u8] {
        if let Some(at) = self.covered_at.take() {
            self.memory[at..at + HEADER_BYTES].copy_from_slice(&self.covered);
        }
        let bytes = self.contents.value_bytes(number, 0);
        let (header, at) = self.contents.header(number, 0, bytes);
        if bytes > HEADER_BYTES + PIECE || self.contents.fields() > 1 {
            self.large.clear();
            self.contents.add_value(number, 0, &mut self.large);
            return &self.large;
        }
        let room = &mut self.memory[at..at + HEADER_BYTES];
        self.covered.copy_from_slice(room);
        room.copy_from_slice(&header);
        self.covered_at = Some(at);
        &self.memory[at..at + bytes]
    }
}

impl Session for NullSession<'_> {
    #[inline]
    fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, RunError> {
        match self.contents.number(key) {
            Some(number) => Ok(Some(self.value(number))),
            None => Ok(None),
        }
    }

    fn put(&mut self, _key: &[u8], _value: &[u8]) -> Result<(), RunError> {
        Ok(())
    }

    fn delete(&mut self, _key: &[u8]) -> Result<(), RunError> {
        Ok(())
    }

    fn commit(&mut self, _sync: bool) -> Result<(), RunError> {
        Ok(())
    }

    fn seek(&mut self, key: Option<&[u8]>, direction: Direction) -> Result<(), RunError> {
        let edge = match direction {
            Direction::Forward => 0,
            Direction::Reverse => self.contents.count() - 1,
        };
        let number = key.and_then(|key| self.contents.number(key)).unwrap_or(edge);
        self.position = Some((number, direction));
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Lent<'_>>, RunError> {
        let Some((number, direction)) = self.position else {
            return Ok(None);
        };
        let next = match direction {
            Direction::Forward => number.checked_add(1).filter(|next| *next < self.contents.count()),
            Direction::Reverse => number.checked_sub(1),
        };
        self.position = next.map(|next| (next, direction));
        let mut key = std::mem::take(&mut self.key);
        self.contents.key(number, &mut key);
        self.value(number);
        self.key = key;
        let bytes = self.contents.value_bytes(number, 0);
        let value = match self.covered_at {
            Some(at) => &self.memory[at..at + bytes],
            None => &self.large[..],
        };
        Ok(Some((&self.key, value)))
    }
}
