//! The protocol of MariaDB and MySQL ("Client/Server Protocol" of MariaDB's documentation): prepared statements in the
//! binary format, results without repeated column descriptions where the server can leave them out.

use sha1::{Digest, Sha1};
use sha2::Sha256;
use time::UtcDateTime;

use crate::sql::error::{ErrorKind, SqlError};
use crate::sql::result::{ColumnTypes, Format, Results, Slot};
use crate::sql::socket::{Address, Socket, Traffic};
use crate::sql::{Connection, Login, Param, ServerVersion, Statement, credentials, numeric};

const BUFFER_BYTES: usize = 64 << 10;
/// Longest packet that is sent; longer content is split.
const PACKET_MAX: usize = 0xff_ffff;
/// Rows sent as one `INSERT`, where the server refuses files from the client.
const INSERT_BYTES: usize = 512 << 10;

/// Capabilities of the handshake.
mod capability {
    pub(super) const CLIENT_MYSQL: u32 = 1;
    pub(super) const CONNECT_WITH_DB: u32 = 1 << 3;
    pub(super) const LOCAL_FILES: u32 = 1 << 7;
    pub(super) const PROTOCOL_41: u32 = 1 << 9;
    pub(super) const TRANSACTIONS: u32 = 1 << 13;
    pub(super) const SECURE_CONNECTION: u32 = 1 << 15;
    pub(super) const PLUGIN_AUTH: u32 = 1 << 19;
    pub(super) const DEPRECATE_EOF: u32 = 1 << 24;
    /// In MariaDB's second word of capabilities.
    pub(super) const CACHE_METADATA: u32 = 1 << 4;
}

mod command {
    pub(super) const QUIT: u8 = 1;
    pub(super) const QUERY: u8 = 3;
    pub(super) const STATEMENT_PREPARE: u8 = 0x16;
    pub(super) const STATEMENT_EXECUTE: u8 = 0x17;
}

/// A connection to MariaDB or MySQL.
pub(crate) struct Mariadb {
    socket: Socket,
    version: ServerVersion,
    caches_metadata: bool,
    send: Vec<u8>,
    receive: Vec<u8>,
    filled: usize,
    parsed: usize,
    slots: Vec<Slot>,
    rows: Vec<(u32, u32)>,
    answered: usize,
    statements: Vec<Prepared>,
    columns: Vec<ColumnTypes>,
    load: Option<Load>,
    accepts_files: bool,
}

struct Prepared {
    id: u32,
    parameters: usize,
    types_sent: bool,
}

/// Rows on their way into a table.
struct Load {
    /// `INSERT INTO table (columns) VALUES `, where rows are sent as statements.
    insert: String,
    /// Number of the next packet of the file.
    sequence: u8,
}

/// A packet: its number, and where its content is.
type Packet = (u8, std::ops::Range<usize>);

impl Mariadb {
    pub(crate) fn connect(login: &Login) -> Result<Mariadb, SqlError> {
        let mut connection = Mariadb {
            socket: Socket::connect(&login.address)?,
            version: ServerVersion::default(),
            caches_metadata: false,
            send: Vec::with_capacity(BUFFER_BYTES),
            receive: vec![0; BUFFER_BYTES],
            filled: 0,
            parsed: 0,
            slots: Vec::with_capacity(64),
            rows: Vec::with_capacity(1024),
            answered: 0,
            statements: Vec::new(),
            columns: Vec::new(),
            load: None,
            accepts_files: true,
        };
        connection.socket.set_timeout(Some(login.login_timeout()))?;
        connection.authenticate(login)?;
        connection.socket.set_timeout(None)?;
        Ok(connection)
    }

