//! The graph workload: algorithms whose vertex state is in memory and whose adjacency lists are on the device (the
//! semi-external method of FlashX).
//!
//! [`run`] lists its steps. `source` has the edges, `build` sorts them externally and writes the graph, `csr` is its format,
//! `layout` decides whether it is there. `program` are the algorithms, `planner` merges ranges of lists into reads, `cache` keeps
//! pages, `job` is the measuring loop on a backend of the block workload, `team` is where jobs meet between passes, `threads`
//! runs them. `verify` checks the result.

mod build;
mod cache;
mod check;
mod csr;
pub mod error;
mod job;
mod layout;
mod planner;
mod program;
mod source;
mod team;
#[cfg(test)]
mod testing;
mod threads;
mod verify;

use std::io::Write;
use std::path::{Path, PathBuf};

use iosonde_harness::Control;
use iosonde_load::Rng;
use iosonde_metrics::DeviceWatch;
use iosonde_metrics::clock::Clock;
use iosonde_protocol::{
    Algorithm, Edge, EdgeSource, Event, GraphCheck, GraphResult, GraphWorkload, LayoutResult, Observe, Outcome,
    PagerankMode, Phase, PhaseEvent, RunResult, Warning,
};
use iosonde_target::{OFlags, Targets};

pub use crate::error::GraphError;
use crate::layout::Graph;
use crate::program::{Bfs, Components, PagerankSettings, Pull, Push, Ranks};
use crate::threads::Computed;
use crate::verify::{ComponentRules, RankRules, Rules, SearchRules};

/// How often progress of writing and verifying is reported.
const REPORT_NS: u64 = 1_000_000_000;
/// Stream of random numbers for the choice of a root.
const OF_ROOT: u64 = 0x6772_0003;

/// Inputs of a run.
pub struct RunInputs<'a> {
    /// The workload.
    pub workload: &'a GraphWorkload,
    /// The run's seed.
    pub seed: u64,
    /// Devices to observe.
    pub observe: &'a Observe,
    /// The run's clock.
    pub clock: Clock,
    /// Opens the paths of the workload.
    pub targets: &'a Targets,
}

/// Every path that a run of this workload opens.
pub fn paths(workload: &GraphWorkload) -> Vec<PathBuf> {
    use iosonde_protocol::Target;
    let mut paths = Vec::new();
    if let Target::File { path, .. } | Target::Device { path, .. } = &workload.target {
        paths.push(path.into());
    }
    if let EdgeSource::EdgeList { path, .. } = &workload.graph.source {
        paths.push(path.into());
    }
    paths.extend(workload.result_path.as_ref().map(PathBuf::from));
    paths
}

/// Carries out a graph workload and emits its events. The caller emits the result.
///
/// # Errors
/// When the spec is wrong, the graph cannot be written or read, or a read of the load fails.
pub fn run(run: &RunInputs<'_>, control: &mut Control, emit: &mut dyn FnMut(Event)) -> Result<RunResult, GraphError> {
    check::check(run.workload)?;
    let watch = DeviceWatch::open(&run.observe.block_devices)?;
    let _claim = iosonde_block::claim(run.targets, &run.workload.target)?;
    let mut steps = Steps { run, control, emit };
    let Some(graph) = steps.lay_out()? else {
        return Ok(stopped(run.clock.now()));
    };
    let (state, computed) = steps.compute(&graph, watch)?;
    let mut result = computed.result;
    result.layout = graph.layout;
    let mut facts = facts_of(&graph, &state, computed.facts);
    state.check_lists(layout::path(&run.workload.target))?;
    if let Some(path) = &run.workload.result_path {
        write_result(run.targets, Path::new(path), &state)?;
    }
    if run.workload.verify_after && !facts.iterations.is_empty() {
        facts.check = steps.verify(&graph, &state, &facts)?;
        steps.warn_of(&facts);
    }
    result.graph = Some(facts);
    Ok(result)
}

/// The steps of a run.
struct Steps<'a, 'r> {
    run: &'a RunInputs<'r>,
    control: &'a mut Control,
    emit: &'a mut dyn FnMut(Event),
}

impl Steps<'_, '_> {
    /// Phase `layout`; nothing if the run was stopped in it.
    fn lay_out(&mut self) -> Result<Option<Graph>, GraphError> {
        self.report(Phase::Layout, Edge::Begin, 0);
        let (run, clock) = (self.run, self.run.clock);
        let graph = layout::lay_out(
            run.workload,
            run.targets,
            &|| clock.now(),
            &mut self.progress(Phase::Layout),
        )?;
        let written = graph.as_ref().map_or(0, |graph| graph.layout.written_bytes);
        self.report(Phase::Layout, Edge::End, written);
        Ok(graph)
    }

