//! The memory of the two slots: one map of lines with all tables of a generation (bpf/tables.def), and a block that says
//! where they begin and what else a commit changes. Both are pinned, so that programs which outlive a daemon go on
//! reading what the next one writes.
//!
//! A slot is only written while it is idle and no CPU runs its programs any more, so writes here need no memory order.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use libbpf_rs::{MapCore, MapHandle, MapType};
use sluice_abi::tables::{Table, Tables};
use sluice_abi::{Generation as Header, MAX_GENERATIONS, TABLE_LINE_BYTES, TableLine, TablePlace};
use sluice_libbpf::map::NewMap;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::error::{Doing, Error, Result};
use crate::mmap::{Array, array};

/// The map of lines, by its name in the objects.
pub(crate) const TABLES_MAP: &str = "tables";
/// The block's section.
pub(crate) const GENERATION_SECTION: &str = ".data.generation";

/// No map of lines is smaller: 1 MiB, in which most configurations fit for ever.
const LEAST_LINES: usize = 1 << 14;
/// A map is given up when so many times the lines that are needed would fit.
const TOO_LARGE: usize = 4;

#[derive(Debug)]
pub(crate) struct Slots {
    slots: [Slot; MAX_GENERATIONS],
}

#[derive(Debug)]
struct Slot {
    header_map: MapHandle,
    header: Arc<Array<Header>>,
    /// Where its lines are pinned.
    pin: PathBuf,
    lines: Mutex<Arc<Lines>>,
}

/// A map of lines. Readers keep it when it is replaced.
#[derive(Debug)]
pub(crate) struct Lines {
    map: MapHandle,
    memory: Array<TableLine>,
}

/// The tables of one generation, as long as no later one has taken their place.
#[derive(Debug, Clone)]
pub(crate) struct Filled {
    lines: Arc<Lines>,
    header: Arc<Array<Header>>,
    places: [TablePlace; Table::ALL.len()],
    number: u32,
}

impl Slots {
    /// Takes up what an earlier daemon left, or makes it.
    pub fn open(pin: &Path) -> Result<Slots> {
        let slot = |number: usize| Slot::open(pin, number);
        Ok(Slots { slots: [slot(0)?, slot(1)?] })
    }

    fn slot(&self, slot: u32) -> &Slot {
        &self.slots[slot as usize]
    }

    /// Writes every table and then the block. The map of lines is another one afterwards if they did not fit, or
    /// would fit several times.
    pub fn fill(&self, slot: u32, tables: &Tables, header: Header) -> Result<Filled> {
        let slot = self.slot(slot);
        let mut lines = slot.lines.lock().unwrap_or_else(PoisonError::into_inner);
        // who still has the generation that was here finds that it is gone
        slot.header.write(0, Header::default());
        if let Some(wanted) = resized(lines.memory.len() as usize, tables.lines()) {
            *lines = Arc::new(Lines::create(wanted, &slot.pin)?);
            tracing::info!(kib = wanted * TABLE_LINE_BYTES / 1024, "memory of generations resized");
        }
        let mut next = 0;
        let mut places = [TablePlace::default(); Table::ALL.len()];
        for table in Table::ALL {
            places[table as usize] = lines.fill(table, tables, next);
            next += table.lines(places[table as usize].entries as usize);
        }
        slot.header.write(0, Header { tables: places, ..header });
        Ok(Filled { lines: lines.clone(), header: slot.header.clone(), places, number: header.number })
    }

    /// The slot's map that stands for `name` of an object.
    pub fn descriptor<'a>(&'a self, slot: u32, lines: &'a Lines, name: &str) -> Option<BorrowedFd<'a>> {
        match name {
            TABLES_MAP => Some(lines.map.as_fd()),
            GENERATION_SECTION => Some(self.slot(slot).header_map.as_fd()),
            _ => None,
        }
    }

    /// Every map by the name of its pin.
    pub fn maps(&self) -> Result<Vec<(String, MapHandle)>> {
        let mut maps = vec![];
        for number in 0..MAX_GENERATIONS as u32 {
            let lines = self.lines(number);
            for (what, map) in [("generation", &self.slot(number).header_map), ("tables", &lines.map)] {
                let name = format!("{what}_{number}");
                maps.push((
                    name.clone(),
                    MapHandle::try_from(map).doing(|| format!("duplicate map {name}"))?,
                ));
            }
        }
        Ok(maps)
    }

    /// What a slot's programs read beside its tables.
    pub fn header(&self, slot: u32) -> Header {
        self.slot(slot).header.read(0)
    }

