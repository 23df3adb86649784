//! IP protocols as questions and answers write them.

use std::borrow::Cow;

pub fn name(protocol: u8) -> Cow<'static, str> {
    match protocol {
        1 => "icmp".into(),
        6 => "tcp".into(),
        17 => "udp".into(),
        58 => "icmp6".into(),
        other => other.to_string().into(),
    }
}

pub fn parse(text: &str) -> Result<u8, String> {
    match text {
        "icmp" => Ok(1),
        "tcp" => Ok(6),
        "udp" => Ok(17),
        "icmp6" => Ok(58),
        other => {
            other.parse().map_err(|_| format!("protocol {other}: expected tcp, udp, icmp, icmp6 or 0 to 255"))
        }
    }
}
