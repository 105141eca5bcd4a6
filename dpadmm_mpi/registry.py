"""Classes by the name that a configuration gives them: one registry for each kind of choice.

A class enters by a decorator, from inside the package or from a file of somebody else's. What is wrong with it is said when
it enters, in one sentence with file and line.
"""

import hashlib
import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar, get_origin

from dpadmm_mpi.errors import DpadmmError, InputError, RunError

T = TypeVar("T")
C = TypeVar("C", bound=type)

PACKAGE = __package__
ENTRY_POINTS = "dpadmm_mpi.extensions"  # modules of installed packages, which register what they bring

REGISTRIES: "dict[str, Registry[object]]" = {}  # by their plural names, as in `dpadmm list graphs`


class Registry(Generic[T]):
    """The classes of one kind: the package's own in the order of the modules that they live in, then those from outside.

    `homes` are modules of the package with classes of this kind, which are loaded when somebody asks for a name that is not
    there yet, or for all: a rank that runs one method does not load the others.

    >>> shapes = Registry[object]("shape", "shapes")
    >>> @shapes.register("circle")
    ... class Circle:
    ...     "Round."
    >>> shapes["circle"] is Circle, shapes.name_of(Circle), list(shapes)
    (True, 'circle', ['circle'])
    """

    def __init__(self, kind: str, plural: str, homes: tuple[str, ...] = ()) -> None:
        self.kind = kind
        self.plural = plural
        self._homes = tuple(f"{PACKAGE}.{home}" for home in homes)
        self._at_home = not homes
        self._classes: dict[str, type[T]] = {}
        self._base: type[T] | None = None
        REGISTRIES[plural] = self  # type: ignore[assignment]

    def base(self, cls: C) -> C:
        """Decorates the class that all of this kind derive from."""
        self._base = cls
        return cls

    def register(self, name: str) -> Callable[[C], C]:
        """Decorates a class, which a configuration then finds under `name`.

        A file that is loaded again takes the place of its earlier self; another class of the same name is refused.

        Parameters
        ----------
        name : what a configuration calls it; letters, digits and hyphens

        Returns
        -------
        The decorator, which gives the class back as it is.

        Raises
        ------
        InputError
            The class does not fit: the sentence has its file and line, what is missing or wrong, and what is needed.

        Examples
        --------
        >>> import dpadmm_mpi as dp
        >>> @dp.graph("docstring-star")
        ... class Star(dp.networks.NamedGraph):
        ...     "Node 0 in the middle."
        ...
        ...     def edges(self, rng):
        ...         return np.array([[0, node] for node in range(1, self.nodes)])
        >>> import numpy as np
        >>> result = dp.run({"data": {"records": 200, "features": 3}}, graph="docstring-star", nodes=4, iterations=2)
        >>> result["graph/edges"].tolist()
        [[0, 1], [0, 2], [0, 3]]
        """

        def enter(cls: C) -> C:
            if not is_inside(cls):
                self._load_homes()  # so that a name that is taken is known
            self._refuse(name, cls)
            _note_file(cls)
            self._classes[name] = cls
            return cls

        return enter

    def _refuse(self, name: str, cls: type[object]) -> None:
        if wrong := self._fault(name, cls):  # where the class stands is looked up for a fault alone: it is slow
            raise InputError(f'{place_of(cls)}: {self.kind} "{name}": {wrong}')
        if not is_inside(cls):
            _refuse_signatures(cls, f'{self.kind} "{name}"')

    def _fault(self, name: str, cls: type[object]) -> str | None:
        if not isinstance(name, str) or not name or name != name.strip() or any(c in name for c in ' "\n'):
            return "not a name; use letters, digits and hyphens"
        if self._base is not None and not (isinstance(cls, type) and issubclass(cls, self._base)):
            return f"the class must derive from {self._base.__module__}.{self._base.__qualname__}"
        before = self._classes.get(name)
        if before is not None and _file_of(before) != _file_of(cls):
            return f"the name is taken by {place_of(before)}; choose another one"
        if is_inside(cls):
            return None
        if missing := sorted(getattr(cls, "__abstractmethods__", ())) or _unset(cls):
            return f"it must define {', '.join(missing)}"
        if not (cls.__dict__.get("__doc__") or "").strip():
            return "it needs a docstring, whose first line is what `dpadmm list` shows"
        return None

    def _load_homes(self) -> None:
        if self._at_home:
            return
        self._at_home = True
        for home in self._homes:
            importlib.import_module(home)
        order = {home: place for place, home in enumerate(self._homes)}
        last = len(order)
        self._classes = dict(sorted(self._classes.items(), key=lambda entry: order.get(entry[1].__module__, last)))

    def find(self, name: str) -> type[T] | None:
        """The class of a name in any case; installed packages that bring extensions are looked at for an unknown one."""
        for home in self._homes:
            if name in self._classes:
                break
            importlib.import_module(home)
        if name not in self._classes:
            load_entry_points()
        return self._classes.get(name) or next((c for known, c in self._classes.items() if _same(known, name)), None)

    def __getitem__(self, name: str) -> type[T]:
        if (cls := self.find(name)) is None:
            raise InputError(f'{self.kind}: found "{name}"; allowed: {", ".join(self)}{did_you_mean(name, self)}')
        return cls

    def __contains__(self, name: object) -> bool:
        return name in dict(self.items())

    def __iter__(self) -> Iterator[str]:
        return iter([name for name, _ in self.items()])

    def items(self) -> list[tuple[str, type[T]]]:
        self._load_homes()
        return self.loaded()

    def loaded(self) -> list[tuple[str, type[T]]]:
        """Those that are here already."""
        return list(self._classes.items())

    def replace_all(self, classes: list[tuple[str, type[T]]]) -> None:
        """As `items` gave them before."""
        self._classes = dict(classes)

    def name_of(self, cls: type[object]) -> str:
        """The name of a class, or of the nearest class above it that has one."""
        for ancestor in cls.__mro__:
            for name, known in self._classes.items():
                if known is ancestor:
                    return name
        raise InputError(f'{place_of(cls)}: not registered; put @register("NAME") above the class')


