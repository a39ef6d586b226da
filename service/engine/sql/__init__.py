"""The PerfettoSQL package ``torch``: PyTorch's terms in SQL; ``torch.md`` in this folder is its reference.

The engine is started with ``--add-sql-package {PACKAGE}@torch``; clients then include the modules that they need, as in
``INCLUDE PERFETTO MODULE torch.kernels;``. The modules read the engine's own tables, and three tables that the server
creates after each load: ``_torch_track`` (the trace's thread or stream of each of the engine's threads),
``_torch_group`` (the process groups that each rank lists) and ``_torch_facts`` (facts on the whole trace).
"""

from pathlib import Path

PACKAGE = Path(__file__).with_name("torch")
"""The folder of the package: the module ``torch.kernels`` is its file ``kernels.sql``."""

REFERENCE = Path(__file__).with_name("torch.md")
"""The reference for users: modules, columns, an example each."""
