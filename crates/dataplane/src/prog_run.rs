//! Runs of programs without a device, whose errors say what was run.

use std::io;
use std::os::fd::BorrowedFd;

use sluice_libbpf::run;
pub use sluice_libbpf::run::{Outcome, TcContext, TcRun, XdpContext, XdpRun};

use crate::error::{Doing, Error, Result};

/// Runs an XDP program on a frame (`BPF_PROG_TEST_RUN`).
pub fn xdp(program: BorrowedFd<'_>, run: &XdpRun<'_>) -> Result<Outcome<XdpContext>> {
    run::xdp(program, run).doing(|| "run an XDP program".to_owned())
}

/// Runs a tc program on a frame (`BPF_PROG_TEST_RUN`).
pub fn tc(program: BorrowedFd<'_>, run: &TcRun<'_>) -> Result<Outcome<TcContext>> {
    run::tc(program, run).doing(|| "run a tc program".to_owned())
}

/// Runs a program of type `syscall` once, without arguments, and returns its result.
pub fn run_syscall_program(program: BorrowedFd<'_>) -> Result<u32> {
    run::syscall(program).doing(|| "run a syscall program".to_owned())
}

/// A signal ended the run before all repetitions were done.
pub fn is_interrupted(error: &Error) -> bool {
    matches!(error, Error::Os { source, .. } if source.kind() == io::ErrorKind::Interrupted)
}
