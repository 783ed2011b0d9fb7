//! The graph workload: PageRank with the state of vertices in memory and adjacency lists on the device (the semi-external
//! method of FlashX).
//!
//! [`GraphAlgorithm`] lists its steps. `source` has the edges, `build` sorts them externally and writes the graph, `csr` is its format,
//! `layout` decides whether it is there. `pagerank` is the computation, `cache` keeps pages, `job` is the measuring loop on a backend
//! of the block workload, `team` is where jobs meet between passes, `threads` runs them. `verify` checks the result.

mod build;
mod cache;
mod check;
mod csr;
mod job;
mod layout;
mod pagerank;
mod source;
mod team;
#[cfg(test)]
mod testing;
mod threads;
mod verify;

use std::io::Write;
use std::path::{Path, PathBuf};

use iosonde_harness::target::{OFlags, Targets};
use iosonde_harness::{Code, LoadPlan, Run, RunError, Workload};
use iosonde_protocol::{
    Algorithm, EdgeSource, GraphCheck, GraphResult, GraphWorkload, PagerankMode, Phase, RunResult, Target, Warning,
};

use crate::layout::Graph;
use crate::pagerank::{PagerankSettings, Pull, Push, Ranks};
use crate::threads::Computed;
use crate::verify::RankRules;

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
        let ranks = ranks_of(workload, &graph)?;
        let Computed { mut result, facts } = match ranks.settings().pushes {
            true => threads::compute(workload, &graph, &Push(&ranks), run)?,
            false => threads::compute(workload, &graph, &Pull(&ranks), run)?,
        };
        result.layout = graph.layout;
        let mut facts = facts_of(&graph, &ranks, facts);
        check_lists(&ranks, layout::path(&workload.target))?;
        if let Some(path) = &workload.result_path {
            write_result(targets, Path::new(path), &ranks)?;
        }
        if workload.verify_after && !facts.iterations.is_empty() {
            facts.check = verify(workload, &graph, &ranks, &facts, run)?;
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

/// The ranks before the first iteration.
fn ranks_of<'g>(workload: &GraphWorkload, graph: &'g Graph) -> Result<Ranks<'g>, RunError> {
    threads::check_memory(workload, Ranks::bytes(u64::from(graph.csr.vertices())))?;
    let Algorithm::Pagerank {
        mode,
        damping,
        tolerance,
        iterations,
    } = workload.algorithm;
    let settings = PagerankSettings {
        damping,
        tolerance,
        iterations,
        pushes: mode == PagerankMode::Push,
    };
    Ok(Ranks::new(&graph.csr, settings))
}

/// Phase `verify`.
fn verify(
    workload: &GraphWorkload,
    graph: &Graph,
    ranks: &Ranks<'_>,
    facts: &GraphResult,
    run: &mut Run<'_>,
) -> Result<Option<GraphCheck>, RunError> {
    let residual = facts.residual.unwrap_or(f64::INFINITY);
    let rules = RankRules::new(&graph.csr, ranks, residual, workload.graph.lists);
    run.begin(Phase::Verify);
    let progress = &mut |bytes| run.progress(Phase::Verify, bytes);
    let checked = verify::check(&graph.csr, &graph.file, rules, progress);
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

/// Fails if a list had a vertex that does not exist.
fn check_lists(ranks: &Ranks<'_>, path: &Path) -> Result<(), RunError> {
    match ranks.is_damaged() {
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

/// Facts about the graph and the result.
fn facts_of(graph: &Graph, ranks: &Ranks<'_>, measured: GraphResult) -> GraphResult {
    let (csr, header) = (&graph.csr, &graph.csr.header);
    let degrees = || (0..csr.vertices()).map(|vertex| csr.degree(vertex));
    GraphResult {
        vertices: header.vertices,
        isolated_vertices: degrees().filter(|degree| *degree == 0).count() as u64,
        source_edges: header.source_edges,
        self_loops: header.self_loops,
        duplicates: header.duplicates,
        edges: header.edges,
        adjacency_bytes: header.edges * csr::EDGE_BYTES,
        degree_max: degrees().max().unwrap_or(0),
        build_ns: if graph.was_kept { 0 } else { header.build_ns },
        vertex_bytes: Ranks::bytes(u64::from(csr.vertices())) + csr.index_bytes(),
        result_hash: ranks.hash(),
        rank_sum: Some(ranks.total()),
        residual: measured.iterations.last().and_then(|iteration| iteration.residual),
        ..measured
    }
}

fn write_result(targets: &Targets, path: &Path, ranks: &Ranks<'_>) -> Result<(), RunError> {
    let failed = |error: std::io::Error| RunError::io("write", path, &error).at("`result_path`");
    let file = targets
        .open(path, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC)
        .map_err(failed)?;
    let mut writer = std::io::BufWriter::new(file);
    let written = ranks.all().try_for_each(|rank| writer.write_all(&rank.to_le_bytes()));
    written.and_then(|()| writer.flush()).map_err(failed)
}

#[cfg(test)]
mod tests;
