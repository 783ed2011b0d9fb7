//! PostgreSQL's protocol 3.0 (chapter "Frontend/Backend Protocol" of its manual): extended queries in the binary format.

use std::io;

use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};

use crate::sql::error::{ErrorKind, SqlError};
use crate::sql::result::{Format, Results, Slot};
use crate::sql::socket::{Socket, Traffic};
use crate::sql::{Address, Connection, Login, Param, ServerVersion, Statement, credentials, numeric};

/// Microseconds since 1970 at 2000-01-01, PostgreSQL's epoch.
const EPOCH_2000_US: i64 = 946_684_800_000_000;

const BUFFER_BYTES: usize = 64 << 10;

/// Object identifiers of the types that parameters are sent as (`pg_type.dat`).
mod oid {
    pub(super) const INT8: u32 = 20;
    pub(super) const INT2: u32 = 21;
    pub(super) const INT4: u32 = 23;
    pub(super) const NUMERIC: u32 = 1700;
}

/// A connection to PostgreSQL.
pub(crate) struct Postgresql {
    socket: Socket,
    version: ServerVersion,
    send: Vec<u8>,
    receive: Vec<u8>,
    /// Bytes received, and how many of them were looked at.
    filled: usize,
    parsed: usize,
    slots: Vec<Slot>,
    rows: Vec<(u32, u32)>,
    /// Slots whose result is complete.
    answered: usize,
    statements: Vec<Prepared>,
}

struct Prepared {
    name: Box<[u8]>,
    parameters: Vec<u32>,
}

/// A message's type and where its body is in the receive buffer.
type Message = (u8, std::ops::Range<usize>);

impl Postgresql {
    pub(crate) fn connect(login: &Login) -> Result<Postgresql, SqlError> {
        let mut connection = Postgresql {
            socket: Socket::connect(&login.address)?,
            version: ServerVersion::default(),
            send: Vec::with_capacity(BUFFER_BYTES),
            receive: vec![0; BUFFER_BYTES],
            filled: 0,
            parsed: 0,
            slots: Vec::with_capacity(64),
            rows: Vec::with_capacity(1024),
            answered: 0,
            statements: Vec::new(),
        };
        connection.socket.set_timeout(Some(login.login_timeout()))?;
        connection.send_startup(login);
        connection.authenticate(login)?;
        connection.socket.set_timeout(None)?;
        Ok(connection)
    }

    fn send_startup(&mut self, login: &Login) {
        let settings = [
            ("user", login.user.as_str()),
            ("database", &login.database),
            ("application_name", "iosonde"),
            ("client_encoding", "UTF8"),
            ("DateStyle", "ISO"),
        ];
        self.send.extend_from_slice(&[0; 4]);
        self.send.extend_from_slice(&(3_i32 << 16).to_be_bytes());
        for (name, value) in settings {
            for text in [name, value] {
                self.send.extend_from_slice(text.as_bytes());
                self.send.push(0);
            }
        }
        self.send.push(0);
        let length = (self.send.len() as u32).to_be_bytes();
        self.send[..4].copy_from_slice(&length);
    }

    /// From the startup message to the first `ReadyForQuery`.
    fn authenticate(&mut self, login: &Login) -> Result<(), SqlError> {
        let mut scram = None;
        self.socket.send(&mut self.send)?;
        loop {
            let (kind, body) = self.message()?;
            match kind {
                b'R' => {
                    let body = self.receive[body].to_vec();
                    self.answer_authentication(login, &body, &mut scram)?;
                    self.socket.send(&mut self.send)?;
                }
                b'S' => self.note_parameter(body),
                b'Z' => return Ok(()),
                b'E' => return Err(self.error(body)),
                b'K' | b'N' | b'v' => {}
                _ => return Err(SqlError::protocol("the peer does not use PostgreSQL's protocol 3.0")),
            }
        }
    }

