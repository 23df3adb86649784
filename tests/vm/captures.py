#!/usr/bin/env python3
"""Runs in the guest: captures of MACsec, IPsec and GTP-U between real kernels, with what is true of them.

Leaves NAME.pcap.gz and truth.json in /mnt. The truth is what the sending kernel counted, not what the frames say.
"""

import gzip
import json
import os
import re
import subprocess
import sys

import bed
import gtp_context
from bed import ADDRESSES, MACS, Bed, other, run

OUT = "/mnt"
KEYS = {("a", 0): "01" * 16, ("a", 1): "02" * 16, ("b", 0): "03" * 16, ("b", 1): "04" * 16}
INNER = {"a": "10.1.0.1", "b": "10.1.0.2"}
FORWARD, BACKWARD = 120, 40
XPN_START, ESN_START = 0xFFFFFFF0, 0xFFFFFFE0
SPIS = {"a": 0x1001, "b": 0x2001}
TEIDS = {"a": 0x100, "b": 0x200}


# MACsec

def macsec(link, on="wire", cipher="gcm-aes-128", options="encrypt on", associations=(0,)):
    """MACsec both ways over `on`, with addresses inside."""
    xpn = "xpn" in cipher
    ssci = {"a": 1, "b": 2}
    for side in "ab":
        peer = other(side)
        link.ip(side, f"link add link {on} secure type macsec cipher {cipher} {options}")
        link.ip(side, f"macsec add secure rx port 1 address {MACS[peer]}")
        for an in associations:
            start = f"xpn {XPN_START} salt {'aa' * 12} ssci {{}}" if xpn else "pn 1"
            link.ip(side, f"macsec add secure tx sa {an} {start.format(ssci[side])} on key 0{an} {KEYS[side, an]}")
            link.ip(side, f"macsec add secure rx port 1 address {MACS[peer]} sa {an} "
                          f"{start.format(ssci[peer])} on key 0{an} {KEYS[peer, an]}")
        link.address(side, "secure", INNER)


def macsec_truth(link, vlan=0, start=1):
    """Channels as the kernel counted them: the next packet number of each association that sent."""
    channels = []
    for side in "ab":
        shown = link.ip(side, "macsec show secure").split("RXSC")[0]
        for an, shown_number in re.findall(r"(\d): PN (\d+)", shown):
            # iproute2 6.1 shows the lower half of an extended number.
            number = int(shown_number) + (1 << 32 if int(shown_number) < start else 0)
            if number > start:
                sci = MACS[side].replace(":", "") + "0001"
                channels.append({"protocol": "macsec", "sci": sci, "id": int(an), "sent": number - start,
                                 "first": start, "last": number - 1, "vlan": vlan})
    return channels


def plain(name, **options):
    def make():
        link = Bed(OUT, name)
        macsec(link, **options)
        talk(link, INNER)
        start = XPN_START if "xpn" in options.get("cipher", "") else 1
        return finish(link, macsec_truth(link, start=start), integrity_only="encrypt off" in options.get("options", ""))
    return name, make


def macsec_vlan_before():
    link = Bed(OUT, "macsec-vlan-before")
    for side in "ab":
        link.ip(side, "link add link wire name tagged type vlan id 100")
        link.ip(side, "link set tagged up")
    macsec(link, on="tagged")
    talk(link, INNER)
    return finish(link, macsec_truth(link, vlan=100))


def macsec_vlan_inside():
    link = Bed(OUT, "macsec-vlan-inside")
    macsec(link)
    inner = {"a": "10.2.0.1", "b": "10.2.0.2"}
    for side in "ab":
        link.ip(side, "link add link secure name tagged type vlan id 200")
        link.address(side, "tagged", inner)
    talk(link, inner)
    return finish(link, macsec_truth(link))


def macsec_rekey():
    link = Bed(OUT, "macsec-rekey")
    macsec(link, associations=(0, 1))
    talk(link, INNER, midway="ip -n a link set secure type macsec encodingsa 1")
    return finish(link, macsec_truth(link), rekeys=1)


