"""Baselines: names of traces or groups with which others are compared."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Optional

from tracedock.asynchronous.resource import AsyncResource
from tracedock.messages import Json, Ref, baseline_path, id_of

_PAGE = 500


class AsyncBaselines(AsyncResource):
    """The methods of baselines."""

    async def baselines(self) -> AsyncIterator[Json]:
        """Yield all baselines, by name."""
        after: Optional[str] = ""
        while after is not None:
            page = await self._connection.json("GET", "baselines", params={"limit": _PAGE, "after": after})
            for baseline in page["baselines"]:
                yield baseline
            after = page["next"]

    async def baseline(self, name: str) -> Json:
        """Return a baseline: `{"name", "kind", "target", "target_name", "set_at", "history"}`."""
        return await self._connection.json("GET", baseline_path(name))

    async def set_baseline(self, name: str, target: Ref) -> Json:
        """Set a baseline to a trace or a group, and return it."""
        return await self._connection.json("PUT", baseline_path(name), json={"target": id_of(target)})

    async def delete_baseline(self, name: str) -> None:
        """Delete a baseline with its history; traces and groups stay."""
        await self._connection.answer("DELETE", baseline_path(name))
