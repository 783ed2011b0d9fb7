//! Sources of edges: a generator, or a list in a file. Each can be gone through more than once, with the same edges.

mod list;
mod rmat;

use iosonde_harness::RunError;
use iosonde_harness::target::Targets;
use iosonde_protocol::EdgeSource;

use list::EdgeList;
use rmat::Rmat;

/// An edge: from the first vertex to the second.
pub(crate) type Edge = (u32, u32);

/// Takes one batch of edges after the other; an error ends it.
pub(crate) type Take<'a> = &'a mut dyn FnMut(&[Edge]) -> Result<(), RunError>;

/// A source of edges.
pub(crate) enum Edges<'a> {
    Rmat(Rmat),
    List(EdgeList<'a>),
}

impl<'a> Edges<'a> {
    /// The source that a spec describes.
    pub(crate) fn open(source: &'a EdgeSource, targets: &'a Targets) -> Result<Edges<'a>, RunError> {
        match *source {
            EdgeSource::Rmat {
                scale,
                edge_factor,
                a,
                b,
                c,
                seed,
            } => Ok(Edges::Rmat(Rmat::new(scale, edge_factor, [a, b, c], seed))),
            EdgeSource::EdgeList { ref path, format } => {
                Ok(Edges::List(EdgeList::open(path.as_ref(), format, targets)?))
            }
        }
    }

    /// Number of vertices, where it is known before the edges are.
    pub(crate) fn vertices(&self) -> Option<u64> {
        match self {
            Edges::Rmat(rmat) => Some(rmat.vertices()),
            Edges::List(_) => None,
        }
    }

    /// Changes whenever the edges may have changed.
    pub(crate) fn version(&self) -> String {
        match self {
            Edges::Rmat(_) => String::new(),
            Edges::List(list) => list.version(),
        }
    }

    /// Goes through all edges.
    pub(crate) fn each(&self, take: Take<'_>) -> Result<(), RunError> {
        match self {
            Edges::Rmat(rmat) => rmat.each(take),
            Edges::List(list) => list.each(take),
        }
    }
}
