"""Deploys a project to a server: checks its files, uploads them, follows the build, and prints how to use the crew."""

from __future__ import annotations

import re
import shlex
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TextIO

import click

from windlass.cli.printing import Screen, json_option, notify, print_finding, print_json, print_result
from windlass.cli.servers import server_options
from windlass.errors import ProjectError
from windlass_child.protocol.sizes import size_in_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from windlass.cli.control_session import ControlSession
    from windlass.cli.variables import Given
    from windlass.projects import Recognised

GIT_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|[^/\s@]++@[^/\s:]++:")
MOST_NAMED = 5
"""The most files that a message names."""


@dataclass(frozen=True, slots=True)
class Source:
    """What to deploy: a zip file to upload, or the members `git` of a request. `name` is the crew's name, if not given
    otherwise.
    """

    name: str
    zip: Path | None = None
    git: dict[str, str] | None = None


def is_git(place: str) -> bool:
    return GIT_URL.match(place) is not None and not Path(place).exists()


@click.command
@click.argument("place", metavar="[PATH|ZIP|GIT_URL]", default=".")
@click.option("--name", metavar="NAME", help="Name of the crew on the server, by default that of the project.")
@click.option(
    "--entrypoint",
    metavar="FILE:NAME",
    help="What to serve of several crews, flows or functions, such as crew.py:build_crew.",
)
@click.option("--new", is_flag=True, help="Deploy a new crew: fail if the name is taken.")
@click.option("--ref", metavar="REF", help="With GIT_URL: a branch, tag or commit, by default the default branch.")
@click.option("--subfolder", metavar="PATH", help="With GIT_URL: the project's folder in the repository.")
@click.option(
    "--env-file",
    type=click.File(encoding="utf-8-sig"),
    metavar="FILE",
    help="First set the variables of FILE, a .env file, as `windlass env set --from-file` does.",
)
@click.option("-m", "--message", metavar="TEXT", help="A note that the list of builds shows.")
@click.option("--no-wait", is_flag=True, help="Do not wait for the end of the build.")
@json_option
@server_options
def deploy(  # noqa: PLR0913 - one for each option
    place: str,
    *,
    control: ControlSession,
    name: str | None,
    entrypoint: str | None,
    new: bool,
    ref: str | None,
    subfolder: str | None,
    env_file: TextIO | None,
    message: str | None,
    no_wait: bool,
    json_output: bool,
) -> int:
    """Deploy a project to a server.

    PATH is the project's folder, by default the current one. ZIP is a zip file of a project, and GIT_URL a repository
    that the server fetches, such as https://github.com/OWNER/NAME. Without --profile, the server is the one that you
    are logged in to (windlass login), else the one that runs on this machine (windlass serve).

    The command checks the project's files, uploads those that git does not ignore, follows the build, and prints the
    crew's base URL. Files that may hold secrets are never uploaded: .env, keys, certificates. Variables come from
    --env-file and `windlass env set`.

    Deployed again, the project becomes a new version of the crew. The old version serves until the new one is ready,
    and kickoffs finish on the version that accepted them.

    To deploy several crews of one project, deploy it several times: each with the --entrypoint of a crew and a --name
    of its own. Without --entrypoint, the crew is the one that the project declares.

    Ctrl-C ends the command, and not the build. Exits with 1 when the build fails.
    """
    if not is_git(place) and (ref or subfolder):
        raise click.UsageError("--ref and --subfolder are for a GIT_URL.")
    from windlass.cli.variables import env_file as variables_of
    from windlass.deployments.registration import slug_of

    variables = variables_of(env_file) if env_file else []
    with source_of(place, ref, subfolder, entrypoint, quiet=json_output) as source:
        slug = slug_of(name) if name else source.name
        notify(f"deploying {slug} to {control.address}")
        query = {"message": message, "entrypoint": entrypoint}
        build = start_build(control, source, slug, variables, query=query, new=new)
    slug = build.get("deployment") or slug
    if not variables:
        notify_env_file(place, control, slug)
    again = command("deployments", "logs", slug, "--follow", control=control)
    if no_wait:
        if json_output:
            print_json({"deployment": slug, "build": build})
        notify(f"Follow the build with: {again}")
        return 0
    return _follow(control, slug, build["id"], again, json_output=json_output)