def macsec_loss():
    link = Bed(OUT, "macsec-loss")
    drop_every(17)
    macsec(link)
    talk(link, INNER)
    return finish(link, macsec_truth(link), dropped=dropped())


def macsec_loss_netem():
    link = Bed(OUT, "macsec-loss-netem")
    macsec(link)
    link.listen(INNER)
    link.capture()
    # A loss shows only between packets that came: the first and the last ones are spared.
    link.send(20, 0)
    run("tc -n m qdisc add dev to-b root netem loss 10%")
    link.send(FORWARD - 40, BACKWARD)
    count = int(re.search(r"dropped (\d+)", run("tc -n m -s qdisc show dev to-b"))[1])
    run("tc -n m qdisc delete dev to-b root")
    link.send(20, 0)
    return finish(link, macsec_truth(link), dropped=count)


def macsec_reorder():
    link = Bed(OUT, "macsec-reorder")
    run("tc -n m qdisc add dev to-b root netem delay 15ms reorder 100% gap 5")
    macsec(link)
    talk(link, INNER)
    return finish(link, macsec_truth(link), reordered=True)


# IPsec

def state(side, spi, outer, protection, options):
    """`side` is the sender; the state is the same at both ends."""
    return f"xfrm state add src {outer[side]} dst {outer[other(side)]} spi {spi:#x} {protection} {options}"


def ipsec(link, outer, protocol, protection, options, mode="transport", inner=None):
    inner = inner or outer
    for side in "ab":
        for sender in "ab":
            link.ip(side, state(sender, SPIS[sender], outer, f"proto {protocol} {protection}", f"mode {mode} {options}"))
            direction = "out" if sender == side else "in"
            link.ip(side, f"xfrm policy add src {inner[sender]} dst {inner[other(sender)]} dir {direction} tmpl "
                          f"src {outer[sender]} dst {outer[other(sender)]} proto {protocol} mode {mode}")
        if mode == "tunnel":
            link.ip(side, f"address add {inner[side]} dev lo" + (" nodad" if ":" in inner[side] else ""))
            family = "inet6" if ":" in outer[side] else "inet"
            link.ip(side, f"route add {inner[other(side)]} via {family} {outer[other(side)]} src {inner[side]}")


def ipsec_truth(link, protocol, outer, start=0, ports=""):
    """Channels as the sending kernel counted them: the last number it gave out."""
    channels = []
    for side in "ab":
        shown = link.ip(side, f"-s xfrm state list src {outer[side]}")
        for spi, one in re.findall(r"spi 0x([0-9a-f]+)(.*?)(?=\nsrc |\Z)", shown, re.S):
            packets = int(re.search(r"(\d+)\(packets\)", one)[1])
            channels.append({"protocol": protocol, "source": outer[side] + ports, "id": int(spi, 16), "sent": packets,
                             "first": start + 1, "last": start + packets, "vlan": 0})
    return channels


GCM = f"aead rfc4106(gcm(aes)) 0x{'05' * 20} 128"
NULL = f"auth-trunc hmac(sha256) 0x{'06' * 32} 128 enc ecb(cipher_null) ''"
AUTH = f"auth-trunc hmac(sha256) 0x{'06' * 32} 128"
OUTER = {version: {side: ADDRESSES[side][index] for side in "ab"} for index, version in enumerate((4, 6))}
TUNNELLED = {4: {"a": "10.3.0.1", "b": "10.3.0.2"}, 6: {"a": "2001:db8:3::1", "b": "2001:db8:3::2"}}
ESN = f"replay-window 64 flag esn replay-oseq {ESN_START} replay-seq {ESN_START}"


def secured(name, version, protection, mode="transport", inside=None, options="", protocol="esp", drop=None, **facts):
    def make():
        link = Bed(OUT, name)
        if drop:
            drop_every(drop)
        link.wire_addresses()
        inner = TUNNELLED[inside or version] if mode == "tunnel" else None
        ipsec(link, OUTER[version], protocol, protection, options, mode, inner)
        talk(link, inner or OUTER[version])
        start = ESN_START if "esn" in options else 0
        lost = {"dropped": dropped()} if drop else {}
        return finish(link, ipsec_truth(link, protocol, OUTER[version], start), **facts, **lost)
    return name, make


