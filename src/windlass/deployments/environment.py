"""Resolves the environment that a crew gets from its project, from the server and, under `windlass dev`, from the
offline model.
"""

# See docs/decisions/security.md#crews-get-a-list-of-variables

from __future__ import annotations

import asyncio
import io
import os
import re
import time
from fnmatch import translate
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from dotenv import dotenv_values
from dotenv.parser import parse_stream

from windlass import config
from windlass.errors import ProjectError
from windlass.foreign_files import read_file
from windlass.kickoffs.tasks import Warning_
from windlass.lifecycle.worker_config import CrewEnvironment
from windlass.offline_model.app import has_provider_key, model_environment, names_another_model
from windlass.runner.egress.proxy import VARIABLES as PROXY_VARIABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from windlass.deployments.resolution import Resolver
    from windlass.store.claiming import Claimed


PASSED = (
    "*_API_KEY", "*_API_BASE", "*_API_VERSION", "ANTHROPIC_*", "AWS_BEARER_TOKEN_BEDROCK", "AZURE_OPENAI_*", "GEMINI_*",
    "HF_TOKEN", "OLLAMA_*", "OPENAI_*", "VERTEXAI_LOCATION", "VERTEXAI_PROJECT", "WATSONX_*",
    "API_BASE", "BASE_URL", "MODEL", "MODEL_NAME",
    *PROXY_VARIABLES,
    "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE",
    "ANONYMIZED_TELEMETRY", "CREWAI_DISABLE_TELEMETRY", "CREWAI_DISABLE_VERSION_CHECK", "CREWAI_STORAGE_DIR",
    "CREWAI_TRACING_ENABLED", "DO_NOT_TRACK", "HF_HUB_DISABLE_TELEMETRY", "LITELLM_LOCAL_MODEL_COST_MAP",
    "MEM0_TELEMETRY", "OTEL_SDK_DISABLED", "SCARF_NO_ANALYTICS",
)  # fmt: skip
"""Variables of the server's environment that crews get without WINDLASS_CREW_ENV.

They are keys, models and addresses of model providers, proxies, and the switches in docs/concepts/projects.md. `*`
matches any text.
"""


ENV_FILE_LIMIT = 1 << 20
RECENT = 0.1
"""Seconds after a change of a file in which another change may leave its timestamps as they are."""


Stamp = tuple[int, ...]