    /// The handshake, up to the server's `OK`.
    fn authenticate(&mut self, login: &Login) -> Result<(), SqlError> {
        let (sequence, body) = self.packet()?;
        if self.receive.get(body.start) == Some(&0xff) {
            return Err(self.error(body));
        }
        let greeting = Greeting::parse(&self.receive[body])?;
        self.version = greeting.version();
        self.caches_metadata = greeting.extended & capability::CACHE_METADATA != 0;
        let mut plugin = greeting.plugin.clone();
        let mut nonce = greeting.nonce.clone();
        let answer = scrambled(&plugin, &nonce, login)?;
        self.put_packet(sequence + 1, |out| greeting.put_response(out, login, &answer));
        loop {
            self.socket.send(&mut self.send)?;
            let (sequence, body) = self.packet()?;
            let body_bytes = self.receive[body.clone()].to_vec();
            match body_bytes.first() {
                Some(0x00) => return Ok(()),
                Some(0xff) => return Err(self.error(body)),
                Some(0xfe) => {
                    let mut parts = body_bytes[1..].splitn(2, |byte| *byte == 0);
                    plugin = String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
                    nonce = parts.next().unwrap_or_default().to_vec();
                    nonce.truncate(20);
                    let answer = scrambled(&plugin, &nonce, login)?;
                    self.put_packet(sequence + 1, |out| out.extend_from_slice(&answer));
                }
                // MySQL's caching_sha2_password: 3 is success, 4 requests the password itself.
                Some(0x01) if body_bytes.get(1) == Some(&3) => {}
                Some(0x01) if body_bytes.get(1) == Some(&4) && matches!(login.address, Address::Unix(_)) => {
                    let password = credentials::password(login).unwrap_or_default();
                    self.put_packet(sequence + 1, |out| {
                        out.extend_from_slice(password.as_bytes());
                        out.push(0);
                    });
                }
                _ => return Err(unsupported_plugin(&plugin)),
            }
        }
    }

    fn put_packet(&mut self, sequence: u8, body: impl FnOnce(&mut Vec<u8>)) {
        let begin = self.send.len();
        self.send.extend_from_slice(&[0, 0, 0, sequence]);
        body(&mut self.send);
        end_packet(&mut self.send, begin);
    }

    /// The next packet, complete. Longer than 16 MiB they do not come here.
    fn packet(&mut self) -> Result<Packet, SqlError> {
        self.fill(4)?;
        let header = &self.receive[self.parsed..self.parsed + 4];
        let length = usize::from(header[0]) | usize::from(header[1]) << 8 | usize::from(header[2]) << 16;
        let sequence = header[3];
        self.fill(4 + length)?;
        let body = self.parsed + 4..self.parsed + 4 + length;
        self.parsed = body.end;
        Ok((sequence, body))
    }

    /// Receives until this many bytes can be parsed.
    #[inline]
    fn fill(&mut self, bytes: usize) -> Result<(), SqlError> {
        while self.filled < self.parsed + bytes {
            if self.receive.len() < self.parsed + bytes || self.filled == self.receive.len() {
                let grown = (2 * self.receive.len()).max(self.parsed + bytes);
                self.receive.resize(grown, 0);
            }
            self.filled += self.socket.receive(&mut self.receive[self.filled..])?;
        }
        Ok(())
    }

    fn error(&self, body: std::ops::Range<usize>) -> SqlError {
        let bytes = &self.receive[body];
        let code = bytes.get(1..3).map_or(0, |code| u16::from_le_bytes([code[0], code[1]]));
        // `#` and five characters of SQLSTATE come before the message, except in the handshake.
        let message = match bytes.get(3) {
            Some(b'#') => bytes.get(9..),
            _ => bytes.get(3..),
        };
        SqlError::mariadb(code, &String::from_utf8_lossy(message.unwrap_or_default()))
    }

    /// Reads the result of one execution into the next slot.
    fn await_result(&mut self) -> Result<(), SqlError> {
        let (_, body) = self.packet()?;
        let slot = self.answered;
        self.answered += 1;
        match self.receive[body.start] {
            0xff => return Err(self.error(body)),
            0x00 => {
                self.slots[slot].affected = length_encoded(&self.receive[body.start + 1..]).0;
                return Ok(());
            }
            _ => {}
        }
        let (columns, size) = length_encoded(&self.receive[body.clone()]);
        let follows = !self.caches_metadata || self.receive.get(body.start + size) != Some(&0);
        if follows {
            let statement = self.slots[slot].statement as usize;
            self.read_columns(columns as usize, statement)?;
        }
        self.slots[slot].first_row = self.rows.len() as u32;
        loop {
            let (_, body) = self.packet()?;
            match self.receive[body.start] {
                0x00 => {
                    self.rows.push((body.start as u32, body.len() as u32));
                    self.slots[slot].rows += 1;
                }
                0xff => return Err(self.error(body)),
                _ => return Ok(()),
            }
        }
    }

