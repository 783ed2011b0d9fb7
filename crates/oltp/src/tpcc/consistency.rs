//! The 12 consistency conditions of clause 3.3.2, each as one query that counts violations.

use crate::sql::Connection;
use iosonde_harness::{Code, Run, RunError};
use iosonde_protocol::{ConditionResult, ConsistencyMoment, ConsistencyResult, Event, Phase};

/// A condition: its formula, and the query that counts what violates it.
struct Condition {
    formula: &'static str,
    query: &'static str,
}

const DELIVERED: &str = "SELECT o_w_id, o_d_id, o_c_id, SUM(ol_amount) AS total FROM orders JOIN order_line \
    ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id WHERE ol_delivery_d IS NOT NULL \
    GROUP BY o_w_id, o_d_id, o_c_id";

/// In the order of the clause. Condition 11 is stated for the initial population, where no customer had a delivery;
/// counting deliveries keeps it true afterwards.
const CONDITIONS: [Condition; 12] = [
    Condition {
        formula: "W_YTD = sum(D_YTD)",
        query: "SELECT COUNT(*) FROM warehouse LEFT JOIN (SELECT d_w_id, SUM(d_ytd) AS total FROM district \
                GROUP BY d_w_id) d ON d_w_id = w_id WHERE w_ytd <> COALESCE(total, 0)",
    },
    Condition {
        formula: "D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID)",
        query: "SELECT COUNT(*) FROM district LEFT JOIN (SELECT o_w_id, o_d_id, MAX(o_id) AS newest FROM orders \
                GROUP BY o_w_id, o_d_id) o ON o_w_id = d_w_id AND o_d_id = d_id LEFT JOIN (SELECT no_w_id, no_d_id, \
                MAX(no_o_id) AS waiting FROM new_order GROUP BY no_w_id, no_d_id) n ON no_w_id = d_w_id \
                AND no_d_id = d_id WHERE d_next_o_id - 1 <> COALESCE(newest, 0) \
                OR (waiting IS NOT NULL AND waiting <> d_next_o_id - 1)",
    },
    Condition {
        formula: "max(NO_O_ID) - min(NO_O_ID) + 1 = rows of NEW-ORDER per district",
        query: "SELECT COUNT(*) FROM (SELECT no_w_id FROM new_order GROUP BY no_w_id, no_d_id \
                HAVING MAX(no_o_id) - MIN(no_o_id) + 1 <> COUNT(*)) n",
    },
    Condition {
        formula: "sum(O_OL_CNT) = rows of ORDER-LINE per district",
        query: "SELECT COUNT(*) FROM (SELECT o_w_id, o_d_id, SUM(o_ol_cnt) AS expected FROM orders \
                GROUP BY o_w_id, o_d_id) o LEFT JOIN (SELECT ol_w_id, ol_d_id, COUNT(*) AS found FROM order_line \
                GROUP BY ol_w_id, ol_d_id) l ON ol_w_id = o_w_id AND ol_d_id = o_d_id \
                WHERE expected <> COALESCE(found, 0)",
    },
    Condition {
        formula: "O_CARRIER_ID is null exactly where a row of NEW-ORDER exists",
        query: "SELECT COUNT(*) FROM orders LEFT JOIN new_order ON no_w_id = o_w_id AND no_d_id = o_d_id \
                AND no_o_id = o_id WHERE (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL)",
    },
    Condition {
        formula: "O_OL_CNT = rows of ORDER-LINE per order",
        query: "SELECT COUNT(*) FROM orders LEFT JOIN (SELECT ol_w_id, ol_d_id, ol_o_id, COUNT(*) AS found \
                FROM order_line GROUP BY ol_w_id, ol_d_id, ol_o_id) l ON ol_w_id = o_w_id AND ol_d_id = o_d_id \
                AND ol_o_id = o_id WHERE o_ol_cnt <> COALESCE(found, 0)",
    },
    Condition {
        formula: "OL_DELIVERY_D is null exactly where O_CARRIER_ID is null",
        query: "SELECT COUNT(*) FROM order_line LEFT JOIN orders ON o_w_id = ol_w_id AND o_d_id = ol_d_id \
                AND o_id = ol_o_id WHERE o_id IS NULL OR (ol_delivery_d IS NULL) <> (o_carrier_id IS NULL)",
    },
    Condition {
        formula: "W_YTD = sum(H_AMOUNT)",
        query: "SELECT COUNT(*) FROM warehouse LEFT JOIN (SELECT h_w_id, SUM(h_amount) AS total FROM history \
                GROUP BY h_w_id) h ON h_w_id = w_id WHERE w_ytd <> COALESCE(total, 0)",
    },
    Condition {
        formula: "D_YTD = sum(H_AMOUNT)",
        query: "SELECT COUNT(*) FROM district LEFT JOIN (SELECT h_w_id, h_d_id, SUM(h_amount) AS total FROM history \
                GROUP BY h_w_id, h_d_id) h ON h_w_id = d_w_id AND h_d_id = d_id WHERE d_ytd <> COALESCE(total, 0)",
    },
    Condition {
        formula: "C_BALANCE = sum(OL_AMOUNT of delivered lines) - sum(H_AMOUNT)",
        query: "SELECT COUNT(*) FROM customer LEFT JOIN (DELIVERED) o ON o_w_id = c_w_id AND o_d_id = c_d_id \
                AND o_c_id = c_id LEFT JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, SUM(h_amount) AS paid FROM history \
                GROUP BY h_c_w_id, h_c_d_id, h_c_id) h ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id \
                WHERE c_balance <> COALESCE(o.total, 0) - COALESCE(paid, 0)",
    },
    Condition {
        formula: "rows of ORDER - rows of NEW-ORDER = 2100 + sum(C_DELIVERY_CNT) per district",
        query: "SELECT COUNT(*) FROM (SELECT c_w_id, c_d_id, SUM(c_delivery_cnt) AS delivered FROM customer \
                GROUP BY c_w_id, c_d_id) c LEFT JOIN (SELECT o_w_id, o_d_id, COUNT(*) AS ordered FROM orders \
                GROUP BY o_w_id, o_d_id) o ON o_w_id = c_w_id AND o_d_id = c_d_id LEFT JOIN (SELECT no_w_id, no_d_id, \
                COUNT(*) AS waiting FROM new_order GROUP BY no_w_id, no_d_id) n ON no_w_id = c_w_id \
                AND no_d_id = c_d_id WHERE COALESCE(ordered, 0) - COALESCE(waiting, 0) <> 2100 + delivered",
    },
    Condition {
        formula: "C_BALANCE + C_YTD_PAYMENT = sum(OL_AMOUNT of delivered lines)",
        query: "SELECT COUNT(*) FROM customer LEFT JOIN (DELIVERED) o ON o_w_id = c_w_id AND o_d_id = c_d_id \
                AND o_c_id = c_id WHERE c_balance + c_ytd_payment <> COALESCE(o.total, 0)",
    },
];