class CrewEnvironments:
    """Resolves the environment of a crew again for each kickoff. It is the Environment of every worker.

    `passed` are the variables of the server's environment that crews get in addition to the usual ones. `resolver`
    resolves the variables of deployments. `model` adds the variables of the offline model; None adds none.
    """

    def __init__(self, passed: Collection[str], resolver: Resolver, model: OfflineModel | None = None) -> None:
        self._passed = passed
        self._resolver = resolver
        self._model = model
        self._of_projects: dict[Path, tuple[Stamp, Mapping[str, str]]] = {}

    async def __call__(self, claimed: Claimed) -> CrewEnvironment:
        """Returns the environment for this kickoff. Raises ProjectError when the project's .env can't be read,
        UnreadableSecrets when a variable can't be read from its secret manager, and UnknownKey or Damaged when one
        can't be decrypted.
        """
        resolved = await self._resolver.resolve(claimed.deployment_id, claimed.variables)
        secrets = frozenset(one.name for one in claimed.variables if one.secret)
        if claimed.source.get("snapshot"):
            variables, again = self.of_deployment(resolved.values), f"windlass deployments redeploy {claimed.slug}"
        else:
            own = await self.of_project(Path(claimed.source["root"]))
            variables, again = {**own, **without_ours(resolved.values)}, "start windlass dev again"
        warnings = tuple(not_deployed(name, again) for name in resolved.missing)
        reachable = () if self._model is None else (self._model.place,)
        return CrewEnvironment(variables, secrets, warnings, resolved.report, reachable)

    def of_deployment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Returns the environment of the crew of a deployment with these variables. They replace those of the server's
        environment. No .env of a project is read.
        """
        own = {**crew_environment(None, self._passed), **without_ours(variables)}
        return own if self._model is None else own | self._model.variables(None, own)

    async def of_project(self, root: Path) -> Mapping[str, str]:
        """Returns the environment in which a project is loaded. A kickoff of it gets the same one.

        Reads the project's .env only if it may have changed since the last call. Raises ProjectError when the .env
        can't be read.
        """
        stamp = _stamp_of(root / ".env")
        if stamp is not None and (known := self._of_projects.get(root)) and known[0] == stamp:
            return known[1]
        found = await asyncio.to_thread(self._of_project, root)
        if stamp is not None:
            self._of_projects[root] = stamp, found
        return found

    def _of_project(self, root: Path) -> dict[str, str]:
        own = crew_environment(root, self._passed)
        return own if self._model is None else own | self._model.variables(root, own)


def not_deployed(name: str, again: str) -> Warning_:
    """Returns the warning for a variable that is read at deploy and has no value yet."""
    return Warning_(
        "variable_not_deployed",
        f"The crew runs without the variable {name}: its credential is static, so its value is read at deploy, and it "
        "has not been read yet: it was bound after the last deploy, or its credential has become another one. To read "
        f"it: {again}",
    )


class OfflineModel:
    """The offline model, which crews use unless their own variables name another model.

    `served` maps the folder of each project to a function. It gets a line when the model of that project changes.
    Kickoffs of a project that this home served earlier may still wait; nothing is reported about these. `script` has
    the rules by which the model answers.
    """

    def __init__(self, address: str, served: Mapping[Path, Callable[[str], None]], script: Path | None) -> None:
        self._address = address
        self._served = {root.resolve(): notify for root, notify in served.items()}
        self._script = script
        self._last_messages: dict[Path, str] = {}

    @property
    def place(self) -> str:
        """Its host and port."""
        return urlsplit(self._address).netloc

    def variables(self, root: Path | None, own: Mapping[str, str]) -> dict[str, str]:
        """Returns the variables that refer a crew with the environment `own` to the offline model. `root` is the folder
        of a project that is served from it.
        """
        if root is not None and (place := root.resolve()) in self._served:
            self._notify_model(place, has_provider_key(own) or names_another_model(own))
        return model_environment(own, self._address)

    def _notify_model(self, root: Path, named: str | None) -> None:
        if named:
            message = f"crews use the model of your environment ({named} is set there or in the project's .env)"
        else:
            by_script = f", which answers by {self._script}" if self._script else ""
            message = (
                f"no model key is set (such as OPENAI_API_KEY): crews get answers from the offline model{by_script}"
            )
        notify, last = self._served[root], self._last_messages.get(root)
        if message == last:
            return
        notify(f"the model has changed: {message}" if last else message)
        self._last_messages[root] = message
        if named and self._script:
            notify(f"warning: the script {self._script} (WINDLASS_OFFLINE_SCRIPT) is not used with that model")


def names_model(variables: Mapping[str, str]) -> bool:
    """Returns whether the variables have a key of a model provider, or name another model."""
    return bool(has_provider_key(variables) or names_another_model(variables))


def crew_environment(project: Path | None = None, passed: Collection[str] = ()) -> dict[str, str]:
    """Returns the environment of a project's crew: the variables of its .env, then those of the server's environment.

    Only variables in `PASSED` or `passed` (WINDLASS_CREW_ENV) are taken from the server's environment. They replace
    variables of the same name in the .env.
    """
    declared = _declared(project) if project else {}
    given = {name: value for name, value in declared.items() if value is not None}
    ours = config.environment()
    given |= {name: ours[name] for name in passed_variables(passed)}
    return without_ours(given)


def without_ours(variables: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables without those of Windlass, which no crew gets."""
    return {name: value for name, value in variables.items() if not name.startswith("WINDLASS_")}


def passed_variables(passed: Collection[str] = ()) -> list[str]:
    """Returns the names of the variables of the server's environment that crews get."""
    pattern = _one_pattern((*PASSED, *passed))
    return sorted(name for name in config.environment() if pattern.match(name))


@cache
def _one_pattern(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(translate, patterns)))


def is_withheld(name: str, crews: Mapping[str, str]) -> bool:
    """Returns whether the server's environment has this variable and the environment `crews` of a crew does not."""
    return name in config.environment() and name not in crews


def unread_lines(project: Path) -> list[int]:
    """Returns the numbers of the lines at which the project's .env can't be parsed. These lines are skipped."""
    try:
        text = _text_of(project)
    except ProjectError:  # `crew_environment` raises it too
        return []
    return [found.original.line for found in parse_stream(io.StringIO(text)) if found.error]


def _declared(project: Path) -> dict[str, str | None]:
    """Parses the .env without the lines that can't be read: dotenv would log each of them without the file's name."""
    lines = parse_stream(io.StringIO(_text_of(project)))
    return dotenv_values(stream=io.StringIO("".join(one.original.string for one in lines if not one.error)))


def _stamp_of(file: Path) -> Stamp | None:
    """Returns values that change with the content of the file; None if its content may change without them."""
    try:
        found = os.lstat(file)
    except FileNotFoundError:
        return ()
    except OSError:
        return None
    if max(found.st_mtime, found.st_ctime) > time.time() - RECENT:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _text_of(project: Path) -> str:
    """Returns the text of the .env, empty when there is no file. Blocks for 10 s at most."""
    file = project / ".env"
    try:
        text = (read_file(project, file.name, ENV_FILE_LIMIT) or b"").decode("utf-8")
    except UnicodeDecodeError as error:
        raise ProjectError(f"{file} can't be read: {error}.", "It must be UTF-8 text.") from None
    for number, line in enumerate(text.splitlines(), 1):
        if "\0" in line:
            raise ProjectError(f"{file}:{number} contains a NUL character, which no variable can hold.", "Remove it.")
    return text
