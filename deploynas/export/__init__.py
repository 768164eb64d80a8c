"""From a fine-tuned network to files that run elsewhere: fold, write, verify, quantise, measure, bundle.

Called, the package is `dn.export`, which puts all of that together.
"""

from __future__ import annotations

from deploynas.callable_module import make_callable

make_callable(__name__, "deploynas.pipeline.export")