/// Checks all conditions; phase `verify`. None if the run was stopped meanwhile.
pub(crate) fn check(
    connection: &mut dyn Connection,
    moment: ConsistencyMoment,
    run: &mut Run<'_>,
) -> Result<Option<ConsistencyResult>, RunError> {
    let begin_ns = run.begin(Phase::Verify);
    let mut conditions = Vec::with_capacity(CONDITIONS.len());
    for (number, condition) in (1..).zip(&CONDITIONS) {
        if run.is_stopped() {
            return Ok(None);
        }
        let rows = connection
            .query(&condition.query.replace("DELIVERED", DELIVERED))
            .map_err(|error| RunError::from(error).at(format!("consistency condition {number}")))?;
        let count = rows.into_iter().flatten().flatten().next();
        let violations = count.and_then(|count| count.parse().ok()).ok_or_else(|| {
            let message = format!("the server did not count the violations of consistency condition {number}");
            RunError::new(
                Code::Internal,
                message,
                "please report this with the spec that caused it",
            )
        })?;
        conditions.push(ConditionResult {
            number,
            condition: condition.formula.into(),
            violations,
        });
        run.progress(Phase::Verify, 0);
    }
    let end_ns = run.end(Phase::Verify, 0);
    let result = ConsistencyResult {
        moment,
        duration_ns: end_ns - begin_ns,
        conditions,
    };
    run.emit(Event::Consistency(result.clone()));
    Ok(Some(result))
}

/// Fails the run if a condition does not hold.
pub(crate) fn require(result: &ConsistencyResult) -> Result<(), RunError> {
    let violated: Vec<String> = result
        .conditions
        .iter()
        .filter(|condition| condition.violations > 0)
        .map(|condition| {
            let (number, formula, violations) = (condition.number, &condition.condition, condition.violations);
            format!("3.3.2.{number} ({formula}): {violations} violations")
        })
        .collect();
    if violated.is_empty() {
        return Ok(());
    }
    let moment = match result.moment {
        ConsistencyMoment::Before => "before the measurement",
        ConsistencyMoment::After => "after the measurement",
    };
    Err(RunError::new(
        Code::Inconsistent,
        format!("the database is inconsistent {moment}: {}", violated.join("; ")),
        "load the database again; if it happens again, the server or its storage lost or mixed up data",
    )
    .at("phase `verify`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violation_fails_the_run_and_is_named() {
        let condition = |number, violations| ConditionResult {
            number,
            condition: "A = B".into(),
            violations,
        };
        let result = |conditions| ConsistencyResult {
            moment: ConsistencyMoment::After,
            duration_ns: 0,
            conditions,
        };
        assert_eq!(require(&result(vec![condition(1, 0)])), Ok(()));
        let error = require(&result(vec![condition(1, 0), condition(12, 3)])).unwrap_err();
        assert_eq!(error.code, Code::Inconsistent);
        assert!(error.message.ends_with("3.3.2.12 (A = B): 3 violations"), "{error}");
    }
}
