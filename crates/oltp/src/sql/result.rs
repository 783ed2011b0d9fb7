//! Results in place: rows are read from the receive buffer of their connection.

use crate::sql::numeric;

/// One statement's result: which rows are its, and how many rows it changed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Slot {
    pub first_row: u32,
    pub rows: u32,
    pub affected: u64,
    /// The prepared statement, for the types of its columns.
    pub statement: u32,
}

/// Encoding of values in a row.
#[derive(Clone, Copy)]
pub(crate) enum Format<'a> {
    /// A length of 4 bytes, -1 for null, then the value; big-endian.
    Postgresql,
    /// A bitmap of nulls, then the values, whose type gives their length; little-endian.
    Mariadb(&'a [ColumnTypes]),
}

/// Types of the columns of a prepared statement, as MariaDB numbers them.
pub(crate) type ColumnTypes = Vec<u8>;

/// Results of the statements executed since they were last cleared.
#[derive(Clone, Copy)]
pub struct Results<'a> {
    pub(crate) slots: &'a [Slot],
    pub(crate) rows: &'a [(u32, u32)],
    pub(crate) buffer: &'a [u8],
    pub(crate) format: Format<'a>,
}

impl<'a> Results<'a> {
    /// Number of statements that have a result.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Rows that a statement changed.
    pub fn affected(&self, statement: usize) -> u64 {
        self.slots[statement].affected
    }

    /// Number of rows that a statement returned.
    pub fn rows(&self, statement: usize) -> usize {
        self.slots[statement].rows as usize
    }

    /// A row of a statement.
    pub fn row(&self, statement: usize, number: usize) -> Row<'a> {
        let slot = self.slots[statement];
        let (begin, length) = self.rows[slot.first_row as usize + number];
        let bytes = &self.buffer[begin as usize..(begin + length) as usize];
        match self.format {
            Format::Postgresql => Row {
                bytes,
                at: 2,
                column: 0,
                types: None,
            },
            Format::Mariadb(types) => {
                let types = &types[slot.statement as usize][..];
                Row {
                    bytes,
                    at: 1 + (types.len() + 9) / 8,
                    column: 0,
                    types: Some(types),
                }
            }
        }
    }
}

/// A row whose values are read from left to right.
pub struct Row<'a> {
    bytes: &'a [u8],
    at: usize,
    column: usize,
    /// MariaDB's types of the columns; none for PostgreSQL.
    types: Option<&'a [u8]>,
}

impl<'a> Row<'a> {
    /// The next value as it is on the wire; none if it is null.
    pub fn value(&mut self) -> Option<&'a [u8]> {
        match self.types {
            None => {
                let length = i32::from_be_bytes(self.take(4).try_into().expect("4 bytes were taken"));
                usize::try_from(length).ok().map(|length| self.take(length))
            }
            Some(types) => {
                let (byte, bit) = ((self.column + 2) / 8, (self.column + 2) % 8);
                let kind = types[self.column];
                self.column += 1;
                if self.bytes[1 + byte] & (1 << bit) != 0 {
                    return None;
                }
                let length = match kind {
                    1 => 1,
                    2 | 13 => 2,
                    3 | 4 | 9 => 4,
                    5 | 8 => 8,
                    7 | 10 | 11 | 12 => usize::from(self.take(1)[0]),
                    _ => self.length(),
                };
                Some(self.take(length))
            }
        }
    }

    /// The next value as an integer; 0 if it is null.
    pub fn int(&mut self) -> i64 {
        self.int_or_null().unwrap_or(0)
    }

    /// The next value as an integer; none if it is null.
    pub fn int_or_null(&mut self) -> Option<i64> {
        let is_big_endian = self.types.is_none();
        let value = self.value()?;
        Some(match (value.len(), is_big_endian) {
            (8, true) => i64::from_be_bytes(value.try_into().expect("8 bytes")),
            (8, false) => i64::from_le_bytes(value.try_into().expect("8 bytes")),
            (4, true) => i32::from_be_bytes(value.try_into().expect("4 bytes")).into(),
            (4, false) => i32::from_le_bytes(value.try_into().expect("4 bytes")).into(),
            (2, true) => i16::from_be_bytes(value.try_into().expect("2 bytes")).into(),
            (2, false) => i16::from_le_bytes(value.try_into().expect("2 bytes")).into(),
            (1, _) => (value[0] as i8).into(),
            _ => 0,
        })
    }

    /// The next value as a decimal number in units of 10 to the power of `-scale`; 0 if it is null.
    pub fn decimal(&mut self, scale: u8) -> i64 {
        let is_binary = self.types.is_none();
        match self.value() {
            None => 0,
            Some(value) if is_binary => numeric::decode(value, scale),
            Some(value) => numeric::read_text(value, scale),
        }
    }

    /// The next value as text; empty if it is null.
    pub fn text(&mut self) -> &'a [u8] {
        self.value().unwrap_or_default()
    }

    fn take(&mut self, bytes: usize) -> &'a [u8] {
        let taken = &self.bytes[self.at..self.at + bytes];
        self.at += bytes;
        taken
    }

    /// A length-encoded integer of MariaDB.
    fn length(&mut self) -> usize {
        match self.take(1)[0] {
            0xfc => usize::from(u16::from_le_bytes(self.take(2).try_into().expect("2 bytes"))),
            0xfd => {
                let bytes = self.take(3);
                usize::from(bytes[0]) | usize::from(bytes[1]) << 8 | usize::from(bytes[2]) << 16
            }
            0xfe => u64::from_le_bytes(self.take(8).try_into().expect("8 bytes")) as usize,
            short => usize::from(short),
        }
    }
}
