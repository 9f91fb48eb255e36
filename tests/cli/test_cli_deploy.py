"""`windlass deploy` and `windlass env`, against a control API whose answers the test chooses."""

from __future__ import annotations

import json
import os
import re
import shutil
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cli.fake_crew import problem
from cli.fake_server import BUILD, FakeServer, build, deployed, deployment, log, names_in, variable
from cli.the_command import CommandHere
from projects_for_tests.making import written

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.the_command import Command

PROJECT = '[project]\nname = "Tea"\n[tool.windlass]\nentrypoint = "steep:steep"\n'
STEEP = "def steep(leaf: str) -> str:\n    return leaf\n"
CREW = {
    "pyproject.toml": '[project]\nname = "pot"\n[tool.crewai]\ntype = "crew"\n',
    "src/pot/__init__.py": "",
    "src/pot/crew.py": """
from crewai.project import CrewBase, agent, crew
@CrewBase
class Pot:
    @agent
    def ann(self): return Agent(config=self.agents_config["ann"])
    @crew
    def crew(self): return Crew(agents=self.agents, tasks=self.tasks)
""",
    "src/pot/config/agents.yaml": "ann: {role: r}\n",
    "src/pot/config/tasks.yaml": "one: {agent: ann}\n",
}
FLOW = {
    "pyproject.toml": '[project]\nname = "pot"\n[tool.crewai]\ntype = "flow"\ndefinition = "flow.yaml"\n',
    "flow.yaml": "name: a\nmethods:\n  tea:\n    {start: true, do: {call: crew, from_declaration: pot.jsonc}}\n",
}
SECRETS = {".env": "OPENAI_API_KEY=sk-1\n", "id_rsa": "key", ".venv/pyvenv.cfg": "home = /usr"}


@pytest.fixture
def server() -> Iterator[FakeServer]:
    server = FakeServer()
    server.open()
    yield server
    server.close()


@pytest.fixture
def windlass(tmp_path: Path, server: FakeServer) -> Command:
    return CommandHere(tmp_path, server.variables)


@pytest.fixture
def tea(tmp_path: Path) -> str:
    return str(written(tmp_path / "tea", {"pyproject.toml": PROJECT, "steep.py": STEEP, **SECRETS}))


def test_a_new_crew_is_uploaded_built_and_introduced(windlass: Command, server: FakeServer, tea: str) -> None:
    deployed(server, changes={"inputs": {"added": ["leaf"], "removed": []}, "tasks": {"added": ["steep"]}})
    ended = windlass("deploy", tea)
    assert ended.code == 0, ended
    assert names_in(server.sent("POST deployments")) == {"pyproject.toml", "steep.py"}
    assert [one.query for one in server.seen if one.method == "POST"] == ["name=tea"]
    said = ended.err.splitlines()
    assert [line for line in said if line.startswith("  ")] == [
        "  installing",
        "  loading",
        "  inputs added: leaf",
        "  tasks added: steep",
    ]
    assert f"deploying tea to {server.url}" in said
    assert "tea: version 1 is ready." in said
    assert any(line.startswith("left out") and "id_rsa" in line for line in said)
    assert f"windlass env set tea --from-file {tea}/.env" in ended.err, "the variables of the .env are pointed out"
    assert f"  Base URL           {server.url}/crews/tea\n" in ended.out
    assert "windlass deployments show tea --tokens" in ended.out, "a pipe gets no tokens"
    assert "curl" in ended.out


def test_a_crew_that_exists_gets_a_new_version(windlass: Command, server: FakeServer, tea: str) -> None:
    deployed(server, exists=True)
    assert windlass("deploy", tea, "-m", "hotter").code == 0
    (post,) = [one for one in server.seen if one.method == "POST"]
    assert (post.path, post.query) == ("/api/v1/deployments/tea/builds", "message=hotter")


def test_each_of_several_crews_is_deployed_by_the_command_that_the_error_names(
    windlass: Command, server: FakeServer, tmp_path: Path
) -> None:
    crew = "from crewai import Crew\none = Crew(agents=[], tasks=[])\ntea = Crew(agents=[], tasks=[])\n"
    project = str(written(tmp_path / "both", {"crew.py": crew}))
    deployed(server)
    refused = windlass("deploy", project)
    assert (refused.code, server.requests()) == (1, [])
    commands = re.findall(r"windlass (deploy \S+ --entrypoint \S+ --name \w+)", refused.err)
    assert commands == [f"deploy {project} --entrypoint crew.py:{one} --name {one}" for one in ("one", "tea")]
    assert windlass(*commands[1].split()).code == 0
    assert [one.query for one in server.seen if one.method == "POST"] == ["name=tea&entrypoint=crew.py%3Atea"]
    wrong = windlass("deploy", project, "--entrypoint", "crew.py:three")
    assert (wrong.code, "crew.py has no three to serve. There are: one" in wrong.err) == (1, True)


