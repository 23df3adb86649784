"""Adds a PDP context to a gtp device: its tools are packaged nowhere near everywhere, its netlink family is small.

Numbers: include/uapi/linux/gtp.h and genetlink.h.
"""

import socket
import struct

NETLINK_GENERIC = 16
CTRL, CTRL_GETFAMILY, FAMILY_ID, FAMILY_NAME = 0x10, 3, 1, 2
GTP_NEWPDP = 0
LINK, VERSION, PEER_ADDRESS, MS_ADDRESS, I_TEI, O_TEI = 1, 2, 4, 5, 8, 9
REQUEST, ACK, EXCL, CREATE = 1, 4, 0x200, 0x400
ERROR = 2


def attribute(kind, value):
    value = struct.pack("=I", value) if isinstance(value, int) else value
    return struct.pack("=HH", len(value) + 4, kind) + value + bytes(-len(value) % 4)


def ask(netlink, family, command, flags, attributes):
    body = struct.pack("=BBH", command, 0, 0) + b"".join(attributes)
    netlink.send(struct.pack("=IHHII", len(body) + 16, family, REQUEST | flags, 1, 0) + body)
    answer = netlink.recv(65536)
    if struct.unpack_from("=H", answer, 4)[0] == ERROR:
        code = struct.unpack_from("=i", answer, 16)[0]
        if code:
            raise OSError(-code, "the kernel refused the netlink request")
    return answer[20:]


def family_number(netlink, name):
    attributes = ask(netlink, CTRL, CTRL_GETFAMILY, 0, [attribute(FAMILY_NAME, name + b"\0")])
    while attributes:
        length, kind = struct.unpack_from("=HH", attributes)
        if kind == FAMILY_ID:
            return struct.unpack_from("=H", attributes, 4)[0]
        attributes = attributes[(length + 3) & ~3 :]
    raise OSError(f"no netlink family {name}")


def add(device, peer, subscriber, teid_in, teid_out):
    """Call it in the namespace of the device."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_GENERIC) as netlink:
        netlink.bind((0, 0))
        family = family_number(netlink, b"gtp")
        ask(netlink, family, GTP_NEWPDP, ACK | EXCL | CREATE, [
            attribute(LINK, socket.if_nametoindex(device)),
            attribute(VERSION, 1),
            attribute(PEER_ADDRESS, socket.inet_aton(peer)),
            attribute(MS_ADDRESS, socket.inet_aton(subscriber)),
            attribute(I_TEI, teid_in),
            attribute(O_TEI, teid_out),
        ])
