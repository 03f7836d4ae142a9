"""Prepares transformers whenever ``openprompt`` is imported, and tells others when it has been.

Two more libraries are looked after while they are imported: transformers goes on offering the names that it dropped
and OpenPrompt's scripts import from it, and learn2learn's parts are imported when they are first used.

``import openprompt`` fails by itself on every supported transformers, because it asks for modules that are
gone. Doing the preparation when our package is imported would load torch and transformers into every program
that does so; doing it at the moment that ``openprompt`` is imported costs nothing until then. The price is an
order: a program that imports ``openprompt`` first fails before any code of ours runs. It may import
``openprompt_meta`` after that and try again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_NAME = "openprompt"
_TRANSFORMERS = "transformers"


def on_openprompt_import(callback: Callable[[], None], *, users: Sequence[str] = ()) -> None:
    """Call ``callback`` after each execution of ``openprompt``, or at once if it has been imported already.

    Args:
        callback: What to call.
        users: Modules, and packages whose modules import ``openprompt``, and that ``callback`` imports in its
            turn. If it is one of them that imports ``openprompt``, the callback waits until that module is
            complete; it would meet it half imported otherwise. A missing OpenPrompt is reported with its remedy
            before any line of them runs. Modules called ``declarations`` are left alone: they need nothing.

    Raises:
        CompatibilityError: ``openprompt`` has been imported already and the versions do not fit. If it is
            imported later, that import raises it instead.
    """
    if _NAME in sys.modules:
        _before()
        _after(callback)
    if _TRANSFORMERS in sys.modules:
        _offer_dropped_names()
    _finder.callbacks.append(callback)
    _finder.users.update(users)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def _before() -> None:
    from openprompt_meta.compat.bridge import bridge_transformers
    from openprompt_meta.compat.versions import require

    require(_NAME)
    bridge_transformers()


def _after(*callbacks: Callable[[], None]) -> None:
    from openprompt_meta.compat.bridge import bridge_tokenizer_wrapper

    bridge_tokenizer_wrapper()
    for callback in callbacks:
        callback()


def _offer_dropped_names() -> None:
    from openprompt_meta.compat.bridge import offer_dropped_names

    offer_dropped_names()


def _forget_failed_attempt() -> None:
    """Drop the submodules that a failed ``import openprompt`` leaves behind.

    They would be found again but never become attributes of the new parent module.
    """
    for name in [name for name in sys.modules if name.startswith(_NAME + ".")]:
        del sys.modules[name]


class _Finder(MetaPathFinder):
    """Lets the other finders find ``openprompt`` and its users, and wraps the loader that they give."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[], None]] = []
        self.users: set[str] = set()
        self.users_in_progress = 0
        self.callbacks_due = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        execute = _EXECUTE.get(fullname) or (_execute_user if self._is_user(fullname) else None)
        if execute is None:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)  # finders older than PEP 451 have none
            spec: ModuleSpec | None = None if finder is self or find is None else find(fullname, path, target)
            if spec is not None:
                # Without a loader it is a namespace package: some unrelated folder of this name.
                if spec.loader is not None:
                    spec.loader = _WrappedLoader(spec.loader, execute)
                return spec
        return None

    def _is_user(self, fullname: str) -> bool:
        package, _, name = fullname.rpartition(".")
        return fullname in self.users or (package in self.users and name != "declarations")

    def call_back_if_due(self) -> None:
        if self.callbacks_due and self.users_in_progress == 0:
            self.callbacks_due = False
            _after(*self.callbacks)


_finder = _Finder()


class _WrappedLoader(Loader):
    """Has ``execute`` do the execution of a module, with what belongs around it.

    That happens here, and not in the finder, because ``importlib.util.find_spec`` only asks.
    """

    def __init__(self, real: Loader, execute: Callable[[Loader, ModuleType], None]) -> None:
        self.real = real
        self.execute = execute

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # From here on nobody who looks at the module, for its source or its data files, needs to see us.
        module.__loader__ = self.real
        if module.__spec__ is not None:
            module.__spec__.loader = self.real
        self.execute(self.real, module)


def _execute_openprompt(real: Loader, module: ModuleType) -> None:
    _forget_failed_attempt()
    _before()
    real.exec_module(module)
    _finder.callbacks_due = True
    _finder.call_back_if_due()


def _execute_transformers(real: Loader, module: ModuleType) -> None:
    real.exec_module(module)
    _offer_dropped_names()


def _execute_learn2learn(real: Loader, module: ModuleType) -> None:
    from openprompt_meta.compat.maml import import_parts_when_used

    import_parts_when_used(module)


_EXECUTE: dict[str, Callable[[Loader, ModuleType], None]] = {
    _NAME: _execute_openprompt,
    _TRANSFORMERS: _execute_transformers,
    "learn2learn": _execute_learn2learn,
}


def _execute_user(real: Loader, module: ModuleType) -> None:
    if _NAME not in sys.modules:
        from openprompt_meta.compat.versions import require

        require(_NAME)
    _finder.users_in_progress += 1
    try:
        real.exec_module(module)
    finally:
        _finder.users_in_progress -= 1
    _finder.call_back_if_due()
