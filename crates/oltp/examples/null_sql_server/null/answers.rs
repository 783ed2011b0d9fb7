//! The rows that the null server answers statements with.

/// A value and with it its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    Int(i32),
    Long(i64),
    Decimal(i64, u8),
    Text(&'static str),
    /// Microseconds since 2000.
    Time(i64),
}

use Value::{Decimal, Int, Long, Text, Time};

const NAME: Value = Text("Twelve chars");
const INFO: Value = Text("ABCDEFGHIJKLMNOPQRSTUVWX");
const DATA: Value = Text("forty characters of item or stock data..");
const LONG_DATA: Value = Text(
    "four hundred characters: ..........................................................................................\
     ....................................................................................................................\
     ....................................................................................................................\
     ...................................................",
);

/// Number of rows that a statement returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rows {
    None,
    One,
    Times(i32),
    /// One for each parameter, which is the first value.
    Each,
    /// One for each pair of parameters, which are the first two values.
    EachPair,
}

/// Response to a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answer {
    rows: Rows,
    pub columns: &'static [Value],
}

const ADDRESS: &[Value] = &[NAME, NAME, NAME, NAME, Text("XY"), Text("123411111")];
const STOCK: &[Value] = &{
    let mut row = [INFO; 14];
    (row[0], row[1], row[2], row[3]) = (Int(0), Int(0), Int(50), DATA);
    row
};
const CUSTOMER: &[Value] = &[
    Text("GC"),
    NAME,
    Text("OE"),
    NAME,
    NAME,
    NAME,
    NAME,
    Text("XY"),
    Text("123411111"),
    Text("1234567890123456"),
    Decimal(5_000_000, 2),
    Decimal(1000, 4),
    Decimal(-1000, 2),
    Time(0),
];

/// Statements by their beginnings.
const ANSWERS: [(&str, Rows, &[Value]); 17] = [
    (
        "SELECT c_discount",
        Rows::One,
        &[Decimal(500, 4), NAME, Text("GC"), Decimal(1000, 4)],
    ),
    ("SELECT d_next_o_id, d_tax", Rows::One, &[Int(3001), Decimal(700, 4)]),
    ("SELECT d_next_o_id", Rows::One, &[Int(3001)]),
    ("SELECT i_id", Rows::Each, &[Int(0), Decimal(4711, 2), NAME, DATA]),
    ("SELECT s_w_id", Rows::EachPair, STOCK),
    ("SELECT d_name", Rows::One, ADDRESS),
    ("SELECT w_name", Rows::One, ADDRESS),
    ("SELECT c_id FROM", Rows::Times(3), &[Int(1)]),
    ("SELECT c_credit", Rows::One, CUSTOMER),
    ("SELECT c_data", Rows::One, &[LONG_DATA]),
    (
        "SELECT c_id, c_balance",
        Rows::Times(3),
        &[Int(1), Decimal(-1000, 2), NAME, Text("OE")],
    ),
    ("SELECT o_id, o_carrier_id", Rows::One, &[Int(3000), Int(5), Time(0)]),
    (
        "SELECT ol_i_id",
        Rows::Times(10),
        &[Int(1), Int(1), Int(5), Decimal(4711, 2), Time(0)],
    ),
    ("SELECT no_o_id", Rows::One, &[Int(2101)]),
    ("SELECT o_d_id", Rows::Times(10), &[Int(0), Int(1)]),
    ("SELECT ol_d_id", Rows::Times(10), &[Int(0), Decimal(4711, 2)]),
    ("SELECT COUNT(DISTINCT", Rows::One, &[Long(7)]),
];

/// An item that is not there, so that new-orders roll back.
const UNUSED_ITEM: i32 = 100_001;

impl Answer {
    /// The answer to a statement; one that is not known returns no rows.
    pub(super) fn to(sql: &str) -> Answer {
        let known = ANSWERS.iter().find(|(begin, ..)| sql.starts_with(begin));
        let (rows, columns) = known.map_or((Rows::None, &[][..]), |(_, rows, columns)| (*rows, *columns));
        Answer { rows, columns }
    }

    /// Hands on the values of each row, given the statement's integers.
    pub(super) fn each_row(&self, params: &[i32], row: &mut dyn FnMut(&[Value])) {
        let mut values = self.columns.to_vec();
        match self.rows {
            Rows::None => {}
            Rows::One => row(&values),
            // Rows of the ten districts are distinguished by their first value.
            Rows::Times(count) => (1..=count).for_each(|number| {
                values[0] = Int(number);
                row(&values);
            }),
            Rows::Each => params.iter().filter(|param| **param != UNUSED_ITEM).for_each(|param| {
                values[0] = Int(*param);
                row(&values);
            }),
            Rows::EachPair => params.chunks_exact(2).for_each(|pair| {
                (values[0], values[1]) = (Int(pair[0]), Int(pair[1]));
                row(&values);
            }),
        }
    }
}

/// The answer to a statement outside of the measured path, as text.
pub(super) fn to_query(sql: &str, warehouses: u32) -> Option<Vec<String>> {
    if sql.starts_with("SELECT COUNT(*) FROM warehouse") {
        return Some(vec![warehouses.to_string()]);
    }
    if sql.contains("datcollate") {
        return Some(vec!["UTF8".into(), "C".into()]);
    }
    sql.contains("@@collation_database")
        .then(|| vec!["utf8mb4".into(), "utf8mb4_bin".into()])
}
