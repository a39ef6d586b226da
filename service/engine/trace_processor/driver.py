"""The engine driver for trace_processor, which the pool uses."""

from pathlib import Path

from service.engine import sql
from service.engine.trace_processor import provision
from service.engine.trace_processor.process import TraceProcessor
from service.engine.trace_processor.rpc import PerfettoRpc
from service.settings import Settings


class TraceProcessorDriver:
    """Finds and starts trace_processor according to the settings; see `EngineDriver`.

    Args:
        settings: which program to run, and whether it runs in a sandbox.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.rpc = PerfettoRpc()

    def binary(self) -> Path:
        """Return the program to run; raises `EngineUnavailable`."""
        return provision.engine_path(self._settings)

    async def start(self, binary: Path) -> TraceProcessor:
        """Start the program with the SQL package `torch`; raises `EngineUnavailable`."""
        return await TraceProcessor.start(binary, package=sql.PACKAGE, sandbox=self._settings.engine_sandbox != "off")
