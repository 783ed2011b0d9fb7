//! The statements of the five transactions, prepared once for each connection. Their shapes are those of go-tpc: items and
//! stock of an order are read with one statement each, its lines are inserted with one.

use crate::sql::{Connection, SqlError, Statement};
use iosonde_protocol::{Isolation, SqlServerKind};

use super::rules::LINES_MAX;
use crate::server::isolation_name;

/// Statements by the number of lines of an order.
pub(crate) type ByLines = [Option<Statement>; LINES_MAX + 1];

/// All statements of a terminal.
pub(crate) struct Statements {
    /// PostgreSQL: begins a transaction. MariaDB begins one with the first statement (`autocommit` is off).
    pub begin: Option<Statement>,
    pub commit: Statement,
    pub rollback: Statement,
    pub order_customer: Statement,
    pub order_district: Statement,
    pub order_next: Statement,
    pub order_items: ByLines,
    pub order_stock: ByLines,
    pub order_insert: Statement,
    pub order_queue: Statement,
    pub order_update_stock: Statement,
    pub order_lines: ByLines,
    pub pay_district: Statement,
    pub pay_read_district: Statement,
    pub pay_warehouse: Statement,
    pub pay_read_warehouse: Statement,
    pub customers_by_name: Statement,
    pub pay_customer: Statement,
    pub pay_data: Statement,
    pub pay_update: Statement,
    pub pay_update_data: Statement,
    pub pay_history: Statement,
    pub status_by_name: Statement,
    pub status_by_number: Statement,
    pub status_order: Statement,
    pub status_lines: Statement,
    pub deliver_oldest: Statement,
    pub deliver_dequeue: Statement,
    pub deliver_carrier: Statement,
    pub deliver_customers: Statement,
    pub deliver_lines: Statement,
    pub deliver_amounts: Statement,
    pub deliver_balance: Statement,
    pub level_district: Statement,
    pub level_count: Statement,
}

/// Ten times `(?,?,?)`.
const TEN_ORDERS: &str = "((?,?,?),(?,?,?),(?,?,?),(?,?,?),(?,?,?),(?,?,?),(?,?,?),(?,?,?),(?,?,?),(?,?,?))";

