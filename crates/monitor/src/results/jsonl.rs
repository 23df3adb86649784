//! JSON lines: one object a line, with what it is in `type`.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::Path;

use anyhow::{Context, ensure};
use serde::Serialize;

use crate::summary::{Anomaly, ChannelSummary, Gap, Identity, Interval, Rekey, Sink, Summary, Update};

/// A sink that writes every event as it comes: `channel`, `interval`, `gap`, `anomaly`, `rekey`, `channel_total` and, at
/// the end, `summary`. An interval may come in several lines, each with what it adds.
pub struct JsonLines<W: Write + Send> {
    out: W,
    name: String,
    /// What is not written yet; a failure leaves it here, whole.
    waiting: Vec<u8>,
    /// Updates for which there was no room.
    left_out: u64,
}

/// Bytes that wait for a file that cannot be written, at most; what comes then is left out.
const MOST_WAITING: usize = 16 << 20;

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line<'a> {
    Channel(&'a Identity),
    Interval(&'a Interval),
    Gap(&'a Gap),
    Anomaly(&'a Anomaly),
    Rekey(&'a Rekey),
    ChannelTotal(&'a ChannelSummary),
    Summary(&'a Summary),
}

impl JsonLines<File> {
    /// Writes into a new file.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        let file = File::create(path).with_context(|| {
            format!("cannot make {}: give a file in a folder that can be written", path.display())
        })?;
        Ok(JsonLines::new(file, &path.display().to_string()))
    }
}

impl<W: Write + Send> JsonLines<W> {
    /// Writes into anything; `name` is what errors call it.
    pub fn new(out: W, name: &str) -> Self {
        JsonLines { out, name: name.to_owned(), waiting: Vec::new(), left_out: 0 }
    }

    fn line(&mut self, line: &Line<'_>) -> anyhow::Result<()> {
        serde_json::to_writer(&mut self.waiting, line).with_context(|| self.failed())?;
        self.waiting.push(b'\n');
        Ok(())
    }

    /// What was written before a failure is not written again.
    fn flush(&mut self) -> anyhow::Result<()> {
        let mut written = 0;
        let result = loop {
            if written == self.waiting.len() {
                break self.out.flush();
            }
            match self.out.write(&self.waiting[written..]) {
                Ok(0) => break Err(ErrorKind::WriteZero.into()),
                Ok(length) => written += length,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        self.waiting.drain(..written);
        result.with_context(|| self.failed())
    }

    fn failed(&self) -> String {
        format!("cannot write JSON lines to {}: what is there is kept", self.name)
    }

    fn lines_of(&mut self, update: &Update) -> anyhow::Result<()> {
        for channel in &update.new_channels {
            self.line(&Line::Channel(&Identity::of(&channel.key)))?;
        }
        if update.interval.length_ns > 0 {
            self.line(&Line::Interval(&update.interval))?;
        }
        for gap in &update.gaps {
            self.line(&Line::Gap(gap))?;
        }
        for anomaly in &update.anomalies {
            self.line(&Line::Anomaly(anomaly))?;
        }
        for rekey in &update.rekeys {
            self.line(&Line::Rekey(rekey))?;
        }
        for state in &update.channels {
            self.line(&Line::ChannelTotal(&state.summary()))?;
        }
        Ok(())
    }
}

impl<W: Write + Send> Sink for JsonLines<W> {
    fn update(&mut self, update: Update) -> anyhow::Result<()> {
        match self.waiting.len() < MOST_WAITING {
            true => self.lines_of(&update)?,
            false => self.left_out += 1,
        }
        self.flush()
    }

    fn finish(&mut self, summary: &Summary) -> anyhow::Result<()> {
        self.line(&Line::Summary(summary))?;
        self.flush()?;
        let (left_out, name) = (self.left_out, &self.name);
        ensure!(
            left_out == 0,
            "{name} could not be written for so long that {left_out} parts of intervals are missing"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::{ChannelKey, Location};
    use crate::summary::NewChannel;

    #[test]
    fn every_line_is_an_object_that_says_what_it_is() {
        let mut out = Vec::new();
        let mut sink = JsonLines::new(&mut out, "test");
        let key = ChannelKey::macsec(0x0011_2233_4455_0001, 2, Location::default());
        let gap = Gap {
            channel: key.channel_id(),
            first: 7,
            last: 9,
            lost: 3,
            before_ns: 1,
            after_ns: 2,
            frame: 8,
        };
        let interval = Interval { index: 5, start_ns: 5, length_ns: 1, ..Interval::default() };
        let update = Update {
            interval,
            new_channels: vec![NewChannel { number: 1, key }],
            gaps: vec![gap],
            ..Update::default()
        };
        sink.update(update).unwrap();
        sink.finish(&Summary { frames: 12, ..Summary::default() }).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let kinds: Vec<_> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["channel", "interval", "gap", "summary"]);
        assert_eq!((&lines[0]["sci"], &lines[3]["frames"]), (&"0011223344550001".into(), &12.into()));
        assert_eq!((&lines[2]["lost"], &lines[2]["channel"]), (&3.into(), &lines[0]["id"]));
    }

    #[test]
    fn a_full_disk_is_said() {
        let mut sink = JsonLines::create(Path::new("/dev/full")).unwrap();
        let error = sink.finish(&Summary::default()).unwrap_err();
        assert!(format!("{error:#}").contains("cannot write JSON lines to /dev/full"), "{error:#}");
    }

    /// A disk that has room for some bytes, then for none, then again.
    struct Disk {
        content: Vec<u8>,
        room: usize,
    }

    impl Write for &mut Disk {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let length = bytes.len().min(self.room);
            if length == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            self.room -= length;
            self.content.extend_from_slice(&bytes[..length]);
            Ok(length)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_disk_that_was_full_for_a_while_leaves_no_line_out_and_none_torn() {
        let mut disk = Disk { content: Vec::new(), room: 500 };
        let interval = Interval { index: 5, start_ns: 5, length_ns: 1, ..Interval::default() };
        let update = || Update { interval, ..Update::default() };
        {
            let mut sink = JsonLines::new(&mut disk, "test");
            let failed = (0..10).filter(|_| sink.update(update()).is_err()).count();
            assert!((5..10).contains(&failed), "{failed}");
            sink.out.room = usize::MAX;
            sink.update(update()).unwrap();
            sink.finish(&Summary::default()).unwrap();
        }
        let text = String::from_utf8(disk.content).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 12);
        assert!(lines[..11].iter().all(|line| *line == lines[0]), "{text}");
    }
}
