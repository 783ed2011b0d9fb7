//! Whole runs against the null server, in both protocols, and against peers with another protocol.

mod null;

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};

use iosonde_harness::{Code, Control, RunError, RunInputs, carry_out};
use iosonde_metrics::clock::Clock;
use iosonde_oltp::Tpcc;
use iosonde_protocol::{
    Arrival, Event, HomeWarehouse, Isolation, MissingDatabase, Observe, Operation, RunResult, ServerLoss, SqlAddress,
    SqlServer, SqlServerKind, ThinkTime, TpccCheck, TpccDatabase, TpccMeasurement, TpccWorkload, TransactionMix,
};
use iosonde_target::Targets;

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
            duration_ns: 500_000_000,
            interval_ns: 100_000_000,
            acknowledged: None,
            server_loss: ServerLoss::Fail,
            cpus: Vec::new(),
        }),
    }
}

fn run(workload: &TpccWorkload) -> (Result<RunResult, RunError>, Vec<Event>) {
    let (mut control, _stopper) = Control::new();
    let inputs = RunInputs {
        seed: 1,
        observe: &Observe::default(),
        clock: Clock::start(),
        targets: &Targets::default(),
    };
    let mut events = Vec::new();
    let result = carry_out(&Tpcc(workload), inputs, &mut control, &mut |event| events.push(event));
    (result, events)
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
    let mut rolled_back = 0;
    for kind in [SqlServerKind::Postgresql, SqlServerKind::Mariadb] {
        let socket = serve(kind, directory.path());
        for pipelining in [false, true] {
            let (result, events) = run(&workload(kind, &socket, pipelining));
            let result = result.unwrap();
            let oltp = result.oltp.unwrap();
            let completed: u64 = oltp.transactions.iter().map(|each| each.completed).sum();
            let types: Vec<Operation> = oltp.transactions.iter().map(|each| each.operation).collect();
            assert_eq!(types.len(), 5, "{types:?}");
            assert_eq!(result.jobs.iter().map(|job| job.operations).sum::<u64>(), completed);
            let new_orders = oltp.transactions[0];
            assert_eq!(new_orders.operation, Operation::NewOrder);
            rolled_back += new_orders.rolled_back;
            // One percent (clause 2.4.1.4), within five standard deviations: on a busy machine only few are completed.
            let expected = new_orders.completed as f64 / 100.0;
            let deviation = (new_orders.rolled_back as f64 - expected).abs();
            assert!(
                new_orders.completed > 0 && deviation <= 5.0 * expected.max(1.0).sqrt(),
                "{new_orders:?}"
            );
            let per_transaction = oltp.counters.statements as f64 / completed as f64;
            assert!(
                (11.0..17.0).contains(&per_transaction),
                "{kind:?}: {per_transaction} statements"
            );
            let per_round_trip = oltp.counters.statements as f64 / oltp.counters.round_trips as f64;
            let expected = if pipelining { 3.0..8.0 } else { 1.0..1.0001 };
            assert!(
                expected.contains(&per_round_trip),
                "{kind:?}: {per_round_trip} statements in a round trip"
            );
            let intervals = events.iter().filter_map(|event| match event {
                Event::Interval(interval) => interval.oltp,
                _ => None,
            });
            let statements: Vec<u64> = intervals.map(|counters| counters.statements).collect();
            assert!(statements.len() >= 5 && statements.is_sorted());
        }
    }
    assert!(rolled_back > 0, "in none of the runs");
}

#[test]
fn a_database_of_another_scale_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let socket = serve(SqlServerKind::Postgresql, directory.path());
    let mut workload = workload(SqlServerKind::Postgresql, &socket, false);
    workload.warehouses = WAREHOUSES + 1;
    assert_eq!(run(&workload).0.unwrap_err().code, Code::InvalidSpec);
}

#[test]
fn a_peer_that_does_not_answer_is_given_up() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("silent");
    let _listener = UnixListener::bind(&socket).unwrap();
    for kind in [SqlServerKind::Postgresql, SqlServerKind::Mariadb] {
        let begin = Instant::now();
        assert_eq!(
            run(&workload(kind, &socket, false)).0.unwrap_err().code,
            Code::Unsupported
        );
        assert!(begin.elapsed() < Duration::from_secs(20));
    }
}