impl Statements {
    /// Prepares everything, and sets the isolation level.
    pub(crate) fn prepare(
        kind: SqlServerKind,
        isolation: Isolation,
        connection: &mut dyn Connection,
    ) -> Result<Statements, SqlError> {
        let level = isolation_name(isolation);
        let begin = match kind {
            SqlServerKind::Postgresql => Some(connection.prepare(&format!("BEGIN ISOLATION LEVEL {level}"))?),
            SqlServerKind::Mariadb => {
                connection.query(&format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}"))?;
                connection.query("SET autocommit = 0")?;
                None
            }
        };
        let by_lines = |connection: &mut dyn Connection, head: &str, group: &str, tail: &str| {
            let mut prepared: ByLines = [None; LINES_MAX + 1];
            for (count, place) in prepared.iter_mut().enumerate().skip(1) {
                let groups = vec![group; count].join(",");
                *place = Some(connection.prepare(&format!("{head}{groups}{tail}"))?);
            }
            Ok::<_, SqlError>(prepared)
        };
        let stock = "SELECT s_w_id, s_i_id, s_quantity, s_data, s_dist_01, s_dist_02, s_dist_03, s_dist_04, s_dist_05, \
                     s_dist_06, s_dist_07, s_dist_08, s_dist_09, s_dist_10 FROM stock WHERE (s_w_id, s_i_id) IN (";
        let lines = "INSERT INTO order_line (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, \
                     ol_amount, ol_dist_info) VALUES ";
        let items = "SELECT i_id, i_price, i_name, i_data FROM item WHERE i_id IN (";
        let order_items = by_lines(connection, items, "?", ")")?;
        let order_stock = by_lines(connection, stock, "(?,?)", ") FOR UPDATE")?;
        let order_lines = by_lines(connection, lines, "(?,?,?,?,?,?,?,?,?)", "")?;
        let mut prepare = |sql: &str| connection.prepare(&sql.replace("TEN_ORDERS", TEN_ORDERS));
        Ok(Statements {
            begin,
            commit: prepare("COMMIT")?,
            rollback: prepare("ROLLBACK")?,
            order_customer: prepare(sql::ORDER_CUSTOMER)?,
            order_district: prepare(sql::ORDER_DISTRICT)?,
            order_next: prepare(sql::ORDER_NEXT)?,
            order_items,
            order_stock,
            order_insert: prepare(sql::ORDER_INSERT)?,
            order_queue: prepare(sql::ORDER_QUEUE)?,
            order_update_stock: prepare(sql::ORDER_UPDATE_STOCK)?,
            order_lines,
            pay_district: prepare(sql::PAY_DISTRICT)?,
            pay_read_district: prepare(sql::PAY_READ_DISTRICT)?,
            pay_warehouse: prepare(sql::PAY_WAREHOUSE)?,
            pay_read_warehouse: prepare(sql::PAY_READ_WAREHOUSE)?,
            customers_by_name: prepare(sql::CUSTOMERS_BY_NAME)?,
            pay_customer: prepare(sql::PAY_CUSTOMER)?,
            pay_data: prepare(sql::PAY_DATA)?,
            pay_update: prepare(sql::PAY_UPDATE)?,
            pay_update_data: prepare(sql::PAY_UPDATE_DATA)?,
            pay_history: prepare(sql::PAY_HISTORY)?,
            status_by_name: prepare(sql::STATUS_BY_NAME)?,
            status_by_number: prepare(sql::STATUS_BY_NUMBER)?,
            status_order: prepare(sql::STATUS_ORDER)?,
            status_lines: prepare(sql::STATUS_LINES)?,
            deliver_oldest: prepare(sql::DELIVER_OLDEST)?,
            deliver_dequeue: prepare(sql::DELIVER_DEQUEUE)?,
            deliver_carrier: prepare(sql::DELIVER_CARRIER)?,
            deliver_customers: prepare(sql::DELIVER_CUSTOMERS)?,
            deliver_lines: prepare(sql::DELIVER_LINES)?,
            deliver_amounts: prepare(sql::DELIVER_AMOUNTS)?,
            deliver_balance: prepare(sql::DELIVER_BALANCE)?,
            level_district: prepare(sql::LEVEL_DISTRICT)?,
            level_count: prepare(sql::LEVEL_COUNT)?,
        })
    }
}

