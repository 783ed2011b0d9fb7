//! The nine tables (clause 1.3), with the names and types that go-tpc uses, so that either program can use the other's
//! database.

use iosonde_protocol::SqlServerKind;

/// A table of the schema.
pub(crate) struct Table {
    pub name: &'static str,
    /// Names and types, as `name TYPE` each; `TIME` is replaced by the server's timestamp type.
    pub columns: &'static [&'static str],
    pub primary_key: &'static str,
    /// Names and columns of the other indexes.
    pub indexes: &'static [(&'static str, &'static str)],
}

/// Every table, in the order in which go-tpc creates them.
pub(crate) const TABLES: [Table; 9] = [
    Table {
        name: "warehouse",
        columns: &[
            "w_id INT NOT NULL",
            "w_name VARCHAR(10)",
            "w_street_1 VARCHAR(20)",
            "w_street_2 VARCHAR(20)",
            "w_city VARCHAR(20)",
            "w_state CHAR(2)",
            "w_zip CHAR(9)",
            "w_tax DECIMAL(4,4)",
            "w_ytd DECIMAL(12,2)",
        ],
        primary_key: "w_id",
        indexes: &[],
    },
    Table {
        name: "district",
        columns: &[
            "d_id INT NOT NULL",
            "d_w_id INT NOT NULL",
            "d_name VARCHAR(10)",
            "d_street_1 VARCHAR(20)",
            "d_street_2 VARCHAR(20)",
            "d_city VARCHAR(20)",
            "d_state CHAR(2)",
            "d_zip CHAR(9)",
            "d_tax DECIMAL(4,4)",
            "d_ytd DECIMAL(12,2)",
            "d_next_o_id INT",
        ],
        primary_key: "d_w_id, d_id",
        indexes: &[],
    },
    Table {
        name: "customer",
        columns: &[
            "c_id INT NOT NULL",
            "c_d_id INT NOT NULL",
            "c_w_id INT NOT NULL",
            "c_first VARCHAR(16)",
            "c_middle CHAR(2)",
            "c_last VARCHAR(16)",
            "c_street_1 VARCHAR(20)",
            "c_street_2 VARCHAR(20)",
            "c_city VARCHAR(20)",
            "c_state CHAR(2)",
            "c_zip CHAR(9)",
            "c_phone CHAR(16)",
            "c_since TIME",
            "c_credit CHAR(2)",
            "c_credit_lim DECIMAL(12,2)",
            "c_discount DECIMAL(4,4)",
            "c_balance DECIMAL(12,2)",
            "c_ytd_payment DECIMAL(12,2)",
            "c_payment_cnt INT",
            "c_delivery_cnt INT",
            "c_data VARCHAR(500)",
        ],
        primary_key: "c_w_id, c_d_id, c_id",
        indexes: &[("idx_customer", "c_w_id, c_d_id, c_last, c_first")],
    },
    Table {
        name: "history",
        columns: &[
            "h_c_id INT NOT NULL",
            "h_c_d_id INT NOT NULL",
            "h_c_w_id INT NOT NULL",
            "h_d_id INT NOT NULL",
            "h_w_id INT NOT NULL",
            "h_date TIME",
            "h_amount DECIMAL(6,2)",
            "h_data VARCHAR(24)",
        ],
        primary_key: "",
        indexes: &[("idx_h_w_id", "h_w_id"), ("idx_h_c_w_id", "h_c_w_id")],
    },
    Table {
        name: "new_order",
        columns: &["no_o_id INT NOT NULL", "no_d_id INT NOT NULL", "no_w_id INT NOT NULL"],
        primary_key: "no_w_id, no_d_id, no_o_id",
        indexes: &[],
    },
    Table {
        name: "orders",
        columns: &[
            "o_id INT NOT NULL",
            "o_d_id INT NOT NULL",
            "o_w_id INT NOT NULL",
            "o_c_id INT",
            "o_entry_d TIME",
            "o_carrier_id INT",
            "o_ol_cnt INT",
            "o_all_local INT",
        ],
        primary_key: "o_w_id, o_d_id, o_id",
        indexes: &[("idx_order", "o_w_id, o_d_id, o_c_id, o_id")],
    },
    Table {
        name: "order_line",
        columns: &[
            "ol_o_id INT NOT NULL",
            "ol_d_id INT NOT NULL",
            "ol_w_id INT NOT NULL",
            "ol_number INT NOT NULL",
            "ol_i_id INT NOT NULL",
            "ol_supply_w_id INT",
            "ol_delivery_d TIME",
            "ol_quantity INT",
            "ol_amount DECIMAL(6,2)",
            "ol_dist_info CHAR(24)",
        ],
        primary_key: "ol_w_id, ol_d_id, ol_o_id, ol_number",
        indexes: &[],
    },
    Table {
        name: "stock",
        columns: &[
            "s_i_id INT NOT NULL",
            "s_w_id INT NOT NULL",
            "s_quantity INT",
            "s_dist_01 CHAR(24)",
            "s_dist_02 CHAR(24)",
            "s_dist_03 CHAR(24)",
            "s_dist_04 CHAR(24)",
            "s_dist_05 CHAR(24)",
            "s_dist_06 CHAR(24)",
            "s_dist_07 CHAR(24)",
            "s_dist_08 CHAR(24)",
            "s_dist_09 CHAR(24)",
            "s_dist_10 CHAR(24)",
            "s_ytd INT",
            "s_order_cnt INT",
            "s_remote_cnt INT",
            "s_data VARCHAR(50)",
        ],
        primary_key: "s_w_id, s_i_id",
        indexes: &[],
    },
    Table {
        name: "item",
        columns: &[
            "i_id INT NOT NULL",
            "i_im_id INT",
            "i_name VARCHAR(24)",
            "i_price DECIMAL(5,2)",
            "i_data VARCHAR(50)",
        ],
        primary_key: "i_id",
        indexes: &[],
    },
];

