"""learn2learn's own MAML, and learn2learn as a whole, without gym and torchvision until a part needs them."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from openprompt_meta.compat.versions import REQUIREMENTS, require
from openprompt_meta.errors import CompatibilityError

_NAME = "learn2learn"
_MODULE = f"{_NAME}.algorithms.maml"
_lock = threading.Lock()


def load_maml() -> type[Any]:
    """learn2learn's ``MAML`` class.

    If the program has imported learn2learn itself, its class is given. Otherwise
    ``learn2learn.algorithms.maml`` is executed without the package's ``__init__``, which imports gym and
    torchvision, nor that of ``algorithms``, which looks for pytorch_lightning; ``sys.modules`` is left as it was. The
    first answer is kept.

    Raises:
        CompatibilityError: learn2learn or torch is missing or outside the supported range.
    """
    maml: type[Any] = _maml_module().MAML
    return maml


def load_maml_update() -> Callable[[Any, float, Sequence[Any]], Any]:
    """learn2learn's ``maml_update(module, lr, gradients)``: the step of ``MAML.adapt`` for gradients at hand."""
    update: Callable[[Any, float, Sequence[Any]], Any] = _maml_module().maml_update
    return update


@functools.cache
def _maml_module() -> ModuleType:
    require("torch")
    require(_NAME)
    if _NAME in sys.modules:
        return importlib.import_module(_MODULE)
    with _lock, _packages_without_init():
        return importlib.import_module(_MODULE)


@contextmanager
def _packages_without_init() -> Iterator[None]:
    """Make ``learn2learn`` and ``learn2learn.algorithms`` bare folders inside the block only."""
    spec = importlib.util.find_spec(_NAME)
    if spec is None or not spec.submodule_search_locations:
        raise CompatibilityError(
            f"{_NAME} is listed as installed, but its files cannot be found. "
            f"Fix it with: {REQUIREMENTS[_NAME].remedy} --force-reinstall"
        )
    before = _loaded()
    for name, subfolder in ((_NAME, ""), (f"{_NAME}.algorithms", "/algorithms")):
        package = ModuleType(name)
        package.__path__ = [location + subfolder for location in spec.submodule_search_locations]
        sys.modules[name] = package
    try:
        yield
    finally:
        for name in _loaded():
            del sys.modules[name]
        sys.modules.update(before)


def _loaded() -> dict[str, ModuleType]:
    return {name: module for name, module in sys.modules.items() if name.partition(".")[0] == _NAME}


# -- `import learn2learn as l2l`: its parts are imported when they are first used -------------------------------------

PARTS = ("algorithms", "data", "nn", "optim", "utils", "text", "gym", "vision")


def import_parts_when_used(module: ModuleType) -> None:
    """Execute ``learn2learn`` in place of its ``__init__``, which imports all parts at once.

    Of those ``gym`` and ``vision`` need libraries that nothing here uses; they fail when they are used, and with the
    reason.
    """

    def part_or_utility(name: str) -> Any:
        if name.startswith("__"):  # what Python itself looks for
            raise AttributeError(name)
        if name in PARTS:
            return _part(name)
        utilities = _part("utils")  # whose names are learn2learn's own, as its __init__ has it
        if not hasattr(utilities, name):
            raise AttributeError(f"module {_NAME!r} has no attribute {name!r}")
        return getattr(utilities, name)

    module.__version__ = str(require(_NAME))  # type: ignore[attr-defined]
    module.__getattr__ = part_or_utility  # type: ignore[method-assign]


def _part(name: str) -> ModuleType:
    try:
        return importlib.import_module(f"{_NAME}.{name}")
    except ImportError as error:
        missing = error.name or str(error)
        raise CompatibilityError(
            f"{_NAME}.{name} cannot be imported: {missing} is missing. learn2learn's algorithms, data, nn and optim "
            f"work without it. If you need {name}, install {missing} in a version that suits your Python and torch."
        ) from error
