"""Writes a capture of protected packets, really encrypted, and what each of them is: one JSON object a frame."""

import json
import sys

from scapy.config import conf
from scapy.contrib.gtp import GTPEchoRequest, GTP_U_Header
from scapy.contrib.ikev2 import IKEv2
from scapy.contrib.macsec import MACsecSA
from scapy.layers.eap import EAPOL, MACsecSCI, MKABasicParamSet, MKAICVSet, MKALivePeerListParamSet, MKAPDU
from scapy.layers.eap import MKAPeerListTuple
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_Router_Alert, fragment
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop, IPv6ExtHdrRouting
from scapy.layers.ipsec import AH, ESP, SecurityAssociation
from scapy.layers.l2 import ARP, Dot1AD, Dot1Q, Ether
from scapy.packet import Raw
from scapy.utils import PcapWriter

conf.verb = 0
ether = Ether(src="02:00:00:00:00:0a", dst="02:00:00:00:00:0b")
SCI = 0x02000000000A0001
frames = []


def add(packet, **truth):
    packet = Ether(bytes(packet))
    packet.time = 1700000000 + len(frames) / 1000
    frames.append((packet, truth))


def inner(length=80, dst="192.0.2.2"):
    return IP(src="192.0.2.1", dst=dst, id=7) / UDP(sport=4000, dport=4001) / Raw(b"\x61" * length)


def association(an, number, encrypt=True, send_sci=True, **extended):
    return MACsecSA(sci=SCI, an=an, pn=number, key=b"k" * 16, icvlen=16, encrypt=encrypt, send_sci=send_sci, **extended)


def macsec():
    for encrypt in (True, False):
        for send_sci in (True, False):
            for an, length in ((0, 20), (1, 80), (3, 1300)):
                sa = association(an, 100 + length, encrypt, send_sci)
                for step in range(3):
                    sealed = sa.encrypt(sa.encap(ether / inner(length)))
                    sa.pn += 1
                    add(sealed, protocol="macsec", id=an, sequence=100 + length + step, sci=SCI, encrypted=encrypt)
    # Short: SL is set; the second one is padded by the MAC, as a wire would do.
    sa = association(2, 5)
    short = sa.encrypt(sa.encap(ether / ARP()))
    add(short, protocol="macsec", id=2, sequence=5, sci=SCI, encrypted=True)
    sa.pn += 1
    tiny = sa.encrypt(sa.encap(ether / Raw(b"abc")))
    add(bytes(tiny).ljust(60, b"\0"), protocol="macsec", id=2, sequence=6, sci=SCI, encrypted=True)
    # Extended packet numbers look the same on the wire: the lower half.
    sa = association(1, (7 << 32) + 12, xpn_en=True, ssci=1, salt=b"s" * 12)
    add(sa.encrypt(sa.encap(ether / inner())), protocol="macsec", id=1, sequence=12, sci=SCI, encrypted=True)
    # VLAN tags before, one and two, and inside.
    sa = association(0, 900, encrypt=False)
    sealed = bytes(sa.encrypt(sa.encap(ether / Dot1Q(vlan=77) / inner())))
    truth = dict(protocol="macsec", id=0, sequence=900, sci=SCI, encrypted=False)
    add(sealed, **truth)
    one = bytes(Dot1Q(prio=5, vlan=100, type=0x88E5))
    add(sealed[:12] + b"\x81\x00" + one + sealed[14:], vlan=100, **truth)
    two = bytes(Dot1AD(vlan=200, type=0x8100)) + one
    add(sealed[:12] + b"\x88\xa8" + two + sealed[14:], vlan=100, outer=200, **truth)


