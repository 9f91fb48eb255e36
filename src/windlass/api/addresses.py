from __future__ import annotations

from dataclasses import dataclass

RESERVED = ("ui", "api", "crews", "health", "ready", "metrics", ".well-known", "oauth2")
"""First parts of paths that are the server's own, also where a crew has the root."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a path leads: to the crew `slug` at `path` within it, or to the server itself (`slug` None).

    `prefix` is what stands before `path` in the crew's addresses; `by_host` says that the host's name means the crew.
    """

    slug: str | None
    path: str
    prefix: str = ""
    by_host: bool = False


@dataclass(frozen=True, slots=True)
class Addresses:
    """`root` is the slug of the crew that has the server's root; `domain` that of which crews have sub-domains."""

    root: str | None = None
    domain: str | None = None

    def find(self, host: str, path: str) -> Place:
        path = _single_slashes(path)
        first, _, rest = path[1:].partition("/")
        if first == "crews" and rest:
            slug, _, inner = rest.partition("/")
            return Place(slug, f"/{inner}", f"/crews/{slug}")
        if (named := self._in_domain(host)) is not None:
            return Place(named, path, by_host=True)
        if self.root is not None and first not in RESERVED:
            return Place(self.root, path)
        return Place(None, path)

    def _in_domain(self, host: str) -> str | None:
        if not self.domain:
            return None
        name, ending = host.partition(":")[0].lower(), f".{self.domain.lower()}"
        return name.removesuffix(ending) if name.endswith(ending) else None


def _single_slashes(path: str) -> str:
    while "//" in path:
        path = path.replace("//", "/")
    return path or "/"