    /// The measurement.
    fn compute<'g>(&mut self, graph: &'g Graph, watch: DeviceWatch) -> Result<(State<'g>, Computed), GraphError> {
        let (run, csr) = (self.run, &graph.csr);
        let vertices = u64::from(csr.vertices());
        let state_bytes = match run.workload.algorithm {
            Algorithm::Pagerank { .. } => Ranks::bytes(vertices),
            Algorithm::Bfs { .. } => Bfs::bytes(vertices),
            Algorithm::Components => Components::bytes(vertices),
        };
        threads::check_memory(run.workload, state_bytes)?;
        let state = State::new(run, graph)?;
        let inputs = threads::Inputs { run, graph };
        let (control, emit) = (&mut *self.control, &mut *self.emit);
        let mut computed = match &state {
            State::Ranks(ranks) if ranks.settings().pushes => inputs.compute(&Push(ranks), watch, control, emit)?,
            State::Ranks(ranks) => inputs.compute(&Pull(ranks), watch, control, emit)?,
            State::Bfs(search) => inputs.compute(search, watch, control, emit)?,
            State::Components(components) => inputs.compute(components, watch, control, emit)?,
        };
        computed.facts.vertex_bytes = state_bytes + csr.index_bytes();
        Ok((state, computed))
    }

    /// Phase `verify`.
    fn verify(
        &mut self,
        graph: &Graph,
        state: &State<'_>,
        facts: &GraphResult,
    ) -> Result<Option<GraphCheck>, GraphError> {
        let is_complete = facts.is_complete;
        let mut rules: Box<dyn Rules> = match state {
            State::Ranks(ranks) => {
                let residual = facts.residual.unwrap_or(f64::INFINITY);
                let lists = self.run.workload.graph.lists;
                Box::new(RankRules::new(&graph.csr, ranks, residual, lists))
            }
            // Half of a search breaks the rules of a whole one.
            _ if !is_complete => return Ok(None),
            State::Bfs(search) => Box::new(SearchRules::new(&graph.csr, search)),
            State::Components(components) => Box::new(ComponentRules::new(&graph.csr, components)),
        };
        self.report(Phase::Verify, Edge::Begin, 0);
        let checked = verify::check(
            &graph.csr,
            &graph.file,
            rules.as_mut(),
            &mut self.progress(Phase::Verify),
        );
        let path = layout::path(&self.run.workload.target);
        let checked = checked.map_err(|error| GraphError::io("read", path, &error).at("phase `verify`"))?;
        self.report(Phase::Verify, Edge::End, facts.adjacency_bytes);
        Ok(checked)
    }

    fn warn_of(&mut self, facts: &GraphResult) {
        let Some(check) = &facts.check else { return };
        if !check.is_intact {
            (self.emit)(Event::Warning(Warning {
                code: "damaged_graph".into(),
                message: "the adjacency lists do not have the checksum with which they were written".into(),
                hint: "the device returned other data than was written, or something else wrote to the target".into(),
            }));
        }
        if check.violations > 0 {
            let first = check.first_violation.clone().unwrap_or_default();
            (self.emit)(Event::Warning(Warning {
                code: "wrong_result".into(),
                message: format!("the result breaks {} rules; the first one: {first}", check.violations),
                hint: "do not use the numbers of this run; the device may have returned wrong data".into(),
            }));
        }
    }

    /// Reports progress about once a second, and returns whether to continue.
    fn progress(&mut self, phase: Phase) -> impl FnMut(u64) -> bool {
        let clock = self.run.clock;
        let mut reported_ns = clock.now();
        let (control, emit) = (&mut *self.control, &mut *self.emit);
        move |bytes| {
            let now_ns = clock.now();
            if now_ns >= reported_ns + REPORT_NS {
                reported_ns = now_ns;
                emit(Event::Phase(PhaseEvent {
                    phase,
                    edge: Edge::Progress,
                    at_ns: now_ns,
                    bytes,
                }));
            }
            !control.is_stopped()
        }
    }

    fn report(&mut self, phase: Phase, edge: Edge, bytes: u64) {
        let at_ns = self.run.clock.now();
        (self.emit)(Event::Phase(PhaseEvent {
            phase,
            edge,
            at_ns,
            bytes,
        }));
    }
}

/// The state of all vertices.
enum State<'g> {
    Ranks(Ranks<'g>),
    Bfs(Bfs),
    Components(Components),
}