def esp_udp():
    link = Bed(OUT, "esp-udp")
    link.wire_addresses()
    ipsec(link, OUTER[4], "esp", GCM, "encap espinudp 4500 4500 0.0.0.0", "tunnel", TUNNELLED[4])
    encapsulating = []
    for side in "ab":
        encapsulating.append(bed.inside(side, lambda side=side: espinudp(OUTER[4][side])))
    talk(link, TUNNELLED[4])
    return finish(link, ipsec_truth(link, "esp_udp", OUTER[4], ports=":4500"))


def espinudp(address):
    """What an IKE daemon does: a socket on 4500 that hands ESP to the kernel (UDP_ENCAP, linux/udp.h)."""
    made = bed.socket.socket(bed.socket.AF_INET, bed.socket.SOCK_DGRAM)
    made.setsockopt(bed.socket.IPPROTO_UDP, 100, 2)
    made.bind((address, 4500))
    return made


def esp_rekey():
    link = Bed(OUT, "esp-rekey")
    link.wire_addresses()
    ipsec(link, OUTER[4], "esp", GCM, "")
    new = state("a", 0x1002, OUTER[4], f"proto esp {GCM}", "mode transport")
    link.ip("b", new)
    old = f"src {OUTER[4]['a']} dst {OUTER[4]['b']} proto esp spi 0x1001"
    script = f"ip -n a {new} && sleep 0.03 && ip -n a -s xfrm state get {old} >/tmp/old && ip -n a xfrm state delete {old}"
    talk(link, OUTER[4], midway=script.replace("(", "\\(").replace(")", "\\)"))
    channels = ipsec_truth(link, "esp", OUTER[4])
    sent = int(re.search(r"(\d+)\(packets\)", open("/tmp/old", encoding="ascii").read())[1])
    new_sent = next(channel["sent"] for channel in channels if channel["id"] == 0x1002)
    if sent + new_sent != FORWARD:
        raise SystemExit(f"esp-rekey: {sent} + {new_sent} packets of {FORWARD}")
    channels.append({"protocol": "esp", "source": OUTER[4]["a"], "id": 0x1001, "sent": sent, "first": 1,
                     "last": sent, "vlan": 0})
    return finish(link, channels, rekeys=1)


# GTP-U

def gtpu():
    link = Bed(OUT, "gtpu")
    link.wire_addresses()
    subscribers = {"a": "10.4.0.1", "b": "10.4.0.2"}
    for side in "ab":
        peer = other(side)
        link.ip(side, "link add gtp0 type gtp role " + ("sgsn" if side == "a" else "ggsn"))
        link.ip(side, f"address add {subscribers[side]}/32 dev lo")
        link.ip(side, "link set gtp0 up")
        link.ip(side, f"route add {subscribers[peer]} dev gtp0 src {subscribers[side]}")
    # A context is found by the subscriber: the destination of what a ggsn sends, the source of what an sgsn sends.
    bed.inside("a", lambda: gtp_context.add("gtp0", OUTER[4]["b"], subscribers["a"], TEIDS["a"], TEIDS["b"]))
    bed.inside("b", lambda: gtp_context.add("gtp0", OUTER[4]["a"], subscribers["a"], TEIDS["b"], TEIDS["a"]))
    talk(link, subscribers)
    channels = [{"protocol": "gtpu", "source": OUTER[4][side], "id": TEIDS[other(side)], "sent": count, "first": 0,
                 "last": 0, "vlan": 0} for side, count in (("a", FORWARD), ("b", BACKWARD))]
    return finish(link, channels)


# What all have in common

def talk(link, addresses, midway=None):
    link.listen(addresses)
    link.capture()
    link.send(FORWARD, BACKWARD, midway=midway)


