//! The other end of the unix socket: how `sluice show`, `commit` and `clear` talk to the daemon.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::ErrorBody;
use crate::serve::operations::system::HEALTH;
use crate::serve::operations::{About, LARGEST_BODY, Method, NoArguments, Operation};
use crate::state::store::socket_path;

/// After so long without a word it is looked whether the daemon answers at all.
const LOOK: Duration = Duration::from_secs(1);
/// How often it is said what is waited for.
const WORD: Duration = Duration::from_secs(10);
/// For the answer to a question. A change is waited for as long as the daemon lives: a commit loads programs, and others may
/// be before it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "its variants and their fields are what their messages name")]
pub enum ClientError {
    #[error(
        "no daemon answers on {}; start it with `sluice run --config FILE`, or name its directory with --state-dir",
        socket.display()
    )]
    NotRunning { socket: PathBuf },
    #[error("no permission to use {}; run as root or as the daemon's user", socket.display())]
    Permission { socket: PathBuf },
    #[error("the daemon on {} does not answer (stopped, or the machine is too busy for it)", socket.display())]
    Silent { socket: PathBuf },
    #[error("the daemon on {} broke off: {reason}; see its log", socket.display())]
    Broken { socket: PathBuf, reason: String },
    #[error("interrupted; the daemon may still do it")]
    GivenUp,
    /// What the daemon said, word by word.
    #[error("{message}")]
    Refused { status: u16, message: String },
}

impl ClientError {
    /// The request itself was wrong (a configuration with errors), not the machine.
    pub fn is_bad_input(&self) -> bool {
        matches!(self, Self::Refused { status: 400 | 422, .. })
    }
}

/// Asks the daemon of a state directory over its unix socket, a connection a request.
pub struct Client {
    socket: PathBuf,
    /// Nobody waits for the answer any more.
    is_over: fn() -> bool,
}

impl Client {
    /// Connects nowhere yet.
    pub fn new(state_dir: &Path) -> Self {
        Self { socket: socket_path(state_dir), is_over: || false }
    }

    /// Gives up waiting when this holds; it is asked each second, and when a signal comes.
    pub fn until(self, is_over: fn() -> bool) -> Self {
        Self { is_over, ..self }
    }

    /// A daemon is there, and answers.
    pub fn is_answered(&self) -> bool {
        self.ask(&HEALTH, &NoArguments {}).is_ok()
    }

    /// Asks a question.
    pub fn ask<A: Serialize, T: DeserializeOwned>(
        &self,
        operation: &Operation<A, T>,
        arguments: &A,
    ) -> Result<T, ClientError> {
        self.order(operation, arguments, "")
    }

    /// Has something changed; the body says what, besides the arguments.
    pub fn order<A: Serialize, T: DeserializeOwned>(
        &self,
        operation: &Operation<A, T>,
        arguments: &A,
        body: &str,
    ) -> Result<T, ClientError> {
        let answer = self.send(&operation.about, arguments, body)?;
        serde_json::from_slice(&answer)
            .map_err(|e| self.broken(format!("answer is not what was asked for ({e})")))
    }

    /// The answer to an operation of whatever types, as it came.
    pub fn send(
        &self,
        about: &About,
        arguments: &impl Serialize,
        body: &str,
    ) -> Result<Vec<u8>, ClientError> {
        self.request(about, &target(about.path, arguments), body)
    }

