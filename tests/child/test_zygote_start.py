from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

import windlass_child
from projects_for_tests.making import Bench, function_project
from windlass_child.protocol.frames import Frames
from windlass_child.protocol.messages import Ready, Unready

PROGRAM = Path(windlass_child.__file__).parent / "__main__.py"


def answer_of(program: Path, preload: str = "") -> Ready | Unready:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        started = subprocess.Popen(
            [sys.executable, program, str(theirs.fileno()), preload], pass_fds=[theirs.fileno()], env={}
        )
        theirs.close()
        ours.settimeout(60)
        (answer,) = Frames().feed(ours.recv(1 << 16))
        ours.shutdown(socket.SHUT_RDWR)
        started.wait(60)
    assert isinstance(answer, Ready | Unready)
    return answer


def test_it_says_which_python_it_is() -> None:
    assert answer_of(PROGRAM) == Ready(sys.version.split()[0], None, None)


def test_a_python_that_is_too_old_is_told_in_words(tmp_path: Path) -> None:
    newer = tmp_path / "__main__.py"
    newer.write_text(PROGRAM.read_text().replace("OLDEST = (3, 10)", "OLDEST = (99, 1)"))
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    words = f"{sys.executable} is Python {version}; crews run on Python 99.1 or newer."
    assert answer_of(newer) == Unready(words)


def test_a_framework_that_is_not_known_is_refused() -> None:
    answer = answer_of(PROGRAM, "langchain")
    assert answer == Unready("there is nothing to preload for 'langchain'; known are: crewai.")


def test_it_ends_when_its_socket_does(capfd: pytest.CaptureFixture[str]) -> None:
    answer_of(PROGRAM)
    assert capfd.readouterr() == ("", "")


def test_a_zygote_has_imported_all_that_each_child_guards() -> None:
    code = (
        "import sys\n"
        "from windlass_child.crewai import prewarm\n"
        "from windlass_child.crewai.adapter import watching\n"
        "prewarm.warm(watching)\n"
        "before = set(sys.modules)\n"
        "from windlass_child.crewai import kickoffs\n"
        "with kickoffs.refused():\n"
        "    print(sorted(set(sys.modules) - before))\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert found.stdout == "[]\n"


SIGNATURES = """
import inspect


class Own(list):
    pass


class Signature(inspect.Signature):
    pass


def run():
    known = [inspect.signature(one) is inspect.signature(one) for one in (list, tuple, object)]
    return [known, *map(str, (inspect.signature(Own), Signature.from_callable(list), inspect.signature(len)))]
"""


@pytest.mark.asyncio(loop_scope="session")
async def test_signatures_of_built_in_classes_are_read_before_the_fork(bench: Bench, tmp_path: Path) -> None:
    outcome = await bench.run(function_project(tmp_path / "project", SIGNATURES), {})
    assert outcome.json == [[True] * 3, "(iterable=(), /)", "(iterable=(), /)", "(obj, /)"]