def test_of_two_first_deploys_at_once_the_second_makes_a_version(
    windlass: Command, server: FakeServer, tea: str
) -> None:
    deployed(server)
    server.answers["POST deployments"] = problem(409, "Conflict", "The name is taken.", slug="tea")
    assert windlass("deploy", tea).code == 0
    assert server.requests().count("POST deployments/tea/builds") == 1


def test_a_taken_name_is_an_error_for_a_new_crew(windlass: Command, server: FakeServer, tea: str) -> None:
    deployed(server, exists=True)
    server.answers["POST deployments"] = problem(409, "Conflict", "There is a deployment 'tea' already.", slug="tea")
    ended = windlass("deploy", tea, "--new")
    assert (ended.code, "There is a deployment 'tea' already." in ended.err) == (3, True)
    assert "POST deployments/tea/builds" not in server.requests()


def test_a_build_that_fails_is_an_error_with_its_hint_and_the_old_version_serves(
    windlass: Command, server: FakeServer, tea: str
) -> None:
    deployed(
        server,
        exists=True,
        state="failed",
        error="steep.py, line 1: No module named 'kettle'",
        hint="Add it.",
        version=None,
    )
    ended = windlass("deploy", tea)
    assert (ended.code, ended.out) == (1, "")
    assert "error: tea: the build failed: steep.py, line 1: No module named 'kettle'\nAdd it.\n" in ended.err
    assert ended.err.endswith("Version 1 of tea still serves.\n")


def test_variables_are_set_before_the_build(windlass: Command, server: FakeServer, tea: str) -> None:
    deployed(server)
    server.answers["PUT deployments/tea/variables"] = {"items": []}
    assert windlass("deploy", tea, "--env-file", f"{tea}/.env").code == 0
    assert server.sent("PUT deployments/tea/variables") == {
        "variables": [{"name": "OPENAI_API_KEY", "value": "sk-1", "secret": True}]
    }
    changes = [name for name in server.requests() if not name.startswith("GET")]
    assert changes.index("PUT deployments/tea/variables") < changes.index("POST deployments/tea/builds")


def test_a_repository_is_fetched_by_the_server(windlass: Command, server: FakeServer) -> None:
    deployed(server)
    url = "https://github.com/acme/tea.git"
    assert windlass("deploy", url, "--ref", "v2", "--subfolder", "crews/tea", "--no-wait").code == 0
    body = {"name": "tea", "git": {"url": url, "ref": "v2", "subfolder": "crews/tea"}}
    assert server.sent("POST deployments") == body
    assert not any("/log" in name for name in server.requests())


def test_a_zip_file_is_sent_as_it_is(windlass: Command, server: FakeServer, tmp_path: Path) -> None:
    deployed(server)
    with zipfile.ZipFile(tmp_path / "tea.zip", "w") as archive:
        archive.writestr("pyproject.toml", PROJECT)
        archive.writestr("leaves.txt", os.urandom(3_000_000))  # several pieces
        archive.writestr("steep.py", STEEP)
    assert windlass("deploy", str(tmp_path / "tea.zip")).code == 0
    assert server.sent("POST deployments") == (tmp_path / "tea.zip").read_bytes()


