//! Which threads come first.

use std::io;

use nix::unistd::Pid;

/// Ahead of everything of normal priority. A real-time class would starve the softirq thread that frames may need.
pub const HIGHEST: i32 = -20;
/// What threads have that nobody has told otherwise.
pub const NORMAL: i32 = 0;
/// Behind everything of normal priority: who makes load leaves time to who is under it.
pub const BEHIND: i32 = 10;

/// Of a thread; 0 is the calling one.
#[allow(unsafe_code)] // no safe wrapper of setpriority
pub fn set(thread: Pid, niceness: i32) -> io::Result<()> {
    // SAFETY: plain numbers in and out; `who` is a thread's number.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, thread.as_raw() as u32, niceness) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