def _follow(control: ControlSession, slug: str, build: str, again: str, *, json_output: bool) -> int:
    """Follows the build to its end. Returns the exit code of the command."""
    from windlass.cli.builds import follow_build, print_end

    ended = follow_build(control, build, again=again)
    code = print_end(ended, slug)
    deployment = control.get("deployments", slug)
    if json_output:
        print_json({"deployment": deployment, "build": ended})
    elif code == 0:
        for line in how_to_use(control, deployment, with_tokens=sys.stdout.isatty()):
            print_result(line)
    elif deployment["version"] is not None:
        notify(f"Version {deployment['version']} of {slug} still serves.")
    else:
        remove = command("deployments", "remove", slug, control=control)
        notify(f"{slug} has no version yet. Correct the project and deploy it again, or remove {slug}: {remove}")
    return code


def command(*words: str, control: ControlSession) -> str:
    """Returns a windlass command for the same server, as a person would type it."""
    return shlex.join(["windlass", *words, *control.server.options])


@contextmanager
def source_of(
    place: str, ref: str | None, subfolder: str | None, entrypoint: str | None, *, quiet: bool
) -> Iterator[Source]:
    """Yields what to deploy. Raises ProjectError for files that no build can use, with their warnings printed.

    The server fetches a git repository, and checks its files before it installs packages.
    """
    from windlass.deployments.registration import slug_of

    if is_git(place):
        last = (subfolder or place).rstrip("/").removesuffix(".git")
        members = {"url": place, "ref": ref, "subfolder": subfolder}
        yield Source(slug_of(re.split(r"[/:]", last)[-1]), git={n: one for n, one in members.items() if one})
        return
    path = Path(place)
    if path.suffix == ".zip" and path.is_file():
        check_zip(path, entrypoint, quiet=quiet)
        yield Source(slug_of(path.stem), zip=path)
        return
    if not path.is_dir():
        raise ProjectError(
            f"{place} is no folder, zip file or git URL." if path.exists() else f"{place} does not exist.",
            "Give the project's folder, a zip file, or a URL such as https://github.com/OWNER/NAME.",
        )
    recognised = checked(path, entrypoint, quiet=quiet)
    with TemporaryDirectory(prefix="windlass-deploy-") as folder:
        yield Source(slug_of(recognised.name), zip=packed(path, Path(folder) / "source.zip", recognised))


def checked(path: Path, entrypoint: str | None, *, quiet: bool) -> Recognised:
    """Returns the recognised project. Prints the warnings for its files. Raises ProjectError for errors in them."""
    from windlass.projects.checks import declared_project
    from windlass.projects.findings import Level, as_error
    from windlass.projects.reader import findings_of

    recognised, findings = declared_project(path, entrypoint)
    if recognised is not None:
        findings = findings_of(recognised.project, findings)
    errors = [one for one in findings if one.level is Level.ERROR]
    for line in (line for one in findings if one not in errors for line in one.lines()):
        (notify if quiet else print_finding)(line)
    if errors or recognised is None:
        error = as_error(errors)
        raise ProjectError(error.message, f"Nothing was uploaded. {error.hint}".strip())
    return recognised


def check_zip(path: Path, entrypoint: str | None, *, quiet: bool) -> None:
    """Raises ProjectError for a zip that can't be a source, and for errors in its files."""
    from windlass.projects.snapshot import accept, unpack

    with TemporaryDirectory(prefix="windlass-deploy-") as folder:
        unpacked = Path(folder) / path.stem
        try:
            unpack(accept(path, Path(folder) / f"{path.stem}.packed").file, unpacked)
            checked(unpacked, entrypoint, quiet=quiet)
        except ProjectError as error:
            message, hint = (text.replace(str(unpacked), str(path)) for text in (error.message, error.hint))
            raise ProjectError(message, hint) from None