def drop_every(count):
    rules = f"""add table netdev loss
add counter netdev loss gone
add chain netdev loss in {{ type filter hook ingress device to-a priority 0 ; }}
add rule netdev loss in numgen inc mod {count} 5 counter name gone drop
"""
    subprocess.run(["ip", "netns", "exec", "m", "nft", "-f", "-"], input=rules, text=True, check=True)


def dropped():
    """Packets from `a` that the counter saw and the rule dropped."""
    return int(re.search(r"packets (\d+)", run("ip netns exec m nft list counter netdev loss gone"))[1])


def finish(link, channels, dropped=0, rekeys=0, reordered=False, integrity_only=False):
    """Checks that the peer accepted what came, and says what is true of the capture."""
    bed.time.sleep(0.1)
    came = {side: link.received(side) for side in "ab"}
    if came != {"a": BACKWARD, "b": FORWARD - dropped}:
        raise SystemExit(f"{link.name}: the peers received {came}, {dropped} dropped")
    link.end(FORWARD + BACKWARD - dropped)
    if sum(channel["sent"] for channel in channels) != FORWARD + BACKWARD:
        raise SystemExit(f"{link.name}: the kernels counted {channels}")
    if any(channel["sent"] == 0 for channel in channels) or len(channels) != 2 + rekeys:
        raise SystemExit(f"{link.name}: not every key was used: {channels}")
    # Only what `a` sends is ever dropped, and it comes first.
    channels[0]["dropped"] = dropped
    with open(link.file, "rb") as capture, open(link.file + ".gz", "wb") as packed:
        packed.write(gzip.compress(capture.read(), 9, mtime=0))
    os.remove(link.file)
    return {"file": f"{link.name}.pcap.gz", "channels": channels, "rekeys": rekeys,
            "reordered": reordered, "integrity_only": integrity_only}


CASES = dict([
    plain("macsec-sci", options="send_sci on encrypt on"),
    plain("macsec-no-sci", options="send_sci off end_station on encrypt on"),
    plain("macsec-xpn", cipher="gcm-aes-xpn-128", options="encrypt on"),
    plain("macsec-integrity", options="encrypt off"),
    ("macsec-vlan-before", macsec_vlan_before),
    ("macsec-vlan-inside", macsec_vlan_inside),
    ("macsec-rekey", macsec_rekey),
    ("macsec-loss", macsec_loss),
    ("macsec-loss-netem", macsec_loss_netem),
    ("macsec-reorder", macsec_reorder),
    secured("esp4-transport", 4, GCM),
    secured("esp4-tunnel-loss", 4, GCM, "tunnel", drop=13),
    secured("esp4-esn", 4, GCM, options=ESN),
    secured("esp6-transport", 6, GCM),
    secured("esp6-tunnel", 6, GCM, "tunnel"),
    secured("esp6-tunnel-ipv4", 6, GCM, "tunnel", inside=4, options="flag af-unspec"),
    secured("esp4-null-tunnel", 4, NULL, "tunnel", integrity_only=True),
    secured("ah4-transport", 4, AUTH, protocol="ah", integrity_only=True),
    secured("ah6-tunnel", 6, AUTH, "tunnel", protocol="ah", integrity_only=True),
    ("esp-udp", esp_udp),
    ("esp-rekey", esp_rekey),
    ("gtpu", gtpu),
])


def main():
    for module in ("macsec", "esp4", "esp6", "ah4", "ah6", "xfrm_user", "gtp", "8021q", "veth", "bridge",
                   "sch_netem", "nf_tables", "nft_numgen"):
        run(f"modprobe {module}")
    wanted = sys.argv[1:] or CASES
    truth = {"kernel": os.uname().release, "captures": []}
    failed = False
    for name in wanted:
        try:
            truth["captures"].append(CASES[name]())
            print(f"{name}: made", flush=True)
        except SystemExit as error:
            failed = True
            print(f"{name}: {error}", flush=True)
            bed.clear()
    with open(f"{OUT}/truth.json", "w", encoding="ascii") as file:
        json.dump(truth, file, indent=1)
        file.write("\n")
    sys.exit(failed)


main()
