//! Looks up new-orders that an earlier run saw acknowledged.

use std::collections::HashSet;
use std::path::Path;

use crate::sql::Connection;
use iosonde_harness::{Run, RunError};
use iosonde_protocol::{DurabilityResult, Event, Phase};

use crate::acknowledged::{self, Acknowledged};

/// Counts the orders that the database does not have; an order counts as present with all of its lines only.
pub(crate) fn verify(
    directory: &str,
    connection: &mut dyn Connection,
    run: &mut Run<'_>,
) -> Result<DurabilityResult, RunError> {
    let all = acknowledged::read(Path::new(directory))?;
    run.begin(Phase::Verify);
    let mut result = DurabilityResult {
        acknowledged: all.len() as u64,
        ..DurabilityResult::default()
    };
    for orders in all.chunk_by(|left, right| (left.group, left.part) == (right.group, right.part)) {
        let present = present(connection, orders).map_err(|error| error.at("looking up acknowledged orders"))?;
        for order in orders.iter().filter(|order| !present.contains(&order.number)) {
            acknowledged::note_lost(&mut result, || {
                format!("{}/{}/{}", order.group, order.part, order.number)
            });
        }
        run.progress(Phase::Verify, 0);
    }
    run.end(Phase::Verify, 0);
    run.emit(Event::Durability(result.clone()));
    Ok(result)
}

/// Orders of a district from the first one acknowledged on, which have all their lines.
fn present(connection: &mut dyn Connection, orders: &[Acknowledged]) -> Result<HashSet<u64>, RunError> {
    let Acknowledged { group, part, number } = orders[0];
    let rows = connection.query(&format!(
        "SELECT o_id FROM orders JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id \
         WHERE o_w_id = {group} AND o_d_id = {part} AND o_id >= {number} GROUP BY o_id, o_ol_cnt \
         HAVING COUNT(*) = o_ol_cnt"
    ))?;
    Ok(rows
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|id| id.parse().ok())
        .collect())
}
