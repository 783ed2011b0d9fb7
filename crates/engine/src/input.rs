//! Inputs of the engine: the spec, commands after it, signals.

use std::io::{BufReader, Stdin, stdin};
use std::thread::Builder;

use iosonde_harness::{Remote, RunError};
use iosonde_protocol::{Command, Failure, Spec};
use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
use serde::Deserialize;
use serde_json::de::IoRead;

/// Standard input after the spec.
pub(crate) type Commands = serde_json::Deserializer<IoRead<BufReader<Stdin>>>;

/// Reads the spec: the first JSON value on standard input.
pub(crate) fn read_spec(program: &str) -> Result<(Spec, Commands), Failure> {
    let mut deserializer = serde_json::Deserializer::from_reader(BufReader::new(stdin()));
    match Spec::deserialize(&mut deserializer) {
        Ok(spec) => Ok((spec, deserializer)),
        Err(error) => Err(Failure {
            code: "invalid_spec".into(),
            message: format!("the spec cannot be read: {error}"),
            context: "standard input".into(),
            hint: format!("`{program} --schema` prints what a spec may hold"),
        }),
    }
}

/// Keeps SIGINT and SIGTERM for [`watch`]; must run before any thread is made.
pub(crate) fn block_signals() {
    termination().thread_block().expect("both signals can be blocked");
}

/// A write beyond the limit on file size fails with `EFBIG`, which is reported, instead of ending the process (setrlimit(2)).
pub(crate) fn ignore_file_size_signal() {
    // SAFETY: no handler is installed.
    unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) }.expect("the signal can be ignored");
}

/// Starts and stops the run on commands, and stops it on a signal, and at the end of input if asked to.
///
/// # Errors
/// When a thread cannot be created.
pub(crate) fn watch(commands: Commands, stop_at_eof: bool, remote: &Remote) -> Result<(), RunError> {
    let by_command = remote.clone();
    Builder::new()
        .spawn(move || {
            for command in commands.into_iter::<Command>() {
                match command {
                    Ok(Command::Stop) => by_command.stop(),
                    Ok(Command::Start { unix_ns }) => by_command.start(unix_ns),
                    Err(_) => break,
                }
            }
            if stop_at_eof {
                by_command.stop();
            }
            by_command.end_input();
        })
        .map_err(|error| RunError::thread(&error))?;
    let by_signal = remote.clone();
    Builder::new()
        .spawn(move || {
            let signals = termination();
            while signals.wait().is_ok() {
                by_signal.stop();
            }
        })
        .map_err(|error| RunError::thread(&error))?;
    Ok(())
}

fn termination() -> SigSet {
    SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM])
}
