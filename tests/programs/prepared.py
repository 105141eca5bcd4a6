"""A process that has imported what every `dpadmm run` imports, and forks for each order: support.Prepared speaks with it.

prepared.py SOCKET    an order is the environment, the working folder and the words after `python`; with it come the files that
                      become the child's standard output and standard error; answered by the child's number, then its exit code

The child goes on as an interpreter does that has just begun: `-m MODULE WORDS...` or `PROGRAM WORDS...`.
"""

import gc
import json
import os
import runpy
import signal
import socket
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

IMPORTED = (
    "scipy.linalg",
    "scipy.optimize",
    "scipy.sparse.linalg",
    "scipy.special",
    "dpadmm_mpi.cli.run",
    "dpadmm_mpi.engine.several",
    "dpadmm_mpi.reports.result_tables",
    "dpadmm_mpi.storage.recorder",
)
LONGEST = 1 << 20  # bytes of an order


def next_order(orders: socket.socket) -> dict[str, Any]:
    """In the parent without an end; in each child its own order, with its files in place."""
    while True:
        message, files, _, _ = socket.recv_fds(orders, LONGEST, 2)
        if not message:
            sys.exit()
        child = os.fork()
        if child == 0:
            for number, file in enumerate(files, start=1):
                os.dup2(file, number)
                os.close(file)
            orders.close()
            order: dict[str, Any] = json.loads(message)
            return order
        for file in files:
            os.close(file)
        orders.send(str(child).encode())
        orders.send(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())


def begin(environment: dict[str, str], folder: str, words: list[str]) -> NoReturn:
    """What `python WORDS...` does in that folder, with the signals that Python has at its start."""
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    if words[0] == "-m":
        sys.path[0], sys.argv = folder, words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.path[0], sys.argv = str(Path(words[0]).parent), words
        runpy.run_path(words[0], run_name="__main__")
    sys.exit()


if __name__ == "__main__":
    for module in IMPORTED:
        import_module(module)
    gc.freeze()  # what all children share is not looked through by each
    begin(**next_order(socket.socket(fileno=int(sys.argv[1]))))