def test_all_as_json(windlass: Command, server: FakeServer, tea: str) -> None:
    deployed(server)
    ended = windlass("deploy", tea, "--json")
    assert json.loads(ended.out) == {"deployment": deployment(), "build": build()}
    deployed(server, exists=True)
    assert json.loads(windlass("deploy", tea, "--json", "--no-wait").out) == {
        "deployment": "tea",
        "build": build("queued"),
    }


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"pyproject.toml": "[project"}, "error: pyproject.toml can't be read"),
        ({"notes.txt": "tea"}, "there is no pyproject.toml and no Python file"),
        ({"pyproject.toml": f"{PROJECT}weight = -1\n", "steep.py": STEEP}, "error: pyproject.toml:5: "),
        (CREW | {"src/pot/config/tasks.yaml": "one:\n  agent: ann\n bad\n"}, "error: src/pot/config/tasks.yaml:3: "),
        (CREW | {"src/pot/config/agents.yaml": "ann: [\n"}, "error: src/pot/config/agents.yaml:2: "),
        (CREW | {"src/pot/config/tasks.yaml": "one: {agent: eve}\n"}, "error: src/pot/config/tasks.yaml:1: "),
        (CREW | {"src/pot/config/tasks.yaml": "one:\n  context: [two]\n"}, "error: src/pot/config/tasks.yaml:2: "),
        (CREW | {"src/pot/config/agents.yaml": "ann: {tools: [kettle]}\n"}, "names 'kettle', and Pot has no method"),
        (
            {name: CREW[name] for name in CREW if "agents" not in name},
            "error: src/pot/crew.py:6: Pot asks for its agents",
        ),
        (FLOW | {"flow.yaml": "name: a\nmethods: [\n"}, "error: flow.yaml:3: "),
        (FLOW, "error: flow.yaml:4: the method tea: there is no pot.jsonc."),
        ({"crew.jsonc": '{"agents": [],\n "tasks": [,]}'}, "error: crew.jsonc:2: "),
    ],
)
def test_a_project_that_is_none_is_not_uploaded(
    windlass: Command, server: FakeServer, tmp_path: Path, files: dict[str, str], words: str
) -> None:
    folder = written(tmp_path / "other", files)
    shutil.make_archive(str(folder), "zip", folder)
    for place in (folder, f"{folder}.zip"):
        ended = windlass("deploy", str(place))
        assert ended.code == 1
        assert words in ended.err
        assert "Nothing was uploaded." in ended.err
        assert "windlass-deploy-" not in ended.err, "no path of the command's own"
        assert server.seen == []


def test_all_errors_in_the_files_of_a_project_are_one_message(
    windlass: Command, server: FakeServer, tmp_path: Path
) -> None:
    tasks = "one: {agent: eve}\ntwo: {agent: ann, context: [three], colour: red}\n"
    ended = windlass("deploy", str(written(tmp_path / "pot", CREW | {"src/pot/config/tasks.yaml": tasks})))
    assert (ended.code, ended.out, server.seen) == (1, "", [])
    assert ended.err == (
        "error: 2 errors in the files of the project:\n"
        "src/pot/config/tasks.yaml:1: the task one names the agent 'eve', which Pot does not have.\n"
        "    There are: ann.\n"
        "src/pot/config/tasks.yaml:2: the context of the task two names 'three', and Pot has no such @task.\n"
        "    Write it in crew.py, with @task.\n"
        "Nothing was uploaded.\n"
    )


def test_a_class_that_a_load_may_pass_over_does_not_stop_a_deployment(
    windlass: Command, server: FakeServer, tmp_path: Path
) -> None:
    other = "from pot.other import Kettle\n@CrewBase\nclass Pot:\n    kettle = Kettle\n"
    crew = CREW["src/pot/crew.py"].replace("@CrewBase\nclass Pot:\n", other)
    kettle = CREW["src/pot/crew.py"].replace("Pot", "Kettle").replace("ann", "eve")
    deployed(server)
    project = written(tmp_path / "pot", CREW | {"src/pot/crew.py": crew, "src/pot/other.py": kettle})
    assert windlass("deploy", str(project), "--name", "tea").code == 0


def test_what_does_not_exist_is_an_error(windlass: Command, server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "tea.txt").touch()
    for place, words in (("nowhere", "does not exist"), ("tea.txt", "is no folder, zip file or git URL")):
        ended = windlass("deploy", str(tmp_path / place))
        assert (ended.code, words in ended.err) == (1, True)
    assert windlass("deploy", str(tmp_path), "--ref", "main").code == 2
    assert server.seen == []


def test_an_upload_that_is_too_large_for_the_server_is_an_error(
    windlass: Command, server: FakeServer, tea: str
) -> None:
    deployed(server)
    server.answers["POST deployments"] = problem(413, "Content Too Large", "The upload is larger than 100 MB.")
    ended = windlass("deploy", tea)
    assert (ended.code, "larger than 100 MB" in ended.err) == (3, True)


def test_a_zip_that_is_too_large_is_not_sent(windlass: Command, server: FakeServer, tmp_path: Path) -> None:
    with (tmp_path / "tea.zip").open("wb") as file:
        file.truncate(101 << 20)
    ended = windlass("deploy", str(tmp_path / "tea.zip"))
    assert (ended.code, "is larger than 100 MB" in ended.err) == (1, True)
    assert server.seen == []


