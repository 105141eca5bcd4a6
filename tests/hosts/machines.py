"""Several hosts on one machine: network namespaces with names, addresses and shared memory of their own, joined by a switch.

with Machines(["alpha", "beta"]) as machines:
    machines.start("alpha", ["hostname"])

Nothing of the machine's own network is touched: the switch is a namespace too. A namespace lives as long as the process that
holds it, and that one no longer than the tests.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from support import MPI_ENVIRONMENT, MPIEXEC, Words, popen

NETWORK = "10.213.7"  # of 254 hosts
SECONDS = 10  # for a namespace to be there

HOLD = "mount -t tmpfs tmpfs /dev/shm && mount --bind {hosts} /etc/hosts && hostname {name} && exec sleep infinity"
# What mpiexec calls in the place of ssh: AGENT [OPTIONS] HOST COMMAND... Like ssh it ends with the command, unless the host has
# gone without a word.
AGENT = """\
#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do shift; done
host=$1; shift
case "$host" in
{cases}
*) echo "no host $host" >&2; exit 255;;
esac
note=$(mktemp "{folder}/$host.XXXXXX")
setsid --fork nsenter --target "$pid" --net --uts --mount --wd="$PWD" -- \\
  /bin/sh -c 'echo $$ >"$0"; exec /bin/sh -c "$1"' "$note" "$*"
