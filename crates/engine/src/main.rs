//! `iosonde-engine`: one spec in, one run, events out.
//!
//! It is independent of studies, can be copied alone to a machine, and used by hand:
//!
//! ```sh
//! iosonde-engine < spec.json
//! ```
//!
//! `iosonde-engine --verify PATH` reads no spec: it checks what an earlier run wrote under verification.
//!
//! Exit status: 0 with a `result` (or `verification`) event, 1 with an `error` event, 2 for wrong arguments.

mod input;
mod memory;
mod nvme;
mod output;
mod stores;
mod workloads;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use iosonde_block::ProbedBackend;
use iosonde_harness::{Control, Run, RunInputs, Workload, carry_out};
use iosonde_metrics::clock::Clock;
use iosonde_protocol::{
    Event, Failure, Hello, Observe, PROTOCOL_VERSION, Phase, RunResult, Spec, StoreKind, VerificationResult,
};
use iosonde_target::{NamedIdentity, Targets};

use crate::output::Output;

/// Carries out one run: reads a spec as JSON on standard input, writes events as JSON Lines on standard output
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Stop the run when standard input ends: for a parent process, so that its death ends the run
    #[arg(long)]
    stop_at_eof: bool,
    /// Print the protocol's JSON schema and exit
    #[arg(long, conflicts_with = "probe")]
    schema: bool,
    /// Print what this machine offers the engine, as JSON, and exit
    #[arg(long)]
    probe: bool,
    /// Reset and identify the NVMe controller at this PCI address, which must be bound to `vfio-pci`, print what it answers,
    /// as JSON, and exit
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["schema", "probe", "verify"])]
    identify_nvme: Option<String>,
    /// Try every backend of block I/O by a real read of a device, a file, or a temporary file in a directory, print which
    /// are available, as JSON, and exit
    #[arg(long, value_name = "PATH", conflicts_with_all = ["schema", "probe", "verify"])]
    probe_backends: Option<PathBuf>,
    /// Check what was written under verification, a file or a directory of files, and exit
    #[arg(long, value_name = "PATH", conflicts_with_all = ["schema", "probe"])]
    verify: Option<PathBuf>,
    /// With --verify: where the journals are, if not next to the files
    #[arg(long, value_name = "DIR", requires = "verify")]
    journal_directory: Option<String>,
    /// Refuse to run unless the path leads to this block device (MAJOR:MINOR), or to this file or directory
    /// (MAJOR:MINOR:INODE, of the device that it is on); repeat for each path
    #[arg(long, value_name = "PATH=IDENTITY", conflicts_with_all = ["schema", "probe"])]
    identity: Vec<NamedIdentity>,
    /// Load the C++ shim of RocksDB, compiled for this machine, from an inherited descriptor
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["schema", "probe", "verify"])]
    rocksdb_shim: Option<i32>,
    /// Load the C shim of WiredTiger, compiled for this machine, from an inherited descriptor
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["schema", "probe", "verify"])]
    wiredtiger_shim: Option<i32>,
}