    fn answer_authentication(
        &mut self,
        login: &Login,
        body: &[u8],
        scram: &mut Option<ScramSha256>,
    ) -> Result<(), SqlError> {
        let (method, rest) = body.split_first_chunk().ok_or_else(truncated)?;
        let password = || {
            credentials::password(login).ok_or_else(|| {
                let message = format!(
                    "the server requires a password for user `{}`, and none was found",
                    login.user
                );
                SqlError::new(ErrorKind::Authentication, message)
            })
        };
        let failed = |error: io::Error| SqlError::new(ErrorKind::Authentication, error.to_string());
        match i32::from_be_bytes(*method) {
            0 => {}
            3 if !matches!(login.address, Address::Unix(_)) => {
                let message = "the server requests the password in clear text, which is sent through a Unix socket \
                               only: set `scram-sha-256` in its `pg_hba.conf`";
                return Err(SqlError::new(ErrorKind::Authentication, message));
            }
            3 => {
                let password = password()?;
                self.put(b'p', |out| put_text(out, password.as_bytes()));
            }
            5 => {
                let salt = rest.try_into().map_err(|_| truncated())?;
                let hash = md5_hash(login.user.as_bytes(), password()?.as_bytes(), salt);
                self.put(b'p', |out| put_text(out, hash.as_bytes()));
            }
            10 => {
                let exchange = ScramSha256::new(password()?.as_bytes(), ChannelBinding::unsupported());
                self.put(b'p', |out| {
                    put_text(out, SCRAM_SHA_256.as_bytes());
                    out.extend_from_slice(&(exchange.message().len() as i32).to_be_bytes());
                    out.extend_from_slice(exchange.message());
                });
                *scram = Some(exchange);
            }
            11 => {
                let exchange = scram.as_mut().ok_or_else(truncated)?;
                exchange.update(rest).map_err(failed)?;
                let answer = exchange.message().to_vec();
                self.put(b'p', |out| out.extend_from_slice(&answer));
            }
            12 => scram.as_mut().ok_or_else(truncated)?.finish(rest).map_err(failed)?,
            other => {
                let message = format!("the server demands authentication method {other}, which is not supported");
                return Err(SqlError::new(ErrorKind::Authentication, message));
            }
        }
        Ok(())
    }

    fn note_parameter(&mut self, body: std::ops::Range<usize>) {
        let mut parts = self.receive[body].split(|byte| *byte == 0);
        if parts.next() == Some(b"server_version")
            && let Some(value) = parts.next()
        {
            self.version = ServerVersion::new("PostgreSQL", &String::from_utf8_lossy(value));
        }
    }

    /// Appends a message; its length is filled in afterwards.
    fn put(&mut self, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
        let begin = begin_message(&mut self.send, kind);
        body(&mut self.send);
        end_message(&mut self.send, begin);
    }

    /// The next message, complete.
    fn message(&mut self) -> Result<Message, SqlError> {
        self.fill(5)?;
        let kind = self.receive[self.parsed];
        let length = &self.receive[self.parsed + 1..self.parsed + 5];
        let length = u32::from_be_bytes(length.try_into().expect("4 bytes")) as usize;
        if !(4..1 << 30).contains(&length) {
            return Err(SqlError::protocol("the peer does not use PostgreSQL's protocol 3.0"));
        }
        self.fill(1 + length)?;
        let body = self.parsed + 5..self.parsed + 1 + length;
        self.parsed = body.end;
        Ok((kind, body))
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
        let (mut code, mut message) = (String::new(), String::new());
        for field in self.receive[body].split(|byte| *byte == 0) {
            match field.split_first() {
                Some((b'C', text)) => code = String::from_utf8_lossy(text).into_owned(),
                Some((b'M', text)) => message = String::from_utf8_lossy(text).into_owned(),
                _ => {}
            }
        }
        SqlError::postgresql(&code, &message)
    }

    /// Reads results until the server is ready again.
    fn await_results(&mut self) -> Result<(), SqlError> {
        let mut failed = None;
        loop {
            let (kind, body) = match self.message() {
                Ok(message) => message,
                Err(error) => return Err(failed.unwrap_or(error)),
            };
            match kind {
                b'D' => {
                    let slot = &mut self.slots[self.answered];
                    if slot.rows == 0 {
                        slot.first_row = self.rows.len() as u32;
                    }
                    slot.rows += 1;
                    self.rows.push((body.start as u32, body.len() as u32));
                }
                b'C' => {
                    let affected = affected(&self.receive[body]);
                    if let Some(slot) = self.slots.get_mut(self.answered) {
                        slot.affected = affected;
                        self.answered += 1;
                    }
                }
                b'I' => self.answered += 1,
                b'E' => {
                    let error = self.error(body);
                    failed.get_or_insert(error);
                }
                b'Z' => break,
                _ => {}
            }
        }
        self.answered = self.slots.len();
        failed.map_or(Ok(()), Err)
    }
}

impl Connection for Postgresql {
    fn version(&self) -> &ServerVersion {
        &self.version
    }