def packed(root: Path, to: Path, recognised: Recognised) -> Path:
    from windlass.projects.snapshot import pack

    snapshot = pack(root, to, recognised.options.ignore)
    notify(f"packed {_count(snapshot.files, 'file')}, {size_in_words(snapshot.size)}")
    if snapshot.left_out:
        more = len(snapshot.left_out) - MOST_NAMED
        names = ", ".join(snapshot.left_out[:MOST_NAMED])
        notify(f"left out, as they may hold secrets: {names}{f' and {more} more' if more > 0 else ''}")
    return snapshot.file


def start_build(
    control: ControlSession,
    source: Source,
    slug: str,
    variables: Sequence[Given],
    *,
    query: dict[str, str | None],
    new: bool,
) -> dict[str, Any]:
    """Uploads the source, and returns the build. Makes the deployment if it does not exist."""
    from windlass.cli.crew_session import RequestRefused
    from windlass.client import Conflict

    exists = not new and _is_found(control, slug)
    body = {"variables": [one.to_json() for one in variables]}
    if variables and not exists:
        control.send("POST", "deployments", body={"name": slug})
        exists = True
    if variables:
        control.send("PUT", "deployments", slug, "variables", body=body)
        notify(f"set {_count(len(variables), 'variable')}")
    if not exists:
        try:
            return _sent(control, source, ("deployments",), {"name": slug, **query})
        except RequestRefused as error:
            if not isinstance(error.cause, Conflict) or new:
                raise
    return _sent(control, source, ("deployments", slug, "builds"), query)


def _is_found(control: ControlSession, slug: str) -> bool:
    from windlass.cli.crew_session import RequestRefused
    from windlass.client import NotFound

    try:
        control.get("deployments", slug)
    except RequestRefused as error:
        if isinstance(error.cause, NotFound):
            return False
        raise
    return True


def _sent(
    control: ControlSession, source: Source, path: tuple[str, ...], query: dict[str, str | None]
) -> dict[str, Any]:
    """Sends the source, with a bar of progress for an upload. Returns the build."""
    if source.zip is None:
        body = {**{name: value for name, value in query.items() if name == "name"}, "git": source.git}
        answer = control.send("POST", *path, body=body, message=query["message"], entrypoint=query["entrypoint"])
    else:
        total, screen = source.zip.stat().st_size, Screen()

        def sent(done: int) -> None:
            screen.live(f"uploading, {size_in_words(done)} of {size_in_words(total)}", done, total)

        try:
            answer = control.upload(*path, file=source.zip, sent=sent, **query)
        finally:
            screen.clear()
    build: dict[str, Any] = answer["build"]
    return build


def how_to_use(control: ControlSession, deployment: dict[str, Any], *, with_tokens: bool) -> list[str]:
    """Returns the base URL of the crew, its tokens if wanted, and commands to paste."""
    from windlass.api.crew_api.welcome import welcome
    from windlass.cli.crew_session import CrewClient
    from windlass.secrets.secret import Secret

    slug, base_url = deployment["slug"], base_url_of(control, deployment)
    with CrewClient(base_url, control.server.token) as crew:
        schema = crew.inputs().get("schema") or {}
    shown = control.get("deployments", slug, "tokens") if with_tokens else None
    tokens = shown and (Secret(shown["organization_token"]), Secret(shown["user_token"]), shown["user"])
    show = command("deployments", "show", slug, "--tokens", control=control)
    return ["", *welcome(base_url, schema, tokens or None, show)]


def base_url_of(control: ControlSession, deployment: dict[str, Any]) -> str:
    """Returns the crew's base URL. The server sends only its path if it does not know its own address."""
    url = str(deployment["base_url"])
    return f"{control.address}{url}" if url.startswith("/") else url


def notify_env_file(place: str, control: ControlSession, slug: str) -> None:
    """Points out a .env file that is not uploaded, unless the deployment has variables."""
    file = Path(place) / ".env"
    if file.is_file() and not control.get("deployments", slug, "variables")["items"]:
        line = command("env", "set", slug, "--from-file", str(file), control=control)
        notify(f"{file} is not uploaded. To set its variables: {line}")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
