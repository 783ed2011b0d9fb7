//! The graph workload: algorithms whose vertex state is in memory and whose adjacency lists are on the device (the
//! semi-external method of FlashX).
//!
//! [`GraphAlgorithm`] lists its steps. `source` has the edges, `build` sorts them externally and writes the graph, `csr` is its format,
//! `layout` decides whether it is there. `program` are the algorithms, `planner` merges ranges of lists into reads, `cache` keeps
//! pages, `job` is the measuring loop on a backend of the block workload, `team` is where jobs meet between passes, `threads`
//! runs them. `verify` checks the result.

mod build;
mod cache;
mod check;
mod csr;
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

use iosonde_harness::{Code, LoadPlan, Run, RunError, Workload};
use iosonde_load::Rng;
use iosonde_protocol::{
    Algorithm, EdgeSource, GraphCheck, GraphResult, GraphWorkload, PagerankMode, Phase, RunResult, Target, Warning,
};
use iosonde_target::{OFlags, Targets};

use crate::layout::Graph;
use crate::program::{Bfs, Components, PagerankSettings, Pull, Push, Ranks};
use crate::threads::Computed;
use crate::verify::{ComponentRules, RankRules, Rules, SearchRules};

/// Stream of random numbers for the choice of a root.
const OF_ROOT: u64 = 0x6772_0003;

/// The graph workload of a spec.
pub struct GraphAlgorithm<'a>(pub &'a GraphWorkload);

impl Workload for GraphAlgorithm<'_> {
    fn plan(&self) -> Option<LoadPlan<'_>> {
        Some(threads::plan(self.0))
    }

    fn check(&self) -> Result<(), RunError> {
        check::check(self.0)
    }

    fn paths(&self) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        if let Target::File { path, .. } | Target::Device { path, .. } = &self.0.target {
            paths.push(path.into());
        }
        if let EdgeSource::EdgeList { path, .. } = &self.0.graph.source {
            paths.push(path.into());
        }
        paths.extend(self.0.result_path.as_ref().map(PathBuf::from));
        paths
    }

    fn run(&self, run: &mut Run<'_>) -> Result<RunResult, RunError> {
        let (workload, targets) = (self.0, run.inputs.targets);
        let _claim = iosonde_block::claim(targets, &workload.target)?;
        let Some(graph) = lay_out(workload, run)? else {
            return Ok(run.unmeasured());
        };
        let (state, computed) = compute(workload, &graph, run)?;
        let mut result = computed.result;
        result.layout = graph.layout;
        let mut facts = facts_of(&graph, &state, computed.facts);
        state.check_lists(layout::path(&workload.target))?;
        if let Some(path) = &workload.result_path {
            write_result(targets, Path::new(path), &state)?;
        }
        if workload.verify_after && !facts.iterations.is_empty() {
            facts.check = verify(workload, &graph, &state, &facts, run)?;
            warn_of(run, &facts);
        }
        result.graph = Some(facts);
        Ok(result)
    }
}

/// Phase `layout`; nothing if the run was stopped in it.
fn lay_out(workload: &GraphWorkload, run: &mut Run<'_>) -> Result<Option<Graph>, RunError> {
    run.begin(Phase::Layout);
    let (clock, targets) = (run.inputs.clock, run.inputs.targets);
    let progress = &mut |bytes| run.progress(Phase::Layout, bytes);
    let graph = layout::lay_out(workload, targets, &|| clock.now(), progress)?;
    let written = graph.as_ref().map_or(0, |graph| graph.layout.written_bytes);
    run.end(Phase::Layout, written);
    Ok(graph)
}

