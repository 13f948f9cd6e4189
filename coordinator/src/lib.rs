//! The coordinator decides: it plans, assigns jobs, judges what workers measured, and lets the table format commit.

pub mod audit;
pub mod commit;
pub mod compaction;
pub mod driver;
pub mod fleet;
pub mod lifecycle;
pub mod plan;
pub mod receipts;
pub mod service;
pub mod state;
pub mod submissions;
pub mod sweep;
pub mod table;
