use std::fmt;
use std::str::FromStr;

/// A 48-bit hardware address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// All stations of a link.
    pub const BROADCAST: Mac = Mac([0xff; 6]);

    /// Group bit (IEEE 802-2014 section 8.2.2).
    pub fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Mac {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a MAC address (six hex pairs with colons)");
        let mut out = [0; 6];
        let mut pairs = text.split(':');
        for byte in &mut out {
            let pair = pairs.next().ok_or_else(wrong)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
        }
        if pairs.next().is_some() { Err(wrong()) } else { Ok(Mac(out)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trip() {
        let mac: Mac = "02:00:0a:00:01:64".parse().unwrap();
        assert_eq!(mac, Mac([2, 0, 10, 0, 1, 100]));
        assert_eq!(mac.to_string(), "02:00:0a:00:01:64");
        assert!("02:00".parse::<Mac>().is_err());
        assert!("02:00:0a:00:01:64:00".parse::<Mac>().is_err());
        assert!(Mac::BROADCAST.is_multicast() && !mac.is_multicast());
    }
}
