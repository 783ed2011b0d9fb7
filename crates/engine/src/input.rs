//! What reaches the engine from outside: the spec, commands after it, signals.

use std::io::{BufReader, Stdin, stdin};

use iosonde_harness::Stopper;
use iosonde_protocol::{Command, Failure, Spec};
use nix::sys::signal::{SigSet, Signal};
use serde::Deserialize;
use serde_json::de::IoRead;

/// Standard input after the spec.
pub(crate) type Commands = serde_json::Deserializer<IoRead<BufReader<Stdin>>>;

/// Reads the spec: the first JSON value on standard input.
pub(crate) fn read_spec() -> Result<(Spec, Commands), Failure> {
    let mut deserializer = serde_json::Deserializer::from_reader(BufReader::new(stdin()));
    match Spec::deserialize(&mut deserializer) {
        Ok(spec) => Ok((spec, deserializer)),
        Err(error) => Err(Failure {
            code: "invalid_spec".into(),
            message: format!("the spec cannot be read: {error}"),
            context: "standard input".into(),
            hint: "`iosonde-engine --schema` prints what a spec may hold".into(),
        }),
    }
}

/// Keeps SIGINT and SIGTERM for [`watch`]; must run before any thread is made.
pub(crate) fn block_signals() {
    termination().thread_block().expect("both signals can be blocked");
}

/// Stops the run on a command, on a signal, and at the end of input if asked to.
pub(crate) fn watch(commands: Commands, stop_at_eof: bool, stopper: &Stopper) {
    let by_command = stopper.clone();
    std::thread::spawn(move || {
        for command in commands.into_iter::<Command>() {
            match command {
                Ok(Command::Stop) => by_command.stop(),
                Err(_) => break,
            }
        }
        if stop_at_eof {
            by_command.stop();
        }
    });
    let by_signal = stopper.clone();
    std::thread::spawn(move || {
        let signals = termination();
        while signals.wait().is_ok() {
            by_signal.stop();
        }
    });
}

fn termination() -> SigSet {
    SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM])
}
