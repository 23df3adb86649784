//! Text to layers. White space is free between tokens; a field without a value means 1 (`df`).

use super::spec::unhex;
use super::{Kind, Layer, Packet, TextError, Value};

pub fn packet(text: &str) -> Result<Packet, TextError> {
    let mut parser = Parser { text, at: 0 };
    let mut layers = vec![parser.layer()?];
    while parser.eat('/') {
        layers.push(parser.layer()?);
    }
    parser.space();
    if parser.at != text.len() {
        return Err(parser.error("expected `/` or the end"));
    }
    Ok(Packet { layers })
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn error(&self, message: impl Into<String>) -> TextError {
        TextError { at: self.at, message: message.into() }
    }

    fn space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn eat(&mut self, wanted: char) -> bool {
        self.space();
        let found = self.rest().starts_with(wanted);
        if found {
            self.at += wanted.len_utf8();
        }
        found
    }

    /// Everything up to one of `ends`, trimmed.
    fn until(&mut self, ends: &[char]) -> &'a str {
        self.space();
        let length = self.rest().find(ends).unwrap_or(self.rest().len());
        let word = &self.rest()[..length];
        self.at += length;
        word.trim_end()
    }

    fn layer(&mut self) -> Result<Layer, TextError> {
        if self.eat('"') {
            let text = self.rest();
            let length = text.find('"').ok_or_else(|| self.error("payload text has no closing quote"))?;
            self.at += length + 1;
            return Ok(Layer::raw(&text.as_bytes()[..length]));
        }
        self.space();
        let start = self.at;
        let word = self.until(&['(', '/', ')', ',']);
        if word.starts_with("0x") {
            let wrong = TextError { at: start, message: format!("`{word}` is not pairs of hex digits") };
            return unhex(word).map(|bytes| Layer::raw(&bytes)).ok_or(wrong);
        }
        let kind = Kind::by_name(word).ok_or_else(|| TextError {
            at: start,
            message: format!("`{word}` is no layer; there are: {}", Kind::names()),
        })?;
        let mut layer = Layer::new(kind);
        if self.eat('(') && !self.eat(')') {
            self.fields(&mut layer)?;
        }
        Ok(layer)
    }

    fn fields(&mut self, layer: &mut Layer) -> Result<(), TextError> {
        loop {
            self.space();
            let start = self.at;
            let name = self.until(&['=', ',', ')', '/']);
            let fields = layer.kind.fields();
            let field = fields.iter().find(|field| field.name == name).ok_or_else(|| {
                let known: Vec<_> = fields.iter().map(|field| field.name).collect();
                let message =
                    format!("`{}` has no field `{name}`; it has: {}", layer.kind.name(), known.join(", "));
                TextError { at: start, message }
            })?;
            if layer.get(name).is_some() {
                return Err(TextError { at: start, message: format!("field `{name}` is given twice") });
            }
            let value = if self.eat('=') {
                let start = self.at;
                let text = self.until(&[',', ')']);
                field.parse(text).map_err(|message| TextError { at: start, message })?
            } else {
                Value::Number(1)
            };
            layer.set(field.name, value);
            if self.eat(')') {
                return Ok(());
            }
            if !self.eat(',') {
                return Err(self.error("expected `,` or `)` after a field"));
            }
        }
    }
}
