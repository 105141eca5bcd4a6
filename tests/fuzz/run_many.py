"""`scripts/fuzz.sh [N]`: N damaged inputs, each in a process of its own with limits of memory and time; counts and failures.

The processes are forked from one that has loaded the package, which saves their start; what one does, no other one sees. An
input that failed is written to the folder `fuzz-failures`, in the form in which tests/fuzz/corpus/failed keeps it.
"""

import argparse
import io
import os
import resource
import signal
import sys
import tarfile
import tempfile
import time
from collections import Counter
from pathlib import Path

from tqdm import tqdm

import fuzz.seeds
from dpadmm_mpi.cli import main
from fuzz.judging import Answer, files_in, say, wrong_with
from fuzz.mutations import Case, cases

MEMORY = 1 << 30  # bytes of address space beyond what is loaded already
SECONDS = 60.0


def packed(case: Case) -> bytes:
    """The input as one small file: its files, and the command."""
    memory = io.BytesIO()
    with tarfile.open(fileobj=memory, mode="w:gz", compresslevel=9) as archive:
        for name, content in {**case.files, "command": "\n".join(case.words).encode()}.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return memory.getvalue()


def unpacked(content: bytes) -> Case:
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
        files = {entry.name: found.read() for entry in archive if (found := archive.extractfile(entry)) is not None}
    words = files.pop("command").decode().split("\n")
    return Case(files, tuple(words), words[-1])


def _child(case: Case, folder: Path, streams: Path) -> None:
    """In the new process: the limits, the streams, the command; never returns."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() if sys.platform == "linux" else 0
    limit = MEMORY if size < MEMORY // 2 else MEMORY + size
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.chdir(folder)
    for number, name in ((1, "output"), (2, "error")):
        handle = os.open(streams / name, os.O_WRONLY | os.O_CREAT)
        os.dup2(handle, number)
    sys.stdout, sys.stderr = (os.fdopen(n, "w", encoding="utf-8", errors="surrogateescape") for n in (1, 2))
    sys.argv = ["dpadmm", *case.words]
    code = 1
    try:
        main.entry()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def answer_of(case: Case) -> tuple[Answer, str, int]:
    """What came of it, what is wrong with that, and the kilobytes that it took."""
    with tempfile.TemporaryDirectory() as place, tempfile.TemporaryDirectory() as streams:
        folder = Path(place)
        case.write(folder)
        before = files_in(folder)
        if (child := os.fork()) == 0:
            _child(case, folder, Path(streams))
        begin = time.monotonic()
        while not (ended := os.wait4(child, os.WNOHANG))[0]:
            if time.monotonic() - begin > SECONDS:
                os.kill(child, signal.SIGKILL)
                os.wait4(child, 0)
                return Answer(-9, "", ""), f"no end within {SECONDS:.0f} s", 0
            time.sleep(0.005)
        texts = [(Path(streams) / name).read_bytes().decode(errors="surrogateescape") for name in ("output", "error")]
        answer = Answer(os.waitstatus_to_exitcode(ended[1]), *texts)
        return answer, wrong_with(answer, files_in(folder) - before), ended[2].ru_maxrss


def main_() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("number", nargs="?", type=int, default=2000)
    parser.add_argument("--start", type=int, default=0, help="the first number; other numbers are other inputs")
    parser.add_argument("--failures", type=Path, default=Path("fuzz-failures"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        os.environ["DPADMM_DATA"] = cache
        seeds = fuzz.seeds.all_seeds()
        _load(seeds)
        codes: Counter[int] = Counter()
        failed, lines, letters, memory, longest = 0, 0, 0, 0, 0.0
        inputs = enumerate(cases(seeds, options.number, options.start), options.start)
        for k, case in tqdm(inputs, total=options.number, unit="input", disable=None):
            begin = time.monotonic()
            answer, wrong, kilobytes = answer_of(case)
            longest = max(longest, time.monotonic() - begin)
            codes[answer.code] += 1
            memory = max(memory, kilobytes)
            if answer.code in (1, 2):
                lines, letters = max(lines, answer.error.count("\n")), max(letters, len(answer.error))
            if wrong:
                failed += 1
                options.failures.mkdir(exist_ok=True)
                (options.failures / f"{k}.tar.gz").write_bytes(packed(case))
                print(
                    f"{k}: {wrong}: dpadmm {' '.join(case.words)}; {case.damaged}: {case.edits}\n    {answer.error[:300]!r}",
                    flush=True,
                )
    print(f"{options.number} damaged inputs, exit codes {dict(sorted(codes.items()))}; {failed} not as promised")
    print(f"at most {lines} lines and {letters} characters, {memory >> 10} MB, {longest:.1f} s")
    return 1 if failed else 0


def _load(seeds: list[Case]) -> None:
    """What the commands load when they run, so that the forked processes have it."""
    for words in {case.words[:1]: case for case in seeds}.values():
        with tempfile.TemporaryDirectory() as folder:
            words.write(Path(folder))
            say(words.words, Path(folder))
    for number in (signal.SIGINT, signal.SIGTERM):  # which `run` has taken
        signal.signal(number, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(main_())