impl Arguments {
    /// The shim for a store.
    fn shim(&self, kind: StoreKind) -> Option<i32> {
        match kind {
            StoreKind::Rocksdb => self.rocksdb_shim,
            StoreKind::Wiredtiger => self.wiredtiger_shim,
            _ => None,
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.schema {
        return print(&schema());
    }
    if arguments.probe {
        return print(&probe());
    }
    if let Some(address) = &arguments.identify_nvme {
        return match nvme::identify(address) {
            Ok(found) => print(&found),
            Err(error) => {
                eprintln!("cannot use the controller at {address}: {error}");
                ExitCode::FAILURE
            }
        };
    }
    if let Some(path) = &arguments.probe_backends {
        return match iosonde_block::probe_backends(path) {
            Ok(found) => print(&found.iter().map(described).collect()),
            Err(error) => {
                eprintln!("cannot read `{}`: {error}", path.display());
                ExitCode::FAILURE
            }
        };
    }
    memory::report_exhaustion();
    input::ignore_file_size_signal();
    let mut output = Output::new();
    let done = match &arguments.verify {
        Some(target) => verify(&arguments, target, &mut output).map(Event::Verification),
        None => run(&arguments, &mut output).map(|result| Event::Result(Box::new(result))),
    };
    match done {
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

fn run(arguments: &Arguments, output: &mut Output) -> Result<RunResult, Failure> {
    input::block_signals();
    let (spec, commands) = input::read_spec()?;
    check_version(&spec)?;
    let workload = workloads::of(&spec, &|store| arguments.shim(store));
    let targets = targets(arguments, workload.paths())?;
    let clock = Clock::start();
    output.emit(Event::Hello(hello(&*workload, &clock)));
    let (mut control, stopper) = Control::new();
    input::watch(commands, arguments.stop_at_eof, &stopper).map_err(|error| error.at("starting the engine"))?;
    output.stop_when_closed(stopper);
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

/// The identities of the command line, each of which must belong to a path of the run: a misspelt one would protect nothing.
fn targets(arguments: &Arguments, paths: Vec<PathBuf>) -> Result<Targets, Failure> {
    let targets = Targets::new(arguments.identity.iter().cloned());
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

fn verify(arguments: &Arguments, target: &Path, output: &mut Output) -> Result<VerificationResult, Failure> {
    let journal_directory = arguments.journal_directory.as_deref();
    let mut used: Vec<PathBuf> = arguments.identity.iter().map(|named| named.path.clone()).collect();
    // Which files a directory has is found out later.
    used.retain(|path| path.starts_with(target));
    used.push(target.into());
    used.extend(journal_directory.map(PathBuf::from));
    let targets = targets(arguments, used)?;
    let inputs = RunInputs {
        seed: 0,
        observe: &Observe::default(),
        clock: Clock::monotonic(),
        targets: &targets,
    };
    let (mut control, _stopper) = Control::new();
    let emit = &mut |event| output.emit(event);
    let mut run = Run::new(inputs, &mut control, emit)?;
    run.begin(Phase::Verify);
    let mut progress = |bytes| run.progress(Phase::Verify, bytes);
    let result = iosonde_block::verify::check_target(&targets, target, journal_directory, &mut progress)?;
    run.end(Phase::Verify, result.checked_bytes);
    Ok(result)
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

fn hello(workload: &dyn Workload, clock: &Clock) -> Hello {
    Hello {
        protocol: PROTOCOL_VERSION,
        engine: env!("CARGO_PKG_NAME").into(),
        version: env!("CARGO_PKG_VERSION").into(),
        build: env!("IOSONDE_BUILD").into(),
        pid: std::process::id(),
        clock: if workload.is_virtual() { "virtual" } else { clock.name() }.into(),
        clock_read_ns: clock.read_cost_ns(),
        realtime_ns: clock.realtime_at_zero_ns(),
    }
}

fn schema() -> serde_json::Value {
    serde_json::json!({
        "protocol": PROTOCOL_VERSION,
        "spec": schemars::schema_for!(Spec),
        "event": schemars::schema_for!(Event),
        "command": schemars::schema_for!(iosonde_protocol::Command),
        "store_options": stores::option_names(),
    })
}

fn probe() -> serde_json::Value {
    let clock = Clock::start();
    let uring = iosonde_block::probe_uring();
    serde_json::json!({
        "protocol": PROTOCOL_VERSION,
        "version": env!("CARGO_PKG_VERSION"),
        "build": env!("IOSONDE_BUILD"),
        "clock": clock.name(),
        "clock_read_ns": clock.read_cost_ns(),
        "uring": uring.is_ok(),
        "uring_features": uring.as_ref().map_or(&[][..], |features| features.as_slice()),
        "uring_error": uring.as_ref().err().map(ToString::to_string),
    })
}

fn described(found: &ProbedBackend) -> serde_json::Value {
    match &found.result {
        Ok(effect) => serde_json::json!({
            "name": found.name,
            "available": true,
            "features": effect.features,
            "lacks": effect.fallbacks,
        }),
        Err(refusal) => serde_json::json!({
            "name": found.name,
            "available": false,
            "reason": refusal.reason,
            "hint": refusal.hint,
        }),
    }
}

fn print(value: &serde_json::Value) -> ExitCode {
    use std::io::Write;
    // A reader that goes away early is no error of ours.
    match writeln!(std::io::stdout(), "{value:#}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
