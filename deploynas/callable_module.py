"""A package that can be called like the function it is named after.

`dn.search(...)` and `import deploynas.search.problem` want the same name. As a callable module the package serves
both, whatever is imported first.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType


class CallableModule(ModuleType):
    """Calling the module calls the function of its name, which lives in it or in module `_home`."""

    _home: str

    def __call__(self, *args: object, **kwargs: object) -> object:
        return vars(importlib.import_module(self._home))[self.__name__.rpartition(".")[2]](*args, **kwargs)


def make_callable(module: str, home: str | None = None) -> None:
    """For a module to call about itself: `make_callable(__name__)`; `home` is where the function is, if elsewhere."""
    found = sys.modules[module]
    found.__class__ = CallableModule
    vars(found)["_home"] = home or module