/// Names of all tables.
pub(crate) fn names() -> [&'static str; 9] {
    TABLES.map(|table| table.name)
}

impl Table {
    /// The table of a name.
    pub(crate) fn named(name: &str) -> &'static Table {
        static ALL: [Table; 9] = TABLES;
        ALL.iter()
            .find(|table| table.name == name)
            .expect("names are those of the schema")
    }

    /// Names of the columns, for loading.
    pub(crate) fn column_names(&self) -> String {
        let names = self
            .columns
            .iter()
            .map(|column| column.split(' ').next().unwrap_or_default());
        names.collect::<Vec<_>>().join(", ")
    }

    /// Before loading. InnoDB keeps rows in the order of the primary key, so it has the key from the beginning; PostgreSQL
    /// builds the index faster afterwards.
    pub(crate) fn create(&self, kind: SqlServerKind) -> String {
        let (time, rest) = match (kind, self.primary_key) {
            (SqlServerKind::Postgresql, _) => ("TIMESTAMP", ")".to_owned()),
            (SqlServerKind::Mariadb, "") => ("DATETIME", ") ENGINE=InnoDB".to_owned()),
            (SqlServerKind::Mariadb, key) => ("DATETIME", format!(", PRIMARY KEY ({key})) ENGINE=InnoDB")),
        };
        let columns = self.columns.join(", ").replace("TIME", time);
        format!("CREATE TABLE {} ({columns}{rest}", self.name)
    }

    /// After loading.
    pub(crate) fn index(&self, kind: SqlServerKind) -> Vec<String> {
        let name = self.name;
        let mut statements = Vec::new();
        if kind == SqlServerKind::Postgresql && !self.primary_key.is_empty() {
            statements.push(format!("ALTER TABLE {name} ADD PRIMARY KEY ({})", self.primary_key));
        }
        statements.extend(
            self.indexes
                .iter()
                .map(|(index, columns)| format!("CREATE INDEX {index} ON {name} ({columns})")),
        );
        statements.push(match kind {
            SqlServerKind::Postgresql => format!("VACUUM ANALYZE {name}"),
            SqlServerKind::Mariadb => format!("ANALYZE TABLE {name}"),
        });
        statements
    }
}
