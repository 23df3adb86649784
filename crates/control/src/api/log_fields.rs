//! Fields of an entry of the session log: a hundred thousand entries a second are made and forgotten, so all values of one
//! stand in one text.

use std::borrow::Cow;
use std::fmt::{Display, Write};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Names and values, in the order in which Junos writes them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogFields {
    /// Each with where its value ends.
    names: Vec<(Cow<'static, str>, usize)>,
    values: String,
}

impl LogFields {
    /// Room for an entry of the usual length.
    pub fn roomy() -> Self {
        Self { names: Vec::with_capacity(32), values: String::with_capacity(256) }
    }

    /// Behind the others.
    pub fn add(&mut self, name: impl Into<Cow<'static, str>>, value: impl Display) {
        // a String takes whatever is written to it
        let _ = write!(self.values, "{value}");
        self.names.push((name.into(), self.values.len()));
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Name and value of each.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut begin = 0;
        self.names.iter().map(move |(name, end)| {
            let value = &self.values[begin..*end];
            begin = *end;
            (name.as_ref(), value)
        })
    }

    /// ` name="value"` of each field; what ends a value early is escaped (RFC 5424 6.3.3).
    pub fn write(&self, to: &mut String) {
        for (name, value) in self.iter() {
            to.push(' ');
            to.push_str(name);
            to.push_str("=\"");
            let mut rest = value;
            while let Some(at) = rest.find(['"', '\\', ']']) {
                to.push_str(&rest[..at]);
                to.push('\\');
                to.push_str(&rest[at..=at]);
                rest = &rest[at + 1..];
            }
            to.push_str(rest);
            to.push('"');
        }
    }
}

impl Serialize for LogFields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for LogFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut fields = Self::default();
        for (name, value) in Vec::<(String, String)>::deserialize(deserializer)? {
            fields.add(name, value);
        }
        Ok(fields)
    }
}

impl JsonSchema for LogFields {
    fn schema_name() -> Cow<'static, str> {
        Vec::<(String, String)>::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Vec::<(String, String)>::json_schema(generator)
    }

    fn inline_schema() -> bool {
        Vec::<(String, String)>::inline_schema()
    }
}

#[cfg(test)]
mod tests {
    use super::LogFields;

    #[test]
    fn fields_come_back_as_they_went() {
        let mut fields = LogFields::roomy();
        fields.add("policy-name", "a\"b");
        fields.add("username", "");
        fields.add("protocol-id", 6);
        let text = serde_json::to_string(&fields).unwrap();
        assert_eq!(text, r#"[["policy-name","a\"b"],["username",""],["protocol-id","6"]]"#);
        assert_eq!(serde_json::from_str::<LogFields>(&text).unwrap(), fields);
        let mut line = String::new();
        fields.write(&mut line);
        assert_eq!(line, r#" policy-name="a\"b" username="" protocol-id="6""#);
    }
}
