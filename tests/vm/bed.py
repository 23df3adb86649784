"""A link between two namespaces, `a` and `b`, through a bridge in `m`, with a tap where it leaves the bridge for b.

Everything is quiet but for the datagrams that are sent: neighbours are static, IPv6 does not announce itself.
"""

import ctypes
import os
import shlex
import socket
import struct
import subprocess
import time

LIBC = ctypes.CDLL(None, use_errno=True)
MACS = {"a": "02:00:00:00:00:0a", "b": "02:00:00:00:00:0b"}
ADDRESSES = {"a": ("192.0.2.1", "2001:db8::1"), "b": ("192.0.2.2", "2001:db8::2")}
PORT = 7000


def run(command):
    done = subprocess.run(shlex.split(command), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command}: {done.stderr}")
    return done.stdout


def inside(namespace, action):
    """What `action` returns when it runs in the namespace."""
    own = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    try:
        if LIBC.setns(there, 0):
            raise OSError(ctypes.get_errno(), "setns")
        return action()
    finally:
        LIBC.setns(own, 0)
        os.close(own)
        os.close(there)


def clear():
    """Takes away what a failed scenario left."""
    for namespace in run("ip netns list").split():
        if namespace in ("a", "m", "b"):
            run(f"ip netns delete {namespace}")


def other(side):
    return "b" if side == "a" else "a"


def silence_ipv6():
    """No link-local addresses, so nothing to announce."""
    for setting, value in (("addr_gen_mode", "1"), ("router_solicitations", "0"), ("accept_dad", "0")):
        with open(f"/proc/sys/net/ipv6/conf/default/{setting}", "w", encoding="ascii") as file:
            file.write(value)


class Bed:
    def __init__(self, directory, name):
        self.directory, self.name, self.tcpdump, self.sockets = directory, name, None, {}
        for namespace in "amb":
            run(f"ip netns add {namespace}")
            inside(namespace, silence_ipv6)
        run("ip -n m link add bridge type bridge stp_state 0 mcast_snooping 0")
        for side in "ab":
            run(f"ip -n {side} link add wire address {MACS[side]} type veth peer name to-{side} netns m")
            run(f"ip -n m link set dev to-{side} master bridge up")
            run(f"ip -n {side} link set wire up")
            run(f"ip -n {side} link set lo up")
        run("ip -n m link set bridge up")

    def ip(self, side, command):
        return run(f"ip -n {side} {command}")

    def address(self, side, device, four, six=None):
        """Gives a device its addresses and the peer's as static neighbours."""
        self.ip(side, f"link set {device} up")
        self.ip(side, f"address add {four[side]}/24 dev {device}")
        self.ip(side, f"neighbour replace {four[other(side)]} lladdr {MACS[other(side)]} dev {device}")
        if six:
            self.ip(side, f"address add {six[side]}/64 dev {device} nodad")
            self.ip(side, f"neighbour replace {six[other(side)]} lladdr {MACS[other(side)]} dev {device}")

    def wire_addresses(self):
        for side in "ab":
            self.address(side, "wire", {s: ADDRESSES[s][0] for s in "ab"}, {s: ADDRESSES[s][1] for s in "ab"})

    def listen(self, addresses):
        """Sockets for `send`: without a receiver the kernel would answer with ICMP."""
        for side, address in addresses.items():
            family = socket.AF_INET6 if ":" in address else socket.AF_INET

            def bound(family=family, address=address):
                made = socket.socket(family, socket.SOCK_DGRAM)
                made.bind((address, PORT))
                return made

            self.sockets[side] = (inside(side, bound), address)

    def capture(self):
        self.file = f"{self.directory}/{self.name}.pcap"
        # The peers' reports of their multicast groups come when they like.
        quiet = ["not", "ether", "multicast"]
        command = f"ip netns exec m tcpdump -Z root -i to-b -p -n -U --immediate-mode -s 512 -B 8192 -w {self.file}"
        self.tcpdump = subprocess.Popen(command.split() + quiet, stderr=subprocess.PIPE, text=True)
        self.tcpdump.stderr.readline()

    def send(self, forward, backward, spacing=0.001, midway=None):
        """Datagrams of all kinds of lengths, both ways by turns; `midway` is a command that runs meanwhile."""
        helper = None
        for number in range(max(forward, backward)):
            if midway and number == forward // 2:
                helper = subprocess.Popen(midway, shell=True)
            for side, count in (("a", forward), ("b", backward)):
                if number < count:
                    peer = self.sockets[other(side)][1]
                    self.sockets[side][0].sendto(bytes(2 + number * 7 % 60), (peer, PORT))
            # The command takes a while to begin: packets are there before, during and after it.
            time.sleep(0.03 if helper and helper.poll() is None else spacing)
        if helper and helper.wait():
            raise SystemExit(f"{midway} failed")

    def received(self, side):
        """How many datagrams have come through: the far end's keys fit."""
        count = 0
        try:
            while self.sockets[side][0].recv(2048, socket.MSG_DONTWAIT):
                count += 1
        except BlockingIOError:
            return count

    def captured(self):
        """Packets in the file so far."""
        with open(self.file, "rb") as file:
            capture = file.read()
        count, at = 0, 24
        while at + 16 <= len(capture):
            at += 16 + struct.unpack_from("=I", capture, at + 8)[0]
            count += at <= len(capture)
        return count

    def end(self, expected):
        """Ends the capture when it has all packets, and takes the namespaces away."""
        deadline = time.monotonic() + 10
        while self.captured() < expected and time.monotonic() < deadline:
            time.sleep(0.1)
        self.tcpdump.terminate()
        self.tcpdump.wait()
        report = self.tcpdump.stderr.read()
        if "\n0 packets dropped by kernel" not in report:
            raise SystemExit(f"{self.name}: the capture lost packets: {report}")
        if self.captured() != expected:
            raise SystemExit(f"{self.name}: {self.captured()} packets captured, {expected} expected")
        for made, _ in self.sockets.values():
            made.close()
        for namespace in "amb":
            run(f"ip netns delete {namespace}")
