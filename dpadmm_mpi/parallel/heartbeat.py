"""A process beside a rank that hears from the other hosts of the job, and ends the rank when one of them falls silent.

It is a process of its own because a rank may compute for minutes without letting another thread run. `watch.py` starts it as a
script that knows nothing but the standard library, which takes 10 MB.

The first rank of each host sends a datagram to every rank of the other hosts twice a second, and every rank listens. A
datagram without the job's secret is ignored. Silence is counted in the time that the listener itself was awake: whoever was
stopped, or suspended with all the others, does not blame them. A host that was never heard from is not waited for: there may
be a firewall in between.
"""

import fcntl
import json
import math
import os
import select
import signal
import socket
import struct
import sys
import time
from contextlib import suppress
from typing import Any, NamedTuple

BEAT = 0.5  # seconds between two datagrams
LATE = 3 * BEAT  # seconds beyond the patience: a beat passes between two datagrams, and who wakes up needs a moment to send
NAP = 4 * BEAT  # more than this between two looks at the clock, and this process was stopped meanwhile
HALT = 1.5  # seconds that a rank stands still before it leaves: until all have noticed, and what was said is forwarded
GRACE = 1.0  # seconds for the rank to leave after that, and for the launcher each time it is asked to
EXIT = b"exit\n"  # to the rank
FAREWELLS = 3  # datagrams get lost

_DATAGRAM = struct.Struct("!16sII?")  # the job's secret; rank of the sender and of the receiver; whether the sender is done
_SIOCGIFADDR = 0x8915


class Member(NamedTuple):
    """A rank of the job, as its heartbeat has introduced itself; no port: it has none."""

    host: str
    addresses: list[str]
    port: int | None


class Hosts:
    """Who has been heard, and who is silent. Has no clock of its own."""

    def __init__(self, members: list[Member], rank: int) -> None:
        self.members, self.rank, self.own = members, rank, members[rank].host
        self.first: dict[str, int] = {}  # rank of each host
        for number, member in enumerate(members):
            self.first.setdefault(member.host, number)
        self._awake = 0.0
        self._heard: dict[str, float] = {}  # when; infinite: it is done

    @property
    def receivers(self) -> list[int]:
        """The ranks that this one sends to."""
        if self.first[self.own] != self.rank:
            return []
        return [rank for rank, member in enumerate(self.members) if member.host != self.own and member.port is not None]

    def hear(self, rank: int, done: bool) -> None:
        if rank < len(self.members) and self.members[rank].host != self.own:
            host = self.members[rank].host
            self._heard[host] = math.inf if done else max(self._awake, self._heard.get(host, 0.0))

    def pass_time(self, seconds: float) -> None:
        self._awake += min(seconds, NAP)

    def silent(self, patience: float) -> list[str]:
        """The hosts that have certainly stood still for longer than this, of those that were heard before.

        With the first of them come those that have missed as many datagrams but for the last few: they were lost together.
        """
        silences = {host: self._awake - self._heard[host] for host in self.first if host in self._heard}
        limit = patience + LATE
        if max(silences.values(), default=0.0) <= limit:
            return []
        return [host for host, silence in silences.items() if silence > limit - 2 * BEAT]

    def unheard(self) -> list[str]:
        return [host for host in self.first if host != self.own and host not in self._heard]

    def speaks(self, silent: list[str]) -> bool:
        """Whether this rank is the first one of those that are there, as far as one hears."""
        there = [host for host, when in self._heard.items() if host not in silent and when < math.inf]
        return self.rank == min(self.first[host] for host in [self.own, *there])

    def sentence(self, silent: list[str], patience: float) -> str:
        ranks = {host: [rank for rank, member in enumerate(self.members) if member.host == host] for host in silent}
        words = [f"{host} (rank{'s' if len(of) > 1 else ''} {in_words(of)})" for host, of in ranks.items()]
        lost = f"hosts {', '.join(words)} have" if len(words) > 1 else f"host {words[0]} has"
        silence = f"silent for more than {patience:g} s (record.patience; heard on {self.own})"
        return f"{lost} been {silence}: lost, cut off or standing still"


def in_words(ranks: list[int]) -> str:
    """0-3, 7"""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], rank]
        else:
            runs.append([rank, rank])
    return ", ".join(f"{first}-{last}" if last > first else f"{first}" for first, last in runs)


class Post:
    """Datagrams between the heartbeats of a job."""

    def __init__(self, secret: bytes, rank: int, members: list[Member], link: socket.socket) -> None:
        self._secret, self._rank, self._members, self._link = secret, rank, members, link

    def send(self, receivers: list[int], done: bool = False) -> None:
        """To all addresses of each, for nobody knows which of them are on a common network."""
        for rank in receivers:
            member = self._members[rank]
            datagram = _DATAGRAM.pack(self._secret, self._rank, rank, done)
            for address in member.addresses:
                with suppress(OSError):  # no way there, at present
                    self._link.sendto(datagram, (address, member.port))

    def arrived(self) -> list[tuple[int, bool]]:
        """The ranks whose datagrams have come in, and whether they are done."""
        found = []
        with suppress(OSError):  # until there is no more
            while True:
                datagram = self._link.recv(_DATAGRAM.size + 1)
                if len(datagram) == _DATAGRAM.size:
                    secret, sender, receiver, done = _DATAGRAM.unpack(datagram)
                    if secret == self._secret and receiver == self._rank:
                        found.append((sender, done))
        return found