    /// Column descriptions, of which only the types are kept.
    fn read_columns(&mut self, count: usize, statement: usize) -> Result<(), SqlError> {
        let mut types = std::mem::take(&mut self.columns[statement]);
        types.clear();
        for _ in 0..count {
            let (_, body) = self.packet()?;
            types.push(column_type(&self.receive[body]));
        }
        self.columns[statement] = types;
        Ok(())
    }

    fn send_query(&mut self, sql: &str) -> Result<(), SqlError> {
        self.clear();
        self.put_packet(0, |out| {
            out.push(command::QUERY);
            out.extend_from_slice(sql.as_bytes());
        });
        self.socket.send(&mut self.send)
    }

    /// The rows of a text result.
    fn text_rows(&mut self) -> Result<Vec<Vec<Option<String>>>, SqlError> {
        let (_, body) = self.packet()?;
        match self.receive[body.start] {
            0xff => return Err(self.error(body)),
            0x00 => return Ok(Vec::new()),
            _ => {}
        }
        let columns = length_encoded(&self.receive[body]).0;
        for _ in 0..columns {
            self.packet()?;
        }
        let mut rows = Vec::new();
        loop {
            let (_, body) = self.packet()?;
            match self.receive[body.start] {
                0xff => return Err(self.error(body)),
                0xfe if body.len() < PACKET_MAX => return Ok(rows),
                _ => rows.push(text_row(&self.receive[body])),
            }
        }
    }

    /// Lines as the values of one `INSERT`.
    fn insert(&mut self, lines: &[u8]) -> Result<(), SqlError> {
        let Some(load) = &self.load else {
            return Err(SqlError::protocol("no rows are being loaded"));
        };
        let mut sql = load.insert.clone();
        for (number, line) in lines
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .enumerate()
        {
            sql.push_str(if number > 0 { ",(" } else { "(" });
            for (column, value) in line.split(|byte| *byte == b'\t').enumerate() {
                sql.push_str(if column > 0 { "," } else { "" });
                match value {
                    b"\\N" => sql.push_str("NULL"),
                    value => {
                        sql.push('\'');
                        sql.push_str(&String::from_utf8_lossy(value));
                        sql.push('\'');
                    }
                }
            }
            sql.push(')');
        }
        self.query(&sql).map(drop)
    }
}

impl Connection for Mariadb {
    fn version(&self) -> &ServerVersion {
        &self.version
    }

    fn prepare(&mut self, sql: &str) -> Result<Statement, SqlError> {
        self.clear();
        self.put_packet(0, |out| {
            out.push(command::STATEMENT_PREPARE);
            out.extend_from_slice(sql.as_bytes());
        });
        self.socket.send(&mut self.send)?;
        let (_, body) = self.packet()?;
        let answer = &self.receive[body.clone()];
        if answer[0] != 0 || answer.len() < 9 {
            return Err(self.error(body));
        }
        let id = u32::from_le_bytes(answer[1..5].try_into().expect("4 bytes"));
        let word = |at: usize| usize::from(u16::from_le_bytes([answer[at], answer[at + 1]]));
        let (columns, parameters) = (word(5), word(7));
        for _ in 0..parameters {
            self.packet()?;
        }
        self.columns.push(Vec::new());
        self.read_columns(columns, self.statements.len())?;
        self.statements.push(Prepared {
            id,
            parameters,
            types_sent: false,
        });
        Ok(Statement(self.statements.len() - 1))
    }

    fn query(&mut self, sql: &str) -> Result<Vec<Vec<Option<String>>>, SqlError> {
        self.send_query(sql)?;
        self.text_rows()
    }

    fn clear(&mut self) {
        self.receive.copy_within(self.parsed..self.filled, 0);
        self.filled -= self.parsed;
        self.parsed = 0;
        self.slots.clear();
        self.rows.clear();
        self.answered = 0;
    }