/// The texts; `TEN_ORDERS` is replaced by the keys of ten orders.
mod sql {
    pub(super) const ORDER_CUSTOMER: &str = "SELECT c_discount, c_last, c_credit, w_tax FROM customer, warehouse \
        WHERE w_id = ? AND c_w_id = w_id AND c_d_id = ? AND c_id = ?";
    pub(super) const ORDER_DISTRICT: &str =
        "SELECT d_next_o_id, d_tax FROM district WHERE d_w_id = ? AND d_id = ? FOR UPDATE";
    pub(super) const ORDER_NEXT: &str =
        "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = ? AND d_id = ?";
    pub(super) const ORDER_INSERT: &str = "INSERT INTO orders (o_id, o_d_id, o_w_id, o_c_id, o_entry_d, o_ol_cnt, \
        o_all_local) VALUES (?, ?, ?, ?, ?, ?, ?)";
    pub(super) const ORDER_QUEUE: &str = "INSERT INTO new_order (no_o_id, no_d_id, no_w_id) VALUES (?, ?, ?)";
    pub(super) const ORDER_UPDATE_STOCK: &str = "UPDATE stock SET s_quantity = ?, s_ytd = s_ytd + ?, \
        s_order_cnt = s_order_cnt + 1, s_remote_cnt = s_remote_cnt + ? WHERE s_w_id = ? AND s_i_id = ?";
    pub(super) const PAY_DISTRICT: &str = "UPDATE district SET d_ytd = d_ytd + ? WHERE d_w_id = ? AND d_id = ?";
    pub(super) const PAY_READ_DISTRICT: &str =
        "SELECT d_name, d_street_1, d_street_2, d_city, d_state, d_zip FROM district WHERE d_w_id = ? AND d_id = ?";
    pub(super) const PAY_WAREHOUSE: &str = "UPDATE warehouse SET w_ytd = w_ytd + ? WHERE w_id = ?";
    pub(super) const PAY_READ_WAREHOUSE: &str =
        "SELECT w_name, w_street_1, w_street_2, w_city, w_state, w_zip FROM warehouse WHERE w_id = ?";
    pub(super) const CUSTOMERS_BY_NAME: &str =
        "SELECT c_id FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_last = ? ORDER BY c_first";
    pub(super) const PAY_CUSTOMER: &str = "SELECT c_credit, c_first, c_middle, c_last, c_street_1, c_street_2, c_city, \
        c_state, c_zip, c_phone, c_credit_lim, c_discount, c_balance, c_since FROM customer \
        WHERE c_w_id = ? AND c_d_id = ? AND c_id = ? FOR UPDATE";
    pub(super) const PAY_DATA: &str = "SELECT c_data FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?";
    pub(super) const PAY_UPDATE: &str = "UPDATE customer SET c_balance = c_balance - ?, \
        c_ytd_payment = c_ytd_payment + ?, c_payment_cnt = c_payment_cnt + 1 \
        WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?";
    pub(super) const PAY_UPDATE_DATA: &str = "UPDATE customer SET c_balance = c_balance - ?, \
        c_ytd_payment = c_ytd_payment + ?, c_payment_cnt = c_payment_cnt + 1, c_data = ? \
        WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?";
    pub(super) const PAY_HISTORY: &str = "INSERT INTO history (h_c_d_id, h_c_w_id, h_c_id, h_d_id, h_w_id, h_date, \
        h_amount, h_data) VALUES (?, ?, ?, ?, ?, ?, ?, ?)";
    pub(super) const STATUS_BY_NAME: &str = "SELECT c_id, c_balance, c_first, c_middle FROM customer \
        WHERE c_w_id = ? AND c_d_id = ? AND c_last = ? ORDER BY c_first";
    pub(super) const STATUS_BY_NUMBER: &str = "SELECT c_id, c_balance, c_first, c_middle, c_last FROM customer \
        WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?";
    pub(super) const STATUS_ORDER: &str = "SELECT o_id, o_carrier_id, o_entry_d FROM orders \
        WHERE o_w_id = ? AND o_d_id = ? AND o_c_id = ? ORDER BY o_id DESC LIMIT 1";
    pub(super) const STATUS_LINES: &str = "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d \
        FROM order_line WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?";
    pub(super) const DELIVER_OLDEST: &str = "SELECT no_o_id FROM new_order WHERE no_w_id = ? AND no_d_id = ? \
        ORDER BY no_o_id LIMIT 1 FOR UPDATE";
    pub(super) const DELIVER_DEQUEUE: &str = "DELETE FROM new_order WHERE (no_w_id, no_d_id, no_o_id) IN TEN_ORDERS";
    pub(super) const DELIVER_CARRIER: &str =
        "UPDATE orders SET o_carrier_id = ? WHERE (o_w_id, o_d_id, o_id) IN TEN_ORDERS";
    pub(super) const DELIVER_CUSTOMERS: &str =
        "SELECT o_d_id, o_c_id FROM orders WHERE (o_w_id, o_d_id, o_id) IN TEN_ORDERS";
    pub(super) const DELIVER_LINES: &str =
        "UPDATE order_line SET ol_delivery_d = ? WHERE (ol_w_id, ol_d_id, ol_o_id) IN TEN_ORDERS";
    pub(super) const DELIVER_AMOUNTS: &str = "SELECT ol_d_id, SUM(ol_amount) FROM order_line \
        WHERE (ol_w_id, ol_d_id, ol_o_id) IN TEN_ORDERS GROUP BY ol_d_id";
    pub(super) const DELIVER_BALANCE: &str = "UPDATE customer SET c_balance = c_balance + ?, \
        c_delivery_cnt = c_delivery_cnt + 1 WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?";
    pub(super) const LEVEL_DISTRICT: &str = "SELECT d_next_o_id FROM district WHERE d_w_id = ? AND d_id = ?";
    pub(super) const LEVEL_COUNT: &str = "SELECT COUNT(DISTINCT s_i_id) FROM order_line, stock \
        WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id < ? AND ol_o_id >= ? - 20 AND s_w_id = ? \
        AND s_i_id = ol_i_id AND s_quantity < ?";
}
