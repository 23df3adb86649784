//! IP protocols as questions and answers write them.

pub fn name(protocol: u8) -> String {
    match protocol {
        1 => "icmp".to_owned(),
        6 => "tcp".to_owned(),
        17 => "udp".to_owned(),
        58 => "icmp6".to_owned(),
        other => other.to_string(),
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