    fn prepare(&mut self, sql: &str) -> Result<Statement, SqlError> {
        let name = format!("s{}", self.statements.len()).into_bytes();
        let text = numbered(sql);
        self.put(b'P', |out| {
            put_text(out, &name);
            put_text(out, text.as_bytes());
            out.extend_from_slice(&[0, 0]);
        });
        self.put(b'D', |out| {
            out.push(b'S');
            put_text(out, &name);
        });
        self.put(b'S', |_| ());
        self.socket.send(&mut self.send)?;
        let (mut parameters, mut failed) = (Vec::new(), None);
        loop {
            let (kind, body) = self.message()?;
            match kind {
                b't' => {
                    let types = self.receive[body].get(2..).unwrap_or_default().chunks_exact(4);
                    parameters = types
                        .map(|oid| u32::from_be_bytes(oid.try_into().expect("4 bytes")))
                        .collect();
                }
                b'E' => failed = Some(self.error(body)),
                b'Z' => break,
                _ => {}
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        let name = name.into_boxed_slice();
        self.statements.push(Prepared { name, parameters });
        Ok(Statement(self.statements.len() - 1))
    }

    fn query(&mut self, sql: &str) -> Result<Vec<Vec<Option<String>>>, SqlError> {
        self.clear();
        self.put(b'Q', |out| put_text(out, sql.as_bytes()));
        self.socket.send(&mut self.send)?;
        let (mut rows, mut failed) = (Vec::new(), None);
        loop {
            let (kind, body) = match self.message() {
                Ok(message) => message,
                Err(error) => return Err(failed.unwrap_or(error)),
            };
            match kind {
                b'D' => rows.push(text_row(&self.receive[body])),
                b'E' => {
                    let error = self.error(body);
                    failed.get_or_insert(error);
                }
                b'Z' => break,
                _ => {}
            }
            if self.parsed == self.filled {
                (self.parsed, self.filled) = (0, 0);
            }
        }
        failed.map_or(Ok(rows), Err)
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
        let prepared = &self.statements[statement.0];
        debug_assert_eq!(prepared.parameters.len(), params.len(), "a value for every placeholder");
        let out = &mut self.send;
        let begin = begin_message(out, b'B');
        out.push(0);
        out.extend_from_slice(&prepared.name);
        out.push(0);
        // One format code for all parameters: binary.
        out.extend_from_slice(&[0, 1, 0, 1]);
        out.extend_from_slice(&(params.len() as i16).to_be_bytes());
        for (param, oid) in params.iter().zip(&prepared.parameters) {
            put_param(out, *param, *oid);
        }
        out.extend_from_slice(&[0, 1, 0, 1]);
        end_message(out, begin);
        // Execute the unnamed portal, all rows.
        out.extend_from_slice(&[b'E', 0, 0, 0, 9, 0, 0, 0, 0, 0]);
        self.slots.push(Slot {
            statement: statement.0 as u32,
            ..Slot::default()
        });
        self.socket.traffic.statements += 1;
    }

    fn exchange(&mut self) -> Result<(), SqlError> {
        self.send.extend_from_slice(&[b'S', 0, 0, 0, 4]);
        self.socket.traffic.round_trips += 1;
        self.socket.send(&mut self.send)?;
        self.await_results()
    }

    fn results(&self) -> Results<'_> {
        Results {
            slots: &self.slots,
            rows: &self.rows,
            buffer: &self.receive,
            format: Format::Postgresql,
        }
    }

    fn skips_after_errors(&self) -> bool {
        true
    }

    fn traffic(&self) -> Traffic {
        self.socket.traffic
    }

    fn load_begin(&mut self, table: &str, columns: &str) -> Result<(), SqlError> {
        self.clear();
        let sql = format!("COPY {table} ({columns}) FROM STDIN");
        self.put(b'Q', |out| put_text(out, sql.as_bytes()));
        self.socket.send(&mut self.send)?;
        let mut failed = None;
        loop {
            let (kind, body) = self.message()?;
            match kind {
                b'G' => return Ok(()),
                b'E' => failed = Some(self.error(body)),
                b'Z' => return Err(failed.unwrap_or_else(truncated)),
                _ => {}
            }
        }
    }

    fn load_rows(&mut self, lines: &[u8]) -> Result<(), SqlError> {
        self.put(b'd', |out| out.extend_from_slice(lines));
        self.socket.send(&mut self.send)
    }

    fn load_end(&mut self) -> Result<(), SqlError> {
        self.put(b'c', |_| ());
        self.socket.send(&mut self.send)?;
        self.await_results()
    }

    fn load_method(&self) -> &'static str {
        "copy"
    }
}

impl Drop for Postgresql {
    fn drop(&mut self) {
        self.send.clear();
        self.put(b'X', |_| ());
        // The server may be gone already.
        let _ = self.socket.send(&mut self.send);
    }
}

fn truncated() -> SqlError {
    SqlError::protocol("the server's answer is cut off")
}

fn begin_message(out: &mut Vec<u8>, kind: u8) -> usize {
    out.push(kind);
    let begin = out.len();
    out.extend_from_slice(&[0; 4]);
    begin
}

fn end_message(out: &mut [u8], begin: usize) {
    let length = (out.len() - begin) as u32;
    out[begin..begin + 4].copy_from_slice(&length.to_be_bytes());
}

fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(text);
    out.push(0);
}

