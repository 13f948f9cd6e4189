//! What happens next: pure state machines of a run and of its jobs. They read no clock and touch no store; the driver
//! persists each transition before anyone is told of it.

pub mod job;
pub mod run;
