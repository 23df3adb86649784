//! Records of one state become those of another: all of them before programs work with the new ones, and afterwards
//! those that programs of the old state have written meanwhile.

use libbpf_rs::MapHandle;

use super::layout::{Conversion, Layout, NoRoom, is_later, number};
use crate::error::{Doing, Error, Result};
use crate::mmap::Records;

/// One map's records, on their way.
#[derive(Debug)]
pub(crate) struct Transfer<'a> {
    pub name: &'a str,
    pub old: &'a MapHandle,
    pub new: &'a MapHandle,
    pub old_layout: &'a Layout,
    pub new_layout: &'a Layout,
    pub stamps: &'a [&'a str],
    /// Records that cannot be converted are left out.
    pub lossy: bool,
}

fn is_empty(value: &[u8]) -> bool {
    value.iter().all(|byte| *byte == 0)
}

impl Transfer<'_> {
    fn map(&self, map: &MapHandle) -> Result<Records> {
        Records::new(map).doing(|| format!("map {}", self.name))
    }

    /// Every record; how many there are.
    pub fn all(&self) -> Result<u32> {
        self.run(|_, _| true)
    }

    /// Those that are newer than what was made of them; how many.
    pub fn newer(&self) -> Result<u32> {
        let stamps: Vec<_> = self
            .stamps
            .iter()
            .filter_map(|name| Some((self.old_layout.field(name)?, self.new_layout.field(name)?)))
            .collect();
        self.run(|old, new| {
            let differs = stamps.iter().find_map(|(then, now)| {
                let (then, now, size) = (number(old, then), number(new, now), then.size.min(now.size));
                (then != now).then(|| is_later(then, now, size))
            });
            is_empty(new) || differs.unwrap_or(false)
        })
    }

    fn run(&self, wanted: impl Fn(&[u8], &[u8]) -> bool) -> Result<u32> {
        let (old, new) = (self.map(self.old)?, self.map(self.new)?);
        let conversion = Conversion::new(self.old_layout, self.new_layout);
        let (mut then, mut now, mut made) = (old.buffer(), new.buffer(), new.buffer());
        let mut count = 0;
        for index in 0..old.len {
            old.read(index, &mut then);
            if is_empty(&then) {
                continue;
            }
            if index >= new.len {
                self.refuse(index, &format!("there is room for {}", new.len))?;
                continue;
            }
            new.read(index, &mut now);
            if !wanted(&then, &now) {
                continue;
            }
            match conversion.convert(&then, &mut made) {
                Ok(()) => {
                    new.write(index, &made);
                    count += 1;
                }
                Err(NoRoom { field }) => self.refuse(index, &format!("its field {field} has no room"))?,
            }
        }
        Ok(count)
    }

    fn refuse(&self, index: u32, why: &str) -> Result<()> {
        if self.lossy {
            return Ok(());
        }
        Err(Error::Uncarried { map: self.name.to_owned(), why: format!("record {index}: {why}") })
    }
}
