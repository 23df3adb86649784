//! `services fan-out`

use super::kind::Choices;
use super::{Key, Kind, Statement, block, flag, keyed, leaf};

pub const MODES: Choices = &[
    ("auto", "XDP where the interface runs on it, else tc."),
    ("xdp", "In the driver; the fastest."),
    ("tc-ebpf", "Behind the driver, on tc."),
    ("af-xdp", "In user space, from the rings of the device's queues."),
    ("af_xdp", "The same, as the YAML has it."),
    ("userspace", "In user space, from sockets; needs no privileges."),
    ("tcp-forward", "In user space, over a TCP connection to each receiver."),
];

pub const BALANCES: Choices = &[
    ("round-robin", "Packet by packet, by turns; by weights where receivers have some."),
    ("flow", "Packets of equal addresses and ports to one receiver."),
    ("source", "Packets of one source address to one receiver."),
];

pub const FRAMINGS: Choices = &[
    ("newline", "A line feed behind each message (RFC 6587 3.4.2)."),
    ("octet-counting", "Its length in decimal digits and a blank before each message (RFC 6587 3.4.1)."),
    ("length-prefix", "Its length in four bytes, most significant first, before each message."),
];

pub const CHECKS: Choices = &[
    ("icmp", "An echo request is answered."),
    ("udp", "A UDP datagram comes back from the port."),
    ("tcp", "A TCP connection to the port is accepted."),
    ("http", "GET of `path` is answered with a status of 200 to 399 (RFC 9110 15)."),
];

pub const NONE_LEFT: Choices =
    &[("drop", "They are dropped and counted."), ("all", "They go to all receivers as if all were well.")];

const MILLISECONDS: Kind = Kind::Number { min: 10, max: 3_600_000 };
const PORT: Kind = Kind::Number { min: 1, max: 65_535 };
const COUNT: Kind = Kind::Number { min: 1, max: 100 };

const HEALTH: Statement = block(
    "health-check",
    "Asks receivers whether they are there, and leaves out those that do not answer.",
    &[
        leaf(
            "drain",
            "Milliseconds in which a receiver that leaves the configuration, or drains, gets ever less of its share.",
            Kind::Number { min: 0, max: 3_600_000 },
        ),
        leaf("fall", "Failures in a row after which a receiver is left out; 2 by default.", COUNT),
        leaf("interval", "Milliseconds between two checks; 1000 by default.", MILLISECONDS),
        leaf("method", "How it asks.", Kind::Choice("method", CHECKS)),
        leaf("path", "Path that `http` asks for, in quotes; \"/\" by default.", Kind::Text),
        leaf("port", "Port that is asked; the receiver's own by default.", PORT),
        leaf("rise", "Answers in a row after which a receiver is taken back; 2 by default.", COUNT),
        leaf(
            "slow-start",
            "Milliseconds in which a receiver that came back gets ever more of its share; 0 by default.",
            Kind::Number { min: 0, max: 3_600_000 },
        ),
        leaf("timeout", "Milliseconds to wait for an answer; 500 by default.", MILLISECONDS),
    ],
);

const RECEIVER: Statement = keyed(
    "receiver",
    "One of those that share the packets.",
    &[Key::Value(Kind::Name("receiver"))],
    &[
        leaf("address", "Its address.", Kind::Address),
        flag(
            "drain",
            "Gets ever less of its share, over the milliseconds of `health-check drain`, then nothing.",
        ),
        leaf("host", "Its name in the DNS; every address of it is a receiver.", Kind::HostName),
        leaf("port", "Its port.", PORT),
        leaf(
            "service",
            "Name of SRV records (RFC 2782), which give hosts, ports and weights.",
            Kind::HostName,
        ),
        leaf("weight", "Its share; 1 by default.", Kind::Number { min: 1, max: 256 }),
    ],
);

const LISTENER: Statement = keyed(
    "listener",
    "An address and port whose UDP datagrams are spread.",
    &[Key::Value(Kind::Name("listener"))],
    &[
        leaf("address", "Address it listens on; packets for others are none of its business.", Kind::Address),
        flag(
            "answer-arp",
            "Gives the interface the address, so that the kernel answers ARP and neighbour discovery for it.",
        ),
        leaf(
            "balance",
            "How a receiver is chosen; `round-robin` by default.",
            Kind::Choice("balance", BALANCES),
        ),
        leaf(
            "framing",
            "How messages are told apart in `tcp-forward`; `newline` by default.",
            Kind::Choice("framing", FRAMINGS),
        ),
        HEALTH,
        leaf("interface", "Interface, and unit, that packets arrive on.", Kind::Unit),
        flag("keep-source", "Receivers see the address of the sender; kernel modes always do so."),
        leaf(
            "max-packet-size",
            "Largest datagram in bytes in user space; 65507 by default.",
            Kind::Number { min: 64, max: 65_507 },
        ),
        leaf("mode", "Where the work is done; `auto` by default.", Kind::Choice("mode", MODES)),
        leaf(
            "none-left",
            "What happens to packets while no receiver is up; `drop` by default.",
            Kind::Choice("action", NONE_LEFT),
        ),
        leaf("port", "UDP port it listens on.", PORT),
        leaf(
            "queue-bytes",
            "Bytes that wait for one receiver in `tcp-forward`; 4194304 by default.",
            Kind::Number { min: 65_536, max: 1_073_741_824 },
        ),
        leaf(
            "receive-buffer",
            "Bytes of the socket's receive buffer; 8388608 by default.",
            Kind::Number { min: 65_536, max: 1_073_741_824 },
        ),
        RECEIVER,
        leaf("workers", "Threads in user space; one a CPU by default.", Kind::Number { min: 1, max: 256 }),
    ],
);

pub const FAN_OUT: Statement = block(
    "fan-out",
    "Spreads UDP datagrams over receivers. A Sluice extension of Junos.",
    &[
        LISTENER,
        block(
            "metrics",
            "Where counters are read over HTTP as Prometheus wants them.",
            &[
                leaf("address", "Address; every one by default.", Kind::Address),
                leaf("port", "Port; 9090 by default.", PORT),
            ],
        ),
    ],
);
