//! A file of entries, one a line; when it is full another one is begun: NAME, NAME.1 and so on, the oldest behind.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use sluice_language::LogFile;

use super::queue::Message;
use super::writer::Destination;

pub struct Rotated {
    path: PathBuf,
    limit: u64,
    files: u32,
    open: Option<(File, u64)>,
    /// Why a full file is still written to.
    stays: Option<String>,
}

impl Rotated {
    pub fn new(of: LogFile) -> Self {
        let path = PathBuf::from(of.directory).join(of.name);
        Self { path, limit: u64::from(of.size_mb) << 20, files: of.files, open: None, stays: None }
    }

    /// The file and its length; opened anew where somebody else has moved it away.
    fn file(&mut self) -> io::Result<&mut (File, u64)> {
        let here = fs::metadata(&self.path).ok().map(|metadata| (metadata.dev(), metadata.ino()));
        let is_here = |file: &File| {
            file.metadata().is_ok_and(|metadata| Some((metadata.dev(), metadata.ino())) == here)
        };
        if !self.open.as_ref().is_some_and(|(file, _)| is_here(file)) {
            // who has talked to whom is the owner's and the group's alone
            let file = OpenOptions::new().create(true).append(true).mode(0o640).open(&self.path)?;
            let length = file.metadata()?.len();
            self.open = Some((file, length));
        }
        self.open.as_mut().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn numbered(&self, number: u32) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(format!(".{number}"));
        path.into()
    }

    /// The others are moved only when the one that is full can be: an attempt that fails leaves all where they were.
    fn rotate(&mut self) -> io::Result<()> {
        let aside = self.numbered(0);
        fs::rename(&self.path, &aside)?;
        let moved = self.shift().and_then(|()| fs::rename(&aside, self.numbered(1)));
        match moved {
            Ok(()) => self.open = None,
            Err(_) => fs::rename(&aside, &self.path)?,
        }
        moved
    }

    fn shift(&self) -> io::Result<()> {
        for number in (1..self.files - 1).rev() {
            match fs::rename(self.numbered(number), self.numbered(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Where one that is full cannot be moved away it grows on, since what was written in it must not be again.
    fn make_room(&mut self) -> io::Result<()> {
        if self.file()?.1 < self.limit {
            return Ok(());
        }
        let full = self.path.display().to_string();
        self.stays = self.rotate().err().map(|error| format!("{full} cannot become {full}.1: {error}"));
        Ok(())
    }

    /// All lines that go into one file; how many they are.
    fn write(&mut self, messages: &VecDeque<Message>, from: usize) -> io::Result<usize> {
        self.make_room()?;
        let limit = if self.stays.is_some() { u64::MAX } else { self.limit };
        let (file, length) = self.file()?;
        let (mut lines, mut count) = (vec![], 0);
        for message in messages.iter().skip(from) {
            if count > 0 && *length + (lines.len() + message.len()) as u64 >= limit {
                break;
            }
            lines.extend_from_slice(message);
            lines.push(b'\n');
            count += 1;
        }
        if let Err(error) = file.write_all(&lines) {
            // nothing of it, so that it can be written once more
            file.set_len(*length)?;
            return Err(error);
        }
        *length += lines.len() as u64;
        Ok(count)
    }
}

impl Destination for Rotated {
    fn send(&mut self, messages: &VecDeque<Message>) -> (usize, io::Result<()>) {
        let mut whole = 0;
        while whole < messages.len() {
            match self.write(messages, whole) {
                Ok(count) => whole += count,
                Err(error) => return (whole, Err(error)),
            }
        }
        (whole, Ok(()))
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn trouble(&self) -> Option<String> {
        self.stays.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &std::path::Path) -> usize {
        fs::read_to_string(path).map_or(0, |text| text.lines().count())
    }

    #[test]
    fn a_full_file_makes_room_and_the_oldest_goes() {
        let directory = std::env::temp_dir().join(format!("sluice-rotated-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let name = |number: &str| directory.join(format!("log{number}"));
        let of = LogFile {
            name: "log".to_owned(),
            directory: directory.display().to_string(),
            size_mb: 1,
            files: 3,
        };
        let mut file = Rotated::new(of);
        let message: Message = vec![b'x'; 1023].into();
        let batch: VecDeque<Message> = std::iter::repeat_n(message, 100).collect();
        for _ in 0..35 {
            assert!(matches!(file.send(&batch), (100, Ok(()))));
        }
        // a megabyte holds 1,024 lines, of 3,500 the last two whole files and what follows are left
        assert_eq!((lines(&name("")), lines(&name(".1")), lines(&name(".2"))), (3500 - 3 * 1024, 1024, 1024));
        assert!(!name(".3").exists());
        // moved away by somebody else
        fs::rename(name(""), name(".moved")).unwrap();
        assert!(matches!(file.send(&batch), (100, Ok(()))));
        assert_eq!(lines(&name("")), 100);
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_file_that_cannot_be_moved_away_grows_and_has_each_line_once() {
        let directory = std::env::temp_dir().join(format!("sluice-stays-{}", std::process::id()));
        let name = |number: &str| directory.join(format!("log{number}"));
        fs::create_dir_all(name(".1")).unwrap();
        let of = LogFile {
            name: "log".to_owned(),
            directory: directory.display().to_string(),
            size_mb: 1,
            files: 2,
        };
        let mut file = Rotated::new(of);
        let message: Message = vec![b'x'; 1023].into();
        let batch: VecDeque<Message> = std::iter::repeat_n(message, 100).collect();
        for _ in 0..35 {
            assert!(matches!(file.send(&batch), (100, Ok(()))));
        }
        assert_eq!(lines(&name("")), 3500);
        assert!(file.trouble().is_some_and(|trouble| trouble.contains("log.1")));
        fs::remove_dir(name(".1")).unwrap();
        assert!(matches!(file.send(&batch), (100, Ok(()))));
        assert_eq!((lines(&name("")), lines(&name(".1")), file.trouble()), (100, 3500, None));
        fs::remove_dir_all(&directory).unwrap();
    }
}
