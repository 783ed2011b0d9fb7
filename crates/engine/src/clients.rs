//! `iosonde-engine-clients`: runs on servers whose clients need an async runtime.
//!
//! A program of its own, because these clients take longer to compile than the rest of the engine. It is built when a study
//! first needs it.

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use iosonde_engine::RunArguments;
use iosonde_harness::{RunError, Workload};
use iosonde_kv::{Contents, Kv, Opener, cassandra, mongodb};
use iosonde_protocol::{Event, Spec, Store, StoreKind, Workload as Named};

/// Carries out one run on Cassandra or MongoDB: reads a spec as JSON on standard input, writes events as JSON Lines on standard
/// output
#[derive(Parser)]
#[command(name = env!("CARGO_BIN_NAME"), version)]
struct Arguments {
    #[command(flatten)]
    run: RunArguments,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse().run;
    if arguments.schema {
        return iosonde_engine::print(&iosonde_engine::schema(&serde_json::json!({
            "cassandra": cassandra::option_names(),
            "mongodb": mongodb::option_names(),
        })));
    }
    iosonde_engine::report(|output| {
        let result = iosonde_engine::carry_out_spec(env!("CARGO_BIN_NAME"), &arguments, &workload, output)?;
        Ok(Event::Result(Box::new(result)))
    })
}

fn workload(spec: &Spec) -> Result<Box<dyn Workload + '_>, RunError> {
    match &spec.workload {
        Named::Kv(workload) => Ok(Box::new(Kv {
            workload,
            opener: Box::new(move |_contents: &Arc<Contents>| opener(&workload.store)),
        })),
        _ => Err(elsewhere()),
    }
}

fn opener(store: &Store) -> Result<Box<dyn Opener>, RunError> {
    match store.kind {
        StoreKind::Cassandra => cassandra::opener(&store.options),
        StoreKind::Mongodb => mongodb::opener(&store.options),
        _ => Err(elsewhere()),
    }
}

fn elsewhere() -> RunError {
    RunError::unsupported(
        "`iosonde-engine-clients` only runs key-value workloads on Cassandra and MongoDB",
        "use `iosonde-engine`",
    )
}