    pub fn lines(&self, slot: u32) -> Arc<Lines> {
        self.slot(slot).lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The kernel's numbers of the slot's maps, which programs of other maps do not have.
    pub fn map_ids(&self, slot: u32) -> Result<[u32; 2]> {
        Ok([map_id(&self.slot(slot).header_map)?, map_id(&self.lines(slot).map)?])
    }
}

impl Slot {
    fn open(pin: &Path, number: usize) -> Result<Slot> {
        let header_size = size_of::<Header>() as u32;
        let header_pin = pin.join(format!("generation_{number}"));
        let header_map = match found(&header_pin, header_size)? {
            Some(map) => map,
            None => create("generation", header_size, 1, &header_pin)?,
        };
        let pin = pin.join(format!("tables_{number}"));
        let lines = match found(&pin, TABLE_LINE_BYTES as u32)? {
            Some(map) => Lines::new(map)?,
            None => Lines::create(LEAST_LINES, &pin)?,
        };
        let header = array(&header_map).doing(|| format!("map {}", header_pin.display()))?;
        Ok(Slot { header_map, header: Arc::new(header), pin, lines: Mutex::new(Arc::new(lines)) })
    }
}

/// How many lines a map should have, if not as many as it has.
fn resized(has: usize, needed: usize) -> Option<usize> {
    let fitting = needed.next_power_of_two().max(LEAST_LINES);
    (needed > has || (has > LEAST_LINES && needed * TOO_LARGE < has)).then_some(fitting)
}

impl Lines {
    fn new(map: MapHandle) -> Result<Lines> {
        let memory = array(&map).doing(|| "map the tables of a generation".to_owned())?;
        Ok(Lines { map, memory })
    }

    fn create(lines: usize, pin: &Path) -> Result<Lines> {
        Lines::new(create(TABLES_MAP, TABLE_LINE_BYTES as u32, lines as u32, pin)?)
    }

    /// Writes a table from a line on.
    fn fill(&self, table: Table, tables: &Tables, first: usize) -> TablePlace {
        let rows = tables.rows_of(table);
        let first = first as u32;
        if rows.sparse {
            self.memory.fill(first, 0, &vec![0; table.lines(rows.entries) * TABLE_LINE_BYTES]);
        }
        for (index, bytes) in rows.rows {
            self.memory.fill(first, table.offset(index), bytes);
        }
        TablePlace { line: first, entries: rows.entries as u32 }
    }
}

impl Filled {
    pub fn lines(&self) -> &Arc<Lines> {
        &self.lines
    }

    /// False once another generation has the slot: what was read may have been that one's.
    pub fn is_there(&self) -> bool {
        self.header.read(0).number == self.number
    }

    /// An entry of at most a line; zeros behind the end of its table, where programs find nothing.
    pub fn read<T: FromBytes + IntoBytes + Immutable + Copy>(&self, table: Table, index: u32) -> T {
        assert_eq!(table.entry_bytes(), size_of::<T>());
        match self.place(table, index) {
            Some((line, offset)) => self.lines.memory.read_field(line, offset),
            None => T::new_zeroed(),
        }
    }

    pub fn write<T: FromBytes + IntoBytes + Immutable + Copy>(&self, table: Table, index: u32, entry: &T) {
        assert_eq!(table.entry_bytes(), size_of::<T>());
        let (line, offset) = self.place(table, index).expect("the entry is one of its table");
        self.lines.memory.fill(line, offset, entry.as_bytes());
    }

    /// A word inside an entry.
    pub fn long(&self, table: Table, index: u32, field: usize) -> &std::sync::atomic::AtomicU64 {
        let (line, offset) = self.place(table, index).expect("the entry is one of its table");
        self.lines.memory.long(line, offset + field)
    }

    /// Line and offset in it.
    fn place(&self, table: Table, index: u32) -> Option<(u32, usize)> {
        let place = self.places[table as usize];
        let offset = table.offset(index as usize);
        let line = place.line + (offset / TABLE_LINE_BYTES) as u32;
        (index < place.entries).then_some((line, offset % TABLE_LINE_BYTES))
    }

    /// Entries and bytes of every table.
    pub fn account(&self) -> Vec<(Table, usize, usize)> {
        let of = |table: Table| {
            let entries = self.places[table as usize].entries as usize;
            (table, entries, table.lines(entries) * TABLE_LINE_BYTES)
        };
        Table::ALL.into_iter().map(of).collect()
    }
}

/// A map that was pinned with this layout; another one is removed.
fn found(pin: &Path, value_size: u32) -> Result<Option<MapHandle>> {
    if !pin.exists() {
        return Ok(None);
    }
    let map =
        MapHandle::from_pinned_path(pin).map_err(|source| Error::Damaged { path: pin.to_owned(), source })?;
    if map.value_size() == value_size {
        return Ok(Some(map));
    }
    fs::remove_file(pin).doing(|| format!("remove {}", pin.display()))?;
    Ok(None)
}

/// Makes an mmapable ARRAY and pins it, in the place of what is pinned there.
pub(crate) fn create(name: &str, value_size: u32, entries: u32, pin: &Path) -> Result<MapHandle> {
    let wanted = NewMap { kind: MapType::Array, name, key_size: 4, value_size, max_entries: entries };
    let map = wanted.create_mmapable().doing(|| format!("create map {name} of {entries} entries"))?;
    pin_over(&map, pin)?;
    Ok(map)
}

/// Pins a map in the place of what is pinned there.
pub(crate) fn pin_over(map: &MapHandle, pin: &Path) -> Result<()> {
    // no dot: the file system of pins refuses it
    let mut fresh = pin.as_os_str().to_owned();
    fresh.push("_new");
    let fresh = PathBuf::from(fresh);
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).doing(|| format!("remove {}", fresh.display()));
        }
        _ => {}
    }
    sluice_libbpf::pin(map, &fresh).doing(|| format!("pin {}", fresh.display()))?;
    fs::rename(&fresh, pin).doing(|| format!("rename {} to {}", fresh.display(), pin.display()))
}