def open_link() -> socket.socket:
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    link.bind(("", 0))
    link.setblocking(False)
    return link


def own_addresses() -> list[str]:
    """Of this host's network interfaces, but for the loop to itself; and the one of its name."""
    found: list[str] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, interface in socket.if_nameindex():
            with suppress(OSError):  # it has none, or this system has another request for it
                answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
                found.append(socket.inet_ntoa(answer[20:24]))
    with suppress(OSError):
        found.append(socket.gethostbyname(socket.gethostname()))
    return [address for address in dict.fromkeys(found) if not address.startswith("127.")]


class Ears:
    """Lines from the rank; the end of them is the end of the rank."""

    def __init__(self, source: int) -> None:
        self._source, self._rest = source, b""

    def lines(self, seconds: float | None, *others: Any) -> list[dict[str, Any]] | None:
        """What has been said within so many seconds, or until one of the others has something; None: the rank has ended."""
        ready, _, _ = select.select([self._source, *others], [], [], seconds)
        if self._source not in ready:
            return []
        content = os.read(self._source, 65536)
        if not content:
            return None
        *whole, self._rest = (self._rest + content).split(b"\n")
        return [json.loads(line) for line in whole]


class Heart:
    """What is done at every turn: listen, send, look who is silent."""

    def __init__(self, hosts: Hosts, post: Post, job: dict[str, Any], now: float) -> None:
        self.hosts, self.post, self.job = hosts, post, job
        self._looked = self._began = now
        self.next = now  # beat

    def turn(self, now: float) -> list[str]:
        """The hosts that have fallen silent."""
        self.hosts.pass_time(now - self._looked)
        self._looked = now
        for rank, done in self.post.arrived():
            self.hosts.hear(rank, done)
        if now >= self.next:
            self.post.send(self.hosts.receivers)
            self.next = now + BEAT
        patience: float = self.job["patience"]
        if not patience:
            return []
        if now - self._began > patience:
            self._began = math.inf
            if self.job["rank"] == 0 and (unheard := self.hosts.unheard()):
                _say(
                    f"dpadmm: note: no datagrams (UDP) from {', '.join(unheard)} reach {self.hosts.own}; should such a host be "
                    "lost, only the launcher can notice"
                )
        return self.hosts.silent(patience)

    def rest(self) -> None:
        """The rank has ended; nobody shall miss it, if it was meant to."""
        if self.job.get("done"):
            for _ in range(FAREWELLS):
                self.post.send(self.hosts.receivers, done=True)


def main() -> None:
    """Introduce yourself to the rank, learn who the others are, and listen until the rank has ended or a host is lost."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # they are for the rank, which says when it is over
    rank, launcher = os.getppid(), _launcher(int(sys.argv[1]))
    link, ears = open_link(), Ears(0)
    os.write(1, json.dumps({"addresses": own_addresses(), "port": link.getsockname()[1]}).encode() + b"\n")
    told: list[dict[str, Any]] | None = []
    while not told:
        told = ears.lines(None)
        if told is None:
            return
    job = told[0]
    hosts = Hosts([Member(*member) for member in job["members"]], job["rank"])
    heart = Heart(hosts, Post(bytes.fromhex(job["secret"]), job["rank"], hosts.members, link), job, time.monotonic())
    while not (silent := heart.turn(time.monotonic())):
        said = ears.lines(max(0.0, heart.next - time.monotonic()), link)
        if said is None:
            heart.rest()
            return
        for change in said:
            job.update(change)
    if hosts.speaks(silent):
        sentence = f"dpadmm: {hosts.sentence(silent, job['patience'])}; {job['advice']}"
        _say(sentence)
        if job["lost"]:
            _write(job["lost"], sentence)
    _end(rank, ears, launcher)


def _say(text: str) -> None:
    with suppress(OSError):
        os.write(2, text.encode() + b"\n")


def _write(path: str, text: str) -> None:
    """All that speak write the same: that a host was lost."""
    with suppress(OSError), open(path, "w", encoding="utf-8") as file:  # noqa: PTH123  # the fewest imports
        file.write(f"{text}\n")


def _end(rank: int, ears: Ears, launcher: int | None) -> None:
    """The rank, and then the launcher on this host if it waits for hosts that do not answer."""
    with suppress(OSError):
        os.write(1, EXIT)
    if ears.lines(HALT + GRACE) is not None and os.getppid() == rank:  # it computes, and lets nobody speak to it
        os.kill(rank, signal.SIGKILL)
    if launcher is None:
        return
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # the launcher waits for the end of what it reads
        os.dup2(nothing, stream)
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):  # Open MPI's gives up at the second request
        if select.select([launcher], [], [], GRACE)[0]:
            return
        signal.pidfd_send_signal(launcher, number)


def _launcher(pid: int) -> int | None:
    """A handle on the process that has started the rank; None: there is none that may be ended."""
    if not pid or not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


if __name__ == "__main__":
    main()
