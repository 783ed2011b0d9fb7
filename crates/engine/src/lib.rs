//! An engine program around its workloads: one spec in, one run, events out.
//!
//! Each program has a list of workloads and calls [`carry_out_spec`] within [`report`]; what else it can do it adds itself.
//! Exit status: 0 with the last event of [`report`], 1 with an `error` event, 2 for wrong arguments.

mod input;
mod memory;
mod output;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use iosonde_harness::metrics::clock::Clock;
use iosonde_harness::target::{NamedIdentity, Targets};
use iosonde_harness::{Control, RunError, RunInputs, Workload, carry_out};
use iosonde_protocol::{Event, Failure, Hello, PROTOCOL_VERSION, RunResult, Spec};
use serde_json::Value;

pub use memory::end_with_failure;
pub use output::Output;

/// Profile, platform, compiler and source of this build.
pub const BUILD: &str = env!("IOSONDE_BUILD");

/// Version of every engine program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Arguments of a run, for every program.
#[derive(Args)]
pub struct RunArguments {
    /// Stop the run when standard input ends: for a parent process, so that its death ends the run
    #[arg(long)]
    pub stop_at_eof: bool,
    /// Print the protocol's JSON schema and exit
    #[arg(long)]
    pub schema: bool,
    /// Refuse to run unless the path leads to this block device (MAJOR:MINOR), or to this file or directory
    /// (MAJOR:MINOR:INODE, of the device that it is on); repeat for each path
    #[arg(long, value_name = "PATH=IDENTITY", conflicts_with = "schema")]
    pub identity: Vec<NamedIdentity>,
}

/// Finds the workload of a spec.
pub type FindWorkload<'f> = dyn for<'a> Fn(&'a Spec) -> Result<Box<dyn Workload + 'a>, RunError> + 'f;

/// Calls a function that writes events, and writes its last event, or its error.
pub fn report(act: impl FnOnce(&mut Output) -> Result<Event, Failure>) -> ExitCode {
    memory::report_exhaustion();
    input::ignore_file_size_signal();
    let mut output = Output::new();
    match act(&mut output) {
        Ok(event) => {
            output.emit(event);
            ExitCode::SUCCESS
        }
        Err(failure) => {
            output.emit(Event::Error(failure));
            ExitCode::FAILURE
        }
    }
}

/// Reads a spec from standard input and carries it out. `program` is the name of the program.
///
/// # Errors
/// When the spec is wrong, or the run fails.
pub fn carry_out_spec(
    program: &str,
    arguments: &RunArguments,
    find_workload: &FindWorkload<'_>,
    output: &mut Output,
) -> Result<RunResult, Failure> {
    input::block_signals();
    let (spec, commands) = input::read_spec(program)?;
    check_version(&spec)?;
    let workload = find_workload(&spec)?;
    let targets = targets(&arguments.identity, workload.paths())?;
    memory::expect_full_file_systems(workload.paths());
    let clock = Clock::start();
    output.emit(Event::Hello(hello(program, &*workload, &clock)));
    let (mut control, remote) = Control::new();
    control.set_start(spec.start);
    input::watch(commands, arguments.stop_at_eof, &remote).map_err(|error| error.at("starting the engine"))?;
    output.stop_when_closed(remote);
    let inputs = RunInputs {
        seed: spec.seed,
        observe: &spec.observe,
        clock,
        targets: &targets,
    };
    Ok(carry_out(&*workload, inputs, &mut control, &mut |event| {
        output.emit(event)
    })?)
}

/// Targets with the given identities, each of which must belong to a path of the run: a misspelt one would protect nothing.
///
/// # Errors
/// When a path is not used.
pub fn targets(identities: &[NamedIdentity], paths: Vec<PathBuf>) -> Result<Targets, Failure> {
    let targets = Targets::new(identities.iter().cloned());
    match targets.unused(&paths) {
        None => Ok(targets),
        Some(unused) => Err(Failure {
            code: "invalid_spec".into(),
            message: format!("`{}` has an identity, and the run does not use it", unused.display()),
            context: "`--identity`".into(),
            hint: "write the path as in the spec, or name a directory above one of its paths".into(),
        }),
    }
}

/// The protocol's JSON schema, with the names of the options of a program's stores.
pub fn schema(store_options: &Value) -> Value {
    serde_json::json!({
        "protocol": PROTOCOL_VERSION,
        "spec": schemars::schema_for!(Spec),
        "event": schemars::schema_for!(Event),
        "command": schemars::schema_for!(iosonde_protocol::Command),
        "store_options": store_options,
    })
}

/// Prints a value on standard output.
pub fn print(value: &Value) -> ExitCode {
    use std::io::Write;
    // A reader that goes away early is no error of ours.
    match writeln!(std::io::stdout(), "{value:#}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn check_version(spec: &Spec) -> Result<(), Failure> {
    if spec.protocol == PROTOCOL_VERSION {
        return Ok(());
    }
    Err(Failure {
        code: "invalid_spec".into(),
        message: format!(
            "this engine uses protocol {PROTOCOL_VERSION}, the spec follows protocol {}",
            spec.protocol
        ),
        context: "`protocol`".into(),
        hint: "use the engine that came with this iosonde".into(),
    })
}

fn hello(program: &str, workload: &dyn Workload, clock: &Clock) -> Hello {
    Hello {
        protocol: PROTOCOL_VERSION,
        engine: program.into(),
        version: VERSION.into(),
        build: BUILD.into(),
        pid: std::process::id(),
        clock: if workload.is_virtual() { "virtual" } else { clock.name() }.into(),
        clock_read_ns: clock.read_cost_ns(),
        realtime_ns: clock.realtime_at_zero_ns(),
    }
}
