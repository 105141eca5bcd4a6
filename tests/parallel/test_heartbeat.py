"""Who is silent, who says so, and how a rank ends: without MPI and without several hosts, which tests/hosts has."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dpadmm_mpi.parallel import heartbeat
from dpadmm_mpi.parallel.heartbeat import BEAT, LATE, Heart, Hosts, Member, Post, in_words, open_link
from dpadmm_mpi.parallel.watch import PATIENCE, Watch

LOOP = ["127.0.0.1"]
# Ranks 0 and 1 on alpha, 2 on beta, 3 and 4 on gamma.
MEMBERS = [Member(host, LOOP, 1) for host in ("alpha", "alpha", "beta", "gamma", "gamma")]
SECRET = bytes(range(16))


def after(hosts: Hosts, seconds: float) -> Hosts:
    """Awake all the time."""
    for _ in range(round(seconds / BEAT)):
        hosts.pass_time(BEAT)
    return hosts


def test_a_host_is_silent_when_it_was_heard_and_is_no_more() -> None:
    hosts = Hosts(MEMBERS, 0)
    hosts.hear(2, False)
    hosts.hear(3, False)
    assert after(hosts, 10.0 + LATE).silent(10.0) == []
    hosts.hear(3, False)
    assert after(hosts, BEAT).silent(10.0) == ["beta"]
    assert after(hosts, 10.0 + LATE).silent(10.0) == ["beta", "gamma"]


def test_hosts_that_are_lost_together_are_named_together() -> None:
    """Their last datagrams came at different moments; one that was heard not long ago is not among them."""
    hosts = Hosts(MEMBERS, 0)
    hosts.hear(2, False)
    hosts.hear(3, False)
    after(hosts, BEAT).hear(3, False)  # gamma's last one
    assert after(hosts, 10.0 + LATE).silent(10.0) == ["beta", "gamma"]
    hosts.hear(2, False)
    assert after(hosts, 4.0).silent(10.0) == ["gamma"]
    # One that stood still for the whole patience, from just after a datagram to its next one, is not lost.
    hosts = Hosts(MEMBERS, 0)
    hosts.hear(2, False)
    assert after(hosts, BEAT + 10.0 + BEAT).silent(10.0) == []


def test_who_was_never_heard_or_is_done_is_not_blamed() -> None:
    hosts = Hosts(MEMBERS, 0)
    hosts.hear(2, True)
    hosts.hear(2, False)  # a datagram that has been overtaken by the farewell
    assert after(hosts, 1000.0).silent(10.0) == []
    assert hosts.unheard() == ["gamma"]


def test_time_in_which_the_listener_itself_was_stopped_does_not_count() -> None:
    hosts = Hosts(MEMBERS, 0)
    hosts.hear(2, False)
    hosts.pass_time(3600.0)
    assert hosts.silent(10.0) == []
    assert after(hosts, 10.0 + LATE).silent(10.0) == ["beta"]


def test_first_ranks_send_to_the_other_hosts_and_the_first_that_is_left_speaks() -> None:
    views = [Hosts(MEMBERS, rank) for rank in range(5)]
    assert [view.receivers for view in views] == [[2, 3, 4], [], [0, 1, 3, 4], [0, 1, 2], []]
    for view in views:
        for rank in (0, 2, 3):
            view.hear(rank, False)
    for silent, speaker in ((["beta"], 0), (["alpha"], 2), (["alpha", "beta"], 3)):
        left = [view.rank for view in views if view.own not in silent and view.speaks(silent)]
        assert left == [speaker]
    views[2].hear(0, True)  # alpha is done, and may have left
    assert views[2].speaks(["gamma"])


def test_the_sentence_names_hosts_and_ranks() -> None:
    sentence = Hosts(MEMBERS, 2).sentence(["alpha"], 20.0)
    assert sentence.startswith("host alpha (ranks 0-1) has been silent for more than 20 s (record.patience; heard on beta)")
    assert (
        Hosts(MEMBERS, 0).sentence(["beta", "gamma"], 2.5).startswith("hosts beta (rank 2), gamma (ranks 3-4) have been silent")
    )
    assert in_words([0, 2, 3, 4, 9]) == "0, 2-4, 9"


@pytest.fixture
def pair() -> Iterator[tuple[Post, Post, socket.socket]]:
    """The posts of rank 0 on alpha and rank 1 on beta, and the first one's socket."""
    with open_link() as a, open_link() as b:
        members = [Member("alpha", LOOP, a.getsockname()[1]), Member("beta", LOOP, b.getsockname()[1])]
        yield Post(SECRET, 0, members, a), Post(SECRET, 1, members, b), a


def arrived(post: Post) -> list[tuple[int, bool]]:
    """On the loop they arrive at once, or within a moment."""
    limit = time.monotonic() + 5.0
    while not (found := post.arrived()) and time.monotonic() < limit:
        time.sleep(0.01)
    return found


def test_datagrams_of_others_are_ignored(pair: tuple[Post, Post, socket.socket]) -> None:
    first, second, link = pair
    port = second._link.getsockname()[1]
    for content in (
        b"",
        b"?" * 500,
        heartbeat._DATAGRAM.pack(bytes(16), 0, 1, False),
        heartbeat._DATAGRAM.pack(SECRET, 0, 7, False),
    ):
        link.sendto(content, ("127.0.0.1", port))
    first.send([1])
    first.send([1], done=True)
    assert arrived(second) == [(0, False), (0, True)]
    hosts = Hosts(MEMBERS, 0)
    hosts.hear(4_000_000_000, False)  # a rank that the job does not have
    assert hosts.silent(0.0) == []


