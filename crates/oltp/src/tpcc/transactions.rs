//! The five transactions (clauses 2.4 to 2.8) on one connection.
//!
//! Each is a sequence of groups of independent statements. With pipelining a group is one round trip, else each of its
//! statements is one. What a statement needs of an earlier one is read between groups. Nothing is allocated.

use std::hint::black_box;

use crate::sql::{Connection, ErrorKind, Param, SqlError, Statement};

use super::rules::{Customer, DISTRICTS, Delivery, Input, LINES_MAX, NewOrder, OrderStatus, Payment, StockLevel};
use super::statements::Statements;
use crate::acknowledged::Acknowledged;
use crate::terminal::Done;

/// Most bytes of `c_data`.
const DATA_MAX: usize = 500;

/// A connection with its statements.
pub(crate) struct Transactions {
    pub connection: Box<dyn Connection>,
    pub statements: Statements,
    pub pipelining: bool,
}

/// A stock entry that an order changes, maybe by several lines.
#[derive(Clone, Copy, Default)]
struct Stock {
    warehouse: u32,
    item: u32,
    quantity: i64,
}

impl Transactions {
    /// Carries out a transaction once; `at_us` is the wall clock in microseconds since 1970.
    pub(crate) fn attempt(&mut self, input: &Input, at_us: i64) -> Result<Done, SqlError> {
        self.connection.clear();
        match input {
            Input::NewOrder(order) => self.new_order(order, at_us),
            Input::Payment(payment) => self.payment(payment, at_us),
            Input::OrderStatus(status) => self.order_status(status),
            Input::Delivery(delivery) => self.delivery(delivery, at_us),
            Input::StockLevel(level) => self.stock_level(level),
        }
    }

    /// Ends a transaction that failed.
    pub(crate) fn abort(&mut self) -> Result<(), SqlError> {
        self.connection.clear();
        self.connection.queue(self.statements.rollback, &[]);
        self.connection.exchange()
    }

