"""The PerfettoSQL package ``torch``: PyTorch's terms in SQL; ``torch.md`` in this folder is its reference.

The engine is started with ``--add-sql-package {PACKAGE}@torch``; clients then include the modules that they need, as in
``INCLUDE PERFETTO MODULE torch.kernels;``. The modules read the engine's own tables, and three tables that the server
creates after each load: ``_torch_track`` (maps each row of the engine's table ``thread`` to a thread or stream of the
trace), ``_torch_group`` (the process groups that each rank lists) and ``_torch_facts`` (facts about the whole trace).
"""

from pathlib import Path

PACKAGE = Path(__file__).with_name("torch")
"""The package's folder. The module ``torch.kernels`` is the file ``kernels.sql`` in it."""

REFERENCE = Path(__file__).with_name("torch.md")
"""The reference for users: the columns of each module, and an example."""