/// The measurement.
fn compute<'g>(
    workload: &GraphWorkload,
    graph: &'g Graph,
    run: &mut Run<'_>,
) -> Result<(State<'g>, Computed), RunError> {
    let csr = &graph.csr;
    let vertices = u64::from(csr.vertices());
    let state_bytes = match workload.algorithm {
        Algorithm::Pagerank { .. } => Ranks::bytes(vertices),
        Algorithm::Bfs { .. } => Bfs::bytes(vertices),
        Algorithm::Components => Components::bytes(vertices),
    };
    threads::check_memory(workload, state_bytes)?;
    let state = State::new(workload, run.inputs.seed, graph)?;
    let mut computed = match &state {
        State::Ranks(ranks) if ranks.settings().pushes => threads::compute(workload, graph, &Push(ranks), run)?,
        State::Ranks(ranks) => threads::compute(workload, graph, &Pull(ranks), run)?,
        State::Bfs(search) => threads::compute(workload, graph, search, run)?,
        State::Components(components) => threads::compute(workload, graph, components, run)?,
    };
    computed.facts.vertex_bytes = state_bytes + csr.index_bytes();
    Ok((state, computed))
}

/// Phase `verify`.
fn verify(
    workload: &GraphWorkload,
    graph: &Graph,
    state: &State<'_>,
    facts: &GraphResult,
    run: &mut Run<'_>,
) -> Result<Option<GraphCheck>, RunError> {
    let mut rules: Box<dyn Rules> = match state {
        State::Ranks(ranks) => {
            let residual = facts.residual.unwrap_or(f64::INFINITY);
            Box::new(RankRules::new(&graph.csr, ranks, residual, workload.graph.lists))
        }
        // Half of a search breaks the rules of a whole one.
        _ if !facts.is_complete => return Ok(None),
        State::Bfs(search) => Box::new(SearchRules::new(&graph.csr, search)),
        State::Components(components) => Box::new(ComponentRules::new(&graph.csr, components)),
    };
    run.begin(Phase::Verify);
    let progress = &mut |bytes| run.progress(Phase::Verify, bytes);
    let checked = verify::check(&graph.csr, &graph.file, rules.as_mut(), progress);
    let path = layout::path(&workload.target);
    let checked = checked.map_err(|error| RunError::io("read", path, &error).at("phase `verify`"))?;
    run.end(Phase::Verify, facts.adjacency_bytes);
    Ok(checked)
}

fn warn_of(run: &mut Run<'_>, facts: &GraphResult) {
    let Some(check) = &facts.check else { return };
    if !check.is_intact {
        run.warn(Warning {
            code: "damaged_graph".into(),
            message: "the adjacency lists do not have the checksum with which they were written".into(),
            hint: "the device returned other data than was written, or something else wrote to the target".into(),
        });
    }
    if check.violations > 0 {
        let first = check.first_violation.clone().unwrap_or_default();
        run.warn(Warning {
            code: "wrong_result".into(),
            message: format!("the result breaks {} rules; the first one: {first}", check.violations),
            hint: "do not use the numbers of this run; the device may have returned wrong data".into(),
        });
    }
}

/// The state of all vertices.
enum State<'g> {
    Ranks(Ranks<'g>),
    Bfs(Bfs),
    Components(Components),
}

impl<'g> State<'g> {
    fn new(workload: &GraphWorkload, seed: u64, graph: &'g Graph) -> Result<State<'g>, RunError> {
        let csr = &graph.csr;
        Ok(match workload.algorithm {
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
            Algorithm::Bfs { root } => State::Bfs(Bfs::new(csr.vertices(), root_of(csr, root, seed)?)),
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
    fn check_lists(&self, path: &Path) -> Result<(), RunError> {
        let is_damaged = match self {
            State::Ranks(ranks) => ranks.is_damaged(),
            State::Bfs(search) => search.is_damaged(),
            State::Components(components) => components.is_damaged(),
        };
        match is_damaged {
            false => Ok(()),
            true => Err(RunError::new(
                Code::IoError,
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
fn root_of(csr: &csr::Csr, asked: Option<u64>, seed: u64) -> Result<u32, RunError> {
    let vertices = csr.vertices();
    match asked {
        Some(root) if root >= u64::from(vertices) => Err(RunError::invalid(
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

/// Facts about the graph and the result.
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

fn write_result(targets: &Targets, path: &Path, state: &State<'_>) -> Result<(), RunError> {
    let failed = |error: std::io::Error| RunError::io("write", path, &error).at("`result_path`");
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

#[cfg(test)]
mod tests;
