from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from windlass.errors import ChildLost
    from windlass_crewside.messages import Exited

T = TypeVar("T")


def new_future() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()


@dataclass(slots=True)
class ChildRecord:
    """What the zygote has told of a child. `exited` is None when the zygote was lost before it told."""

    forked: asyncio.Future[int | ChildLost] = field(default_factory=new_future)
    exited: asyncio.Future[Exited | None] = field(default_factory=new_future)


def settle(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)
