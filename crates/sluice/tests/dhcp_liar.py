"""A DHCP server that lies: each offer another lie, the last one an honest offer in a strange form.

Arguments: device, log. While LOG.nak is there every request is refused.
"""
import os
import socket
import struct
import sys

device, log = sys.argv[1], sys.argv[2]
SERVER = socket.inet_aton("10.72.0.254")
MASK = (1, b"\xff\xff\xff\x00")
HOUR = (51, struct.pack("!I", 3600))


def lease(seconds):
    return (51, struct.pack("!I", seconds))


# name, address, options
LIES = [
    ("zero", "10.72.0.70", [MASK, lease(0)]),
    ("second", "10.72.0.70", [MASK, lease(1)]),
    ("mask", "10.72.0.70", [(1, b"\0\0\0\0"), HOUR]),
    ("loopback", "127.0.0.1", [MASK, HOUR]),
    ("multicast", "224.0.0.5", [MASK, HOUR]),
    ("nothing", "0.0.0.0", [MASK, HOUR]),
    ("broadcast", "10.72.0.255", [MASK, HOUR]),
    ("elsewhere", "10.71.1.1", [MASK, HOUR]),
    ("truncated", "10.72.0.70", None),
    ("conflict", "10.72.0.66", [MASK, HOUR]),
]
# T2 before T1, a router that is not on the link; the mask in `file`, the lease time in `sname` (option 52)
HONEST = ("honest", "10.72.0.77", [(58, struct.pack("!I", 500)), (59, struct.pack("!I", 100)),
                                   (3, socket.inet_aton("198.51.100.1")), (52, b"\x03")])


def options(pairs):
    return b"".join(bytes([code, len(value)]) + value for code, value in pairs)


def answer(request, kind, address, more):
    head = bytearray(request[:236])
    head[0] = 2
    head[16:20] = socket.inet_aton(address)
    body = b"\x63\x82\x53\x63" + options([(53, bytes([kind])), (54, SERVER)])
    if more is None:
        # an option that says to be longer than what is there
        return bytes(head) + body + b"\x33\xff\x00"
    if any(code == 52 for code, _ in more):
        head[108:236] = (options([MASK]) + b"\xff").ljust(128, b"\0")
        head[44:108] = (options([lease(600)]) + b"\xff").ljust(64, b"\0")
    return bytes(head) + body + options(more) + b"\xff"


def kind_of(request):
    rest, kind, asked = request[240:], 0, "0.0.0.0"
    while rest and rest[0] != 255:
        if rest[0] == 0:
            rest = rest[1:]
            continue
        code, length = rest[0], rest[1]
        if code == 53:
            kind = rest[2]
        if code == 50:
            asked = socket.inet_ntoa(rest[2:6])
        rest = rest[2 + length:]
    if asked == "0.0.0.0":
        asked = socket.inet_ntoa(request[12:16])
    return kind, asked


server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
server.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
server.bind(("", 67))
told = 0
with open(log, "w", buffering=1) as out:
    while True:
        request, _ = server.recvfrom(2048)
        kind, asked = kind_of(request)
        name, address, more = LIES[told] if told < len(LIES) else HONEST
        send = lambda kind, address, more: server.sendto(answer(request, kind, address, more), ("255.255.255.255", 68))
        if kind == 1:
            print(f"lie {name}", file=out)
            send(2, address, more)
            # a client that takes the offer asks for it; else the next discover gets the next lie
            told += name != "conflict" and name != "honest"
        elif kind == 3:
            print(f"REQUEST {asked}", file=out)
            if os.path.exists(log + ".nak"):
                send(6, "0.0.0.0", [(56, b"not today")])
            elif asked == "10.72.0.66":
                send(5, asked, [MASK, HOUR])
            else:
                send(5, HONEST[1], HONEST[2])
        elif kind == 4:
            print(f"DECLINE {asked}", file=out)
            told = len(LIES)