def test_a_heart_beats_whatever_the_clock_does_and_says_once_whom_it_never_hears(
    pair: tuple[Post, Post, socket.socket], capfd: pytest.CaptureFixture[str]
) -> None:
    first, second, _ = pair
    members = [*second._members, Member("gamma", [], None)]
    job = {"patience": 5.0, "rank": 0}
    heart = Heart(Hosts(members, 0), first, job, now=100.0)
    assert heart.turn(100.0) == []
    assert heart.turn(100.1) == []
    assert arrived(second) == [(0, False)]
    second.send([0])
    time.sleep(0.05)
    assert heart.turn(100.0 + BEAT) == []
    silent: list[str] = []
    turns = 0
    while not silent:
        turns += 1
        silent = heart.turn(100.0 + BEAT + turns * BEAT)
    assert silent == ["beta"]
    assert turns == round((5.0 + LATE) / BEAT) + 1
    assert capfd.readouterr().err.count("no datagrams (UDP) from gamma reach alpha") == 1
    job["patience"] = 0.0
    assert heart.turn(1000.0) == []


def test_the_most_patient_configuration_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(Watch, "tell", lambda _, words: told.append(words))
    for seconds in ([None], [5.0, None, 90.0], [5.0, 0.0]):
        Watch().set_patience(seconds)
    assert [words["patience"] for words in told] == [PATIENCE, 90.0, 0.0]
    # From a loss to the end of a launcher that has to be killed, as a rank had to be before: two seconds are left of thirty.
    assert PATIENCE >= 20.0
    assert PATIENCE + LATE + BEAT + heartbeat.HALT + 4 * heartbeat.GRACE <= 28.0


# The process itself. Its parent is a shell that stands for the rank, and the test has the rank's ends of its pipes.


@pytest.fixture
def start() -> Iterator[Callable[[], "subprocess.Popen[bytes]"]]:
    started: list[subprocess.Popen[bytes]] = []

    def begin() -> "subprocess.Popen[bytes]":
        words = ["sh", "-c", '"$@"; exit 7', "rank", sys.executable, "-I", "-S", heartbeat.__file__, "0"]
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0))
        return started[-1]

    yield begin
    for process in started:
        process.communicate(timeout=10)  # the end of its input is the end of the heartbeat


def introduce(processes: "list[subprocess.Popen[bytes]]", patience: float, lost: str | None = None) -> None:
    """Each a host of its own."""
    members = []
    for number, process in enumerate(processes):
        assert process.stdout is not None
        introduction = json.loads(process.stdout.readline())
        assert not any(address.startswith("127.") for address in introduction["addresses"])
        members.append(Member(f"host-{number}", LOOP, introduction["port"]))
    for rank, process in enumerate(processes):
        job = {"members": members, "rank": rank, "secret": SECRET.hex(), "patience": patience, "advice": "ADVICE", "lost": lost}
        tell(process, job)


def tell(process: "subprocess.Popen[bytes]", words: dict[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(words).encode() + b"\n")


def said(process: "subprocess.Popen[bytes]") -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.timeout(60)
def test_a_rank_is_told_to_leave_and_killed_if_it_does_not(
    start: Callable[[], "subprocess.Popen[bytes]"], tmp_path: Path
) -> None:
    """Rank 0's heartbeat ends without a farewell. Rank 1 obeys; rank 2, who computes and never listens, is killed."""
    lost, obedient, deaf = start(), start(), start()
    introduce([lost, obedient, deaf], 1.0, str(tmp_path / "lost"))
    time.sleep(3 * BEAT)
    lost.communicate()
    assert said(obedient) == heartbeat.EXIT
    _, words = obedient.communicate()
    assert obedient.returncode == 7
    assert (
        words.decode()
        == f"dpadmm: {Hosts([Member(f'host-{k}', LOOP, 1) for k in range(3)], 1).sentence(['host-0'], 1.0)}; ADVICE\n"
    )
    assert (tmp_path / "lost").read_bytes() == words
    assert said(deaf) == heartbeat.EXIT
    assert deaf.wait(timeout=10) == -9
    assert deaf.stderr is not None
    assert deaf.stderr.read() == b""  # rank 1 has spoken


@pytest.mark.timeout(60)
def test_who_says_farewell_is_not_missed_and_patience_can_change(start: Callable[[], "subprocess.Popen[bytes]"]) -> None:
    done, going, cut = start(), start(), start()
    introduce([done, going, cut], 100.0)
    time.sleep(3 * BEAT)
    tell(done, {"done": True})
    done.communicate()
    tell(going, {"patience": 1.0})
    time.sleep(3.0)
    assert going.poll() is None
    cut.communicate()
    assert said(going) == heartbeat.EXIT
    _, words = going.communicate()
    assert words.startswith(b"dpadmm: host host-2 (rank 2) has been silent for more than 1 s")


def test_the_script_needs_the_standard_library_alone() -> None:
    """It is started without site packages, and imports nothing of the package."""
    assert "dpadmm_mpi" not in Path(heartbeat.__file__).read_text()
