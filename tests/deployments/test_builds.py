"""Builds of deployments: they make versions, and a project at fault leaves the version before it in place."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from deployments.builds_of_tests import CODE, PROJECT, Server
from projects_for_tests.making import written
from projects_for_tests.wheels import source, wheel
from windlass.deployments.building import for_deployer
from windlass.deployments.deployed_code import Removal
from windlass.deployments.registration import Registration
from windlass.deployments.task_identities import made_up
from windlass.errors import ProjectError
from windlass.kickoffs.states import State
from windlass.wiring.dev import refuse_deployed

NEEDS = PROJECT.replace("dependencies = []", 'dependencies = ["tiny"]')
OF_A_SECRET = """
import os
def run(topic: str) -> str:
    return topic
run.__doc__ = "Writes as " + os.environ.get("SIGNATURE", "")
"""


async def test_the_versions_of_a_deployment(server: Server) -> None:
    first = await server.build()
    assert (first.state, first.version, first.changes, first.error) == ("ready", 1, None, None)
    version = await server.current()
    assert version is not None
    assert version.source == {
        "kind": "function",
        "entrypoint": "work:run",
        "preload": None,
        "options": {},
        "snapshot": first.snapshot,
        "environment": None,
        "root": "",
    }
    log = await server.log(first)
    assert "the project is a function: work:run" in log
    assert log[-2].startswith("no model key is set. If the crew calls a model: windlass env set ")
    assert log[-1] == "the project is loaded: 1 task, inputs: topic"
    second = await server.build(code=CODE.replace("topic: str", "topic: int, tone: str = 'dry'").replace("Does", "Did"))
    assert (second.state, second.version) == ("ready", 2)
    assert second.changes == {
        "inputs": {"added": ["tone"], "removed": [], "changed": ["topic"]},
        "tasks": {"added": [], "removed": [], "changed": ["run"]},
    }
    await server.worker()
    old, new = await server.kickoff(version, topic="a"), await server.kickoff(topic=1)
    assert [(await server.result(one)).output for one in (old, new)] == ['"first: a"', '"first: 1"']


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import nothing_like_that\n", "nothing_like_that"),
        ("raise SystemExit(3)\n", "while it was loaded|exit"),
        ("def run(:\n", "work.py"),
        ("import os\nos.abort()\n", "while the project was loaded"),
    ],
)
async def test_a_project_that_does_not_load_leaves_the_version_before(server: Server, code: str, why: str) -> None:
    await server.build()
    failed = await server.build(code=code)
    assert (failed.state, failed.version) == ("failed", None)
    assert any(found in f"{failed.error}" for found in why.split("|")), failed.error
    assert str(server.folder) not in f"{failed.error} {failed.hint}", "paths are those of the project"
    log = await server.store.log(failed.id, after=0, limit=1000)
    assert log[-1].level == "error"
    current = await server.current()
    assert current is not None
    assert current.number == 1


async def test_what_a_project_prints_is_in_the_log_within_its_bounds(server: Server) -> None:
    build = await server.build(code=CODE + "for number in range(20_000):\n    print('line', number)\n")
    assert build.state == "ready"
    log = await server.log(build)
    assert "line 0" in log
    assert [line for line in log if line.startswith("the log is full")] != []
    assert log[-1].startswith("the project is loaded")
    assert len(log) < 10_020


async def test_a_project_that_prints_without_end_is_stopped(server: Server) -> None:
    failed = await server.build(code="while True:\n    print('x' * 10_000)\n")
    assert failed.error == "the project printed more than 10 MB while it was loaded."
    (row,) = await server.database.rows("SELECT sum(length(message)) AS size FROM build_log")
    assert row["size"] < 1.1 * (1 << 20)


async def test_a_build_that_takes_too_long_is_ended(server: Server) -> None:
    failed = await server.build(code="import time\ntime.sleep(600)\n", seconds=3)
    assert (failed.state, failed.error) == ("failed", "the build took longer than 0.05 minutes.")


async def test_packages_come_from_an_environment_and_an_unknown_one_is_told_in_the_words_of_uv(server: Server) -> None:
    wheel(server.wheels, "tiny")
    code = "import tiny\ndef run() -> str:\n    return tiny.version\n"
    build = await server.build({"pyproject.toml": NEEDS}, code)
    assert build.state == "ready", build.error
    version = await server.current()
    assert version is not None
    assert server.environments.interpreter(version.source["environment"]) is not None
    assert any(line.startswith("Installed 1 package") for line in await server.log(build))
    unknown = await server.build({"pyproject.toml": NEEDS.replace("tiny", "tinier")}, code)
    assert unknown.state == "failed"
    assert "tinier" in f"{unknown.error}"
    assert "can't be installed" in f"{unknown.error}"
    await server.worker()
    assert (await server.result(await server.kickoff())).output == '"1.0"'
    server.use(server.folder / "another machine")
    await server.worker()
    kickoffs = [await server.kickoff() for _ in range(6)]
    assert {(await server.result(one)).output for one in kickoffs} == {'"1.0"'}


async def test_deployments_with_the_same_packages_share_a_zygote(server: Server) -> None:
    wheel(server.wheels, "tiny")
    await server.worker()
    results = []
    for name in ("one", "two", "three"):
        server.deployment = await server.add(name)
        files = {"pyproject.toml": NEEDS.replace('"tea"', f'"{name}"')}
        await server.build(files, f"import os, tiny\ndef run() -> int:\n    return os.getppid()  # {name}\n")
        results.append((await server.result(await server.kickoff(await server.current(name)))).output)
    assert len(set(results)) == 1
    assert results[0] is not None


async def test_a_kickoff_that_waits_for_its_environment_shows_it_and_can_be_stopped(server: Server) -> None:
    hangs = server.folder / "hangs"
    source(server.wheels, "slow", f"    import time\n    while os.path.exists({str(hangs)!r}): time.sleep(0.05)")
    build = await server.build({"pyproject.toml": PROJECT.replace("dependencies = []", 'dependencies = ["slow"]')})
    assert build.state == "ready", build.error
    hangs.touch()
    shutil.rmtree(server.folder / "cache")
    server.use(server.folder / "another machine")
    await server.worker()
    kickoff = await server.kickoff(topic="x")
    async with asyncio.timeout(60):
        while (waits := await server.statuses.waiting(kickoff, None)) is None or waits.code != "environment":  # noqa: ASYNC110 - a column of another process
            await asyncio.sleep(0.05)
    await server.kickoffs.stop(kickoff)
    status = await server.result(kickoff)
    assert status.state is State.CANCELLED
    again = await server.kickoff(topic="x")
    hangs.unlink()
    assert (await server.result(again)).output == '"first: x"'


async def test_a_worker_that_cannot_make_the_environment_fails_the_kickoff_with_the_reason(server: Server) -> None:
    wheel(server.wheels, "tiny")
    await server.build({"pyproject.toml": NEEDS})
    shutil.rmtree(server.wheels)
    shutil.rmtree(server.folder / "cache")
    server.use(server.folder / "another machine")
    await server.worker()
    status = await server.result(await server.kickoff(topic="x"))
    assert "can't be installed" in f"{status.error}"


async def test_a_disk_without_room_fails_the_build(server: Server) -> None:
    await server.build()
    (server.folder / "full").mkdir()
    (server.folder / "full" / "sources").write_text("no folder can be made here")
    server.use(server.folder / "full")
    failed = await server.build(code=CODE + "# changed\n")
    assert failed.state == "failed"
    current = await server.current()
    assert current is not None
    assert current.number == 1


async def test_a_task_that_depends_on_a_secret_is_an_error_that_names_it(server: Server) -> None:
    await server.set_variable("SIGNATURE", "by-Jane-5531")
    await server.set_variable("ANOTHER", "of-no-matter-1")
    failed = await server.build(code=OF_A_SECRET)
    assert failed.error == (
        "the task run depends on the value of a secret variable (SIGNATURE): with another value it counts as another "
        "task."
    )
    await server.set_variable("OTHER", "x" * 20)
    assert (await server.build(code=OF_A_SECRET.replace("SIGNATURE", "PLAIN"))).state == "ready"


async def test_a_task_that_changes_at_each_load_is_a_warning(server: Server) -> None:
    await server.set_variable("SIGNATURE", "by-Jane-5531")
    build = await server.build(code=OF_A_SECRET.replace("os.environ", "{'SIGNATURE': os.urandom(9).hex()}"))
    assert build.state == "ready", build.error
    assert any("another identity: it depends on the time" in line for line in await server.log(build))


async def test_a_project_that_needs_its_real_secret_is_built_with_a_warning(server: Server) -> None:
    await server.set_variable("SIGNATURE", "by-Jane-5531")
    build = await server.build(code="import os\nassert os.environ['SIGNATURE'] == 'by-Jane-5531'\n" + CODE)
    assert build.state == "ready", build.error
    assert any("was not checked" in line for line in await server.log(build))


async def test_values_of_variables_are_in_no_log_and_reach_the_crew(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHERS_API_KEY", "of-the-server-99-x7")
    secret, plain = "correct-horse-battery-7", "postgres://me:hunter22@db.test/x"
    await server.set_variable("SIGNATURE", secret)
    await server.set_variable("PLACE", plain, secret=False)
    await server.set_variable("WINDLASS_HOME", "/elsewhere", secret=False)
    prints = "import os\nprint(os.environ['SIGNATURE'], os.environ['PLACE'], os.environ['OTHERS_API_KEY'])\n"
    fails = await server.build(code=prints + "raise ValueError(os.environ['SIGNATURE'])\n")
    shown = "\n".join([*await server.log(fails), f"{fails.error} {fails.hint}"])
    assert secret not in shown
    assert "hunter22" not in shown
    assert "of-the-server-99-x7" not in shown
    assert "[secret]" in shown
    code = "import os\ndef run() -> list:\n    return [os.environ['SIGNATURE'][:7], 'WINDLASS_HOME' in os.environ]\n"
    await server.build(code=code)
    await server.worker()
    assert "correct" in f"{(await server.result(await server.kickoff())).output}"
    await server.set_variable("SIGNATURE", "another-value-99")
    status = await server.result(await server.kickoff())
    assert ("another" in f"{status.output}", "alse" in f"{status.output}") == (True, True)


async def test_a_build_fetches_from_git(server: Server) -> None:
    repository = written(server.folder / "repository", {"app/work.py": CODE, "app/pyproject.toml": PROJECT})
    git = ["git", "-C", str(repository), "-c", "user.name=t", "-c", "user.email=t@t.test"]
    for command in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "first"]):
        await asyncio.to_thread(subprocess.run, [*git, *command], check=True)
    origin = {"type": "git", "url": f"file://{repository}", "subfolder": "app", "ref": "main"}
    build = await server.builds.start(server.deployment, origin, None, None)
    await server.building().run(str(build.id))
    found = await server.ended(build.id)
    assert found.state == "ready", found.error
    assert len(found.origin["commit"]) == 40
    assert found.snapshot is not None
    missing = await server.builds.start(server.deployment, {**origin, "ref": "nowhere"}, None, None)
    await server.building().run(str(missing.id))
    assert "it has no branch, tag or commit of this name" in f"{(await server.ended(missing.id)).error}"


async def test_a_fetch_from_a_host_that_does_not_answer_ends_with_its_worker(server: Server) -> None:
    asked, gone = asyncio.Event(), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()
        writer.close()
        gone.set()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as silent:
        port = silent.sockets[0].getsockname()[1]
        origin = {"type": "git", "url": f"http://127.0.0.1:{port}/tea.git"}
        build = await server.builds.start(server.deployment, origin, None, None)
        building = asyncio.create_task(server.building().run(str(build.id)))
        await asyncio.wait_for(asked.wait(), 60)
        building.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(building, 60)
        await asyncio.wait_for(gone.wait(), 60)


async def test_settings_of_the_deployment_replace_the_limits_of_the_project(server: Server) -> None:
    limits = PROJECT + "[tool.windlass.limits]\ntimeout = 100\n"
    await server.build({"pyproject.toml": limits}, "import time\ndef run() -> None:\n    time.sleep(600)\n")
    await server.database.execute("""UPDATE deployments SET settings = '{"limits": {"timeout": 0.5}}'""")
    await server.worker()
    assert "timeout of 0.5 s" in f"{(await server.result(await server.kickoff())).error}"


async def test_side_jobs_build_one_after_the_other_and_skip_what_is_superseded(server: Server) -> None:
    queued = [await server.queued({"work.py": CODE + f"# {number}\n"}) for number in range(3)]
    await server.side_jobs()
    found = [await server.ended(build) for build in queued]
    assert [(build.state, build.version) for build in found] == [
        ("superseded", None),
        ("superseded", None),
        ("ready", 1),
    ]


async def test_a_build_of_a_worker_that_died_is_done_by_another(server: Server) -> None:
    build = await server.queued({"work.py": CODE})
    assert await server.store.begin(build) is not None, "by a worker that dies here"
    await server.side_jobs()
    found = await server.ended(build)
    assert (found.state, found.version) == ("ready", 1)
    assert any("the build begins again" in line for line in await server.log(found))


async def test_a_build_whose_worker_is_lost_again_and_again_fails(server: Server) -> None:
    build = await server.queued({"work.py": CODE})
    for _ in range(5):
        await server.store.begin(build)
    await server.building().run(str(build))
    found = await server.ended(build)
    assert (found.state, found.error) == ("failed", "the worker of this build was lost 5 times.")


async def test_a_build_is_put_back_when_its_worker_stops(server: Server) -> None:
    place = server.folder / "loads"
    code = f"import pathlib, time\npathlib.Path({str(place)!r}).touch()\ntime.sleep(600)\n"
    build = await server.queued({"work.py": code})
    first = await server.side_jobs()
    await until_written(place)
    await first.stop()
    (row,) = await server.database.rows("SELECT status::text FROM procrastinate_jobs WHERE task_name = 'build'")
    # On a busy machine the stop does not wait for the job, and the next look at silent workers puts it back.
    assert row["status"] in {"todo", "doing"}
    again = await server.builds.get(build)
    assert again is not None
    assert again.state == "building"


async def test_a_build_ends_when_its_deployment_is_removed(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.deployments.building.BETWEEN_LOOKS", 0.05)
    place = server.folder / "loads"
    code = f"import pathlib, time\npathlib.Path({str(place)!r}).touch()\ntime.sleep(600)\n"
    build = await server.queued({"work.py": code})
    building = asyncio.create_task(server.building().run(str(build)))
    await until_written(place)
    await server.database.execute(
        "UPDATE deployments SET removed_at = now() WHERE id = %(id)s", {"id": server.deployment}
    )
    await asyncio.wait_for(building, 60)
    found = await server.ended(build)
    assert (found.state, "the deployment was removed" in f"{found.error}") == ("failed", True)


async def until_written(file: Path) -> None:
    async with asyncio.timeout(60):
        while not file.exists():  # noqa: ASYNC110, ASYNC240 - another process writes the file
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("value", ["", "sk-abc-123", "https://me:pw1@host.test/a?b=c", "Zürich 9!", "\n"])
def test_a_made_up_value_has_the_form_of_the_real_one(value: str) -> None:
    found = made_up(value)
    assert len(found) == len(value)
    assert (found == value) == (not any(one.isascii() and one.isalnum() for one in value))
    assert found.startswith("https://") == value.startswith("https://")
    assert [one.isdigit() for one in found] == [one.isdigit() for one in value]


async def test_unused_code_and_old_logs_are_removed_and_those_of_the_current_version_stay(server: Server) -> None:
    first, second = await server.build(), await server.build(code=CODE + "# changed\n")
    in_use = await server.store.in_use()
    assert (in_use.snapshots, in_use.environments) == (frozenset({second.snapshot}), frozenset[str]())
    await server.database.execute(
        "UPDATE builds SET finished_at = now() - interval '91 days' WHERE id = %(id)s", {"id": first.id}
    )
    await Removal(server.store, server.checkouts, server.environments).remove_now()
    assert await server.log(first) == []
    assert await server.log(second) != []
    assert (await server.checkouts.get(f"{second.snapshot}")).is_dir()


async def test_dev_does_not_replace_a_deployed_crew(server: Server, tmp_path: Path) -> None:
    await server.build()
    named = written(tmp_path / "local", {"pyproject.toml": PROJECT, "work.py": CODE})
    with pytest.raises(ProjectError, match="tea is deployed on this server"):
        await refuse_deployed(server.deployments, [Registration.of(named)])
    other = written(tmp_path / "other", {"pyproject.toml": PROJECT.replace('"tea"', '"coffee"'), "work.py": CODE})
    await refuse_deployed(server.deployments, [Registration.of(other)])


@pytest.mark.parametrize(
    ("tasks", "error", "hint"),
    [
        (
            "one:\n  agent: ann\n bad\n",
            "src/tea/config/tasks.yaml:3: ",
            "Correct the YAML of this line: its indentation, a colon or a quote.",
        ),
        ("one: {agent: eve}\n", "src/tea/config/tasks.yaml:1: the task one names", "Write it in crew.py, with @agent."),
    ],
)
async def test_a_typo_in_a_file_of_a_crew_fails_the_build_before_packages_are_installed(
    server: Server, tasks: str, error: str, hint: str
) -> None:
    crew = "from crewai.project import CrewBase, crew\n@CrewBase\nclass Tea:\n    @crew\n    def crew(self): ...\n"
    needs = (
        '[project]\nname = "tea"\nversion = "1"\ndependencies = ["not-in-any-index"]\n[tool.crewai]\ntype = "crew"\n'
    )
    files = {"src/tea/crew.py": crew, "src/tea/config/agents.yaml": "{}", "src/tea/config/tasks.yaml": tasks}
    failed = await server.build({**files, "pyproject.toml": needs})
    assert (failed.state, failed.hint) == ("failed", hint)
    assert f"{failed.error}".startswith(error)
    assert not any("not-in-any-index" in line for line in await server.log(failed))


OWN = """
import subprocess
import sys
from importlib.metadata import version
import tiny