pub(crate) fn map_id(map: &MapHandle) -> Result<u32> {
    Ok(map.info().doing(|| "examine a map".to_owned())?.info.id)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use libbpf_rs::ObjectBuilder;

    use super::*;
    use crate::objects;
    use crate::prog_run::{self, XdpRun};

    static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tables.bpf.o"));
    const TABLES: usize = Table::ALL.len();

    /// `struct table_probe` of bpf/stress/tables.h.
    #[repr(C)]
    #[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable)]
    struct Probe {
        index: u32,
        zero: u32,
        first: [u64; TABLES],
        last: [u64; TABLES],
    }

    const MISS: u64 = u64::MAX;

    /// What stands at the beginning of a line of an entry. Nowhere else are such words.
    fn mark(table: Table, index: u32, last: bool) -> u64 {
        (table as u64 + 1) << 40 | u64::from(last) << 32 | u64::from(index)
    }

    /// Line of an entry's last byte, where its last line begins, from the table's first line on.
    fn last_line(table: Table, index: u32) -> usize {
        let last_part = (table.entry_bytes() - 1) / TABLE_LINE_BYTES;
        table.offset(index as usize) + last_part * TABLE_LINE_BYTES
    }

    /// Tables without a gap between them; every one of another length. What no entry has is all ones.
    fn filled(lines: &Array<TableLine>, most: u32) -> Header {
        let mut header = Header::default();
        lines.fill(0, 0, &vec![0xff; lines.len() as usize * TABLE_LINE_BYTES]);
        let mut next = 0;
        for (number, table) in (0..).zip(Table::ALL) {
            let entries = most.min(table.most() as u32).saturating_sub(number % 3);
            header.tables[table as usize] = TablePlace { line: next, entries };
            for index in 0..entries {
                let several = table.entry_bytes() > TABLE_LINE_BYTES;
                lines.fill(next, table.offset(index as usize), mark(table, index, false).as_bytes());
                if several {
                    lines.fill(next, last_line(table, index), mark(table, index, true).as_bytes());
                }
            }
            next += table.lines(entries as usize) as u32;
        }
        header
    }

    /// For every table of the list: each index up to its end leads to its own entry, every other one to nothing.
    #[test]
    fn an_index_beyond_a_tables_end_is_a_miss() {
        let mut object = ObjectBuilder::default().open_memory(OBJECT).unwrap();
        let mut maps = object.maps_mut();
        maps.find(|map| map.name() == TABLES_MAP).unwrap().set_max_entries(1 << 12).unwrap();
        drop(maps);
        let object = object.load().unwrap();
        let map = |name: &str| objects::map(&object, name).unwrap();
        let lines: Array<TableLine> = array(&map(TABLES_MAP)).unwrap();
        let header: Array<Header> = array(&map(GENERATION_SECTION)).unwrap();
        let probes: Array<Probe> = array(&map("probes")).unwrap();
        let program = objects::program(&object, "probe_tables").unwrap();

        for most in [0, 1, 2, 3, 9, 33] {
            let places = filled(&lines, most);
            header.write(0, places);
            let beyond = [most + 100, 1 << 16, 1 << 26, 1 << 28, 1 << 31, u32::MAX - 1, u32::MAX];
            for index in (0..most + 40).chain(beyond) {
                probes.write(0, Probe { index, zero: 0, first: [0; TABLES], last: [0; TABLES] });
                assert_eq!(prog_run::xdp(program.as_fd(), &XdpRun::new(&[0; 64], 0)).unwrap().retval, 2);
                let probe = probes.read(0);
                for table in Table::ALL {
                    let there = index < places.tables[table as usize].entries;
                    let several = table.entry_bytes() > TABLE_LINE_BYTES;
                    let wanted = |last| if there { mark(table, index, last) } else { MISS };
                    let found = (probe.first[table as usize], probe.last[table as usize]);
                    let (name, wanted) = (table.name(), (wanted(false), wanted(several)));
                    assert_eq!(found, wanted, "{name} of {most} at {index}");
                }
            }
        }
    }

    #[test]
    fn memory_grows_by_powers_of_two_and_shrinks_far_below() {
        assert_eq!(resized(LEAST_LINES, 0), None);
        assert_eq!(resized(LEAST_LINES, LEAST_LINES), None);
        assert_eq!(resized(LEAST_LINES, LEAST_LINES + 1), Some(2 * LEAST_LINES));
        assert_eq!(resized(8 * LEAST_LINES, 2 * LEAST_LINES), None);
        assert_eq!(resized(8 * LEAST_LINES, 2 * LEAST_LINES - 1), Some(2 * LEAST_LINES));
        assert_eq!(resized(8 * LEAST_LINES, 1), Some(LEAST_LINES));
    }
}
