//! One program, since each would compile the measuring loops again.

mod any_spec;
mod common;
mod files;
mod simulated;
mod verify;
