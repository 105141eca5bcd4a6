"""Rank 0 asks, the nodes answer: a vector goes out, and a row per node comes back, in node order.

So that rank 0 can minimise a sum over nodes that other ranks host, and get the same bits on every layout. This is measurement,
not traffic of an algorithm.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpadmm_mpi.parallel.mpi import Transport
from dpadmm_mpi.problems.objective import NodeProblem

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_STOP = -1


class Question(NamedTuple):
    width: int  # numbers in a node's answer
    answer: Callable[[NodeProblem, Array, Array], Array]  # from its problem, its margins at the current point, and the vector
    moves: bool = False  # the vector becomes the current point first


class Nodes:
    """The nodes of all ranks; every rank has one, with the same questions."""

    def __init__(
        self, transport: Transport, problems: Sequence[NodeProblem], owner: Ints, questions: Sequence[Question]
    ) -> None:
        self._transport = transport
        self._problems = problems
        self._owner = owner  # of the nodes
        self._questions = questions
        self._margins: list[Array] = []  # of this rank's nodes, at the current point

    def ask(self, question: Question, vector: Array) -> Array:
        """The answers, on rank 0; the others serve meanwhile."""
        number = self._questions.index(question)
        self._transport.broadcast((number, vector))
        rows = self._transport.start_gather(self._answers(number, vector), self._owner).finish()
        assert rows is not None
        return rows

    def stop(self) -> None:
        """No more questions, on rank 0."""
        self._transport.broadcast((_STOP, None))

    def serve(self) -> None:
        """Answer until rank 0 stops, on the other ranks."""
        while True:
            number, vector = self._transport.broadcast(None)
            if number == _STOP:
                return
            self._transport.start_gather(self._answers(number, vector), self._owner).finish()

    def _answers(self, number: int, vector: Array) -> Array:
        """One row per node of this rank, which may have none."""
        question = self._questions[number]
        if question.moves:
            self._margins = [problem.margins(vector[None])[0] for problem in self._problems]
        rows = [question.answer(p, margins, vector) for p, margins in zip(self._problems, self._margins, strict=True)]
        return np.array(rows).reshape(-1, question.width)
