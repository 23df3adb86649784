//! How a map's values are laid out, and how values of one layout become values of another.

/// `count` numbers of `size` bytes under one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    pub name: String,
    pub offset: u32,
    pub size: u32,
    pub count: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    pub size: u32,
    pub fields: Vec<Field>,
}

impl Layout {
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// In words for an operator: the first thing that is not as in `wanted`.
    pub fn difference(&self, wanted: &Layout) -> Option<String> {
        for field in &wanted.fields {
            match self.field(&field.name) {
                None => return Some(format!("field {} is not in it", field.name)),
                Some(found) if found != field => {
                    return Some(format!(
                        "field {} is {} of {} bytes at {}, and not {} of {} bytes at {}",
                        field.name,
                        found.count,
                        found.size,
                        found.offset,
                        field.count,
                        field.size,
                        field.offset
                    ));
                }
                Some(_) => {}
            }
        }
        let more = self.fields.iter().find(|field| wanted.field(&field.name).is_none());
        match more {
            Some(field) => Some(format!("field {} is in it", field.name)),
            None if self.size != wanted.size => {
                Some(format!("its values have {} bytes, and not {}", self.size, wanted.size))
            }
            None => None,
        }
    }
}

/// Bytes that are copied from one offset to another, into as many or into more.
#[derive(Debug, Clone)]
struct Copy {
    name: String,
    from: usize,
    from_size: usize,
    to: usize,
    to_size: usize,
    count: usize,
    /// Numbers behind those in the old value, that the new one has no room for.
    lost: usize,
}

/// From values of one layout to values of another, by the names of fields. What the old one does not have is 0.
#[derive(Debug, Clone)]
pub(crate) struct Conversion {
    copies: Vec<Copy>,
    size: usize,
}

/// A field whose number has no room in the new layout.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoRoom {
    pub field: String,
}

impl Conversion {
    pub fn new(from: &Layout, to: &Layout) -> Conversion {
        let copies = to.fields.iter().filter_map(|field| {
            let old = from.field(&field.name)?;
            let count = old.count.min(field.count);
            Some(Copy {
                name: field.name.clone(),
                from: old.offset as usize,
                from_size: old.size as usize,
                to: field.offset as usize,
                to_size: field.size as usize,
                count: count as usize,
                lost: (old.count - count) as usize,
            })
        });
        Conversion { copies: copies.collect(), size: to.size as usize }
    }

    /// `new` becomes what `old` is in the new layout. Numbers are little endian, as BPF's are on all machines we know.
    pub fn convert(&self, old: &[u8], new: &mut [u8]) -> Result<(), NoRoom> {
        new[..self.size].fill(0);
        for copy in &self.copies {
            let no_room = || NoRoom { field: copy.name.clone() };
            for n in 0..copy.count {
                let from = &old[copy.from + n * copy.from_size..][..copy.from_size];
                let kept = copy.from_size.min(copy.to_size);
                if from[kept..].iter().any(|byte| *byte != 0) {
                    return Err(no_room());
                }
                new[copy.to + n * copy.to_size..][..kept].copy_from_slice(&from[..kept]);
            }
            let behind = &old[copy.from + copy.count * copy.from_size..][..copy.lost * copy.from_size];
            if behind.iter().any(|byte| *byte != 0) {
                return Err(no_room());
            }
        }
        Ok(())
    }
}

/// A field of unsigned numbers that only grow, wrapping: read from a value.
pub(crate) fn number(value: &[u8], field: &Field) -> u64 {
    let mut bytes = [0; 8];
    bytes[..field.size as usize].copy_from_slice(&value[field.offset as usize..][..field.size as usize]);
    u64::from_le_bytes(bytes)
}

/// Whether `a` is after `b`, both counted in so many bytes.
pub(crate) fn is_later(a: u64, b: u64, bytes: u32) -> bool {
    let shift = 64 - 8 * bytes;
    ((a.wrapping_sub(b)) << shift) as i64 > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: u32, fields: &[(&str, u32, u32, u32)]) -> Layout {
        let field = |(name, offset, size, count): &(&str, u32, u32, u32)| Field {
            name: (*name).to_owned(),
            offset: *offset,
            size: *size,
            count: *count,
        };
        Layout { size, fields: fields.iter().map(field).collect() }
    }

    #[test]
    fn fields_move_widen_vanish_and_begin_at_zero() {
        let old = layout(8, &[("unit", 0, 1, 1), ("mac", 2, 1, 4), ("gone", 6, 2, 1)]);
        let new = layout(16, &[("mac", 0, 1, 6), ("unit", 8, 2, 1), ("fresh", 12, 4, 1)]);
        let mut value = [0xee; 16];
        Conversion::new(&old, &new).convert(&[7, 0, 1, 2, 3, 4, 9, 9], &mut value).unwrap();
        assert_eq!(value, [1, 2, 3, 4, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]);

        // and back: what only the new one has is gone, the rest is as it was
        let mut value = [0xee; 8];
        let back = Conversion::new(&new, &old);
        back.convert(&[1, 2, 3, 4, 0, 0, 0, 0, 7, 0, 0, 0, 5, 0, 0, 0], &mut value).unwrap();
        assert_eq!(value, [7, 0, 1, 2, 3, 4, 0, 0]);
    }

    #[test]
    fn what_has_no_room_is_named() {
        let wide = layout(8, &[("unit", 0, 2, 1), ("list", 4, 1, 4)]);
        let narrow = layout(4, &[("unit", 0, 1, 1), ("list", 1, 1, 2)]);
        let conversion = Conversion::new(&wide, &narrow);
        let of = |old: [u8; 8]| conversion.convert(&old, &mut [0; 4]).map_err(|error| error.field);
        assert_eq!(of([255, 0, 0, 0, 1, 2, 0, 0]), Ok(()));
        assert_eq!(of([0, 1, 0, 0, 1, 2, 0, 0]), Err("unit".to_owned()));
        assert_eq!(of([255, 0, 0, 0, 1, 2, 0, 3]), Err("list".to_owned()));
    }

    #[test]
    fn differences_are_told_in_words() {
        let one = layout(8, &[("unit", 0, 1, 1), ("mac", 2, 1, 4)]);
        assert_eq!(one.difference(&one), None);
        let tell = |wanted: &Layout| one.difference(wanted).unwrap();
        assert_eq!(tell(&layout(8, &[("unit", 0, 1, 1)])), "field mac is in it");
        assert_eq!(tell(&layout(8, &[("zone", 0, 1, 1)])), "field zone is not in it");
        let moved = layout(8, &[("unit", 1, 1, 1), ("mac", 2, 1, 4)]);
        assert_eq!(tell(&moved), "field unit is 1 of 1 bytes at 0, and not 1 of 1 bytes at 1");
        let longer = layout(16, &[("unit", 0, 1, 1), ("mac", 2, 1, 4)]);
        assert_eq!(tell(&longer), "its values have 8 bytes, and not 16");
    }

    #[test]
    fn counts_that_wrap_are_compared_by_their_distance() {
        assert!(is_later(5, 4, 4) && !is_later(4, 5, 4) && !is_later(4, 4, 4));
        assert!(is_later(1, 0xffff_ffff, 4) && !is_later(0xffff_ffff, 1, 4));
        assert!(is_later(2, 0xfffe, 2) && is_later(0x1_0000, 1, 8));
    }
}
