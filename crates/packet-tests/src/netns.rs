//! Private network namespaces: nameless, so they vanish with the thread and file descriptor that hold them, also
//! when a test is killed.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use nix::sched::{CloneFlags, setns, unshare};

/// Runs what moves its thread into a namespace on a thread of its own, with which the namespace goes.
pub fn in_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    std::thread::spawn(work).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// A namespace kept alive by its file descriptor.
#[derive(Debug)]
pub struct Namespace(File);

impl Namespace {
    /// A new one, entered by nobody.
    pub fn new() -> Result<Namespace> {
        std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).context("making a network namespace (are you root?)")?;
            let file = File::open("/proc/thread-self/ns/net").context("opening the namespace's file")?;
            Ok(Namespace(file))
        })
        .join()
        .expect("the thread does not panic")
    }

    /// Moves the calling thread there for good.
    pub fn enter(&self) -> Result<()> {
        setns(&self.0, CloneFlags::CLONE_NEWNET).context("entering a network namespace")
    }

    /// Runs `work` there, on a thread of its own.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                self.enter()?;
                work()
            });
            match thread.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// A path by which child processes can name it.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}

/// Runs lines of `ip` commands in the calling thread's namespace.
pub fn ip(lines: &[String]) -> Result<()> {
    let mut child = Command::new("ip")
        .args(["-force", "-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("starting `ip`; install iproute2")?;
    let text = lines.join("\n") + "\n";
    child.stdin.take().expect("stdin is piped").write_all(text.as_bytes())?;
    let output = child.wait_with_output()?;
    if !output.status.success() {
        let (numbered, said) = (text.lines().zip(1..), String::from_utf8_lossy(&output.stderr));
        let failed: Vec<&str> =
            numbered.filter(|(_, n)| said.contains(&format!("-:{n}\n"))).map(|(line, _)| line).collect();
        bail!("ip: {}\nof: {}", said.trim(), failed.join("; "));
    }
    Ok(())
}

/// Writes a value below /proc/sys of the calling thread's namespace.
pub fn sysctl(path: &str, value: &str) -> Result<()> {
    let file = format!("/proc/sys/{path}");
    std::fs::write(&file, value).with_context(|| format!("writing {value} to {file}"))
}

/// Makes the calling thread's namespace a gateway whose kernel says nothing of its own accord: no address is
/// probed, no router asked for, and multicast reports come once and at once when a device comes up.
pub fn quiet_gateway() -> Result<()> {
    [
        ("net/ipv4/conf/all/forwarding", "1"),
        ("net/ipv6/conf/all/forwarding", "1"),
        ("net/ipv6/conf/default/forwarding", "1"),
        ("net/ipv6/conf/default/accept_dad", "0"),
        ("net/ipv6/conf/default/mldv2_unsolicited_report_interval", "1"),
    ]
    .iter()
    .try_for_each(|(path, value)| sysctl(path, value))
}

/// Index of a device of the calling thread's namespace.
pub fn ifindex(name: &str) -> Result<u32> {
    nix::net::if_::if_nametoindex(name).with_context(|| format!("looking for device {name}"))
}