until [ -s "$note" ]; do sleep 0.02; done
read remote <"$note"
while kill -0 "$PPID" && {{ kill -0 "$remote" || [ -e "{folder}/$host.off" ]; }}; do sleep 0.2; done 2>/dev/null
"""


def missing() -> str | None:
    """Why there cannot be several hosts here; None if there can."""
    absent = [program for program in ("ip", "unshare", "nsenter", "mount") if shutil.which(program) is None]
    if absent:
        return f"several hosts need {', '.join(absent)}; on Debian: iproute2, util-linux"
    if os.geteuid() != 0:
        return "several hosts are made of network namespaces, as root only"
    probe = subprocess.run(
        ["unshare", "--net", "--uts", "--mount", "ip", "link", "add", "probe", "type", "bridge"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return None if probe.returncode == 0 else f"network namespaces cannot be made here: {probe.stderr.strip()}"


class Machines:
    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)
        self.addresses = {name: f"{NETWORK}.{number}" for number, name in enumerate(names, 1)}
        self.folder = Path(tempfile.mkdtemp(prefix="hosts-", dir="/tmp"))
        self.agent = self.folder / "agent"
        self._holders: dict[str, subprocess.Popen[str]] = {}

    def __enter__(self) -> Self:
        try:
            hosts = self.folder / "hosts"
            hosts.write_text("127.0.0.1 localhost\n" + "".join(f"{ip} {name}\n" for name, ip in self.addresses.items()))
            self._hold("switch", "exec sleep infinity")
            self._in("switch", "ip", "link", "add", "switch", "type", "bridge")
            self._in("switch", "ip", "link", "set", "switch", "up")
            for name in self.names:
                self._hold(name, HOLD.format(hosts=hosts, name=name))
                self._plug_in(name)
            cases = "\n".join(f"{name}|{self.addresses[name]}) pid={self._holders[name].pid};;" for name in self.names)
            self.agent.write_text(AGENT.format(cases=cases, folder=self.folder))
            self.agent.chmod(0o755)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_exception: object) -> None:
        for name in [*self.names, "switch"]:
            if name in self._holders:
                self.thaw(name)
                self.kill(name)
                self._holders[name].kill()
                self._holders[name].wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def enter(self, name: str, folder: Path | None = None) -> list[str]:
        """What goes before the words of a command on a host, in a folder or in the present one."""
        holder = str(self._holders[name].pid)
        return ["nsenter", "--target", holder, "--net", "--uts", "--mount", f"--wd={folder or Path.cwd()}", "--"]

    def start(self, name: str, words: Sequence[Words], **options: Any) -> "subprocess.Popen[str]":
        """A program on a host, which ends with the tests."""
        return popen(["setpriv", "--pdeathsig", "KILL", *self.enter(name), *words], start_new_session=True, **options)

    def mpiexec(self, placed: dict[str, int], words: Sequence[Words], **options: Any) -> "subprocess.Popen[str]":
        """A program on so many ranks of each host, started from the first of them."""
        hosts = ",".join(f"{name}:{ranks}" for name, ranks in placed.items())
        launch = [MPIEXEC, "--prtemca", "plm_ssh_agent", self.agent, "--host", hosts, "-n", sum(placed.values())]
        launch += ["--map-by", "slot:nooversubscribe"]
        environment = {**os.environ, **MPI_ENVIRONMENT, **options.pop("env", {})}
        return self.start(next(iter(placed)), [*launch, *words], env=environment, **options)

    # What may happen to a host

    def unplug(self, name: str) -> None:
        """Its link goes down; nobody is told."""
        self._in("switch", "ip", "link", "set", name, "down")

    def repair(self, name: str) -> None:
        """After whatever has happened to it; nothing runs there."""
        self.thaw(name)
        self.kill(name)
        (self.folder / f"{name}.off").unlink(missing_ok=True)
        self._in("switch", "ip", "link", "set", name, "up")
        limit = time.monotonic() + SECONDS
        while self._in(name, "ip", "-brief", "link", "show", "eth0").split()[1] != "UP":
            assert time.monotonic() < limit, f"the link of {name} does not come up"
            time.sleep(0.05)
        for other in self.names:  # nobody remembers that somebody could not be reached
            self._in(other, "ip", "neighbour", "flush", "all")

    def power_off(self, name: str) -> None:
        """Not even a closed connection reaches the others."""
        (self.folder / f"{name}.off").touch()
        self.unplug(name)
        self.kill(name)

    def kill(self, name: str) -> None:
        limit = time.monotonic() + SECONDS
        while (alive := list(self.processes(name))) and time.monotonic() < limit:
            for pid in alive:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)

    def freeze(self, name: str) -> None:
        """Its processes stop; the kernel goes on answering for them."""
        for pid in self.processes(name):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        for pid in self.processes(name):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def processes(self, name: str) -> Iterator[int]:
        """All that run on a host, but the one that holds its namespace."""
        holder = self._holders[name].pid
        for entry in Path("/proc").iterdir():
            with suppress(OSError):  # it has ended meanwhile
                other = entry.name.isdecimal() and int(entry.name) != holder
                if other and _network_of(entry.name) == _network_of(holder) and _state_of(entry.name) != "Z":
                    yield int(entry.name)

    # The making of them

    def _hold(self, name: str, script: str) -> None:
        own = _network_of("self")
        words = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--uts", "--mount", "sh", "-c", script]
        self._holders[name] = holder = popen(words, start_new_session=True, stdin=subprocess.DEVNULL)
        limit = time.monotonic() + SECONDS
        while _network_of(holder.pid) == own or not self._is_asleep(holder.pid):
            assert time.monotonic() < limit and holder.poll() is None, f"no namespace for {name}"
            time.sleep(0.01)

    @staticmethod
    def _is_asleep(pid: int) -> bool:
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sleep\0")

    def _plug_in(self, name: str) -> None:
        pid = self._holders[name].pid
        self._in("switch", "ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", pid)
        self._in("switch", "ip", "link", "set", name, "master", "switch", "up")
        self._in(name, "ip", "link", "set", "lo", "up")
        self._in(name, "ip", "address", "add", f"{self.addresses[name]}/24", "dev", "eth0")
        self._in(name, "ip", "link", "set", "eth0", "up")

    def _in(self, name: str, *words: object) -> str:
        command = [*self.enter(name), *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
        return done.stdout


def _network_of(process: int | str) -> Path:
    return Path(f"/proc/{process}/ns/net").readlink()


def _state_of(process: int | str) -> str:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
