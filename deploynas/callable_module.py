"""A package that can be called like the function it is named after.

`dn.search(...)` and `import deploynas.search.problem` want the same name. As a callable module the package serves
both, whatever is imported first.
"""

from __future__ import annotations

import sys
from types import ModuleType


class CallableModule(ModuleType):
    """Calling the module calls its function of the same name."""

    def __call__(self, *args: object, **kwargs: object) -> object:
        return vars(self)[self.__name__.rpartition(".")[2]](*args, **kwargs)


def make_callable(module: str) -> None:
    """For a module to call about itself: `make_callable(__name__)`."""
    sys.modules[module].__class__ = CallableModule
