//! `null_sql_server postgresql|mariadb SOCKET WAREHOUSES`: answers every statement of the workloads and keeps nothing.

mod null;

use std::path::Path;
use std::process::ExitCode;

use iosonde_protocol::SqlServerKind;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let kind = match arguments.first().map(String::as_str) {
        Some("postgresql") => Some(SqlServerKind::Postgresql),
        Some("mariadb") => Some(SqlServerKind::Mariadb),
        _ => None,
    };
    let warehouses = arguments.get(2).and_then(|number| number.parse().ok());
    let (Some(kind), Some(socket), Some(warehouses)) = (kind, arguments.get(1), warehouses) else {
        eprintln!("usage: null_sql_server postgresql|mariadb SOCKET WAREHOUSES");
        return ExitCode::from(2);
    };
    match null::serve(kind, Path::new(socket), warehouses) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: cannot listen on `{socket}`: {error}");
            ExitCode::FAILURE
        }
    }
}
