"""A base station made by scapy: gtpu_scapy.py OWN GATEWAY SERVER4 SERVER6, in its namespace. What the gateway sends, scapy's
dissector reads; whoever finds something else than TS 29.281 and TS 38.415 say fails here."""

import socket
import sys

from scapy.contrib.gtp import GTP_U_Header, GTP_UDPPort_ExtensionHeader, GTPErrorIndication, GTPHeader, GTPPDUSessionContainer
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Raw

OWN, GATEWAY, SERVER4, SERVER6 = sys.argv[1:]
UPLINK, DOWNLINK, QFI, UNKNOWN = 0x1001, 0x2001, 9, 0x7777
station = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
station.bind((OWN, 2152))
station.settimeout(5)


def send(message):
    station.sendto(bytes(message), (GATEWAY, 2152))


def receive():
    message, sender = station.recvfrom(65536)
    assert sender[0] == GATEWAY, sender
    return GTPHeader(message)


def rebuilt(packet):
    """The same with lengths and checksums that scapy computes."""
    kind, copy = type(packet), packet.copy()
    for layer in (IP, IPv6, UDP):
        for field in ("len", "plen", "chksum"):
            if layer in copy and field in copy[layer].fields:
                delattr(copy[layer], field)
    return bytes(kind(bytes(copy)))


def echo():
    """7.2.1, 7.2.2."""
    send(GTPHeader(S=1, gtp_type=1, seq=0x1234))
    answer = receive()
    assert (answer.version, answer.PT, answer.gtp_type, answer.seq, answer.teid) == (1, 1, 2, 0x1234, 0)
    [recovery] = answer.IE_list
    assert (recovery.ietype, recovery.restart_counter) == (14, 0)


def data(inner, source, destination, size):
    """A packet of the subscriber's in a container of the uplink, and its answer in one of the downlink (TS 38.415 5.5.2)."""
    payload = bytes(range(256)) * 4
    packet = inner(src=source, dst=destination) / UDP(sport=3000, dport=9000) / Raw(payload[:size])
    send(GTP_U_Header(teid=UPLINK, E=1, next_ex=0x85, gtp_type=255) / GTPPDUSessionContainer(type=1, QFI=QFI) / packet)
    answer = receive()
    assert (answer.version, answer.PT, answer.E, answer.S, answer.PN) == (1, 1, 1, 0, 0), answer.summary()
    assert (answer.gtp_type, answer.teid, answer.next_ex) == (255, DOWNLINK, 0x85), answer.summary()
    assert answer.length == len(bytes(answer)) - 8
    container = answer[GTPPDUSessionContainer]
    assert (container.ExtHdrLen, container.type, container.QFI, container.RQI, container.NextExtHdr) == (1, 0, QFI, 0, 0)
    back = answer[inner]
    assert (back.src, back.dst) == (destination, source), answer.summary()
    assert (back[UDP].sport, back[UDP].dport, back[Raw].load) == (9000, 3000, payload[:size]), answer.summary()
    assert bytes(back) == rebuilt(back), "lengths and checksums of the packet in the tunnel"


def error():
    """7.3.1: TEID and address (8.3, 8.4), and the port in an extension header (5.2.2.1)."""
    send(GTP_U_Header(teid=UNKNOWN, gtp_type=255) / IP(src="10.45.0.2", dst=SERVER4) / UDP(sport=1, dport=2))
    answer = receive()
    assert (answer.gtp_type, answer.teid, answer.next_ex, answer.seq) == (26, 0, 0x40, 0), answer.summary()
    rest = bytes(answer.payload)
    port = GTP_UDPPort_ExtensionHeader(rest[:4])
    assert (port.length, port.udp_port, port.next_ex) == (1, 2152, 0), port.show2(dump=True)
    teid, address = GTPErrorIndication(rest[4:]).IE_list
    assert (teid.ietype, teid.TEIDI) == (16, UNKNOWN)
    assert (address.ietype, address.length, address.ipv4_address) == (133, 4, GATEWAY)


echo()
for size in (1, 512, 900):
    data(IP, "10.45.0.2", SERVER4, size)
    data(IPv6, "2001:db8:45:2::7", SERVER6, size)
error()
print("scapy agrees")