    /// Waits for all of it; says on standard error what for, when that takes long.
    fn answer(&self, stream: &mut UnixStream, about: &About) -> Result<Vec<u8>, ClientError> {
        let is_question = about.method == Method::Get;
        let (begun, mut said) = (Instant::now(), Instant::now());
        let (mut answer, mut part) = (vec![], [0; 65_536]);
        loop {
            match stream.read(&mut part) {
                Ok(0) if answer.is_empty() => return Err(self.broken("it ended".to_owned())),
                Ok(0) => return Ok(answer),
                Ok(read) => answer.extend_from_slice(&part[..read]),
                // it did not hear the question to its end
                Err(error) if error.kind() == ErrorKind::ConnectionReset && !answer.is_empty() => {
                    return Ok(answer);
                }
                Err(error)
                    if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock)
                        && (self.is_over)() =>
                {
                    return Err(ClientError::GivenUp);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock && is_question => {
                    let is_alive =
                        about.path != HEALTH.about.path && self.ask(&HEALTH, &NoArguments {}).is_ok();
                    if !is_alive || begun.elapsed() > PATIENCE {
                        return Err(ClientError::Silent { socket: self.socket.clone() });
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if said.elapsed() >= WORD {
                        said = Instant::now();
                        eprintln!(
                            "sluice: waiting for {} s: {}",
                            begun.elapsed().as_secs(),
                            self.what_it_does()
                        );
                    }
                }
                Err(error) => return Err(self.broken(error.to_string())),
            }
        }
    }

    fn what_it_does(&self) -> String {
        match self.ask(&HEALTH, &NoArguments {}) {
            Ok(health) => health.under_way.unwrap_or_else(|| "the daemon is busy".to_owned()),
            Err(_) => "the daemon does not answer (stopped, or the machine is too busy for it)".to_owned(),
        }
    }

    fn broken(&self, reason: String) -> ClientError {
        ClientError::Broken { socket: self.socket.clone(), reason }
    }

    fn request(&self, about: &About, target: &str, sent: &str) -> Result<Vec<u8>, ClientError> {
        let socket = || self.socket.clone();
        let mut stream = UnixStream::connect(&self.socket).map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied => ClientError::Permission { socket: socket() },
            _ => ClientError::NotRunning { socket: socket() },
        })?;
        let head = format!(
            "{} {target} HTTP/1.1\r\nHost: sluice\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n",
            about.method.name(),
            sent.len()
        );
        let mut send = || -> std::io::Result<()> {
            stream.set_read_timeout(Some(LOOK))?;
            stream.write_all(head.as_bytes())?;
            stream.write_all(sent.as_bytes())
        };
        // Who refuses without hearing it all has said why.
        let unsent = send().err().map(|e| self.broken(e.to_string()));
        let mut answer = match (self.answer(&mut stream, about), unsent) {
            (Ok(answer), _) => answer,
            (Err(_), Some(unsent)) => return Err(unsent),
            (Err(error), None) => return Err(error),
        };
        let (status, body) = split(&answer).ok_or_else(|| self.broken("answer is not HTTP".to_owned()))?;
        match status {
            200..=299 => {
                // a page of a long list is not copied
                answer.drain(..answer.len() - body.len());
                Ok(answer)
            }
            403 => Err(ClientError::Permission { socket: socket() }),
            413 => Err(ClientError::Refused {
                status,
                message: format!("{} bytes are more than the daemon takes ({LARGEST_BODY})", sent.len()),
            }),
            status => {
                let text = serde_json::from_slice::<ErrorBody>(body).map(|e| e.error);
                let message = text.unwrap_or_else(|_| String::from_utf8_lossy(body).into_owned());
                Err(ClientError::Refused { status, message })
            }
        }
    }
}

/// Status and body of an answer with `Connection: close`; the daemon never sends it in chunks.
fn split(answer: &[u8]) -> Option<(u16, &[u8])> {
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let status = head.split_whitespace().nth(1)?.parse().ok()?;
    Some((status, &answer[end + 4..]))
}

/// A path with those arguments that have a value.
fn target(path: &str, arguments: &impl Serialize) -> String {
    let fields = serde_json::to_value(arguments).unwrap_or_default();
    let given = fields.as_object().into_iter().flatten().filter_map(|(name, value)| match value {
        Value::Null => None,
        Value::String(text) => Some(format!("{name}={}", encode(text))),
        other => Some(format!("{name}={other}")),
    });
    let given: Vec<String> = given.collect();
    if given.is_empty() { path.to_owned() } else { format!("{path}?{}", given.join("&")) }
}

/// Percent-encodes a query value.
fn encode(value: &str) -> String {
    let mut text = String::new();
    for byte in value.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => text.push(byte as char),
            _ => text += &format!("%{byte:02X}"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{GrantFilter, LogQuery};
    use crate::serve::operations::gate::GRANTS;
    use crate::serve::operations::sessions::LOG;

    #[test]
    fn splits_answers() {
        let answer = b"HTTP/1.1 422 Unprocessable\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(split(answer), Some((422, &b"{}"[..])));
        assert_eq!(split(b"garbage"), None);
    }

    #[test]
    fn arguments_without_a_value_are_left_out() {
        let source = Some("fd00::/64".to_owned());
        let filter = GrantFilter { source, limit: Some(5), ..GrantFilter::default() };
        assert_eq!(target(GRANTS.about.path, &filter), "/api/gate/grants?limit=5&source=fd00%3A%3A%2F64");
        assert_eq!(target(LOG.about.path, &LogQuery { last: 7 }), "/api/log?last=7");
        assert_eq!(target(HEALTH.about.path, &NoArguments {}), "/health");
    }

    #[test]
    fn says_that_nobody_listens() {
        let error = Client::new(Path::new("/nonexistent")).ask(&HEALTH, &NoArguments {}).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/sluice.sock"), "{error}");
    }
}
