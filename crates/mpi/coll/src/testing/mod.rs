//! What tests of collectives share: a simulator of schedules, and datatypes and operations with
//! known answers.

pub mod elements;
pub mod schedule_sim;
