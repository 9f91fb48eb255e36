"""`windlass dev A B`: each project has an address and tokens of its own, and is loaded and fails alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from cli.the_command import ForkedCommand
from projects_for_tests.making import written
from windlass.deployments.registration import LONGEST_SLUG, Registration

if TYPE_CHECKING:
    from pathlib import Path

PROJECT = '[project]\nname = "{name}"\n[tool.windlass]\nentrypoint = "steep:steep"\n'
STEEP = "def steep(leaf: str) -> str:\n    return f'{leaf} KIND'\n"


def project(folder: Path, name: str, code: str) -> str:
    return str(written(folder, {"pyproject.toml": PROJECT.format(name=name), "steep.py": code}))


def test_projects_side_by_side(open_folder: Path) -> None:
    tea = project(open_folder / "tea", "Tea", STEEP.replace("KIND", "tea"))
    cold = project(open_folder / "cold", "Tea", STEEP.replace("KIND", "cold tea"))
    coffee = project(open_folder / "coffee", "Coffee", "def steep(\n")
    broken = str(written(open_folder / "broken", {"pyproject.toml": "[project"}))
    windlass = ForkedCommand(open_folder)
    with windlass.started("dev", tea, broken, cold, coffee, "--port", "0") as server:
        server.wait_for("Ctrl-C stops it")
        assert f"warning: {broken} is not served: " in server.out
        assert "coffee: warning: the project can't be loaded, and is not served until it can: SyntaxError" in server.out
        shown = {one["deployment"]: one for one in json.loads(windlass("tokens", "show", "--json").out)}
        assert shown.keys() == {"tea", "tea-2"}
        for slug, answer in {"tea": "green tea", "tea-2": "green cold tea"}.items():
            url, token = shown[slug]["base_url"], shown[slug]["organization_token"]
            assert f"Base URL           {url}\n" in server.out, "the banner has its address"
            assert url.endswith(f"/crews/{slug}")
            started = windlass("kickoff", url, "-i", "leaf=green", "--watch", WINDLASS_TOKEN=token)
            assert started.out == f"{answer}\n", started
        url, other = shown["tea"]["base_url"], shown["tea-2"]["organization_token"]
        assert windlass("inputs", url, WINDLASS_TOKEN=other).code == 3, "a token opens its own crew"
        at_root = windlass("inputs", url.removesuffix("/crews/tea"), WINDLASS_TOKEN=other)
        assert at_root.code == 3, "no crew is at the root"

        unclear = windlass("kickoff", "-i", "leaf=green")
        assert unclear.code == 1
        assert "has several crews: tea, tea-2." in unclear.err
        assert "Choose one with --deployment NAME." in unclear.err
        assert windlass("kickoff", "--deployment", "tea-2", "-i", "leaf=green", "--watch").out == "green cold tea\n"
        kickoff = windlass("kickoff", shown["tea-2"]["base_url"], "-i", "leaf=red", WINDLASS_TOKEN=other).out.strip()
        assert windlass("status", kickoff, "--watch").out == "red cold tea\n", "the crew of a kickoff is found"
        unknown = windlass("status", "0199aaaa-0000-7000-8000-000000000001")
        assert "There is no kickoff with this id" in unknown.err

        (open_folder / "coffee" / "steep.py").write_text(STEEP.replace("KIND", "coffee"))
        assert server.wait_for("coffee: ") == "coffee: the project's files have changed (steep.py): loading it again\n"
        server.wait_for("coffee: the project can be loaded again: version 1 is served from now on")
        (open_folder / "tea" / "steep.py").write_text(STEEP.replace("KIND", "white tea"))
        server.wait_for("tea: version 2 is served from now on")
        server.interrupt()
        assert server.end() == 0


def test_a_folder_keeps_its_name_and_its_code_is_not_served_for_another(open_folder: Path) -> None:
    tea = project(open_folder / "tea", "Tea", STEEP.replace("KIND", "tea"))
    cold = project(open_folder / "cold", "Tea", STEEP.replace("KIND", "cold tea"))
    windlass = ForkedCommand(open_folder)
    with windlass.started("dev", cold, "--port", "0") as server:
        server.wait_for("Ctrl-C stops it")
        server.interrupt()
        assert server.end() == 0
    (open_folder / "tea" / "steep.py").write_text("def steep(\n")
    with windlass.started("dev", tea, cold, "--port", "0") as server:
        server.wait_for("Ctrl-C stops it")
        assert f"{tea} is served as tea-2, because tea is the project in {cold}" in server.out
        assert "tea-2: warning: the project can't be loaded, and is not served until it can" in server.out
        assert windlass("kickoff", "--deployment", "tea", "-i", "leaf=green", "--watch").out == "green cold tea\n"
        assert windlass("kickoff", "--deployment", "tea-2", "-i", "leaf=green", "--watch").code != 0
        (open_folder / "tea" / "steep.py").write_text(STEEP.replace("KIND", "tea"))
        server.wait_for("tea-2: the project can be loaded again: version 1 is served from now on")
        assert windlass("kickoff", "--deployment", "tea-2", "-i", "leaf=green", "--watch").out == "green tea\n"
        server.interrupt()
        assert server.end() == 0
    (open_folder / "cold").rename(open_folder / "iced")
    with windlass.started("dev", str(open_folder / "iced"), "--port", "0") as server:
        server.wait_for("The crew tea is served.")
        server.interrupt()
        assert server.end() == 0


def test_none_that_can_be_served_is_an_error_and_so_is_one_given_twice(open_folder: Path) -> None:
    windlass = ForkedCommand(open_folder)
    broken = str(written(open_folder / "broken", {"pyproject.toml": "[project"}))
    ended = windlass("dev", broken, str(written(open_folder / "other", {"pyproject.toml": "[tool"})), "--port", "0")
    assert (ended.code, "other/pyproject.toml can't be read" in ended.err) == (1, True)
    tea = project(open_folder / "tea", "Tea", STEEP)
    ended = windlass("dev", tea, f"{tea}/../tea", "--port", "0")
    assert (ended.code, "is given twice" in ended.err) == (1, True)
    assert not (open_folder / "windlass").exists(), "nothing was started"


def test_slugs_are_told_apart_within_their_length(tmp_path: Path) -> None:
    one = Registration.of(
        written(tmp_path, {"pyproject.toml": PROJECT.format(name="t" * 80), "steep.py": STEEP}).resolve()
    )
    assert one.named_apart(set()).slug == one.slug == "t" * LONGEST_SLUG
    second = one.named_apart({one.slug})
    assert second.slug == "t" * (LONGEST_SLUG - 2) + "-2"
    assert one.named_apart({one.slug, second.slug}).slug.endswith("t-3")


def test_several_objects_of_one_folder_have_names_of_their_own(open_folder: Path) -> None:
    code = "def hot(leaf: str) -> str:\n    return 'hot'\n\ndef cold_brew(leaf: str) -> str:\n    return 'cold'\n"
    folder = written(open_folder / "tea", {"tea.py": code})
    windlass = ForkedCommand(open_folder)
    with windlass.started("dev", f"{folder}/tea.py:hot", f"{folder}/tea.py:cold_brew", "--port", "0") as server:
        server.wait_for("Ctrl-C stops it")
        shown = [one["deployment"] for one in json.loads(windlass("tokens", "show", "--json").out)]
        assert sorted(shown) == ["tea-cold-brew", "tea-hot"]
        assert windlass("kickoff", "--deployment", "tea-cold-brew", "-i", "leaf=a", "--watch").out == "cold\n"
        address = windlass("open", "tea-hot").out
        assert address.endswith("/ui/crews/tea-hot\n")
        started = windlass("kickoff", "--deployment", "tea-hot", "-i", "leaf=a").out.strip()
        words = {"_WINDLASS_COMPLETE": "bash_complete", "COMP_CWORD": "2"}
        assert f"plain,{started}" in windlass(COMP_WORDS="windlass status ", **words).out
        words["COMP_CWORD"] = "3"
        assert windlass(COMP_WORDS="windlass kickoff --deployment tea-c", **words).out == "plain,tea-cold-brew\n"
