"""What separates the processes of a deployment's crew from the machine and from other crews."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from windlass.kickoffs.egress import UNRESTRICTED, Egress

if TYPE_CHECKING:
    from windlass.kickoffs.opened_files import Files


@dataclass(frozen=True, slots=True)
class Boundary:
    """`user` is the number of the user of the deployment, where the server is root and gives each one a user; None for
    the user of all crews. `files` are further paths that it may use, each with READ or WRITE
    (windlass_child.process.places); None for those of the runner's configuration. `egress` is what it may connect to.
    """

    user: int | None = None
    files: Files | None = None
    egress: Egress = UNRESTRICTED
