//! What reaches the engine from outside: the spec, commands after it, signals.

use std::io::{BufReader, Stdin, stdin};
use std::thread::Builder;

use iosonde_harness::{RunError, Stopper};
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

/// Stops the run on a command, on a signal, and at the end of input if asked to.
///
/// # Errors
/// When a thread cannot be created.
pub(crate) fn watch(commands: Commands, stop_at_eof: bool, stopper: &Stopper) -> Result<(), RunError> {
    let by_command = stopper.clone();
    Builder::new()
        .spawn(move || {
            for command in commands.into_iter::<Command>() {
                match command {
                    Ok(Command::Stop) => by_command.stop(),
                    Err(_) => break,
                }
            }
            if stop_at_eof {
                by_command.stop();
            }
        })
        .map_err(|error| RunError::thread(&error))?;
    let by_signal = stopper.clone();
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
