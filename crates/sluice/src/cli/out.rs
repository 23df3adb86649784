//! Where the answer of a command goes: through its pipe to a terminal, a screen at a time, or as it comes.

use std::io::{self, BufWriter, Stdin, Stdout, Write};

use nix::sys::termios::{LocalFlags, SetArg, SpecialCharacterIndices, tcgetattr, tcsetattr};
use serde::Serialize;

use super::pipe::{Form, Sink};
use crate::exit::Failure;
use crate::interrupt;

/// Why a command ends before its time.
pub enum Stop {
    Failed(Failure),
    /// Nobody wants to see more.
    Enough,
    Interrupted,
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<sluice_control::ClientError> for Stop {
    fn from(error: sluice_control::ClientError) -> Self {
        match interrupt::requested() {
            true => Self::Interrupted,
            false => Self::Failed(error.into()),
        }
    }
}

pub type Done = Result<(), Stop>;

/// The answer of a command on its way out.
pub struct Out {
    sink: Box<dyn Sink>,
    pub form: Form,
    /// Nobody stops at a full screen, and whoever draws may do so where the cursor is.
    pub is_terminal: bool,
}

impl Out {
    pub fn new(sink: Box<dyn Sink>, form: Form, is_terminal: bool) -> Self {
        Self { sink, form, is_terminal }
    }

    /// One line, whatever the form.
    pub fn line(&mut self, line: &str) -> Done {
        if interrupt::requested() {
            return Err(Stop::Interrupted);
        }
        match self.sink.line(line) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Stop::Enough),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Stop::Enough),
            Err(error) => Err(Failure::failed(error).into()),
        }
    }

    pub fn lines(&mut self, text: &str) -> Done {
        text.lines().try_for_each(|line| self.line(line.trim_end()))
    }

    /// A text that has no other form.
    pub fn text(&mut self, text: &str) -> Done {
        self.takes(&[Form::Text])?;
        self.lines(text)
    }

    /// Data, or the text that is made of it.
    pub fn show<T: Serialize>(&mut self, value: &T, text: impl FnOnce(&T) -> String) -> Done {
        self.takes(&[Form::Text, Form::Json])?;
        match self.form {
            Form::Json => self.lines(&serde_json::to_string_pretty(value).map_err(Failure::failed)?),
            _ => self.lines(&text(value)),
        }
    }

    /// Err: the command has no such form.
    pub fn takes(&self, forms: &[Form]) -> Done {
        let name = match self.form {
            form if forms.contains(&form) => return Ok(()),
            Form::Text => return Ok(()),
            Form::Json => "display json",
            Form::Set => "display set",
            Form::Inheritance => "display inheritance",
            Form::Compare(_) => "compare",
        };
        Err(Failure::bad_input(format!("`| {name}` does not apply to this command")).into())
    }

    /// The form that `compare` asks for, for [`Out::takes`].
    pub fn compares(&self) -> Form {
        if let Form::Compare(_) = self.form { self.form } else { Form::Compare(None) }
    }

    pub fn flush(&mut self) -> Done {
        self.sink.flush().map_err(|error| Failure::failed(error).into())
    }

    pub fn finish(mut self) -> Done {
        match self.sink.finish() {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::failed(error).into()),
            _ => Ok(()),
        }
    }
}

/// Standard output as it comes.
pub struct Plain(BufWriter<Stdout>);

impl Plain {
    pub fn new() -> Self {
        Self(BufWriter::with_capacity(1 << 16, io::stdout()))
    }
}

impl Sink for Plain {
    fn line(&mut self, line: &str) -> io::Result<bool> {
        self.0.write_all(line.as_bytes())?;
        self.0.write_all(b"\n").map(|()| true)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.0.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// A terminal of some lines and columns, which stops when it is full.
pub struct Pager {
    out: Plain,
    length: usize,
    width: usize,
    /// Rows that are full since it last stopped.
    rows: usize,
}

const MORE: &str = "---(more)---";

impl Pager {
    /// A length of 0 stops never.
    pub fn new(length: usize, width: usize) -> Self {
        Self { out: Plain::new(), length, width: width.max(1), rows: 0 }
    }

    /// Waits for a key: a row or a page more, or nothing.
    fn more(&mut self) -> io::Result<bool> {
        self.out.flush()?;
        let mut terminal = io::stdout();
        write!(terminal, "{MORE}")?;
        terminal.flush()?;
        let key = key()?;
        write!(terminal, "\r{}\r", " ".repeat(MORE.len()))?;
        terminal.flush()?;
        match key {
            Some(b'q' | b'Q' | 3 | 4 | 27) | None => return Ok(false),
            Some(b'\r' | b'\n' | b'j') => self.rows = self.length.saturating_sub(2),
            Some(b'G') => (self.rows, self.length) = (0, 0),
            Some(_) => self.rows = 0,
        }
        Ok(true)
    }
}

impl Sink for Pager {
    fn line(&mut self, line: &str) -> io::Result<bool> {
        let rows = line.chars().count().div_ceil(self.width).max(1);
        if self.length > 1 && self.rows > 0 && self.rows + rows > self.length - 1 && !self.more()? {
            return Ok(false);
        }
        self.rows += rows;
        self.out.line(line)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.out.finish()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The next key, without waiting for a line; None at the end of the input.
fn key() -> io::Result<Option<u8>> {
    let raw = Raw::begin(None)?;
    match raw.key() {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
        key => key,
    }
}

/// Ctrl-D that is typed while a command runs stays a key for whoever reads next, as long as this lives.
pub struct Ahead {
    stdin: Stdin,
    before: nix::sys::termios::Termios,
}

impl Ahead {
    pub fn begin() -> io::Result<Self> {
        // _POSIX_VDISABLE of Linux
        const NO_KEY: u8 = 0;
        let stdin = io::stdin();
        let before = tcgetattr(&stdin)?;
        let mut without = before.clone();
        without.control_chars[SpecialCharacterIndices::VEOF as usize] = NO_KEY;
        tcsetattr(&stdin, SetArg::TCSANOW, &without)?;
        Ok(Self { stdin, before })
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // the terminal may have gone
        let _ = tcsetattr(&self.stdin, SetArg::TCSANOW, &self.before);
    }
}

/// Keys come one by one and unseen as long as this lives.
pub struct Raw {
    stdin: Stdin,
    before: nix::sys::termios::Termios,
}

impl Raw {
    /// With a patience in tenths of a second a read without a key returns empty.
    pub fn begin(patience: Option<u8>) -> io::Result<Self> {
        let stdin = io::stdin();
        let before = tcgetattr(&stdin)?;
        let mut raw = before.clone();
        raw.local_flags.remove(LocalFlags::ICANON | LocalFlags::ECHO);
        raw.control_chars[SpecialCharacterIndices::VMIN as usize] = patience.is_none().into();
        raw.control_chars[SpecialCharacterIndices::VTIME as usize] = patience.unwrap_or(0);
        tcsetattr(&stdin, SetArg::TCSANOW, &raw)?;
        Ok(Self { stdin, before })
    }

    /// What is typed ahead of it stays for whoever reads next.
    pub fn key(&self) -> io::Result<Option<u8>> {
        let mut key = [0];
        let read = nix::unistd::read(&self.stdin, &mut key)?;
        Ok((read == 1).then_some(key[0]))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // the terminal may have gone
        let _ = tcsetattr(&self.stdin, SetArg::TCSANOW, &self.before);
    }
}
