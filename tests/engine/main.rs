//! The coordinator and the worker together, in one process, over their messages: the exchange, its faults, and what is
//! left afterwards. The attempts are small but real: they read objects, write objects and measure what is stored.

mod bench;
mod exchange;
mod faults;
mod killpoints;
