//! Whole runs against the null server, in both protocols, and against peers with another protocol.

#[path = "../examples/null_sql_server/null/mod.rs"]
mod null;

use std::os::unix::net::UnixListener;
use std::path::Path;

use iosonde_harness::metrics::clock::Clock;
use iosonde_harness::target::Targets;
use iosonde_harness::{Code, Control, RunError, RunInputs, carry_out};
use iosonde_oltp::Tpcc;
use iosonde_protocol::*;

const WAREHOUSES: u32 = 3;

fn workload(kind: SqlServerKind, socket: &Path, pipelining: bool) -> TpccWorkload {
    TpccWorkload {
        server: SqlServer {
            kind,
            address: SqlAddress::Unix {
                path: socket.to_str().unwrap().into(),
            },
            user: "bench".into(),
            database: "tpcc".into(),
            missing_database: MissingDatabase::Fail,
            version_min: None,
            connect_timeout_ns: 2_000_000_000,
        },
        warehouses: WAREHOUSES,
        seed: 7,
        database: TpccDatabase::Foreign,
        verify_acknowledged: None,
        check: TpccCheck {
            before: false,
            after: false,
        },
        measurement: Some(TpccMeasurement {
            terminals: 2,
            home: HomeWarehouse::Fixed,
            think: ThinkTime::None,
            arrival: Arrival::Closed,
            mix: TransactionMix::Deck,
            isolation: Isolation::ReadCommitted,
            retries: 0,
            pipelining,
            ramp_ns: 100_000_000,
            duration_ns: 3_600_000_000_000,
            interval_ns: 100_000_000,
            acknowledged: None,
            server_loss: ServerLoss::Fail,
            cpus: Vec::new(),
        }),
    }
}

/// Runs a workload until its terminals have completed 2,000 transactions of the measurement.
fn run(workload: &TpccWorkload) -> (Result<RunResult, RunError>, Vec<u64>) {
    let (mut control, stopper) = Control::new();
    let inputs = RunInputs {
        seed: 1,
        observe: &Observe::default(),
        clock: Clock::start(),
        targets: &Targets::default(),
    };
    let (mut statements, mut completed) = (Vec::new(), 0);
    let mut emit = |event| {
        if let Event::Interval(interval) = event {
            statements.extend(interval.oltp.map(|counters| counters.statements));
            if interval.phase == Phase::Measure {
                let operations = interval.streams.iter().flat_map(|stream| &stream.operations);
                completed += operations.map(|each| each.count).sum::<u64>();
            }
            if completed > 2_000 {
                stopper.stop();
            }
        }
    };
    let result = carry_out(&Tpcc(workload), inputs, &mut control, &mut emit);
    (result, statements)
}

fn failure(workload: &TpccWorkload) -> Code {
    run(workload).0.unwrap_err().code
}

fn serve(kind: SqlServerKind, directory: &Path) -> std::path::PathBuf {
    let socket = directory.join(kind.name());
    let path = socket.clone();
    std::thread::spawn(move || null::serve(kind, &path, WAREHOUSES));
    socket
}

/// Statements of each type: PostgreSQL has a `BEGIN`. New-orders have 5 to 15 lines.
#[test]
fn all_transactions_run_in_both_protocols_with_and_without_pipelining() {
    let directory = tempfile::tempdir().unwrap();
    for kind in [SqlServerKind::Postgresql, SqlServerKind::Mariadb] {
        let socket = serve(kind, directory.path());
        for pipelining in [false, true] {
            let (result, statements) = run(&workload(kind, &socket, pipelining));
            assert!(statements.is_sorted());
            let result = result.unwrap();
            let oltp = result.oltp.unwrap();
            let completed: u64 = oltp.transactions.iter().map(|each| each.completed).sum();
            assert_eq!(oltp.transactions.len(), 5);
            assert_eq!(result.jobs.iter().map(|job| job.operations).sum::<u64>(), completed);
            let new_orders = oltp.transactions[0];
            assert_eq!(new_orders.operation, Operation::NewOrder);
            // One percent (clause 2.4.1.4), within five standard deviations.
            let expected = new_orders.completed as f64 / 100.0;
            let deviation = (new_orders.rolled_back as f64 - expected).abs();
            assert!(deviation <= 5.0 * expected.sqrt(), "{new_orders:?}");
            let sent = oltp.counters.statements as f64;
            let per_transaction = sent / completed as f64;
            assert!((11.0..17.0).contains(&per_transaction), "{kind:?}: {per_transaction}");
            let per_round_trip = sent / oltp.counters.round_trips as f64;
            let expected = if pipelining { 3.0..8.0 } else { 1.0..1.0001 };
            assert!(expected.contains(&per_round_trip), "{kind:?}: {per_round_trip}");
        }
    }
}

#[test]
fn a_silent_peer_and_a_database_of_another_scale_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("silent");
    let _listener = UnixListener::bind(&socket).unwrap();
    for kind in [SqlServerKind::Postgresql, SqlServerKind::Mariadb] {
        assert_eq!(failure(&workload(kind, &socket, false)), Code::Unsupported);
    }
    let directory = tempfile::tempdir().unwrap();
    let socket = serve(SqlServerKind::Postgresql, directory.path());
    let mut workload = workload(SqlServerKind::Postgresql, &socket, false);
    workload.warehouses = WAREHOUSES + 1;
    assert_eq!(failure(&workload), Code::InvalidSpec);
}