def test_an_answer_without_a_member_is_an_error_of_the_server(windlass: Command, server: FakeServer, tea: str) -> None:
    answers: list[dict[str, object]] = [{}, {"deployment": {}, "build": {}}]
    for answer in answers:
        deployed(server)
        server.answers["POST deployments"] = answer
        ended = windlass("deploy", tea)
        assert (ended.code, "The server's answer has no `" in ended.err) == (3, True)


def test_ctrl_c_leaves_the_build_running_and_names_the_command_that_follows_it(
    windlass: Command, server: FakeServer, tea: str
) -> None:
    deployed(server)
    server.answers[f"GET builds/{BUILD}/log"] = [log("installing"), log(after=1)]
    with windlass.started("deploy", tea) as command:
        command.wait_for("installing")
        command.interrupt()
        assert command.end() == 130
    assert "The build goes on. Follow it with: windlass deployments logs tea --follow" in command.err


def test_a_build_that_no_worker_takes_is_reported(windlass: Command, server: FakeServer, tea: str) -> None:
    deployed(server)
    server.answers[f"GET builds/{BUILD}/log"] = [log(state="queued"), log("installing"), log(state="ready", after=1)]
    ended = windlass("deploy", tea)
    assert ended.code == 0
    lines = [line for line in ended.err.splitlines() if line.startswith("  ")]
    assert lines == [
        "  the build waits for a worker (windlass serve, windlass worker)",
        "  installing",
    ]


def test_no_server_is_an_error_of_its_own(windlass: Command, server: FakeServer, tea: str) -> None:
    server.stop()
    ended = windlass("deploy", tea)
    assert (ended.code, "can't be reached" in ended.err) == (4, True)
    ended = windlass("deploy", tea, WINDLASS_URL="")
    assert (ended.code, "windlass serve" in ended.err) == (4, True)
    server.start()


def test_a_name_that_is_not_utf_8_is_an_error_with_the_name(windlass: Command, server: FakeServer, tea: str) -> None:
    (Path(tea) / ".gitignore").write_text("out/\n")
    (Path(tea) / os.fsdecode(b".env.caf\xe9")).touch()
    (Path(tea) / os.fsdecode(b"caf\xe9.csv")).touch()
    ended = windlass("deploy", tea)
    assert (ended.code, server.seen) == (1, [])
    assert ended.err.startswith("error: The file 'caf\\udce9.csv' can't be deployed: its name has control characters")
    (Path(tea) / os.fsdecode(b"caf\xe9.csv")).unlink()
    deployed(server)
    ended = windlass("deploy", tea)
    assert ended.code == 0, ended
    assert ".env.caf\\udce9" in ended.err


def test_a_byte_order_mark_is_no_part_of_a_variable(windlass: Command, server: FakeServer, tmp_path: Path) -> None:
    server.answers["PUT deployments/tea/variables"] = {"items": []}
    file = tmp_path / "some.env"
    file.write_text("DEPTH=2\n", "utf-8-sig")
    assert windlass("env", "set", "tea", "--from-file", str(file)).code == 0
    assert server.sent("PUT deployments/tea/variables")["variables"] == [
        {"name": "DEPTH", "value": "2", "secret": False}
    ]


def test_variables_are_secret_by_their_names_and_values(windlass: Command, server: FakeServer, tmp_path: Path) -> None:
    server.answers["PUT deployments/tea/variables"] = {"items": []}
    file = tmp_path / "some.env"
    file.write_text("# of tea\nexport DEPTH=2\nDATABASE=postgres://tea:leaf@db/tea\nAUTHOR='Ann B.'\n", "utf-8")
    ended = windlass("env", "set", "tea", "OPENAI_API_KEY", "DEPTH=3", "--from-file", str(file), typed="sk-1\n")
    assert ended.code == 0, ended
    assert server.sent("PUT deployments/tea/variables")["variables"] == [
        {"name": "DEPTH", "value": "3", "secret": False},
        {"name": "DATABASE", "value": "postgres://tea:leaf@db/tea", "secret": True},
        {"name": "AUTHOR", "value": "Ann B.", "secret": False},
        {"name": "OPENAI_API_KEY", "value": "sk-1", "secret": True},
    ]
    assert (
        ended.err
        == "Set for tea, from the next kickoff on: DEPTH, DATABASE (secret), AUTHOR, OPENAI_API_KEY (secret)\n"
    )
    server.seen.clear()
    warned = windlass("env", "set", "tea", "MY_TOKEN=abc")
    assert warned.err.startswith(
        "warning: every user of this machine can see a command line, also the value of MY_TOKEN"
    )
    server.seen.clear()
    assert (
        windlass("env", "set", "tea", "MY_TOKEN=abc", "--plain").err
        == "Set for tea, from the next kickoff on: MY_TOKEN\n"
    )
    assert server.sent("PUT deployments/tea/variables")["variables"][0]["secret"] is False


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Give NAME=VALUE"),
        (["1X=2"], "is no name of a variable"),
        (["WINDLASS_HOME=/x"], "are for the server"),
        (["A", "B"], "Only one value"),
    ],
)
def test_what_is_no_variable_is_a_usage_error(
    windlass: Command, server: FakeServer, arguments: list[str], words: str
) -> None:
    ended = windlass("env", "set", "tea", *arguments)
    assert (ended.code, words in ended.err) == (2, True)
    assert server.seen == []


