//! The workloads of `iosonde-engine`, by the name that a spec gives.

use std::os::fd::RawFd;

use iosonde_ai::{AiCheckpoint, AiIngest, AiKvCache, AiVector, AiWeights};
use iosonde_block::Block;
use iosonde_graph::GraphAlgorithm;
use iosonde_harness::Workload;
use iosonde_kv::Kv;
use iosonde_objects::Objects;
use iosonde_oltp::{Commit, Tpcc};
use iosonde_paging::Paging;
use iosonde_protocol::{Spec, StoreKind, Workload as Named};

use crate::stores;

/// The workload of a spec; `shim` finds the shim of a store.
pub(crate) fn of<'a>(spec: &'a Spec, shim: &dyn Fn(StoreKind) -> Option<RawFd>) -> Box<dyn Workload + 'a> {
    match &spec.workload {
        Named::Block(workload) => Box::new(Block(workload)),
        Named::Kv(workload) => {
            let shim = shim(workload.store.kind);
            let opener = Box::new(move |contents: &_| stores::opener(&workload.store, contents, shim));
            Box::new(Kv { workload, opener })
        }
        Named::Tpcc(workload) => Box::new(Tpcc(workload)),
        Named::Commit(workload) => Box::new(Commit(workload)),
        Named::Paging(workload) => Box::new(Paging(workload)),
        Named::Graph(workload) => Box::new(GraphAlgorithm(workload)),
        Named::Objects(workload) => Box::new(Objects(workload)),
        Named::AiWeights(workload) => Box::new(AiWeights(workload)),
        Named::AiVector(workload) => Box::new(AiVector(workload)),
        Named::AiKvCache(workload) => Box::new(AiKvCache(workload)),
        Named::AiCheckpoint(workload) => Box::new(AiCheckpoint(workload)),
        Named::AiIngest(workload) => Box::new(AiIngest(workload)),
    }
}
