"""PyTorch's own terms in SQL: the PerfettoSQL package ``torch``; ``torch.md`` beside this file is its reference.

The engine is started with ``--add-sql-package {PACKAGE}@torch``; a client then says, as in
``INCLUDE PERFETTO MODULE torch.kernels;``, which module it wants. The modules read the engine's own tables and three
that the server creates after each load: ``_torch_track`` (whose thread or stream each thread of the engine is),
``_torch_group`` (the process groups that each rank lists) and ``_torch_facts`` (of the trace as a whole).
"""

from pathlib import Path

PACKAGE = Path(__file__).with_name("torch")
"""The folder of the package: the module ``torch.kernels`` is its file ``kernels.sql``."""

REFERENCE = Path(__file__).with_name("torch.md")
"""The reference for users: modules, columns, an example each."""
