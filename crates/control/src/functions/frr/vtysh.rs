//! `vtysh`, by which FRR is asked and told, and the sockets that say which of its daemons run.

use std::fs;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};

use super::FrrError;

/// Where FRR of every distribution has its sockets.
const SOCKETS: &str = "/var/run/frr";

/// FRR answers within milliseconds; who does not in this time is stuck.
const LONGEST: Duration = Duration::from_secs(20);
const STEP: Duration = Duration::from_millis(5);

/// More than a full configuration of FRR has; the rest of an answer is not read.
const MOST: u64 = 64 << 20;

/// Daemons by what needs them: the beginning of a line of the configuration.
const DAEMONS: [(&str, &str); 5] = [
    ("", "zebra"),
    ("router bgp ", "bgpd"),
    ("router ospf\n", "ospfd"),
    ("router ospf6\n", "ospf6d"),
    ("bfd\n", "bfdd"),
];

#[derive(Debug, Clone, Default)]
pub struct Vtysh {
    /// `-N` of FRR's daemons; None = that of the system.
    pathspace: Option<String>,
}

/// When each daemon was started, as its socket tells.
pub type Births = Vec<Option<(u64, i64, i64)>>;

impl Vtysh {
    pub fn new(pathspace: Option<String>) -> Self {
        Self { pathspace }
    }

    fn sockets(&self) -> PathBuf {
        let base = Path::new(SOCKETS);
        self.pathspace.as_ref().map_or(base.to_owned(), |name| base.join(name))
    }

    /// A change says that a daemon has come up.
    pub fn births(&self) -> Births {
        let born = |(_, daemon): &(&str, &str)| {
            let socket = fs::metadata(self.sockets().join(format!("{daemon}.vty"))).ok()?;
            Some((socket.ino(), socket.ctime(), socket.ctime_nsec()))
        };
        DAEMONS.iter().map(born).collect()
    }

    /// Daemons that a configuration needs and that take no connection, with the reason: [`io::ErrorKind::WouldBlock`] is that of one
    /// that hangs.
    pub fn missing(&self, text: &str) -> Vec<(&'static str, io::Error)> {
        let needed = DAEMONS.iter().filter(|(line, _)| line.is_empty() || has_line(text, line));
        let refused = |(_, daemon): &(&str, &'static str)| {
            let error = reach(&self.sockets().join(format!("{daemon}.vty"))).err()?;
            Some((*daemon, error))
        };
        needed.filter_map(refused).collect()
    }

    /// What FRR has.
    pub fn running(&self) -> Result<String, FrrError> {
        self.ask("show running-config")
    }

    pub fn ask(&self, command: &str) -> Result<String, FrrError> {
        self.run(&["-c", command])
    }

    /// Whether it is FRR's language; nothing is done.
    pub fn dry_run(&self, file: &Path) -> Result<(), FrrError> {
        self.run(&["-C", "-f", &file.to_string_lossy()]).map(drop)
    }

    pub fn say(&self, file: &Path) -> Result<(), FrrError> {
        self.run(&["-f", &file.to_string_lossy()]).map(drop)
    }

    fn run(&self, arguments: &[&str]) -> Result<String, FrrError> {
        let mut command = Command::new("vtysh");
        command.args(self.pathspace.iter().flat_map(|name| ["-N", name])).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => FrrError::Absent,
            _ => FrrError::Failed(format!("vtysh cannot be run: {error}")),
        })?;
        let (stdout, stderr, code) =
            ends(child).map_err(|error| FrrError::Failed(format!("vtysh: {error}")))?;
        match code {
            Some(0) => Ok(stdout),
            _ => Err(FrrError::refused(&stdout, &stderr)),
        }
    }
}

/// Connects without waiting for one that has taken no connection for a while.
fn reach(path: &Path) -> io::Result<()> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    Ok(connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?)
}

/// Whether a line begins so.
fn has_line(text: &str, beginning: &str) -> bool {
    text.starts_with(beginning) || text.contains(&format!("\n{beginning}"))
}

/// What it says and how it ends; one that takes too long is ended.
fn ends(mut child: Child) -> io::Result<(String, String, Option<i32>)> {
    let (stdout, stderr) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let begun = Instant::now();
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if begun.elapsed() > LONGEST => {
                child.kill()?;
                child.wait()?;
                return Err(io::Error::new(io::ErrorKind::TimedOut, format!("no end after {LONGEST:?}")));
            }
            None => thread::sleep(STEP),
        }
    };
    let text = |reader: thread::JoinHandle<Vec<u8>>| {
        String::from_utf8_lossy(&reader.join().unwrap_or_default()).into_owned()
    };
    Ok((text(stdout), text(stderr), status.code()))
}

fn reader(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = vec![];
        if let Some(pipe) = pipe {
            // what was read before an error is all there is
            let _ = pipe.take(MOST).read_to_end(&mut bytes);
        }
        bytes
    })
}