impl<'g> State<'g> {
    fn new(run: &RunInputs<'_>, graph: &'g Graph) -> Result<State<'g>, GraphError> {
        let csr = &graph.csr;
        Ok(match run.workload.algorithm {
            Algorithm::Pagerank {
                mode,
                damping,
                tolerance,
                iterations,
            } => State::Ranks(Ranks::new(
                csr,
                PagerankSettings {
                    damping,
                    tolerance,
                    iterations,
                    pushes: mode == PagerankMode::Push,
                },
            )),
            Algorithm::Bfs { root } => State::Bfs(Bfs::new(csr.vertices(), root_of(csr, root, run.seed)?)),
            Algorithm::Components => State::Components(Components::new(csr)),
        })
    }

    fn hash(&self) -> u64 {
        match self {
            State::Ranks(ranks) => ranks.hash(),
            State::Bfs(search) => search.hash(),
            State::Components(components) => components.hash(),
        }
    }

    /// Fails if a list had a vertex that does not exist.
    fn check_lists(&self, path: &Path) -> Result<(), GraphError> {
        let is_damaged = match self {
            State::Ranks(ranks) => ranks.is_damaged(),
            State::Bfs(search) => search.is_damaged(),
            State::Components(components) => components.is_damaged(),
        };
        match is_damaged {
            false => Ok(()),
            true => Err(GraphError::new(
                "io_error",
                format!(
                    "adjacency lists on `{}` name vertices that do not exist",
                    path.display()
                ),
                "the device returned other data than was written, or something else wrote to the target",
            )
            .at("phase `measure`")),
        }
    }
}

/// The requested root, or one with neighbours.
fn root_of(csr: &csr::Csr, asked: Option<u64>, seed: u64) -> Result<u32, GraphError> {
    let vertices = csr.vertices();
    match asked {
        Some(root) if root >= u64::from(vertices) => Err(GraphError::invalid(
            format!("the root {root} is none of the {vertices} vertices"),
            "`algorithm.root`",
            "use a smaller number",
        )),
        Some(root) => Ok(root as u32),
        None => {
            let mut rng = Rng::new(seed, &[OF_ROOT]);
            let drawn = rng.below(u64::from(vertices)) as u32;
            // A graph has an edge, so one of the two searches finds a vertex.
            let after = csr.next_connected(drawn, vertices);
            Ok(if after < vertices {
                after
            } else {
                csr.next_connected(0, vertices)
            })
        }
    }
}

/// What is known of the graph and of the result.
fn facts_of(graph: &Graph, state: &State<'_>, measured: GraphResult) -> GraphResult {
    let (csr, header) = (&graph.csr, &graph.csr.header);
    let degrees = || (0..csr.vertices()).map(|vertex| csr.degree(vertex));
    let mut facts = GraphResult {
        vertices: header.vertices,
        isolated_vertices: degrees().filter(|degree| *degree == 0).count() as u64,
        source_edges: header.source_edges,
        self_loops: header.self_loops,
        duplicates: header.duplicates,
        edges: header.edges,
        adjacency_bytes: header.edges * csr::EDGE_BYTES,
        degree_max: degrees().max().unwrap_or(0),
        build_ns: if graph.was_kept { 0 } else { header.build_ns },
        result_hash: state.hash(),
        ..measured
    };
    match state {
        State::Ranks(ranks) => {
            facts.rank_sum = Some(ranks.total());
            facts.residual = facts.iterations.last().and_then(|iteration| iteration.residual);
        }
        State::Bfs(search) => {
            facts.root = Some(u64::from(search.root()));
            facts.reached = Some(search.reached());
        }
        State::Components(components) => {
            facts.components = facts.is_complete.then(|| components.count());
        }
    }
    facts
}

fn write_result(targets: &Targets, path: &Path, state: &State<'_>) -> Result<(), GraphError> {
    let failed = |error: std::io::Error| GraphError::io("write", path, &error).at("`result_path`");
    let file = targets
        .open(path, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC)
        .map_err(failed)?;
    let mut writer = std::io::BufWriter::new(file);
    let written = match state {
        State::Ranks(ranks) => ranks.all().try_for_each(|rank| writer.write_all(&rank.to_le_bytes())),
        State::Bfs(search) => search
            .parents()
            .try_for_each(|parent| writer.write_all(&parent.to_le_bytes())),
        State::Components(components) => components
            .labels()
            .try_for_each(|label| writer.write_all(&label.to_le_bytes())),
    };
    written.and_then(|()| writer.flush()).map_err(failed)
}

/// The result of a run that was stopped before its measurement.
fn stopped(now_ns: u64) -> RunResult {
    RunResult {
        outcome: Outcome::Stopped,
        begin_ns: now_ns,
        end_ns: now_ns,
        jobs: Vec::new(),
        process: iosonde_metrics::usage::process(now_ns),
        peak_memory_bytes: iosonde_metrics::usage::peak_memory_bytes(),
        buffer_bytes: 0,
        devices: Vec::new(),
        backend: iosonde_protocol::BackendInEffect::default(),
        layout: LayoutResult::default(),
        evidence: None,
        verification: None,
        store: None,
        oltp: None,
        paging: None,
        graph: None,
        objects: None,
    }
}

#[cfg(test)]
mod tests;
