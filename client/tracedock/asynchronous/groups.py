"""Groups: the ranks of a run."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from typing import Optional

from tracedock.asynchronous.resource import AsyncResource
from tracedock.errors import (
    ApiError,
    NotFoundError,
)
from tracedock.messages import (
    Json,
    Ref,
    given,
    group_path,
    id_of,
)


class AsyncGroups(AsyncResource):
    """The methods of groups."""

    async def groups(self, *, name: Optional[str] = None) -> AsyncIterator[Json]:
        """Yield all groups, newest first; `name` is a part of the name."""
        async for group in self._pages("groups", given({"name": name})):
            yield group

    async def group(self, text: str) -> Json:
        """Return the group with an id or a name, with its `ranks`; raises `NotFoundError`."""
        group = await self._group_of(text)
        if group is None:
            raise NotFoundError("unknown_group", "Unknown group", f"There is no group {text!r} on {self.url}.", 404)
        return group if "ranks" in group else await self._connection.json("GET", group_path(group))

    async def create_group(self, name: str, traces: Sequence[Ref] = (), *, run_id: Optional[str] = None) -> Json:
        """Create a group of traces, which leave the groups that they are in, and return it.

        Raises:
            ConflictError: a group of that name exists (``group_exists``).
        """
        body = {"name": name, "traces": list(map(id_of, traces)), "run_id": run_id}
        return await self._connection.json("POST", "groups", json=body, key=True)

    async def change_group(
        self,
        group: Ref,
        *,
        name: Optional[str] = None,
        run_id: Optional[str] = None,
        traces: Optional[Sequence[Ref]] = None,
        pinned: Optional[bool] = None,
    ) -> Json:
        """Change a group's name, run, traces, or whether these are pinned, as far as given; return it."""
        ids = None if traces is None else list(map(id_of, traces))
        change = given({"name": name, "run_id": run_id, "traces": ids, "pinned": pinned})
        return await self._connection.json("PATCH", group_path(group), json=change, repeatable=True)

    async def delete_group(self, group: Ref, *, traces: bool = False) -> None:
        """Delete the group, and optionally its traces."""
        await self._connection.answer("DELETE", group_path(group), params={"traces": traces})

    async def merge_group(
        self, group: Ref, *, align: str = "collectives", name: Optional[str] = None, cycle: Optional[int] = None
    ) -> Json:
        """Start a merge of the traces of the group, or of one cycle of them, and return its job; see `merge`."""
        body = {"align": align, **given({"name": name, "cycle": cycle})}
        return await self._connection.json("POST", f"{group_path(group)}/merge", json=body, key=True)

    async def _group_of(self, text: str) -> Optional[Json]:
        """Return the group with an id or a name, or None."""
        async for group in self.groups(name=text):
            if group["name"] == text:
                return group
        if not re.fullmatch("[0-9a-f]{12}", text):
            return None
        try:
            return await self._connection.json("GET", group_path(text))
        except ApiError as error:
            if error.code != "unknown_group":
                raise
        return None