def run() -> list:
    commands = [["tea-time", "a"], [sys.executable, "-m", "tea.helper", "b"]]
    return [version("tea"), *(subprocess.check_output(one, text=True).strip() for one in commands)]
"""
HELPER = """
import sys
import tiny


def main():
    print(tiny.version, *sys.argv[1:])


if __name__ == "__main__":
    main()
"""


async def test_a_deployed_project_is_a_package_beside_those_of_its_shared_environment(server: Server) -> None:
    wheel(server.wheels, "tiny")
    declared = '[project.scripts]\ntea-time = "tea.helper:main"\n[build-system]\nrequires = []\n'
    files = {"pyproject.toml": f"{NEEDS}{declared}", "src/tea/__init__.py": "", "src/tea/helper.py": HELPER}
    built = await server.build(files, OWN)
    assert built.state == "ready", built.error
    await server.worker()
    assert json.loads(str((await server.result(await server.kickoff())).structured)) == ["1", "1.0 a", "1.0 b"]


async def test_a_build_serves_the_object_that_the_deployer_chose_and_a_redeploy_keeps_it(server: Server) -> None:
    files = {
        "pyproject.toml": '[project]\nname = "tea"\n',
        "inner/work.py": "def run() -> str:\n    return 'one'\n\ndef rest() -> str:\n    return 'two'\n",
        "inner/pyproject.toml": "[project]\n",
        "work.py": "def main() -> str:\n    return 'default'\n\ndef rest() -> str:\n    return 'chosen'\n",
    }
    build = await server.queued(files, entrypoint="./work.py:rest")
    await server.building().run(str(build))
    assert (await server.ended(build)).state == "ready"
    current = await server.current()
    assert current is not None
    assert (current.source or {})["entrypoint"] == "work:rest"
    await server.worker()
    assert (await server.result(await server.kickoff())).output == '"chosen"'
    for wrong in ("work.py:gone", "../tea/work.py:rest", "gone.py", "\ud800.py", "work:rest:more"):
        build = await server.queued(files, entrypoint=wrong)
        await server.building().run(str(build))
        assert (await server.ended(build)).state == "failed", wrong


async def test_the_error_for_several_crews_has_a_command_for_each(server: Server) -> None:
    crew = "from crewai import Crew\none = Crew(agents=[], tasks=[])\ntwo = Crew(agents=[], tasks=[])\n"
    build = await server.queued({"pyproject.toml": '[project]\nname = "tea"\n', "crew.py": crew})
    await server.building().run(str(build))
    commands = (
        "windlass deploy . --entrypoint crew.py:one --name one; windlass deploy . --entrypoint crew.py:two --name two"
    )
    hint = str((await server.ended(build)).hint)
    assert hint == (
        'Add to pyproject.toml: [tool.windlass] crew = "crew:one", and deploy the project again. '
        f"To deploy each under its own name: {commands}"
    )
    place = {"type": "git", "url": "https://git.test/it's.git", "ref": "main", "subfolder": "app"}
    found = for_deployer(Path("/var/x"), place, None, "run: windlass deploy /var/x --name two")
    assert found == """run: windlass deploy 'https://git.test/it'"'"'s.git' --ref main --subfolder app --name two"""


OF_THE_SERVER = """
import importlib, sys, tiny
from pathlib import Path

