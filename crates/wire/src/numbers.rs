//! How the lists of numbers are written: each line makes a constant, and with a name in quotes the word of the text
//! form ([`crate::text`]).

/// Constants of one type, and `NAMES`, those that have a name.
macro_rules! numbers {
    ($type:ty: $($(#[$doc:meta])* $name:ident = $value:literal $($text:literal)?,)*) => {
        $($(#[$doc])* pub const $name: $type = $value;)*

        /// Words of the text form.
        pub(crate) const NAMES: &[(&str, u64)] = &[$($(($text, $value),)?)*];
    };
}

pub(crate) use numbers;
