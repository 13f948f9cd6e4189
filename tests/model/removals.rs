//! Takes the guards away, each where it carries weight, and expects to see what it was for.
//!
//! A row says what breaks first, and what breaks first for a reader of the table when the inner properties (S2, S6, S7)
//! are not looked at. Rows with nothing broken are defence in depth: the guard is covered by others there, and the row
//! next to it shows where it is not.

use std::time::Instant;

use super::explorer::explore;
use super::guards::Guard::{self, *};
use super::guards::{Bounds, GUARDS};
use super::invariants::{S1, S2, S3, S4, S5, S6, S7};
use super::protocol::Protocol;
use super::{ONE_JOB, STATES_MAX};

/// A property, and the number of steps to the nearest state where it is broken.
type Found = Option<(&'static str, usize)>;

struct Removal {
    guards: &'static [Guard],
    bounds: Bounds,
    first: Found,
    for_readers: Found,
}

const fn removal(guards: &'static [Guard], bounds: Bounds, first: Found, for_readers: Found) -> Removal {
    Removal { guards, bounds, first, for_readers }
}

const UNFOLDED: Bounds = Bounds { folding: false, ..ONE_JOB };
const IN_DOUBT: Bounds = Bounds { doubt: true, ..ONE_JOB };
const ALONE: Bounds = Bounds { foreign: 0, ..ONE_JOB };
const HONEST: Bounds = Bounds { corrupt: 0, ..ONE_JOB };

const REMOVALS: [Removal; 29] = [
    removal(&[EpochCompare], ONE_JOB, Some((S7, 3)), Some((S3, 18))),
    removal(&[EpochCompare], UNFOLDED, Some((S7, 3)), None),
    removal(&[ModCompare], IN_DOUBT, Some((S2, 9)), Some((S3, 14))),
    removal(&[ModCompare], ONE_JOB, None, None),
    removal(&[EpochCompare, ModCompare], UNFOLDED, Some((S7, 3)), Some((S3, 13))),
    removal(&[LoadAtTakeover], ONE_JOB, Some((S2, 13)), Some((S3, 18))),
    removal(&[LoadAtTakeover], UNFOLDED, None, None),
    removal(&[AttemptNames], ONE_JOB, Some((S1, 10)), Some((S1, 10))),
    removal(&[AttemptNames], HONEST, Some((S3, 12)), Some((S3, 12))),
    removal(&[TombstoneCheck], ONE_JOB, Some((S2, 7)), Some((S3, 16))),
    removal(&[ListedOnly], ONE_JOB, Some((S2, 7)), None),
    removal(&[FirstCompletionWins], ONE_JOB, Some((S2, 8)), Some((S3, 15))),
    removal(&[JudgeFingerprints], ONE_JOB, Some((S1, 9)), Some((S1, 9))),
    removal(&[JudgeFingerprints], HONEST, None, None),
    removal(&[PrepareVerified], ONE_JOB, Some((S1, 8)), Some((S1, 8))),
    removal(&[FoldVerified], ONE_JOB, Some((S1, 9)), Some((S1, 9))),
    removal(&[VersionCompare], ONE_JOB, Some((S1, 10)), Some((S1, 10))),
    removal(&[VersionCompare], ALONE, Some((S1, 11)), Some((S1, 11))),
    removal(&[HistoryCheck], ONE_JOB, Some((S4, 12)), Some((S4, 12))),
    removal(&[HistoryCheck], ALONE, None, None),
    removal(&[InputLiveCheck], ONE_JOB, Some((S1, 10)), Some((S1, 10))),
    removal(&[HistoryCheck, InputLiveCheck], ALONE, Some((S1, 11)), Some((S1, 11))),
    removal(&[KeepOnUnknown], ONE_JOB, Some((S6, 8)), Some((S3, 11))),
    removal(&[FailOnlyDefinite], ONE_JOB, Some((S6, 10)), Some((S3, 12))),
    removal(&[NoCancelAfterPrepared], ONE_JOB, Some((S6, 10)), Some((S3, 12))),
    removal(&[TombstoneFirst], ONE_JOB, Some((S6, 11)), Some((S3, 16))),
    removal(&[InputsAfterCommitted], ONE_JOB, Some((S5, 8)), Some((S5, 8))),
    removal(&[BoundaryUnreferenced], ONE_JOB, Some((S5, 13)), Some((S5, 13))),
    removal(&[RevertMindsBoundary], ONE_JOB, Some((S5, 13)), Some((S5, 13))),
];

#[test]
fn without_a_guard_what_it_holds_breaks() {
    let mut wrong = Vec::new();
    for Removal { guards, bounds, first, for_readers } in REMOVALS {
        let mut line = format!("{guards:?}");
        let differs = [("folding", bounds.folding), ("doubt", bounds.doubt)];
        differs.iter().filter(|(_, on)| *on).for_each(|(name, _)| line += &format!(" +{name}"));
        line += &format!(" foreign {} corrupt {}", bounds.foreign, bounds.corrupt);
        for (expected, unwatched) in [(first, Vec::new()), (for_readers, vec![S2, S6, S7])] {
            let protocol = Protocol { bounds, removed: guards.to_vec(), unwatched };
            let begun = Instant::now();
            let explored = explore(&protocol, STATES_MAX);
            let found = explored.violation.as_ref().map(|violation| (violation.property, violation.path.len()));
            let shown = found.map_or("nothing".to_owned(), |(property, depth)| format!("{property}, depth {depth}"));
            line += &format!(" | {shown}, {} states, {:.1?}", explored.states.len(), begun.elapsed());
            if found != expected {
                let path = explored.violation.map(|violation| violation.path).unwrap_or_default();
                wrong.push(format!("{guards:?}: expected {expected:?}, found {found:?} by {path:?}"));
            }
        }
        println!("{line}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_guard_is_needed_somewhere() {
    for guard in GUARDS {
        let alone = |removal: &&Removal| removal.guards == [guard] && removal.first.is_some();
        assert!(REMOVALS.iter().any(|removal| alone(&removal)), "no row shows what {guard:?} is for");
    }
}