def test_a_line_that_is_no_variable_is_named(windlass: Command, tmp_path: Path) -> None:
    (tmp_path / "x.env").write_text("A=1\n=2\n")
    ended = windlass("env", "set", "tea", "--from-file", str(tmp_path / "x.env"))
    assert (ended.code, "x.env:2 is no line of the form NAME=VALUE" in ended.err) == (2, True)


def test_values_of_secrets_are_not_in_the_list(windlass: Command, server: FakeServer) -> None:
    of_aws = {"type": "credential", "provider": "aws", "credential": "prod"}
    at_deploy: dict[str, Any] = {"source": of_aws, "secret_name": "app#db", "read": "at deploy", "secret": True}
    default = {"type": "default", "provider": "vault", "credential": None}
    rows = [
        variable("KEY", None, secret=True),
        variable("DEPTH", "2"),
        variable("NEW", None, **at_deploy),
        variable("OLD", None, **at_deploy, read_at="2026-01-02T03:00:00Z"),
        variable("NOW", None, source=default, secret_name="db", read="at each kickoff", secret=True),
        variable("NONE", None, source=default, secret_name="db", secret=True),
    ]
    server.answers["GET deployments/tea/variables"] = {"items": rows}
    lines = [re.split("  +", line)[:-2] for line in windlass("env", "list", "tea").out.splitlines()[1:]]
    assert lines == [
        ["KEY", "(secret)", "yes", "value", "-", "-"],
        ["DEPTH", "2", "no", "value", "-", "-"],
        ["NEW", "(secret)", "yes", "prod", "app#db", "at deploy (not yet)"],
        ["OLD", "(secret)", "yes", "prod", "app#db", "at deploy (2026-01-02 03:00:00)"],
        ["NOW", "(secret)", "yes", "default of vault", "db", "at each kickoff"],
        ["NONE", "(secret)", "yes", "default of vault", "db", "never: no credential"],
    ]
    assert json.loads(windlass("env", "list", "tea", "--json").out) == rows


def test_variables_are_bound_to_secrets(windlass: Command, server: FakeServer) -> None:
    server.answers["PUT deployments/tea/variables"] = {"items": [variable("B", None, read="at deploy")]}
    ended = windlass("env", "set", "tea", "A", "B=app/db#user", "--from", "prod", "--secret-name", "app/key")
    assert ended.err.splitlines() == [
        "Set for tea, from the next kickoff on: A (secret)",
        "Set for tea, from the next deploy on: B. To read it now: windlass deployments redeploy tea",
    ]
    source = {"type": "credential", "credential": "prod"}
    assert server.sent("PUT deployments/tea/variables")["variables"] == [
        {"name": "A", "source": source, "secret_name": "app/key"},
        {"name": "B", "source": source, "secret_name": "app/db#user"},
    ]
    server.seen.clear()
    assert windlass("env", "set", "tea", "A=key", "--from-default", "aws").code == 0
    (given,) = server.sent("PUT deployments/tea/variables")["variables"]
    assert given["source"] == {"type": "default", "provider": "aws"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["A", "--from", "prod"],
        ["A=x", "--from", "prod", "--from-default", "aws"],
        ["A=x", "--from", "prod", "--plain"],
        ["A=x", "--secret-name", "y"],
        ["1=x", "--from", "prod"],
    ],
)
def test_a_source_without_its_parts_is_a_usage_error(
    windlass: Command, server: FakeServer, arguments: list[str]
) -> None:
    ended = windlass("env", "set", "tea", *arguments)
    assert (ended.code, server.seen) == (2, []), ended
