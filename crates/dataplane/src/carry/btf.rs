//! The kernel's type format, as far as maps need it: which fields a value has, and what the members of an enum are called.

use super::layout::{Field, Layout};

const MAGIC: u16 = 0xeb9f;
const INT: u32 = 1;
const POINTER: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const TYPEDEF: u32 = 8;
const RESTRICT: u32 = 11;
const FUNCTION_PROTOTYPE: u32 = 13;
const VARIABLE: u32 = 14;
const SECTION: u32 = 15;
const DECLARATION_TAG: u32 = 17;
const TYPE_TAG: u32 = 18;
const ENUM64: u32 = 19;

/// Typedefs and qualifiers in a row, structures in each other: more than any of ours has.
const DEEPEST: u32 = 16;

/// One type: the kernel's three words, and what follows them.
#[derive(Debug)]
struct Type {
    name: u32,
    info: u32,
    size_or_type: u32,
    more: Vec<u32>,
}

impl Type {
    fn kind(&self) -> u32 {
        self.info >> 24 & 0x1f
    }

    fn has_bit_fields(&self) -> bool {
        self.info >> 31 != 0
    }
}

#[derive(Debug)]
pub(crate) struct Btf {
    /// Type 1 is the first; 0 stands for `void`.
    types: Vec<Type>,
    strings: Vec<u8>,
}

fn words_behind(kind: u32, count: u32) -> u32 {
    match kind {
        INT | VARIABLE | DECLARATION_TAG => 1,
        ARRAY => 3,
        STRUCT | UNION | SECTION | ENUM64 => 3 * count,
        ENUM | FUNCTION_PROTOTYPE => 2 * count,
        _ => 0,
    }
}

impl Btf {
    /// None when these are not the bytes of a BTF section.
    pub fn parse(bytes: &[u8]) -> Option<Btf> {
        let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let magic = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
        if magic != MAGIC {
            return None;
        }
        let header = word(4)? as usize;
        let (types_at, types_length) = (header + word(8)? as usize, word(12)? as usize);
        let (strings_at, strings_length) = (header + word(16)? as usize, word(20)? as usize);
        let mut types = Vec::new();
        let mut at = types_at;
        while at < types_at + types_length {
            let (name, info, size_or_type) = (word(at)?, word(at + 4)?, word(at + 8)?);
            let count = words_behind(info >> 24 & 0x1f, info & 0xffff) as usize;
            let more = (0..count).map(|n| word(at + 12 + 4 * n)).collect::<Option<_>>()?;
            types.push(Type { name, info, size_or_type, more });
            at += 12 + 4 * count;
        }
        let strings = bytes.get(strings_at..strings_at + strings_length)?.to_vec();
        Some(Btf { types, strings })
    }

    fn of(&self, id: u32) -> Option<&Type> {
        self.types.get((id as usize).checked_sub(1)?)
    }

    fn text(&self, at: u32) -> String {
        let rest = self.strings.get(at as usize..).unwrap_or_default();
        let end = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
        String::from_utf8_lossy(&rest[..end]).into_owned()
    }

    /// The type behind typedefs and qualifiers.
    fn plain(&self, id: u32) -> Option<&Type> {
        let mut found = self.of(id)?;
        for _ in 0..DEEPEST {
            match found.kind() {
                TYPEDEF..=RESTRICT | TYPE_TAG => found = self.of(found.size_or_type)?,
                _ => return Some(found),
            }
        }
        None
    }

    /// Names of an enum's members by their value; empty when there is no such enum.
    pub fn enumeration(&self, name: &str) -> Vec<String> {
        let found = self.types.iter().find(|t| t.kind() == ENUM && self.text(t.name) == name);
        let mut names = Vec::new();
        for member in found.iter().flat_map(|t| t.more.chunks_exact(2)) {
            let value = member[1] as usize;
            if value >= names.len() && value < 1 << 16 {
                names.resize(value + 1, String::new());
            }
            if let Some(slot) = names.get_mut(value) {
                *slot = self.text(member[0]);
            }
        }
        names
    }

    /// Fields of a structure that a map does not have as its value, but carries.
    pub fn structure(&self, name: &str) -> Option<Layout> {
        let index = self.types.iter().position(|t| t.kind() == STRUCT && self.text(t.name) == name)?;
        self.layout(index as u32 + 1)
    }

    /// Every field of a type, those of structures inside it by their path. None when it has what layouts must not have:
    /// bit-fields, and unions.
    pub fn layout(&self, id: u32) -> Option<Layout> {
        let mut fields = Vec::new();
        let size = self.collect(id, String::new(), 0, DEEPEST, &mut fields)?;
        Some(Layout { size, fields })
    }

    /// Its size.
    fn collect(
        &self,
        id: u32,
        name: String,
        offset: u32,
        depth: u32,
        fields: &mut Vec<Field>,
    ) -> Option<u32> {
        let found = self.plain(id)?;
        let depth = depth.checked_sub(1)?;
        match found.kind() {
            STRUCT if !found.has_bit_fields() => {
                for member in found.more.chunks_exact(3) {
                    let dot = if name.is_empty() { "" } else { "." };
                    let path = format!("{name}{dot}{}", self.text(member[0]));
                    self.collect(member[1], path, offset + member[2] / 8, depth, fields)?;
                }
                Some(found.size_or_type)
            }
            ARRAY => {
                let (element, count) = (found.more[0], found.more[2]);
                let size = self.size(element, depth)?;
                if matches!(self.plain(element)?.kind(), STRUCT | ARRAY) {
                    for n in 0..count {
                        self.collect(element, format!("{name}[{n}]"), offset + n * size, depth, fields)?;
                    }
                } else {
                    fields.push(Field { name, offset, size, count });
                }
                Some(count * size)
            }
            _ => {
                let size = self.size(id, depth)?;
                fields.push(Field { name, offset, size, count: 1 });
                Some(size)
            }
        }
    }

    fn size(&self, id: u32, depth: u32) -> Option<u32> {
        let found = self.plain(id)?;
        match found.kind() {
            INT | STRUCT | ENUM | ENUM64 => Some(found.size_or_type),
            POINTER => Some(8),
            ARRAY => Some(found.more[2] * self.size(found.more[0], depth.checked_sub(1)?)?),
            _ => None,
        }
    }
}
