"""Everything public says what it takes, gives and raises, and shows an example, which is run here."""

import doctest
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import dpadmm_mpi
import dpadmm_mpi.testing
from dpadmm_mpi.parallel.transport import Transport
from dpadmm_mpi.registry import REGISTRIES, load_all

ROOMS = ("data", "methods", "networks", "plots", "privacy", "problems")
# Classes that people call methods of.
SHOWN = [
    found
    for name in dpadmm_mpi.__all__
    if inspect.isclass(found := getattr(dpadmm_mpi, name)) and not issubclass(found, Exception)
]


def names(module: Any) -> dict[str, Any]:
    return {f"{module.__name__}.{name}": getattr(module, name) for name in module.__all__}


PUBLIC = {name: found for module in (dpadmm_mpi, dpadmm_mpi.testing) for name, found in names(module).items()}
IN_ROOMS = {name: found for room in ROOMS for name, found in names(getattr(dpadmm_mpi, room)).items()}


def members(cls: type) -> Iterator[tuple[str, Any]]:
    """What this package defines on a class, not scikit-learn."""
    for name, member in inspect.getmembers(cls):
        function = member.fget if isinstance(member, property) else member
        ours = str(getattr(function, "__module__", "")).startswith("dpadmm_mpi")
        if ours and not name.startswith("_") and (callable(member) or isinstance(member, property)):
            yield f"{cls.__name__}.{name}", member


METHODS = {name: member for cls in SHOWN for name, member in members(cls) if not isinstance(member, property)}
FUNCTIONS = {name: f for name, f in (PUBLIC | IN_ROOMS).items() if inspect.isfunction(f) or inspect.ismethod(f)} | METHODS
EXAMPLES = FUNCTIONS | {cls.__name__: cls for cls in (*SHOWN, dpadmm_mpi.testing.Threads)}


def sections(found: Any) -> dict[str, str]:
    """Of a docstring in numpy's form."""
    parts = re.split(r"^(\w+)\n-+\n", inspect.getdoc(found) or "", flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def described(text: str) -> set[str]:
    """The parameters that a section has words about."""
    heads = re.findall(r"^([*\w]+(?:, [*\w]+)*) : \S", text, flags=re.MULTILINE)
    return {name.lstrip("*") for head in heads for name in head.split(", ")}


@pytest.mark.parametrize("name", PUBLIC | IN_ROOMS | dict(item for cls in SHOWN for item in members(cls)))
def test_everything_public_has_a_docstring(name: str) -> None:
    found = (PUBLIC | IN_ROOMS | dict(item for cls in SHOWN for item in members(cls)))[name]
    assert len((inspect.getdoc(found) or "").strip()) > 5


def test_the_threads_have_the_methods_of_every_transport() -> None:
    """Which has their docstrings."""
    for name in [name for name in vars(dpadmm_mpi.testing.Threads) if not name.startswith("_")]:
        own = getattr(dpadmm_mpi.testing.Threads, name)
        assert not callable(own) or name == "box" or inspect.getdoc(getattr(Transport, name)), name


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_say_what_they_take_give_and_raise(name: str) -> None:
    function: Callable[..., Any] = FUNCTIONS[name]
    signature, found = inspect.signature(function), sections(function)
    parameters = set(signature.parameters) - {"self"}
    assert described(found.get("Parameters", "")) == parameters
    assert ("Returns" in found) == (signature.return_annotation not in (None, "None"))
    body = textwrap.dedent(inspect.getsource(function)).split('"""')[-1]
    assert "Raises" in found or "raise " not in body
    assert "\n>>> " in "\n" + found.get("Examples", "")


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_run(name: str) -> None:
    """Each by itself, with the names of its own lines alone; the classes that it enters leave again."""
    load_all()
    before = [(registry, registry.items()) for registry in REGISTRIES.values()]
    text = sections(EXAMPLES[name])["Examples"]
    example = doctest.DocTestParser().get_doctest(text, {}, name, None, None)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    try:
        assert example.examples and runner.run(example).failed == 0
    finally:
        for registry, classes in before:
            registry.replace_all(classes)
