//! The initial population (clause 4.3.3): rows as lines of tab-separated values, each table of each warehouse from its own
//! sequence of random numbers, so that the contents do not depend on how many connections load them.

use std::io::Write;

use iosonde_harness::load::{Permutation, Rng};

use super::rules::{CUSTOMERS, Constants, DISTRICTS, FIRST_UNDELIVERED, ITEMS, LastName, non_uniform, uniform};

const ALPHANUMERIC: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ1234567890";
const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ";
const DIGITS: &[u8] = b"1234567890";
/// Lines are passed on once there are this many bytes of them.
const CHUNK_BYTES: usize = 64 << 10;

/// The tables of a warehouse that are written in one go, and the table of items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Item,
    Stock(u32),
    Customer(u32),
    History(u32),
    Orders(u32),
    OrderLine(u32),
    NewOrder(u32),
    Warehouse(u32),
    District(u32),
}

impl Part {
    /// Every part of a database, the largest of a warehouse first.
    pub(crate) fn all(warehouses: u32) -> Vec<Part> {
        let of_warehouse = |number| {
            [
                Part::OrderLine(number),
                Part::Stock(number),
                Part::Customer(number),
                Part::Orders(number),
                Part::History(number),
                Part::NewOrder(number),
                Part::District(number),
                Part::Warehouse(number),
            ]
        };
        std::iter::once(Part::Item)
            .chain((1..=warehouses).flat_map(of_warehouse))
            .collect()
    }

    pub(crate) fn table(self) -> &'static str {
        match self {
            Part::Item => "item",
            Part::Stock(_) => "stock",
            Part::Customer(_) => "customer",
            Part::History(_) => "history",
            Part::Orders(_) => "orders",
            Part::OrderLine(_) => "order_line",
            Part::NewOrder(_) => "new_order",
            Part::Warehouse(_) => "warehouse",
            Part::District(_) => "district",
        }
    }
}

/// Produces the rows of a database.
#[derive(Clone, Copy)]
pub(crate) struct Population<'a> {
    pub seed: u64,
    pub constants: Constants,
    /// Date of everything, `YYYY-MM-DD hh:mm:ss`.
    pub date: &'a str,
}

/// Lines under way to the server.
struct Lines<'s, E> {
    bytes: Vec<u8>,
    rows: u64,
    sink: &'s mut dyn FnMut(&[u8]) -> Result<(), E>,
}

impl<E> Lines<'_, E> {
    fn end(&mut self) -> Result<(), E> {
        // The last tab ends the line.
        *self.bytes.last_mut().expect("a line has fields") = b'\n';
        self.rows += 1;
        if self.bytes.len() >= CHUNK_BYTES {
            (self.sink)(&self.bytes)?;
            self.bytes.clear();
        }
        Ok(())
    }

    fn int(&mut self, value: u32) {
        self.text(format_args!("{value}"));
    }

    fn text(&mut self, value: impl std::fmt::Display) {
        write!(self.bytes, "{value}\t").expect("a vector takes any bytes");
    }

    fn null(&mut self) {
        self.text("\\N");
    }

    fn decimal(&mut self, units: u32, scale: usize) {
        let unit = 10_u32.pow(scale as u32);
        self.text(format_args!("{}.{:0scale$}", units / unit, units % unit));
    }

    fn random(&mut self, rng: &mut Rng, alphabet: &[u8], shortest: u32, longest: u32) {
        let length = uniform(rng, shortest, longest);
        for _ in 0..length {
            let letter = alphabet[rng.below(alphabet.len() as u64) as usize];
            self.bytes.push(letter);
        }
        self.bytes.push(b'\t');
    }

    /// An a-string of 26 to 50 characters; one in ten has `ORIGINAL` somewhere (clause 4.3.3.1).
    fn data(&mut self, rng: &mut Rng) {
        let begin = self.bytes.len();
        self.random(rng, ALPHANUMERIC, 26, 50);
        if rng.below(10) == 0 {
            let length = self.bytes.len() - 1 - begin;
            let at = begin + rng.below(length as u64 - 7) as usize;
            self.bytes[at..at + 8].copy_from_slice(b"ORIGINAL");
        }
    }

    fn address(&mut self, rng: &mut Rng) {
        for _ in 0..3 {
            self.random(rng, ALPHANUMERIC, 10, 20);
        }
        self.random(rng, LETTERS, 2, 2);
        self.random(rng, DIGITS, 4, 4);
        self.bytes.pop();
        self.text("11111");
    }
}

