"""What all ranks do together: take results from rank 0, share errors, and stop when one of them must."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from dpadmm_mpi.errors import DpadmmError, InputError, RunError, system_sentence
from dpadmm_mpi.parallel.transport import INTERRUPTED, Transport
from dpadmm_mpi.registry import blamed

T = TypeVar("T")

SPEAKING = 5.0  # seconds in which the rank that says what has happened ends all others, this one too


def on_root(transport: Transport, make: Callable[[], T]) -> T:
    """make() on rank 0, its result on every rank; if it fails, every rank raises the same error."""
    outcome: tuple[bool, Any]
    if transport.rank == 0:
        try:
            outcome = (True, make())
        except Exception as error:
            outcome = (False, _sentence(error))
    else:
        outcome = (False, None)
    succeeded, value = transport.broadcast(outcome)
    if not succeeded:
        raise _everywhere(value)
    return value


def agree(transport: Transport, make: Callable[[], T]) -> T:
    """make() on every rank; if it fails on some, every rank raises the first of their errors."""
    value, error = None, None
    try:
        value = make()
    except Exception as caught:
        error = _sentence(caught)
    for failure in transport.gather_objects(error):
        if failure is not None:
            raise _everywhere(failure)
    return value  # type: ignore[return-value]


@contextmanager
def guard(transport: Transport, speak: Callable[[BaseException], None]) -> Iterator[None]:
    """Whatever stops this rank alone must stop the others too, who would wait for it forever."""
    try:
        yield
    except BaseException as error:
        alone = not (isinstance(error, DpadmmError) and error.everywhere)
        if transport.size > 1 and alone:
            if isinstance(error, DpadmmError) and error.told:
                time.sleep(SPEAKING)
            else:
                speak(error)
            interrupted = isinstance(error, KeyboardInterrupt)
            transport.abort(error.exit_code if isinstance(error, DpadmmError) else INTERRUPTED if interrupted else 1)
        raise


def _sentence(error: Exception) -> DpadmmError:
    """An error that can be shared: ours, the system's, or one from an extension; any other is raised as it is."""
    if isinstance(error, DpadmmError):
        return error
    sentence: DpadmmError
    if (words := blamed(error)) is not None:
        sentence = InputError(words)
    elif isinstance(error, OSError):
        sentence = RunError(system_sentence(error))
    else:
        raise error
    sentence.__cause__ = error
    return sentence


def _everywhere(error: DpadmmError) -> DpadmmError:
    error.everywhere = True
    return error
