"""Which changes have a project loaded again, when it or its runs write into its folder."""

from __future__ import annotations

import pytest

from windlass.wiring.reloading import OF_CODE, OF_OTHERS, FileTracker, listed

pytestmark = pytest.mark.unit


class Project:
    """A second for each change of a file."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.now = {"a.py": (1, 0, 1), "seen.txt": (1, 0, 2), ".env": (1, 0, 3)}
        self.files = FileTracker(dict(self.now), self.said.append)
        self._seconds = 0

    def change(self, name: str) -> set[str]:
        self._seconds += 1
        self.now = {**self.now, name: (1, self._seconds, 1)}
        return self.files.news(self.now)

    def change_while_it_is_loaded(self, name: str) -> set[str]:
        self.files.meanwhile.add(name)
        return self.change(name)


def test_a_change_is_news_once() -> None:
    project = Project()
    assert project.change("a.py") == {"a.py"}
    assert project.files.news(project.now) == set()


def test_a_file_that_comes_and_one_that_goes_are_news() -> None:
    project = Project()
    assert project.files.news({"b.py": (1, 1, 1)}) == {"b.py", "a.py", "seen.txt", ".env"}


def test_data_that_changes_in_two_loads_in_a_row_is_told_of_and_followed_no_more() -> None:
    project = Project()
    news = [project.change_while_it_is_loaded("seen.txt") for _ in range(OF_OTHERS + 3)]
    assert news == [{"seen.txt"}, set(), set(), set(), set()]
    assert project.change("seen.txt") == set()
    (told,) = project.said
    assert told.startswith("warning: seen.txt changed each time that the project was loaded")
    assert project.change("a.py") == {"a.py"}


def test_data_that_changes_in_one_load_and_then_in_a_later_one_is_followed() -> None:
    project = Project()
    for _ in range(OF_OTHERS + 1):
        assert project.change_while_it_is_loaded("seen.txt") == {"seen.txt"}
        assert project.change("a.py") == {"a.py"}
    assert project.said == []


@pytest.mark.parametrize("name", ["a.py", ".env"])
def test_code_that_is_saved_again_while_it_is_loaded_is_news_and_never_given_up(name: str) -> None:
    project = Project()
    for _ in range(OF_CODE - 1):
        assert project.change_while_it_is_loaded(name) == {name}
    assert project.change_while_it_is_loaded(name) == set()
    assert len(project.said) == 1
    assert project.change(name) == {name}


def test_how_to_leave_out_what_a_run_writes_is_told_once_and_not_of_code() -> None:
    project = Project()
    project.files.hint(set())
    project.files.hint({"a.py", "seen.txt"})
    assert project.said == []
    project.files.hint({"seen.txt", "out/b.txt"})
    project.files.hint({"seen.txt"})
    (told,) = project.said
    assert told.startswith("if a run writes out/b.txt, seen.txt: ")
    assert 'ignore = ["out/b.txt", "seen.txt"] under [tool.windlass]' in told


def test_of_many_files_three_are_named() -> None:
    assert listed({"a", "b", "c"}) == "a, b, c"
    assert listed({str(number) for number in range(1, 10)}) == "1, 2, 3 and 6 more"
