"""The variables of a crew: list, add, edit, remove, and paste a whole .env file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from windlass.dashboard.crew_frame import crew_page
from windlass.dashboard.routes import Routes, one_line, several_lines
from windlass.deployments.env_files import BadEnvFile, looks_secret, parse_env_file
from windlass.deployments.members import NotAnOwner
from windlass.deployments.variables import DIRECT, BadVariable, GivenVariable, NoSuchVariable, ValueSource, Variable
from windlass.rights import Role
from windlass.secrets.provider import SecretError
from windlass.secrets.secret import Secret
from windlass.store.variables import TooManyVariables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.responses import Response

    from windlass.dashboard.routes import Visit
    from windlass.deployments.credentials import Credential

ROUTES = Routes()
Group = tuple[str, list[tuple[str, str]]]
"""The title of a group of options, and the options as pairs of value and words."""
BAD = 400
PATH = "/crews/{slug}/environment"
DIRECT_VALUE = "value"
REFUSED = (BadVariable, BadEnvFile, NotAnOwner, SecretError, TooManyVariables)
KINDS = {"by_name": None, "secret": True, "plain": False}
"""How the variables of a pasted .env file become secret or plain. None: by each name and value."""


@dataclass(frozen=True, slots=True)
class VariableForm:
    """The fields of one variable. `source` is `value`, `credential:NAME` or `default:PROVIDER`."""

    name: str = ""
    value: str = ""
    secret: bool = True
    source: str = DIRECT_VALUE
    secret_name: str = ""

    @classmethod
    def of(cls, found: Variable) -> VariableForm:
        return cls(found.name, found.value or "", found.secret, _text_of(found.source), found.secret_name or "")

    @classmethod
    def sent(cls, visit: Visit, name: str) -> VariableForm:
        return cls(
            name,
            several_lines(visit.field("value")),
            visit.field("secret") == "on",
            one_line(visit.field("source", DIRECT_VALUE)),
            one_line(visit.field("secret_name")),
        )

    @property
    def shown(self) -> VariableForm:
        """Returns the fields as a page may show them again."""
        return replace(self, value="") if self.secret else self

    def given(self) -> GivenVariable:
        kind, _, name = self.source.partition(":")
        if kind == DIRECT_VALUE:
            return GivenVariable(self.name, Secret(self.value), self.secret)
        source = ValueSource("default", provider=name) if kind == "default" else ValueSource("credential", None, name)
        return GivenVariable(self.name, None, secret=True, source=source, secret_name=self.secret_name)


@ROUTES.get(PATH, Role.VIEWER)
async def show(visit: Visit) -> Response:
    rows = await visit.dashboard.control.management.variables(visit.path["slug"])
    shown = rows if visit.may(Role.DEVELOPER) else [replace(row, value=None) for row in rows]
    titles = {one.name: one.title for one in visit.dashboard.control.credentials.providers()}
    unread = [row.name for row in rows if is_unread(row)]
    return await crew_page(visit, "environment.html", "Environment", variables=shown, titles=titles, unread=unread)


@ROUTES.get(f"{PATH}/add", Role.DEVELOPER)
async def show_add(visit: Visit) -> Response:
    return await _form(visit, VariableForm(), None)


@ROUTES.post(f"{PATH}/add", Role.DEVELOPER)
async def add(visit: Visit) -> Response:
    form = VariableForm.sent(visit, one_line(visit.field("name")))
    if any(row.name == form.name for row in await _variables(visit)):
        error = BadVariable(f"There is a variable {form.name} already.", "Edit it in the list, or choose another key.")
        return await _form(visit, form, None, error)
    return await _set(visit, form, None)


@ROUTES.get(f"{PATH}/variables/{{name}}", Role.DEVELOPER)
async def show_one(visit: Visit) -> Response:
    found = await _variable(visit)
    return await _form(visit, VariableForm.of(found), found)


@ROUTES.post(f"{PATH}/variables/{{name}}", Role.DEVELOPER)
async def change(visit: Visit) -> Response:
    found = await _variable(visit)
    return await _set(visit, VariableForm.sent(visit, found.name), found)


@ROUTES.post(f"{PATH}/variables/{{name}}/remove", Role.DEVELOPER)
async def remove(visit: Visit) -> Response:
    slug, found = visit.path["slug"], await _variable(visit)
    await visit.dashboard.control.management.unset_variable(slug, found.name, visit.actor)
    return visit.redirect(_path(visit), notice=f"{found.name} is removed. The next kickoff does not get it.")


@ROUTES.get(f"{PATH}/paste", Role.DEVELOPER)
async def show_paste(visit: Visit) -> Response:
    return await crew_page(visit, "environment_paste.html", "Environment", error=None, secrets="by_name")


@ROUTES.post(f"{PATH}/paste", Role.DEVELOPER)
async def paste(visit: Visit) -> Response:
    slug, secrets = visit.path["slug"], visit.field("secrets")
    try:
        values = parse_env_file(several_lines(visit.field("text")))
        if not values:
            raise BadVariable("The text has no line of the form NAME=VALUE.", "Paste the lines of a .env file.")
        given = [_pasted(name, value, KINDS.get(secrets)) for name, value in values.items()]
        await visit.dashboard.control.management.set_variables(slug, given, visit.actor)
    except REFUSED as error:
        page = {"error": error, "secrets": secrets}
        return await crew_page(visit, "environment_paste.html", "Environment", BAD, **page)
    secret = sum(one.secret for one in given)
    count = "1 variable is" if len(given) == 1 else f"{len(given)} variables are"
    return visit.redirect(_path(visit), notice=f"{count} set, {secret} of them secret. The next kickoff gets them.")


@ROUTES.post(f"{PATH}/redeploy", Role.DEVELOPER)
async def redeploy(visit: Visit) -> Response:
    build = await visit.dashboard.control.deploys.redeploy(visit.path["slug"], visit.actor)
    return visit.redirect(f"/ui/builds/{build.id}", notice="The build reads the values from the secret managers.")


async def _set(visit: Visit, form: VariableForm, before: Variable | None) -> Response:
    try:
        rows = await visit.dashboard.control.management.set_variables(visit.path["slug"], [form.given()], visit.actor)
    except REFUSED as error:
        return await _form(visit, form.shown, before, error)
    (now,) = [row for row in rows if row.name == form.name]
    if now.read == "at deploy":
        return visit.redirect(_path(visit), notice=f"{now.name} is set. The next deploy reads its value.")
    return visit.redirect(_path(visit), notice=f"{now.name} is set. The next kickoff gets it.")


async def _form(visit: Visit, form: VariableForm, before: Variable | None, error: Exception | None = None) -> Response:
    credentials = visit.dashboard.control.credentials
    titles = {one.name: one.title for one in credentials.providers()}
    deployment = await visit.dashboard.control.management.get(visit.path["slug"])
    context: dict[str, Any] = {
        "form": form,
        "before": before,
        "error": error,
        "sources": _sources(await credentials.permitted(deployment, visit.actor), titles, form.source),
    }
    return await crew_page(visit, "variable.html", "Environment", BAD if error else 200, **context)


def _sources(credentials: Sequence[Credential], titles: dict[str, str], current: str) -> list[Group]:
    """Returns the options of the select of sources. It has the current one in any case."""
    named = [(f"credential:{one.name}", f"{one.name} · {titles[one.provider]}, {one.read}") for one in credentials]
    usual = [
        (f"default:{one.provider}", f"Default of {titles[one.provider]} · now {one.name}, {one.read}")
        for one in credentials
        if one.is_default
    ]
    known = {value for value, _ in (*named, *usual)} | {DIRECT_VALUE}
    lost = [] if current in known else [(current, f"{current.partition(':')[2]} · not permitted, or removed")]
    groups = [("Credentials", named), ("Default credentials", usual), ("Not available", lost)]
    return [(title, options) for title, options in groups if options]


def _pasted(name: str, value: str, secret: bool | None) -> GivenVariable:
    return GivenVariable(name, Secret(value), looks_secret(name, value) if secret is None else secret)


def is_unread(row: Variable) -> bool:
    """Returns whether a deploy has yet to read the value from where it comes now."""
    return row.read == "at deploy" and (row.read_at is None or row.read_at < row.updated_at)


def _text_of(source: ValueSource) -> str:
    if source == DIRECT:
        return DIRECT_VALUE
    return f"credential:{source.credential}" if source.type == "credential" else f"default:{source.provider}"


def _path(visit: Visit) -> str:
    return f"/ui/crews/{visit.path['slug']}/environment"


async def _variables(visit: Visit) -> list[Variable]:
    return await visit.dashboard.control.management.variables(visit.path["slug"])


async def _variable(visit: Visit) -> Variable:
    """Raises NoSuchVariable."""
    slug, name = visit.path["slug"], visit.path["name"]
    found = next((row for row in await _variables(visit) if row.name == name), None)
    if found is None:
        raise NoSuchVariable(f"The crew {slug} has no variable {name[:100]!r}.", "It may have been removed meanwhile.")
    return found
