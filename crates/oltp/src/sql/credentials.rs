//! Passwords, from where each server's own clients look: the environment, then the user's files.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::sql::{Address, Login, Protocol};

/// The password for a login, if there is one.
pub(crate) fn password(login: &Login) -> Option<String> {
    let variable = match login.protocol {
        Protocol::Postgresql => "PGPASSWORD",
        Protocol::Mariadb => "MYSQL_PWD",
    };
    env::var(variable).ok().or_else(|| match login.protocol {
        Protocol::Postgresql => from_passfile(&passfile()?, login),
        Protocol::Mariadb => from_option_file(&home()?.join(".my.cnf")),
    })
}

fn home() -> Option<PathBuf> {
    env::var_os("HOME").map(PathBuf::from)
}

fn passfile() -> Option<PathBuf> {
    match env::var_os("PGPASSFILE") {
        Some(path) => Some(path.into()),
        None => Some(home()?.join(".pgpass")),
    }
}

/// From lines `host:port:database:user:password`. Like libpq, ignores a file that others may read.
fn from_passfile(path: &Path, login: &Login) -> Option<String> {
    if fs::metadata(path).ok()?.permissions().mode() & 0o077 != 0 {
        return None;
    }
    let (host, port) = match &login.address {
        Address::Unix(_) => ("localhost".to_owned(), None),
        Address::Tcp(host, port) => (host.clone(), Some(port.to_string())),
    };
    let port = port.or_else(|| match &login.address {
        Address::Unix(path) => path.extension().map(|port| port.to_string_lossy().into_owned()),
        Address::Tcp(..) => None,
    });
    let wanted = [Some(host), port, Some(login.database.clone()), Some(login.user.clone())];
    let text = fs::read_to_string(path).ok()?;
    let matches = |fields: &[String]| {
        fields.len() == 5
            && fields
                .iter()
                .zip(&wanted)
                .all(|(field, wanted)| field == "*" || Some(field) == wanted.as_ref())
    };
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .map(passfile_fields)
        .find(|fields| matches(fields))
        .map(|fields| fields[4].clone())
}

/// Fields between colons; a backslash escapes the character after it.
fn passfile_fields(line: &str) -> Vec<String> {
    let (mut fields, mut characters) = (vec![String::new()], line.chars());
    while let Some(character) = characters.next() {
        if character == ':' && fields.len() < 5 {
            fields.push(String::new());
            continue;
        }
        let field = fields.last_mut().expect("there is always one");
        match character {
            '\\' => field.extend(characters.next()),
            other => field.push(other),
        }
    }
    fields
}

/// From `password=` under `[client]`, `[client-mariadb]` or `[mysql]`.
fn from_option_file(path: &Path) -> Option<String> {
    let (mut is_ours, mut found) = (false, None);
    for line in fs::read_to_string(path).ok()?.lines().map(str::trim) {
        if let Some(group) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            is_ours = matches!(group, "client" | "client-mariadb" | "mysql");
        } else if let Some((name, value)) = line.split_once('=')
            && is_ours
            && name.trim() == "password"
        {
            found = Some(value.trim().trim_matches(['"', '\'']).to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn written(name: &str, text: &str, mode: u32) -> PathBuf {
        let path = env::temp_dir().join(format!("iosonde-{}-{name}", std::process::id()));
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    fn login() -> Login {
        Login {
            protocol: Protocol::Postgresql,
            address: Address::Unix("/run/.s.PGSQL.5433".into()),
            user: "bench".into(),
            database: "tpcc".into(),
            timeout: Duration::ZERO,
        }
    }

    #[test]
    fn password_files_of_both_clients_are_read_as_they_do() {
        let text = "# comment\nlocalhost:5432:*:bench:wrong\nlocalhost:5433:tpcc:bench:a\\:b\n*:*:*:*:other\n";
        let path = written("pgpass", text, 0o600);
        assert_eq!(from_passfile(&path, &login()).as_deref(), Some("a:b"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(from_passfile(&path, &login()), None, "others may read it");
        fs::remove_file(path).unwrap();
        let text = "[mysqld]\npassword=no\n[client]\nuser=x\npassword = \"s=1\"\n";
        let path = written("mycnf", text, 0o600);
        assert_eq!(from_option_file(&path).as_deref(), Some("s=1"));
        fs::remove_file(path).unwrap();
    }
}
