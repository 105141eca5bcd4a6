"""What all checks share: laws that are tried one after the other, and said together where they are broken."""

from collections.abc import Iterator
from contextlib import contextmanager

from dpadmm_mpi.errors import DpadmmError


class Laws:
    """Collects one sentence for each law that something breaks."""

    def __init__(self, about: str) -> None:
        self._about = about
        self.broken: list[str] = []

    def expect(self, holds: bool, sentence: str) -> None:
        """`sentence` says what is wrong otherwise."""
        if not holds:
            self.broken.append(sentence)

    @contextmanager
    def law(self, name: str) -> Iterator[None]:
        """Whatever is raised while a law is tried breaks it."""
        try:
            yield
        except DpadmmError as error:
            self.broken.append(f"{name}: {error}")
        except Exception as error:  # of somebody else's code
            self.broken.append(f"{name}: {type(error).__name__}: {error}")

    def conclude(self) -> None:
        """AssertionError with all that was found; nothing if all laws hold."""
        if self.broken:
            raise AssertionError("\n".join([f"{self._about} breaks {len(self.broken)} of the laws:", *self.broken]))