fn put_param(out: &mut Vec<u8>, param: Param<'_>, oid: u32) {
    let begin = out.len();
    out.extend_from_slice(&[0; 4]);
    match (param, oid) {
        (Param::Int(value), oid::INT4) => out.extend_from_slice(&(value as i32).to_be_bytes()),
        (Param::Int(value), oid::INT8) => out.extend_from_slice(&value.to_be_bytes()),
        (Param::Int(value), oid::INT2) => out.extend_from_slice(&(value as i16).to_be_bytes()),
        (Param::Int(value), oid::NUMERIC) => numeric::encode(value, 0, out),
        (Param::Int(value), _) => numeric::write_text(value, 0, out),
        (Param::Decimal { units, scale }, oid::NUMERIC) => numeric::encode(units, scale, out),
        (Param::Decimal { units, scale }, _) => numeric::write_text(units, scale, out),
        (Param::Text(text), _) => out.extend_from_slice(text),
        (Param::Timestamp(us), _) => out.extend_from_slice(&(us - EPOCH_2000_US).to_be_bytes()),
    }
    end_param(out, begin);
}

fn end_param(out: &mut [u8], begin: usize) {
    let length = (out.len() - begin - 4) as u32;
    out[begin..begin + 4].copy_from_slice(&length.to_be_bytes());
}

/// The statement with `$1`, `$2`, ... in place of each `?`.
fn numbered(sql: &str) -> String {
    let mut parts = sql.split('?');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for (number, part) in parts.enumerate() {
        text.push_str(&format!("${}{part}", number + 1));
    }
    text
}

/// The number at the end of a command tag such as `UPDATE 1`.
fn affected(tag: &[u8]) -> u64 {
    let digits = tag
        .strip_suffix(&[0])
        .unwrap_or(tag)
        .rsplit(|byte| *byte == b' ')
        .next();
    digits.map_or(0, |digits| {
        digits.iter().fold(0, |number, digit| match digit {
            b'0'..=b'9' => number * 10 + u64::from(digit - b'0'),
            _ => 0,
        })
    })
}

/// The values of a row in the text format.
fn text_row(body: &[u8]) -> Vec<Option<String>> {
    let (mut values, mut rest) = (Vec::new(), body.get(2..).unwrap_or_default());
    while let Some((length, after)) = rest.split_first_chunk() {
        let length = usize::try_from(i32::from_be_bytes(*length)).ok();
        let value = length.and_then(|length| after.get(..length));
        values.push(value.map(|value| String::from_utf8_lossy(value).into_owned()));
        rest = &after[value.map_or(0, <[u8]>::len)..];
    }
    values
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::sql::Protocol;

    /// A server that requests a password in clear text gets the end of the connection instead.
    #[test]
    fn a_password_in_clear_text_is_not_sent_over_a_network() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let server = thread::spawn(move || {
            let (mut client, _) = listener.accept().expect("the client connects");
            let mut length = [0; 4];
            client.read_exact(&mut length).expect("a startup message");
            let mut startup = vec![0; u32::from_be_bytes(length) as usize - 4];
            client.read_exact(&mut startup).expect("its body");
            let request = [b'R', 0, 0, 0, 8, 0, 0, 0, 3];
            client.write_all(&request).expect("it still listens");
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).expect("it closes the connection");
            answer
        });
        let login = Login {
            protocol: Protocol::Postgresql,
            address: Address::Tcp(address.ip().to_string(), address.port()),
            user: "me".to_owned(),
            database: "iosonde".to_owned(),
            timeout: Duration::ZERO,
        };
        let error = Postgresql::connect(&login).err().expect("it must not log in");
        assert_eq!(error.kind, ErrorKind::Authentication);
        assert!(error.message.contains("in clear text"), "{}", error.message);
        let terminate = [b'X', 0, 0, 0, 4];
        assert_eq!(server.join().expect("the server ends"), terminate);
    }

    #[test]
    fn statements_integers_and_tags_have_the_form_that_the_server_expects() {
        let sent = |param, oid| {
            let mut out = Vec::new();
            put_param(&mut out, param, oid);
            out
        };
        assert_eq!(sent(Param::Int(7), oid::INT4), [0, 0, 0, 4, 0, 0, 0, 7]);
        assert_eq!(sent(Param::Int(-1), oid::INT2), [0, 0, 0, 2, 255, 255]);
        assert_eq!(sent(Param::Text(b"ab"), 25), [0, 0, 0, 2, b'a', b'b']);
        let moment = sent(Param::Timestamp(EPOCH_2000_US), 1114);
        assert_eq!(moment, [0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(numbered("SELECT ? + ?"), "SELECT $1 + $2");
        assert_eq!(numbered("BEGIN"), "BEGIN");
        assert_eq!(affected(b"INSERT 0 15\0"), 15);
        assert_eq!(affected(b"BEGIN\0"), 0);
    }
}
