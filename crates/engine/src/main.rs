//! `iosonde-engine`: one spec in, one run, events out.
//!
//! It is independent of studies, can be copied alone to a machine, and used by hand:
//!
//! ```sh
//! iosonde-engine < spec.json
//! ```
//!
//! `iosonde-engine --verify PATH` reads no spec: it checks what an earlier run wrote under verification.

mod nvme;
mod stores;
mod workloads;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use iosonde_block::ProbedBackend;
use iosonde_engine::{Output, RunArguments};
use iosonde_harness::metrics::clock::Clock;
use iosonde_harness::{Control, Run, RunInputs};
use iosonde_protocol::{Event, Failure, Observe, PROTOCOL_VERSION, Phase, StoreKind, VerificationResult};

/// Carries out one run: reads a spec as JSON on standard input, writes events as JSON Lines on standard output
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(flatten)]
    run: RunArguments,
    /// Print what this machine offers the engine, as JSON, and exit
    #[arg(long, conflicts_with_all = ["schema", "identity"])]
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
    if arguments.run.schema {
        let mut schema = iosonde_engine::schema(&stores::option_names());
        schema["store_constants"] = stores::constants();
        return iosonde_engine::print(&schema);
    }
    if arguments.probe {
        return iosonde_engine::print(&probe());
    }
    if let Some(address) = &arguments.identify_nvme {
        return match nvme::identify(address) {
            Ok(found) => iosonde_engine::print(&found),
            Err(error) => {
                eprintln!("cannot use the controller at {address}: {error}");
                ExitCode::FAILURE
            }
        };
    }
    if let Some(path) = &arguments.probe_backends {
        return match iosonde_block::probe_backends(path) {
            Ok(found) => iosonde_engine::print(&found.iter().map(described).collect()),
            Err(error) => {
                eprintln!("cannot read `{}`: {error}", path.display());
                ExitCode::FAILURE
            }
        };
    }
    iosonde_engine::report(|output| match &arguments.verify {
        Some(target) => verify(&arguments, target, output).map(Event::Verification),
        None => run(&arguments, output),
    })
}

fn run(arguments: &Arguments, output: &mut Output) -> Result<Event, Failure> {
    let result = iosonde_engine::carry_out_spec(
        env!("CARGO_BIN_NAME"),
        &arguments.run,
        &|spec| Ok(workloads::of(spec, &|store| arguments.shim(store))),
        output,
    )?;
    Ok(Event::Result(Box::new(result)))
}

fn verify(arguments: &Arguments, target: &Path, output: &mut Output) -> Result<VerificationResult, Failure> {
    let journal_directory = arguments.journal_directory.as_deref();
    let identities = &arguments.run.identity;
    let mut used: Vec<PathBuf> = identities.iter().map(|named| named.path.clone()).collect();
    // The files of a directory become known later.
    used.retain(|path| path.starts_with(target));
    used.push(target.into());
    used.extend(journal_directory.map(PathBuf::from));
    let targets = iosonde_engine::targets(identities, used)?;
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

fn probe() -> serde_json::Value {
    let clock = Clock::start();
    let uring = iosonde_block::probe_uring();
    serde_json::json!({
        "protocol": PROTOCOL_VERSION,
        "version": iosonde_engine::VERSION,
        "build": iosonde_engine::BUILD,
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