def _same(known: str, name: object) -> bool:
    """Whether two names differ in their case alone, or not at all."""
    return isinstance(name, str) and known.casefold() == name.casefold()


def load_all() -> None:
    """Every class of the package that can be chosen; a module with some of one kind may bring another kind with it."""
    for registry in list(REGISTRIES.values()):
        registry.items()


def did_you_mean(name: object, known: "Iterator[str] | Registry[T] | list[str]") -> str:
    close = get_close_matches(str(name), list(known), n=1)
    return f'; did you mean "{close[0]}"?' if close else ""


def is_inside(cls: type[object]) -> bool:
    """Whether a class is the package's own."""
    return cls.__module__.split(".")[0] == PACKAGE


def place_of(cls: type[object]) -> str:
    """File and line of a class, as well as they are known."""
    file = _file_of(cls)
    if file is None:
        return f"{cls.__module__}.{cls.__qualname__}"
    try:
        return f"{file}, line {inspect.getsourcelines(cls)[1]}"
    except (OSError, TypeError):
        return file


def _file_of(cls: type[object]) -> str | None:
    """None for a class that was typed in."""
    return getattr(sys.modules.get(cls.__module__), "__file__", None)


_imported: dict[str, tuple[object, str]] = {}  # module -> its spec, which is another one after a reload, and sha256 of its file


def _note_file(cls: type[object]) -> None:
    """What the file of a class from outside holds while it is imported: somebody may edit it later."""
    module, file = sys.modules.get(cls.__module__), file_of(cls)
    spec = getattr(module, "__spec__", None)
    if file is None or not file.is_file() or (cls.__module__ in _imported and _imported[cls.__module__][0] is spec):
        return
    _imported[cls.__module__] = spec, hashlib.sha256(file.read_bytes()).hexdigest()


def imported_sha256(module: str) -> str | None:
    """Of the file of a module with registered classes, as it was when it was imported."""
    return _imported[module][1] if module in _imported else None