    /// Executes a statement, or queues it for the end of its group; returns the number of its result.
    fn run(&mut self, statement: Statement, params: &[Param<'_>]) -> Result<usize, SqlError> {
        let number = self.connection.results().len();
        self.connection.queue(statement, params);
        if !self.pipelining {
            self.connection.exchange()?;
        }
        Ok(number)
    }

    /// Ends a group: all of its results are there afterwards.
    fn end_group(&mut self) -> Result<(), SqlError> {
        if self.pipelining {
            self.connection.exchange()?;
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<(), SqlError> {
        if let Some(begin) = self.statements.begin {
            self.run(begin, &[])?;
        }
        Ok(())
    }

    /// Commits, in the same round trip as the group before it if the server skips the commit when a statement of the group
    /// fails. MariaDB would commit the rest of the transaction.
    fn commit(&mut self) -> Result<(), SqlError> {
        if !self.connection.skips_after_errors() {
            self.end_group()?;
        }
        self.run(self.statements.commit, &[])?;
        self.end_group()
    }

    fn new_order(&mut self, order: &NewOrder, at_us: i64) -> Result<Done, SqlError> {
        let (warehouse, district) = (int(order.warehouse), int(order.district));
        let lines = &order.lines[..order.count];
        self.begin()?;
        let customer = self.run(
            self.statements.order_customer,
            &[warehouse, district, int(order.customer)],
        )?;
        let next = self.run(self.statements.order_district, &[warehouse, district])?;
        self.run(self.statements.order_next, &[warehouse, district])?;
        let items = lines.iter().map(|line| int(line.item));
        let items = self.run_many(self.statements.order_items[lines.len()], items)?;
        let keys = lines
            .iter()
            .flat_map(|line| [int(line.supply_warehouse), int(line.item)]);
        let stock = self.run_many(self.statements.order_stock[lines.len()], keys)?;
        self.end_group()?;

        let (discount, w_tax) = self.customer_and_tax(customer)?;
        let mut row = self.row(next, "the district")?;
        let (order_id, d_tax) = (row.int() as u32, row.decimal(4));
        let mut prices = [None; LINES_MAX];
        for (line, price) in lines.iter().zip(&mut prices) {
            *price = self.price(items, line.item);
        }
        if prices[..lines.len()].contains(&None) {
            if !order.rolls_back {
                return Err(missing("an item"));
            }
            self.abort()?;
            return Ok(Done::RolledBack);
        }
        let amount = |number: usize| i64::from(lines[number].quantity) * prices[number].unwrap_or(0);
        let total: i64 = (0..lines.len()).map(amount).sum();
        black_box(total as f64 * (1.0 - discount) * (1.0 + (w_tax + d_tax) as f64 / 1e4));

        let id = int(order_id);
        let count = int(order.count as u32);
        let entry = [
            id,
            district,
            warehouse,
            int(order.customer),
            Param::Timestamp(at_us),
            count,
            int(order.is_local.into()),
        ];
        self.run(self.statements.order_insert, &entry)?;
        self.run(self.statements.order_queue, &[id, district, warehouse])?;
        self.update_stock(order, stock)?;
        self.insert_lines(order, order_id, stock, &amount)?;
        self.commit()?;
        Ok(Done::Committed(Some(Acknowledged {
            group: order.warehouse,
            part: order.district,
            number: order_id.into(),
        })))
    }

    /// Discount of the customer as a fraction, and tax of the warehouse in units of 0.0001.
    fn customer_and_tax(&self, result: usize) -> Result<(f64, i64), SqlError> {
        let mut row = self.row(result, "the customer")?;
        let discount = row.decimal(4) as f64 / 1e4;
        black_box((row.text(), row.text()));
        Ok((discount, row.decimal(4)))
    }

    /// Price of an item in cents.
    fn price(&self, result: usize, item: u32) -> Option<i64> {
        let results = self.connection.results();
        (0..results.rows(result)).find_map(|number| {
            let mut row = results.row(result, number);
            (row.int() == i64::from(item)).then(|| row.decimal(2))
        })
    }

    /// One update for each line (clause 2.4.2.2); lines of the same item follow each other's quantity.
    fn update_stock(&mut self, order: &NewOrder, result: usize) -> Result<(), SqlError> {
        let mut entries = [Stock::default(); LINES_MAX];
        let results = self.connection.results();
        let found = results.rows(result).min(LINES_MAX);
        for (number, entry) in entries[..found].iter_mut().enumerate() {
            let mut row = results.row(result, number);
            *entry = Stock {
                warehouse: row.int() as u32,
                item: row.int() as u32,
                quantity: row.int(),
            };
        }
        for line in &order.lines[..order.count] {
            let entry = entries[..found]
                .iter_mut()
                .find(|entry| entry.warehouse == line.supply_warehouse && entry.item == line.item)
                .ok_or_else(|| missing("a stock entry"))?;
            let ordered = i64::from(line.quantity);
            entry.quantity -= ordered;
            if entry.quantity < 10 {
                entry.quantity += 91;
            }
            let is_remote = line.supply_warehouse != order.warehouse;
            let values = [Param::Int(entry.quantity), Param::Int(ordered), int(is_remote.into())];
            let [quantity, ytd, remote] = values;
            let params = [quantity, ytd, remote, int(line.supply_warehouse), int(line.item)];
            self.run(self.statements.order_update_stock, &params)?;
        }
        Ok(())
    }

    fn insert_lines(
        &mut self,
        order: &NewOrder,
        order_id: u32,
        stock: usize,
        amount: &dyn Fn(usize) -> i64,
    ) -> Result<(), SqlError> {
        let count = order.count;
        let mut dist_info = [[0_u8; 24]; LINES_MAX];
        let results = self.connection.results();
        for (line, info) in order.lines[..count].iter().zip(&mut dist_info) {
            let row = (0..results.rows(stock)).find_map(|number| {
                let mut row = results.row(stock, number);
                let is_it = row.int() == i64::from(line.supply_warehouse) && row.int() == i64::from(line.item);
                is_it.then_some(row)
            });
            let mut row = row.ok_or_else(|| missing("a stock entry"))?;
            black_box((row.int(), row.text()));
            let text = (0..order.district).map(|_| row.text()).last().unwrap_or_default();
            let length = text.len().min(info.len());
            info[..length].copy_from_slice(&text[..length]);
        }
        let mut params = [Param::Int(0); 9 * LINES_MAX];
        for (number, line) in order.lines[..count].iter().enumerate() {
            params[9 * number..9 * number + 9].copy_from_slice(&[
                int(order_id),
                int(order.district),
                int(order.warehouse),
                int(number as u32 + 1),
                int(line.item),
                int(line.supply_warehouse),
                int(line.quantity),
                cents(amount(number)),
                Param::Text(&dist_info[number]),
            ]);
        }
        let statement = self.statements.order_lines[count].expect("every number of lines is prepared");
        self.run(statement, &params[..9 * count]).map(drop)
    }

    fn payment(&mut self, payment: &Payment, at_us: i64) -> Result<Done, SqlError> {
        let (warehouse, district) = (int(payment.warehouse), int(payment.district));
        let (c_warehouse, c_district) = (int(payment.customer_warehouse), int(payment.customer_district));
        let amount = cents(payment.amount_cents);
        self.begin()?;
        self.run(self.statements.pay_district, &[amount, warehouse, district])?;
        let district_name = self.run(self.statements.pay_read_district, &[warehouse, district])?;
        self.run(self.statements.pay_warehouse, &[amount, warehouse])?;
        let warehouse_name = self.run(self.statements.pay_read_warehouse, &[warehouse])?;
        let number = match payment.customer {
            Customer::Number(number) => number,
            Customer::LastName(name) => {
                let params = [c_warehouse, c_district, Param::Text(name.as_bytes())];
                let found = self.run(self.statements.customers_by_name, &params)?;
                self.end_group()?;
                self.middle_customer(found)?.0
            }
        };
        let key = [c_warehouse, c_district, int(number)];
        let customer = self.run(self.statements.pay_customer, &key)?;
        self.end_group()?;

        let has_bad_credit = self.row(customer, "the customer")?.text() == b"BC";
        let mut history = [0; 24];
        let names = [warehouse_name, district_name];
        let length = self.history_data(names, &mut history)?;
        if has_bad_credit {
            let data = self.run(self.statements.pay_data, &key)?;
            self.end_group()?;
            let mut text = [0; DATA_MAX];
            let length = customer_data(payment, number, self.row(data, "the customer")?.text(), &mut text);
            let [warehouse, district, customer] = key;
            let params = [
                amount,
                amount,
                Param::Text(&text[..length]),
                warehouse,
                district,
                customer,
            ];
            self.run(self.statements.pay_update_data, &params)?;
        } else {
            let [warehouse, district, customer] = key;
            self.run(
                self.statements.pay_update,
                &[amount, amount, warehouse, district, customer],
            )?;
        }
        let at = Param::Timestamp(at_us);
        let text = Param::Text(&history[..length]);
        let entry = [
            c_district,
            c_warehouse,
            int(number),
            district,
            warehouse,
            at,
            amount,
            text,
        ];
        self.run(self.statements.pay_history, &entry)?;
        self.commit()?;
        Ok(Done::Committed(None))
    }

    /// Names of warehouse and district with four spaces between them.
    fn history_data(&self, names: [usize; 2], data: &mut [u8; 24]) -> Result<usize, SqlError> {
        let mut length = 0;
        for (result, gap) in names.into_iter().zip([&b""[..], b"    "]) {
            let name = self.row(result, "the warehouse or district")?.text();
            for part in [gap, name] {
                let part = &part[..part.len().min(data.len() - length)];
                data[length..length + part.len()].copy_from_slice(part);
                length += part.len();
            }
        }
        Ok(length)
    }

    /// Number of the middle one among the customers of a name (clause 2.5.2.2), and its balance column if there is one.
    fn middle_customer(&self, result: usize) -> Result<(u32, usize), SqlError> {
        let count = self.connection.results().rows(result);
        if count == 0 {
            return Err(missing("a customer of that name"));
        }
        let middle = count.div_ceil(2) - 1;
        Ok((self.connection.results().row(result, middle).int() as u32, middle))
    }

    fn order_status(&mut self, status: &OrderStatus) -> Result<Done, SqlError> {
        let (warehouse, district) = (int(status.warehouse), int(status.district));
        self.begin()?;
        let number = match status.customer {
            Customer::Number(number) => {
                self.run(self.statements.status_by_number, &[warehouse, district, int(number)])?;
                number
            }
            Customer::LastName(name) => {
                let params = [warehouse, district, Param::Text(name.as_bytes())];
                let found = self.run(self.statements.status_by_name, &params)?;
                self.end_group()?;
                self.middle_customer(found)?.0
            }
        };
        let newest = self.run(self.statements.status_order, &[warehouse, district, int(number)])?;
        self.end_group()?;
        let mut row = self.row(newest, "an order of the customer")?;
        let (order, carrier) = (row.int(), row.int_or_null());
        black_box(carrier);
        let lines = self.run(self.statements.status_lines, &[warehouse, district, Param::Int(order)])?;
        self.commit()?;
        if self.connection.results().rows(lines) == 0 {
            return Err(missing("the lines of an order"));
        }
        Ok(Done::Committed(None))
    }

    fn delivery(&mut self, delivery: &Delivery, at_us: i64) -> Result<Done, SqlError> {
        let warehouse = int(delivery.warehouse);
        self.begin()?;
        let mut oldest = [0; DISTRICTS as usize];
        for (district, result) in (1..).zip(&mut oldest) {
            *result = self.run(self.statements.deliver_oldest, &[warehouse, int(district)])?;
        }
        self.end_group()?;
        // An order 0 does not exist: it means a district without new orders.
        let results = self.connection.results();
        let orders = oldest.map(|result| match results.rows(result) {
            0 => 0,
            _ => results.row(result, 0).int() as u32,
        });
        let keys = || {
            (1..)
                .zip(orders)
                .flat_map(|(district, order)| [warehouse, int(district), int(order)])
        };
        self.run_many(Some(self.statements.deliver_dequeue), keys())?;
        let carrier = std::iter::once(int(delivery.carrier));
        self.run_many(Some(self.statements.deliver_carrier), carrier.chain(keys()))?;
        let customers = self.run_many(Some(self.statements.deliver_customers), keys())?;
        let at = std::iter::once(Param::Timestamp(at_us));
        self.run_many(Some(self.statements.deliver_lines), at.chain(keys()))?;
        let amounts = self.run_many(Some(self.statements.deliver_amounts), keys())?;
        self.end_group()?;

        for (district, _) in (1..=DISTRICTS).zip(orders).filter(|(_, order)| *order > 0) {
            let customer = self.of_district(customers, district, |row| row.int())?;
            let amount = self.of_district(amounts, district, |row| row.decimal(2))?;
            let params = [cents(amount), warehouse, int(district), Param::Int(customer)];
            self.run(self.statements.deliver_balance, &params)?;
        }
        self.commit()?;
        Ok(Done::Delivered {
            skipped_districts: orders.iter().filter(|order| **order == 0).count() as u32,
        })
    }

    /// The second value of the row whose first is the district.
    fn of_district(
        &self,
        result: usize,
        district: u32,
        value: impl Fn(&mut crate::sql::Row<'_>) -> i64,
    ) -> Result<i64, SqlError> {
        let results = self.connection.results();
        (0..results.rows(result))
            .find_map(|number| {
                let mut row = results.row(result, number);
                (row.int() == i64::from(district)).then(|| value(&mut row))
            })
            .ok_or_else(|| missing("an order that waits for delivery"))
    }

    fn stock_level(&mut self, level: &StockLevel) -> Result<Done, SqlError> {
        let (warehouse, district) = (int(level.warehouse), int(level.district));
        self.begin()?;
        let next = self.run(self.statements.level_district, &[warehouse, district])?;
        self.end_group()?;
        let next = Param::Int(self.row(next, "the district")?.int());
        let params = [warehouse, district, next, next, warehouse, int(level.threshold)];
        let counted = self.run(self.statements.level_count, &params)?;
        self.commit()?;
        black_box(self.row(counted, "the count of items")?.int());
        Ok(Done::Committed(None))
    }

    fn run_many<'p>(
        &mut self,
        statement: Option<Statement>,
        values: impl Iterator<Item = Param<'p>>,
    ) -> Result<usize, SqlError> {
        let mut params = [Param::Int(0); 2 * LINES_MAX + 1];
        let mut count = 0;
        for value in values {
            params[count] = value;
            count += 1;
        }
        let statement = statement.expect("every number of lines is prepared");
        self.run(statement, &params[..count])
    }

    fn row(&self, result: usize, what: &str) -> Result<crate::sql::Row<'_>, SqlError> {
        let results = self.connection.results();
        match results.rows(result) {
            0 => Err(missing(what)),
            _ => Ok(results.row(result, 0)),
        }
    }
}

fn int(value: u32) -> Param<'static> {
    Param::Int(value.into())
}

fn cents(units: i64) -> Param<'static> {
    Param::Decimal { units, scale: 2 }
}