impl Population<'_> {
    /// Hands on all lines of a part, in chunks; returns the number of rows.
    pub(crate) fn write<E>(&self, part: Part, sink: &mut dyn FnMut(&[u8]) -> Result<(), E>) -> Result<u64, E> {
        let mut lines = Lines {
            bytes: Vec::with_capacity(2 * CHUNK_BYTES),
            rows: 0,
            sink,
        };
        match part {
            Part::Item => self.items(&mut lines)?,
            Part::Stock(warehouse) => self.stock(warehouse, &mut lines)?,
            Part::Customer(warehouse) => self.customers(warehouse, &mut lines)?,
            Part::History(warehouse) => self.history(warehouse, &mut lines)?,
            Part::Orders(warehouse) => self.orders(warehouse, &mut lines)?,
            Part::OrderLine(warehouse) => self.order_lines(warehouse, &mut lines)?,
            Part::NewOrder(warehouse) => new_orders(warehouse, &mut lines)?,
            Part::Warehouse(warehouse) => self.warehouse(warehouse, &mut lines)?,
            Part::District(warehouse) => self.districts(warehouse, &mut lines)?,
        }
        if !lines.bytes.is_empty() {
            (lines.sink)(&lines.bytes)?;
        }
        Ok(lines.rows)
    }

    fn rng(&self, table: u64, warehouse: u32) -> Rng {
        Rng::new(self.seed, &[table, u64::from(warehouse)])
    }

    fn items<E>(&self, lines: &mut Lines<'_, E>) -> Result<(), E> {
        let mut rng = self.rng(1, 0);
        for item in 1..=ITEMS {
            lines.int(item);
            lines.int(uniform(&mut rng, 1, 10_000));
            lines.random(&mut rng, ALPHANUMERIC, 14, 24);
            lines.decimal(uniform(&mut rng, 100, 10_000), 2);
            lines.data(&mut rng);
            lines.end()?;
        }
        Ok(())
    }

    fn warehouse<E>(&self, warehouse: u32, lines: &mut Lines<'_, E>) -> Result<(), E> {
        let mut rng = self.rng(2, warehouse);
        lines.int(warehouse);
        lines.random(&mut rng, ALPHANUMERIC, 6, 10);
        lines.address(&mut rng);
        lines.decimal(uniform(&mut rng, 0, 2000), 4);
        lines.text("300000.00");
        lines.end()
    }

    fn districts<E>(&self, warehouse: u32, lines: &mut Lines<'_, E>) -> Result<(), E> {
        let mut rng = self.rng(3, warehouse);
        for district in 1..=DISTRICTS {
            lines.int(district);
            lines.int(warehouse);
            lines.random(&mut rng, ALPHANUMERIC, 6, 10);
            lines.address(&mut rng);
            lines.decimal(uniform(&mut rng, 0, 2000), 4);
            lines.text("30000.00");
            lines.int(CUSTOMERS + 1);
            lines.end()?;
        }
        Ok(())
    }

    fn stock<E>(&self, warehouse: u32, lines: &mut Lines<'_, E>) -> Result<(), E> {
        let mut rng = self.rng(4, warehouse);
        for item in 1..=ITEMS {
            lines.int(item);
            lines.int(warehouse);
            lines.int(uniform(&mut rng, 10, 100));
            for _ in 0..10 {
                lines.random(&mut rng, LETTERS, 24, 24);
            }
            lines.text("0\t0\t0");
            lines.data(&mut rng);
            lines.end()?;
        }
        Ok(())
    }

    fn customers<E>(&self, warehouse: u32, lines: &mut Lines<'_, E>) -> Result<(), E> {
        let mut rng = self.rng(5, warehouse);
        for (district, customer) in districts_and_numbers() {
            let name = match customer {
                1..=1000 => customer - 1,
                _ => non_uniform(&mut rng, 255, self.constants.c_last_load, 0, 999),
            };
            lines.int(customer);
            lines.int(district);
            lines.int(warehouse);
            lines.random(&mut rng, ALPHANUMERIC, 8, 16);
            lines.text("OE");
            lines.bytes.extend_from_slice(LastName::new(name).as_bytes());
            lines.bytes.push(b'\t');
            lines.address(&mut rng);
            lines.random(&mut rng, DIGITS, 16, 16);
            lines.text(self.date);
            lines.text(if rng.below(10) == 0 { "BC" } else { "GC" });
            lines.text("50000.00");
            lines.decimal(uniform(&mut rng, 0, 5000), 4);
            lines.text("-10.00\t10.00\t1\t0");
            lines.random(&mut rng, ALPHANUMERIC, 300, 500);
            lines.end()?;
        }
        Ok(())
    }

    fn history<E>(&self, warehouse: u32, lines: &mut Lines<'_, E>) -> Result<(), E> {
        let mut rng = self.rng(6, warehouse);
        for (district, customer) in districts_and_numbers() {
            for number in [customer, district, warehouse, district, warehouse] {
                lines.int(number);
            }
            lines.text(self.date);
            lines.text("10.00");
            lines.random(&mut rng, ALPHANUMERIC, 12, 24);
            lines.end()?;
        }
        Ok(())
    }

    /// Lines of each order of a district, which orders and lines must agree on.
    fn line_counts(&self, warehouse: u32, district: u32) -> impl Iterator<Item = u32> {
        let mut rng = Rng::new(self.seed, &[7, u64::from(warehouse), u64::from(district)]);
        (0..CUSTOMERS).map(move |_| uniform(&mut rng, 5, 15))
    }

    fn orders<E>(&self, warehouse: u32, lines: &mut Lines<'_, E>) -> Result<(), E> {
        let mut rng = self.rng(8, warehouse);
        for district in 1..=DISTRICTS {
            let customers = Permutation::new(u64::from(CUSTOMERS), &mut rng);
            for (order, count) in (1..).zip(self.line_counts(warehouse, district)) {
                lines.int(order);
                lines.int(district);
                lines.int(warehouse);
                lines.int(customers.apply(u64::from(order - 1)) as u32 + 1);
                lines.text(self.date);
                match order {
                    FIRST_UNDELIVERED.. => lines.null(),
                    _ => lines.int(uniform(&mut rng, 1, 10)),
                }
                lines.int(count);
                lines.int(1);
                lines.end()?;
            }
        }
        Ok(())
    }

    fn order_lines<E>(&self, warehouse: u32, lines: &mut Lines<'_, E>) -> Result<(), E> {
        let mut rng = self.rng(9, warehouse);
        for district in 1..=DISTRICTS {
            for (order, count) in (1..).zip(self.line_counts(warehouse, district)) {
                for number in 1..=count {
                    for key in [order, district, warehouse, number] {
                        lines.int(key);
                    }
                    lines.int(uniform(&mut rng, 1, ITEMS));
                    lines.int(warehouse);
                    match order {
                        FIRST_UNDELIVERED.. => {
                            lines.null();
                            lines.int(5);
                            lines.decimal(uniform(&mut rng, 1, 999_999), 2);
                        }
                        _ => {
                            lines.text(self.date);
                            lines.int(5);
                            lines.text("0.00");
                        }
                    }
                    lines.random(&mut rng, ALPHANUMERIC, 24, 24);
                    lines.end()?;
                }
            }
        }
        Ok(())
    }
}