def run(case: str) -> str:
    if case == "package":
        import no_such_package
    if case == "module":
        importlib.import_module("tiny.nothing")
    if case == "files":
        here = Path.cwd()
        raise RuntimeError(f"{tiny.__file__} {__file__}: {here}, {here}/a b.txt, {here.parent}/home, {sys.prefix}/x")
    if case == "exit":
        class Odd:
            def __repr__(self): return f"in {tiny.__file__}"
        raise SystemExit(Odd())
    return case
"""


async def test_errors_of_a_deployed_crew_have_no_paths_of_the_server(server: Server) -> None:
    wheel(server.wheels, "tiny")
    needs = {"pyproject.toml": NEEDS}
    build = await server.build(needs, OF_THE_SERVER)
    assert build.state == "ready", build.error
    await server.worker()
    errors = {}
    for case in ("package", "module", "files", "exit"):
        kickoff = await server.kickoff(case=case)
        errors[case] = str((await server.result(kickoff)).error)
        events = await server.database.rows(
            "SELECT payload::text AS text FROM events WHERE kickoff_id = %(id)s", {"id": kickoff}
        )
        for text in (errors[case], *(one["text"] for one in events)):
            assert str(server.folder) not in text, (case, text)
    assert errors["package"] == (
        "the package 'no_such_package' is not installed (imported at work.py:7). "
        "Name its package among the project's dependencies, and deploy the project again."
    )
    assert "and deploy the project again." in errors["module"]
    assert errors["exit"].startswith("the crew's code ended its process with sys.exit(in .../lib/"), errors["exit"]
    site = f".../lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    assert errors["files"] == (
        f"RuntimeError: {site}/tiny.py work.py: the working folder, a b.txt, .../home, .../x (work.py:12)"
    )
    unknown = PROJECT.replace("[tool.windlass]", "[tool.windlass]\npython = '3.10.99'")
    python = await server.build({"pyproject.toml": unknown})
    assert str(python.hint).startswith("There are: 3.")
    assert "/" not in f"{python.error} {python.hint}"
    failed = await server.build(needs, "import no_such_package\n")
    assert failed.error == "the package 'no_such_package' is not installed (imported at work.py:1)."
    assert failed.hint == "Name its package among the project's dependencies, and deploy the project again."
    missing = await server.build({"pyproject.toml": f"{NEEDS}[tool.uv]\npackage = false\n"}, "import tiny.nothing\n")
    syntax = await server.build(code="def run(:\n")
    assert any(
        line.endswith("name the Python that it was written for in .python-version.")
        for line in await server.log(syntax)
    )
    for one in (build, python, failed, missing, syntax):
        shown = [f"{one.error} {one.hint}", *await server.log(one)]
        places = (str(server.folder), sys.prefix, "/bin/python")
        assert not [line for line in shown if any(place in line for place in places)]