def own_behaviour(cls: type[object], behaviour: tuple[str, ...], claim: str = "") -> str:
    """What a class from outside does otherwise than the one that makes the `claim`, in words; "" if nothing.

    A claim, such as a privacy account, is about the behaviour of the class that makes it. A subclass that changes the
    behaviour and inherits the claim has none.
    """
    for ancestor in cls.__mro__:
        changed = [name for name in behaviour if name in vars(ancestor)]
        if claim and claim in vars(ancestor):
            break
        if changed and not is_inside(ancestor):
            return f"a {changed[0]} of its own ({place_of(ancestor)})"
    return ""


def first_line(cls: type[object]) -> str:
    """What a class is, in one line."""
    return (inspect.getdoc(cls) or "").strip().split("\n")[0]


def _refuse_signatures(cls: type[object], what: str) -> None:
    """Whatever a class defines anew must take the arguments that the original takes."""
    for name, function in vars(cls).items():
        if not inspect.isfunction(function) or name.startswith("__"):
            continue
        original = next((vars(base)[name] for base in cls.__mro__[1:] if name in vars(base)), None)
        if not inspect.isfunction(original):
            continue
        wanted, found = inspect.signature(original), inspect.signature(function)
        try:
            found.bind(*(_positional(wanted)), **dict.fromkeys(_keywords(wanted)))
        except TypeError:
            place = f"{_file_of(cls) or cls.__module__}, line {function.__code__.co_firstlineno}"
            raise InputError(f"{place}: {what}: {name}{_bare(found)} must take {_bare(wanted)}") from None


def _bare(signature: inspect.Signature) -> str:
    """Its parameters without their types."""
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
    return str(inspect.Signature(bare))


def _unset(cls: type[object]) -> list[str]:
    """Statements about itself that a class must make and does not."""
    stated = {name: kind for base in cls.__mro__ for name, kind in vars(base).get("__annotations__", {}).items()}
    return sorted(name for name, kind in stated.items() if get_origin(kind) is ClassVar and not hasattr(cls, name))


def _positional(signature: inspect.Signature) -> list[None]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [None for parameter in signature.parameters.values() if parameter.kind in kinds]


def _keywords(signature: inspect.Signature) -> list[str]:
    return [name for name, p in signature.parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY]


def loaded_when_asked_for(homes: dict[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """The `__getattr__` of a room that exports names of some of its modules without loading them beforehand."""
    home_of = {name: f"{PACKAGE}.{home}" for home, names in homes.items() for name in names}

    def attribute(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"there is no {name!r} here")
        return getattr(importlib.import_module(home_of[name]), name)

    return attribute


_loaded_entry_points = False


def load_entry_points() -> None:
    """Import what installed packages announce; once."""
    from importlib import metadata  # slow to load, and only here

    global _loaded_entry_points
    if _loaded_entry_points:
        return
    _loaded_entry_points = True
    for entry in metadata.entry_points(group=ENTRY_POINTS):
        try:
            entry.load()
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"the extension {entry.name} = {entry.value} of an installed package cannot be loaded "
                f"({type(error).__name__}: {error}); repair or uninstall it"
            ) from error


@contextmanager
def all_or_nothing() -> Iterator[None]:
    """What entered the registries leaves them again if something is raised: a file that cannot be loaded leaves nothing."""
    load_all()
    before = [(registry, registry.items()) for registry in REGISTRIES.values()]
    try:
        yield
    except BaseException:
        for registry, classes in before:
            registry.replace_all(classes)
        raise


def blamed(error: BaseException) -> str | None:
    """The line of an extension in which an error has come up, and what it is; None if it has not passed through any."""
    registered = [cls for registry in REGISTRIES.values() for _, cls in registry.loaded()]
    files = {file_of(cls) for cls in registered if not is_inside(cls)}
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename).resolve() in files:
            words = str(error).strip().split("\n")[0]
            return f"{frame.filename}, line {frame.lineno}: {type(error).__name__}: {words}"
    return None


@contextmanager
def blaming() -> Iterator[None]:
    """What an extension raises while running becomes an error that names its file and line."""
    try:
        yield
    except DpadmmError:
        raise
    except Exception as error:
        if (sentence := blamed(error)) is None:
            raise
        raise RunError(sentence) from error


def file_of(cls: type[object]) -> Path | None:
    """The file that a class from outside comes from; None for the package's own, and for one that was typed in."""
    file = None if is_inside(cls) else _file_of(cls)
    return None if file is None else Path(file).resolve()