/// The database lacks what the population has.
#[cold]
fn missing(what: &str) -> SqlError {
    SqlError {
        kind: ErrorKind::Other,
        message: format!("the database does not have {what} that it must have at this scale"),
    }
}

/// The new `c_data` of a customer with bad credit (clause 2.5.2.2): the payment, then as much of the old text as fits.
fn customer_data(payment: &Payment, customer: u32, old: &[u8], data: &mut [u8; DATA_MAX]) -> usize {
    use std::io::Write;
    let mut out = &mut data[..];
    let (whole, cents) = (payment.amount_cents / 100, payment.amount_cents % 100);
    write!(
        out,
        "{customer} {} {} {} {} {whole}.{cents:02}|",
        payment.customer_district, payment.customer_warehouse, payment.district, payment.warehouse
    )
    .expect("six numbers fit in 500 bytes");
    let free = out.len().min(old.len());
    out[..free].copy_from_slice(&old[..free]);
    let rest = out.len() - free;
    DATA_MAX - rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_of_a_customer_begins_with_the_payment_and_keeps_500_bytes() {
        let payment = Payment {
            warehouse: 3,
            district: 4,
            customer_warehouse: 1,
            customer_district: 2,
            customer: Customer::Number(77),
            amount_cents: 12_305,
        };
        let mut data = [0; DATA_MAX];
        let length = customer_data(&payment, 77, &[b'x'; 500], &mut data);
        assert_eq!(length, 500);
        assert!(data.starts_with(b"77 2 1 4 3 123.05|xxx"));
        assert_eq!(customer_data(&payment, 77, b"short", &mut data), 23);
        assert!(data[..23].ends_with(b"|short"));
    }
}