    fn queue(&mut self, statement: Statement, params: &[Param<'_>]) {
        let prepared = &mut self.statements[statement.0];
        debug_assert_eq!(prepared.parameters, params.len(), "a value for every placeholder");
        let out = &mut self.send;
        let begin = out.len();
        out.extend_from_slice(&[0, 0, 0, 0, command::STATEMENT_EXECUTE]);
        out.extend_from_slice(&prepared.id.to_le_bytes());
        // No cursor, one iteration.
        out.extend_from_slice(&[0, 1, 0, 0, 0]);
        if !params.is_empty() {
            // No value is null.
            out.resize(out.len() + params.len().div_ceil(8), 0);
            out.push(u8::from(!prepared.types_sent));
            if !prepared.types_sent {
                params
                    .iter()
                    .for_each(|param| out.extend_from_slice(&[param_type(*param), 0]));
                prepared.types_sent = true;
            }
            params.iter().for_each(|param| put_param(out, *param));
        }
        end_packet(out, begin);
        self.slots.push(Slot {
            statement: statement.0 as u32,
            ..Slot::default()
        });
        self.socket.traffic.statements += 1;
    }

    fn exchange(&mut self) -> Result<(), SqlError> {
        self.socket.traffic.round_trips += 1;
        self.socket.send(&mut self.send)?;
        let mut failed = None;
        while self.answered < self.slots.len() {
            if let Err(error) = self.await_result() {
                let is_over = matches!(error.kind, ErrorKind::Vanished | ErrorKind::Protocol);
                let first = failed.get_or_insert(error);
                if is_over {
                    return Err(first.clone());
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn results(&self) -> Results<'_> {
        Results {
            slots: &self.slots,
            rows: &self.rows,
            buffer: &self.receive,
            format: Format::Mariadb(&self.columns),
        }
    }

    fn skips_after_errors(&self) -> bool {
        false
    }

    fn traffic(&self) -> Traffic {
        self.socket.traffic
    }

    fn load_begin(&mut self, table: &str, columns: &str) -> Result<(), SqlError> {
        self.load = Some(Load {
            insert: format!("INSERT INTO {table} ({columns}) VALUES "),
            sequence: 0,
        });
        if !self.accepts_files {
            return Ok(());
        }
        let sql = format!("LOAD DATA LOCAL INFILE 'rows' INTO TABLE {table} CHARACTER SET utf8mb4 ({columns})");
        self.send_query(&sql)?;
        let (sequence, body) = self.packet()?;
        if self.receive[body.start] == 0xfb {
            self.load = self.load.take().map(|load| Load {
                sequence: sequence + 1,
                ..load
            });
            return Ok(());
        }
        let error = self.error(body);
        if error.kind != ErrorKind::LoadRefused {
            return Err(error);
        }
        self.accepts_files = false;
        Ok(())
    }

    fn load_rows(&mut self, lines: &[u8]) -> Result<(), SqlError> {
        if !self.accepts_files {
            let mut rest = lines;
            while !rest.is_empty() {
                let limit = &rest[..rest.len().min(INSERT_BYTES)];
                let cut = limit
                    .iter()
                    .rposition(|byte| *byte == b'\n')
                    .map_or(rest.len(), |at| at + 1);
                self.insert(&rest[..cut])?;
                rest = &rest[cut..];
            }
            return Ok(());
        }
        for part in lines.chunks(PACKET_MAX / 2) {
            let sequence = self.next_of_load();
            self.put_packet(sequence, |out| out.extend_from_slice(part));
            self.socket.send(&mut self.send)?;
        }
        Ok(())
    }

    fn load_end(&mut self) -> Result<(), SqlError> {
        if self.accepts_files {
            let sequence = self.next_of_load();
            self.put_packet(sequence, |_| ());
            self.socket.send(&mut self.send)?;
            self.text_rows()?;
        }
        self.load = None;
        Ok(())
    }

    fn load_method(&self) -> &'static str {
        if self.accepts_files {
            "load_data"
        } else {
            "multi_row_insert"
        }
    }
}

impl Mariadb {
    fn next_of_load(&mut self) -> u8 {
        let sequence = self.load.as_mut().map(|load| &mut load.sequence);
        sequence.map_or(0, |sequence| {
            let current = *sequence;
            *sequence = sequence.wrapping_add(1);
            current
        })
    }
}

impl Drop for Mariadb {
    fn drop(&mut self) {
        self.send.clear();
        self.put_packet(0, |out| out.push(command::QUIT));
        // The server may be gone already.
        let _ = self.socket.send(&mut self.send);
    }
}

/// The server's first packet.
struct Greeting {
    text: String,
    nonce: Vec<u8>,
    capabilities: u32,
    extended: u32,
    plugin: String,
}

impl Greeting {
    fn parse(body: &[u8]) -> Result<Greeting, SqlError> {
        let foreign = || SqlError::protocol("the peer does not use the protocol of MariaDB and MySQL");
        let end = body.iter().position(|byte| *byte == 0).ok_or_else(foreign)?;
        if body[0] != 10 || body.len() < end + 46 {
            return Err(foreign());
        }
        let rest = &body[end + 1..];
        let word = |at: usize| u32::from(u16::from_le_bytes([rest[at], rest[at + 1]]));
        let mut nonce = rest[4..12].to_vec();
        nonce.extend_from_slice(&rest[31..43]);
        let capabilities = word(13) | word(18) << 16;
        let extended = match capabilities & capability::CLIENT_MYSQL {
            0 => u32::from_le_bytes(rest[27..31].try_into().expect("4 bytes")),
            _ => 0,
        };
        let plugin = rest[43..].strip_prefix(&[0]).unwrap_or(&rest[43..]);
        let plugin = plugin.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(Greeting {
            text: String::from_utf8_lossy(&body[1..end]).into_owned(),
            nonce,
            capabilities,
            extended,
            plugin: String::from_utf8_lossy(plugin).into_owned(),
        })
    }

    fn version(&self) -> ServerVersion {
        match self.text.contains("MariaDB") {
            // Old clients know no version 10; MariaDB greets them with a prefix.
            true => ServerVersion::new("MariaDB", self.text.strip_prefix("5.5.5-").unwrap_or(&self.text)),
            false => ServerVersion::new("MySQL", &self.text),
        }
    }

    fn put_response(&self, out: &mut Vec<u8>, login: &Login, answer: &[u8]) {
        use capability::{
            CACHE_METADATA, CONNECT_WITH_DB, DEPRECATE_EOF, LOCAL_FILES, PLUGIN_AUTH, PROTOCOL_41, SECURE_CONNECTION,
            TRANSACTIONS,
        };
        let mut flags = LOCAL_FILES | PROTOCOL_41 | TRANSACTIONS | SECURE_CONNECTION | PLUGIN_AUTH | DEPRECATE_EOF;
        if !login.database.is_empty() {
            flags |= CONNECT_WITH_DB;
        }
        let is_mariadb = self.capabilities & capability::CLIENT_MYSQL == 0;
        flags |= u32::from(!is_mariadb);
        out.extend_from_slice(&flags.to_le_bytes());
        out.extend_from_slice(&(PACKET_MAX as u32).to_le_bytes());
        // utf8mb4_general_ci; the collation of the database is set at its creation.
        out.push(45);
        out.extend_from_slice(&[0; 19]);
        let extended = if is_mariadb { self.extended & CACHE_METADATA } else { 0 };
        out.extend_from_slice(&extended.to_le_bytes());
        out.extend_from_slice(login.user.as_bytes());
        out.push(0);
        out.push(answer.len() as u8);
        out.extend_from_slice(answer);
        if !login.database.is_empty() {
            out.extend_from_slice(login.database.as_bytes());
            out.push(0);
        }
        out.extend_from_slice(self.plugin.as_bytes());
        out.push(0);
    }
}

/// The answer to a method of authentication.
fn scrambled(plugin: &str, nonce: &[u8], login: &Login) -> Result<Vec<u8>, SqlError> {
    let password = credentials::password(login).unwrap_or_default();
    let xor = |left: &[u8], right: &[u8]| left.iter().zip(right).map(|(left, right)| left ^ right).collect();
    match plugin {
        // The kernel vouches for the user.
        "unix_socket" | "auth_socket" => Ok(Vec::new()),
        "mysql_native_password" | "caching_sha2_password" | "" if password.is_empty() => Ok(Vec::new()),
        "mysql_native_password" | "" => {
            let once = Sha1::digest(password.as_bytes());
            let twice = Sha1::digest(once);
            let salted = Sha1::new().chain_update(nonce).chain_update(twice).finalize();
            Ok(xor(&once, &salted))
        }
        "caching_sha2_password" => {
            let once = Sha256::digest(password.as_bytes());
            let twice = Sha256::digest(once);
            let salted = Sha256::new().chain_update(twice).chain_update(nonce).finalize();
            Ok(xor(&once, &salted))
        }
        other => Err(unsupported_plugin(other)),
    }
}

fn unsupported_plugin(plugin: &str) -> SqlError {
    let message = format!("the server demands authentication by `{plugin}`, which is not supported here");
    SqlError::new(ErrorKind::Authentication, message)
}

fn end_packet(out: &mut [u8], begin: usize) {
    let length = out.len() - begin - 4;
    debug_assert!(length < PACKET_MAX, "what is sent fits in one packet");
    out[begin..begin + 3].copy_from_slice(&(length as u32).to_le_bytes()[..3]);
}

/// A length-encoded integer and its size.
fn length_encoded(bytes: &[u8]) -> (u64, usize) {
    let number = |size: usize| {
        let mut whole = [0; 8];
        whole[..size].copy_from_slice(&bytes[1..=size]);
        (u64::from_le_bytes(whole), size + 1)
    };
    match bytes[0] {
        0xfc => number(2),
        0xfd => number(3),
        0xfe => number(8),
        short => (u64::from(short), 1),
    }
}

/// The type of a column from its description: six texts, the length of what follows, character set, size, type.
fn column_type(description: &[u8]) -> u8 {
    let mut at = 0;
    for _ in 0..6 {
        let (length, size) = length_encoded(&description[at..]);
        at += size + length as usize;
    }
    description[at + 7]
}

fn text_row(body: &[u8]) -> Vec<Option<String>> {
    let (mut values, mut rest) = (Vec::new(), body);
    while !rest.is_empty() {
        if rest[0] == 0xfb {
            values.push(None);
            rest = &rest[1..];
            continue;
        }
        let (length, size) = length_encoded(rest);
        let end = size + length as usize;
        values.push(Some(String::from_utf8_lossy(&rest[size..end]).into_owned()));
        rest = &rest[end..];
    }
    values
}

/// Types of parameters: 8 is `BIGINT`, 246 `DECIMAL`, 253 `VARCHAR`, 12 `DATETIME`.
fn param_type(param: Param<'_>) -> u8 {
    match param {
        Param::Int(_) => 8,
        Param::Decimal { .. } => 246,
        Param::Text(_) => 253,
        Param::Timestamp(_) => 12,
    }
}

fn put_param(out: &mut Vec<u8>, param: Param<'_>) {
    match param {
        Param::Int(value) => out.extend_from_slice(&value.to_le_bytes()),
        Param::Decimal { units, scale } => {
            let begin = out.len();
            out.push(0);
            numeric::write_text(units, scale, out);
            out[begin] = (out.len() - begin - 1) as u8;
        }
        Param::Text(text) => {
            match text.len() {
                length @ ..0xfb => out.push(length as u8),
                length => {
                    out.push(0xfd);
                    out.extend_from_slice(&(length as u32).to_le_bytes()[..3]);
                }
            }
            out.extend_from_slice(text);
        }
        Param::Timestamp(us) => {
            let time =
                UtcDateTime::from_unix_timestamp(us.div_euclid(1_000_000)).expect("a year of at most four digits");
            let (hour, minute, second) = time.as_hms();
            out.push(7);
            out.extend_from_slice(&(time.year() as u16).to_le_bytes());
            out.extend_from_slice(&[time.month().into(), time.day(), hour, minute, second]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_lengths_have_the_form_that_the_server_expects() {
        let sent = |param| {
            let mut out = Vec::new();
            put_param(&mut out, param);
            out
        };
        assert_eq!(sent(Param::Decimal { units: -150, scale: 2 }), b"\x05-1.50");
        assert_eq!(sent(Param::Timestamp(0)), [7, 0xb2, 7, 1, 1, 0, 0, 0]);
        assert_eq!(
            sent(Param::Timestamp(951_782_399_000_007)),
            [7, 0xd0, 7, 2, 28, 23, 59, 59]
        );
        assert_eq!(sent(Param::Text(&[b'x'; 300]))[..4], [0xfd, 44, 1, 0]);
        assert_eq!(length_encoded(&[7]), (7, 1));
        assert_eq!(length_encoded(&[0xfc, 1, 2]), (0x201, 3));
        assert_eq!(length_encoded(&[0xfd, 1, 2, 3]), (0x3_0201, 4));
        let expected = [Some("ab".into()), None, Some(String::new())];
        assert_eq!(text_row(b"\x02ab\xfb\x00"), expected);
    }
}