fn new_orders<E>(warehouse: u32, lines: &mut Lines<'_, E>) -> Result<(), E> {
    for district in 1..=DISTRICTS {
        for order in FIRST_UNDELIVERED..=CUSTOMERS {
            lines.int(order);
            lines.int(district);
            lines.int(warehouse);
            lines.end()?;
        }
    }
    Ok(())
}

fn districts_and_numbers() -> impl Iterator<Item = (u32, u32)> {
    (1..=DISTRICTS).flat_map(|district| (1..=CUSTOMERS).map(move |number| (district, number)))
}

#[cfg(test)]
mod tests {
    use super::super::schema::Table;
    use super::*;
    use std::collections::{BTreeMap, HashSet};
    use std::convert::Infallible;

    const POPULATION: Population<'static> = Population {
        seed: 7,
        constants: Constants {
            c_last_load: 10,
            c_last: 90,
            c_id: 1,
            ol_i_id: 1,
        },
        date: "2026-01-02 03:04:05",
    };

    fn rows(part: Part) -> Vec<Vec<String>> {
        let mut text = Vec::new();
        let written = POPULATION.write::<Infallible>(part, &mut |bytes| {
            text.extend_from_slice(bytes);
            Ok(())
        });
        let text = String::from_utf8(text).unwrap();
        let cells = |line: &str| line.split('\t').map(str::to_owned).collect();
        let rows: Vec<Vec<String>> = text.lines().map(cells).collect();
        assert_eq!(written.unwrap(), rows.len() as u64);
        let columns = Table::named(part.table()).columns.len();
        assert!(rows.iter().all(|row| row.len() == columns), "{part:?}");
        rows
    }

    fn number(text: &str) -> u32 {
        text.parse().unwrap()
    }

    #[test]
    fn tables_have_the_cardinalities_and_customers_the_names_of_the_specification() {
        for (part, count) in [
            (Part::Stock(1), 100_000),
            (Part::History(1), 30_000),
            (Part::NewOrder(1), 9000),
            (Part::District(1), 10),
        ] {
            assert_eq!(rows(part).len(), count, "{part:?}");
        }
        assert_eq!(rows(Part::Warehouse(3))[0][0], "3");
        let customers = rows(Part::Customer(1));
        assert_eq!(customers.len(), 30_000);
        for district in customers.chunks(3000) {
            let names: HashSet<&str> = district[..1000].iter().map(|row| &row[5][..]).collect();
            assert_eq!(names.len(), 1000);
            let bad = district.iter().filter(|row| row[13] == "BC").count();
            assert!((200..400).contains(&bad), "{bad} of 3000 have bad credit");
            assert!(district.iter().all(|row| (300..=500).contains(&row[20].len())));
        }
    }

    #[test]
    fn every_customer_has_one_order_and_lines_agree_with_orders() {
        let (orders, lines) = (rows(Part::Orders(2)), rows(Part::OrderLine(2)));
        let customers: HashSet<(&str, &str)> = orders.iter().map(|row| (&row[1][..], &row[3][..])).collect();
        assert_eq!((orders.len(), customers.len()), (30_000, 30_000));
        let mut counted: BTreeMap<(u32, u32), u32> = BTreeMap::new();
        for line in &lines {
            *counted.entry((number(&line[1]), number(&line[0]))).or_default() += 1;
            let is_delivered = number(&line[0]) < FIRST_UNDELIVERED;
            assert_eq!(line[6] != "\\N", is_delivered);
            assert_eq!(line[8] == "0.00", is_delivered);
        }
        for order in &orders {
            assert_eq!(counted[&(number(&order[1]), number(&order[0]))], number(&order[6]));
            assert_eq!(order[5] == "\\N", number(&order[0]) >= FIRST_UNDELIVERED);
        }
    }

    #[test]
    fn a_tenth_of_items_is_original_and_the_seed_alone_decides_the_contents() {
        let items = rows(Part::Item);
        let original = items.iter().filter(|row| row[4].contains("ORIGINAL")).count();
        assert_eq!(items.len(), 100_000);
        assert!((9_500..10_500).contains(&original), "{original} of 100000");
        let has_lengths = |row: &Vec<String>| (26..=50).contains(&row[4].len()) && (14..=24).contains(&row[2].len());
        assert!(items.iter().all(has_lengths));
        assert_eq!(rows(Part::District(4)), rows(Part::District(4)));
        assert_ne!(rows(Part::District(4)), rows(Part::District(5)));
    }
}