def ipsec():
    gcm = dict(crypt_algo="AES-GCM", crypt_key=b"k" * 16 + b"salt")
    cbc = dict(crypt_algo="AES-CBC", crypt_key=b"k" * 16, auth_algo="HMAC-SHA1-96", auth_key=b"a" * 20)
    null = dict(crypt_algo="NULL", auth_algo="HMAC-SHA1-96", auth_key=b"a" * 20)
    outer4, outer6 = IP(src="10.0.0.1", dst="10.0.0.2"), IPv6(src="2001:db8::1", dst="2001:db8::2")
    for spi, algorithms in ((0x1001, gcm), (0x80000002, cbc), (0x1003, null)):
        for version, outer in ((4, outer4), (6, outer6)):
            for mode in ("tunnel", "transport"):
                around = outer if mode == "tunnel" else None
                sa = SecurityAssociation(ESP, spi=spi, seq_num=41, tunnel_header=around, **algorithms)
                for step in range(3):
                    datagram = UDP(sport=1, dport=2) / Raw(b"x" * 60)
                    # Both versions inside; in transport mode the packet's own header stays in front.
                    inside = IPv6(src="fd00::1", dst="fd00::2") / datagram if step == 2 else inner()
                    plain = inside if mode == "tunnel" else outer / datagram
                    sealed = sa.encrypt(plain)
                    truth = dict(protocol="esp", id=spi, sequence=41 + step, version=version)
                    add(ether / sealed, encrypted=algorithms is not null, **truth)
    nat = SecurityAssociation(ESP, spi=0x2001, seq_num=7, nat_t_header=UDP(sport=4500, dport=1027), **gcm)
    for step in range(3):
        sealed = nat.encrypt(outer4 / UDP(sport=1, dport=2) / Raw(b"x" * 60))
        # scapy leaves the length at that of the header alone.
        sealed[UDP].len = len(sealed[UDP])
        del sealed[IP].chksum
        add(ether / sealed, protocol="esp_udp", id=0x2001, sequence=7 + step, version=4, encrypted=True)
    add(ether / outer4 / UDP(sport=4500, dport=4500, chksum=0) / Raw(b"\xff"), protocol="esp_udp", id=0, version=4)
    authentic = dict(auth_algo="HMAC-SHA1-96", auth_key=b"a" * 20)
    for outer, version in ((outer4, 4), (outer6, 6)):
        for mode in ("tunnel", "transport"):
            around = outer if mode == "tunnel" else None
            sa = SecurityAssociation(AH, spi=0x3001, seq_num=99, tunnel_header=around, **authentic)
            sealed = sa.encrypt(inner() if around else outer / UDP(sport=1, dport=2) / Raw(b"x" * 60))
            add(ether / sealed, protocol="ah", id=0x3001, sequence=99, version=version, encrypted=False)
    # Options, extension headers, fragments around ESP.
    body = ESP(spi=0x4001, seq=3, data=b"\x5a" * 64)
    add(ether / IP(src="10.0.0.1", dst="10.0.0.2", proto=50, options=[IPOption_Router_Alert()]) / body,
        protocol="esp", id=0x4001, sequence=3, version=4, encrypted=True)
    routing = IPv6ExtHdrRouting(addresses=["2001:db8::2"], segleft=0)
    add(ether / outer6 / IPv6ExtHdrHopByHop() / routing / IPv6ExtHdrDestOpt(nh=50) / body,
        protocol="esp", id=0x4001, sequence=3, version=6, encrypted=True)
    long = IP(src="10.0.0.1", dst="10.0.0.2", proto=50, id=9) / ESP(spi=0x4001, seq=4, data=b"\x5a" * 2000)
    pieces = fragment(long, 1400)
    add(ether / pieces[0], protocol="esp", id=0x4001, sequence=4, version=4, encrypted=True)
    for piece in pieces[1:]:
        add(ether / piece, unknown="later IP fragment")
    add(ether / outer6 / IPv6ExtHdrFragment(nh=50, offset=100, m=0, id=5) / Raw(b"z" * 64), unknown="later IP fragment")


def gtpu():
    tunnel4 = IP(src="10.1.0.1", dst="10.1.0.2") / UDP(sport=2152, dport=2152)
    tunnel6 = IPv6(src="2001:db8::1", dst="2001:db8::2") / UDP(sport=2152, dport=2152)
    for version, tunnel in ((4, tunnel4), (6, tunnel6)):
        for step in range(3):
            number = 0xFFFE + step & 0xFFFF
            header = GTP_U_Header(teid=0xBEEF0001, S=1, seq=number, gtp_type=255)
            add(ether / tunnel / header / inner(), protocol="gtpu", id=0xBEEF0001, sequence=number, version=version)
        header = GTP_U_Header(teid=0x55, S=0, gtp_type=255)
        add(ether / tunnel / header / inner(), protocol="gtpu", id=0x55, version=version)
    echo = GTP_U_Header(teid=0, S=1, seq=77, gtp_type=1) / GTPEchoRequest()
    add(ether / tunnel4 / echo, protocol="gtpu", id=0, version=4)


def control():
    member = bytes(range(12))
    for number in (1, 2, 3):
        sci = MACsecSCI(system_identifier="02:00:00:00:00:0a", port_identifier=1)
        basic = MKABasicParamSet(SCI=sci, actor_member_id=member, actor_message_number=number, param_set_body_len=44,
                                 cak_name=b"a key name, 16 b")
        peer = MKAPeerListTuple(member_id=b"z" * 12, message_number=b"\0\0\0\5")
        live = MKALivePeerListParamSet(member_id_message_num=[peer], param_set_body_len=16)
        mkpdu = MKAPDU(basic_param_set=basic, parameter_sets=[live, MKAICVSet(param_set_body_len=16, icv=b"i" * 16)])
        add(ether / EAPOL(version=3, type=5) / mkpdu, protocol="mka", sequence=number, sci=SCI)
    message = IKEv2(init_SPI=b"initspi1", resp_SPI=b"respspi1", exch_type=34, id=1)
    ip = IP(src="10.0.0.1", dst="10.0.0.2")
    add(ether / ip / UDP(sport=500, dport=500) / message, protocol="ike", version=4)
    add(ether / ip / UDP(sport=4500, dport=4500) / Raw(b"\0\0\0\0" + bytes(message)), protocol="ike", version=4)


def others():
    ip = IP(src="10.0.0.1", dst="10.0.0.2")
    add(ether / ARP(), unknown="ethertype 0x0806")
    add(ether / ip / TCP(sport=1, dport=80), unknown="IP protocol 6")
    add(ether / ip / ICMP(), unknown="IP protocol 1")
    add(ether / ip / UDP(sport=40000, dport=53), unknown="UDP port 53")
    add(ether / EAPOL(version=3, type=1), unknown="ethertype 0x888e")


macsec()
ipsec()
gtpu()
control()
others()
with PcapWriter(sys.argv[1] + "/judged.pcap", linktype=1, nano=True) as writer:
    for packet, _ in frames:
        writer.write(packet)
with open(sys.argv[1] + "/judged.json", "w") as out:
    for _, truth in frames:
        out.write(json.dumps(truth) + "\n")
