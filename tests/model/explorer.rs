//! Visits every state of a model, nearest first, and says how the first broken property was reached.
//!
//! States are kept whole and compared whole: nothing rests on a hash being unique. Next to a state stand the state it
//! was first reached from, so that a violation comes with its shortest path, and the states that it leads to, so that
//! [`Explored::stuck`] can ask afterwards from where no end is reachable.
//!
//! Absent on purpose: threads (two tests use two cores), random walks, partial orders. A model that is too large is
//! bounded more tightly instead.

use std::fmt::Debug;
use std::hash::{BuildHasher, Hash, Hasher};

use hashbrown::HashTable;

/// What can be explored.
pub trait Model {
    type State: Clone + Eq + Hash + Debug;
    type Step;

    fn initial(&self) -> Self::State;
    /// All that may happen next in `state`.
    fn steps(&self, state: &Self::State, steps: &mut Vec<Self::Step>);
    fn name(&self, step: &Self::Step) -> String;
    /// Where `step` leads, written in the one way that stands for all states that differ only in names.
    fn target(&self, step: &Self::Step) -> Self::State;
    /// The property that `step`, or the state it leads to, breaks.
    fn broken(&self, before: &Self::State, step: &Self::Step) -> Option<&'static str>;
    /// Whether `step` may be counted on when one asks whether an end is reachable.
    fn counts(&self, step: &Self::Step) -> bool;
    fn is_end(&self, state: &Self::State) -> bool;
    /// Whether an end has to be reachable from `state`.
    fn must_end(&self, state: &Self::State) -> bool;
}

/// The shortest way to a broken property.
#[derive(Debug)]
pub struct Violation {
    pub property: &'static str,
    pub path: Vec<String>,
}

/// What was seen.
pub struct Explored<S> {
    pub states: Vec<S>,
    pub steps: u64,
    /// Steps from the initial state to the farthest one.
    pub depth: usize,
    pub violation: Option<Violation>,
    /// Where the edges of a state begin in `edges`; one entry more than there are explored states.
    starts: Vec<usize>,
    edges: Vec<u32>,
}

/// Explores `model` until there is nothing new, a property is broken, or `states_max` states were seen, which is an
/// error in the bounds and panics.
pub fn explore<M: Model>(model: &M, states_max: usize) -> Explored<M::State> {
    let first = model.initial();
    let mut table: HashTable<u32> = HashTable::new();
    table.insert_unique(hash(&first), 0, |_| unreachable!("an empty table does not rehash"));
    let mut seen =
        Explored { states: vec![first], steps: 0, depth: 0, violation: None, starts: vec![0], edges: Vec::new() };
    let mut parents = vec![0_u32];
    let (mut at, mut level_end) = (0, 1);
    let mut steps = Vec::new();
    while at < seen.states.len() {
        if at == level_end {
            seen.depth += 1;
            level_end = seen.states.len();
        }
        let before = seen.states[at].clone();
        steps.clear();
        model.steps(&before, &mut steps);
        for step in &steps {
            seen.steps += 1;
            if let Some(property) = model.broken(&before, step) {
                let mut path = path(model, &seen.states, &parents, at);
                path.push(model.name(step));
                seen.violation = Some(Violation { property, path });
                return seen;
            }
            let target = model.target(step);
            let code = hash(&target);
            let index = match table.find(code, |&index| seen.states[index as usize] == target) {
                Some(&index) => index,
                None => {
                    let index = u32::try_from(seen.states.len()).expect("the bounds keep states below 2^32");
                    assert!(
                        seen.states.len() < states_max,
                        "more than {states_max} states: bound the model more tightly"
                    );
                    seen.states.push(target);
                    parents.push(u32::try_from(at).expect("at is the index of a state"));
                    table.insert_unique(code, index, |&index| hash(&seen.states[index as usize]));
                    index
                }
            };
            if model.counts(step) && index as usize != at {
                seen.edges.push(index);
            }
        }
        seen.starts.push(seen.edges.len());
        at += 1;
    }
    seen
}

impl<S> Explored<S> {
    /// The states that must be able to end and cannot, by steps that count.
    pub fn stuck<M: Model<State = S>>(&self, model: &M) -> Vec<&S> {
        let mut ends: Vec<bool> = self.states.iter().map(|state| model.is_end(state)).collect();
        loop {
            let mut changed = false;
            // Backwards, because most steps lead to states that were found later: a few sweeps are enough.
            for at in (0..self.states.len()).rev() {
                let edges = &self.edges[self.starts[at]..self.starts[at + 1]];
                if !ends[at] && edges.iter().any(|&next| ends[next as usize]) {
                    ends[at] = true;
                    changed = true;
                }
            }
            if !changed {
                break;
            }
        }
        self.states.iter().zip(&ends).filter(|&(state, &ends)| !ends && model.must_end(state)).map(|(s, _)| s).collect()
    }
}

/// The names of the steps from the initial state to the one at `at`.
fn path<M: Model>(model: &M, states: &[M::State], parents: &[u32], mut at: usize) -> Vec<String> {
    let mut names = Vec::new();
    while at != 0 {
        let parent = parents[at] as usize;
        let mut steps = Vec::new();
        model.steps(&states[parent], &mut steps);
        let step = steps.iter().find(|step| model.target(step) == states[at]).expect("the parent leads here");
        names.push(model.name(step));
        at = parent;
    }
    names.reverse();
    names
}

fn hash<S: Hash>(state: &S) -> u64 {
    #[derive(Clone, Copy)]
    struct Mixed(u64);
    impl Hasher for Mixed {
        fn write(&mut self, bytes: &[u8]) {
            for &byte in bytes {
                self.write_u64(u64::from(byte));
            }
        }
        fn write_u8(&mut self, value: u8) {
            self.write_u64(u64::from(value));
        }
        fn write_u64(&mut self, value: u64) {
            self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        fn write_isize(&mut self, value: isize) {
            self.write_u64(value.cast_unsigned() as u64);
        }
        fn finish(&self) -> u64 {
            let mixed = (self.0 ^ (self.0 >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed ^ (mixed >> 29)
        }
    }
    impl BuildHasher for Mixed {
        type Hasher = Mixed;
        fn build_hasher(&self) -> Mixed {
            *self
        }
    }
    Mixed(0).hash_one(state)
}

/// A counter that may go up to 5, and jumps into a trap from 3.
struct Counter;

impl Model for Counter {
    type State = u8;
    type Step = u8;

    fn initial(&self) -> u8 {
        0
    }
    fn steps(&self, &state: &u8, steps: &mut Vec<u8>) {
        match state {
            3 => steps.extend([4, 100]),
            0..5 => steps.push(state + 1),
            _ => {}
        }
    }
    fn name(&self, step: &u8) -> String {
        format!("to {step}")
    }
    fn target(&self, step: &u8) -> u8 {
        *step
    }
    fn broken(&self, _: &u8, &step: &u8) -> Option<&'static str> {
        (step == 6).then_some("six")
    }
    fn counts(&self, _: &u8) -> bool {
        true
    }
    fn is_end(&self, &state: &u8) -> bool {
        state == 5
    }
    fn must_end(&self, _: &u8) -> bool {
        true
    }
}

#[test]
fn the_explorer_sees_every_state_and_finds_the_trap() {
    let explored = explore(&Counter, 100);
    assert_eq!((explored.states.len(), explored.steps, explored.depth), (7, 6, 5));
    assert!(explored.violation.is_none());
    assert_eq!(explored.stuck(&Counter), [&100]);
}
