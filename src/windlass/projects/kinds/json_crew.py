"""Checks JSON crews: crew.jsonc, and agents/NAME.jsonc beside it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from windlass.projects.findings import Finding, Level
from windlass.projects.kinds.jsonc import JsoncError, Node, parse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windlass_child.protocol.messages import Project

ENDINGS = (".jsonc", ".json")
NOWHERE = Node(None, 0)

CREWAI_MESSAGE = {
    "jsonc_syntax": re.compile(r"invalid JSON at line|unterminated block comment"),
    "agent_file_missing": re.compile(r"^(?>.*?agent ')(?>.*?' not found in )", re.DOTALL),
    "unknown_agent": re.compile(r"^(?>.*?references agent ')((?>.*?(?=' which does not match)))", re.DOTALL),
    "unknown_context": re.compile(r"^(?>.*?has context reference ')(?>.*?' but)", re.DOTALL),
}
"""Messages of crewai for errors that this module reports too, with the line."""


@dataclass
class Files:
    """The files of a crew that were read, by their paths in the project, and their findings.

    `agents` are the names in the crew's list, with a file or without.
    """

    root: Path
    nodes: dict[str, Node] = field(default_factory=dict)
    agents: set[str] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)

    def read(self, path: Path) -> Node:
        name = path.relative_to(self.root).as_posix()
        try:
            self.nodes[name] = parse(path.read_text("utf-8"))
        except JsoncError as error:
            self.error(
                "jsonc_syntax",
                f"{error}.",
                name,
                error.line,
                "Correct the JSON of this line: a comma, a quote or a bracket.",
            )
        except (OSError, UnicodeDecodeError) as error:
            self.error(
                "jsonc_syntax", f"{name} can't be read: {error}.", name, None, "It must be a file of UTF-8 text."
            )
        return self.nodes.get(name, NOWHERE)

    def error(self, code: str, message: str, file: str, line: int | None, hint: str) -> None:
        self.findings.append(Finding(code, Level.ERROR, message, file, line, hint))


def file_findings(project: Project, reported: list[Finding]) -> list[Finding]:
    """Returns the findings in the files, and the reported ones with their places in the files."""
    files = declared_crew(Path(project.root), project.entrypoint)
    placed = (located(one, files) if one.code == "declaration_invalid" else one for one in reported)
    return [*files.findings, *(one for one in placed if one is not None)]


def declared_crew(root: Path, entrypoint: str) -> Files:
    files = Files(root)
    crew = files.read(root / entrypoint)
    folder = (root / entrypoint).parent / "agents"
    if crew is NOWHERE:
        for path in sorted(folder.glob("*.json*")):
            files.read(path)
        return files
    agents(files, crew, folder, entrypoint)
    tasks(files, crew, entrypoint)
    files.findings += unused_inputs(files, crew, entrypoint)
    return files


def agents(files: Files, crew: Node, folder: Path, entrypoint: str) -> None:
    named = [*crew.members.get("agents", NOWHERE).items, crew.members.get("manager_agent", NOWHERE)]
    for node in named:
        if not node.text:
            continue
        files.agents.add(node.text)
        paths = [path for ending in ENDINGS if (path := folder / f"{node.text}{ending}").is_file()]
        if paths and paths[0].resolve().is_relative_to(files.root):
            files.read(paths[0])
        else:
            where = f"{folder.relative_to(files.root).as_posix()}/{node.text}.jsonc"
            files.error(
                "agent_file_missing", f"there is no file for the agent {node.text!r}.", entrypoint, node.line,
                f"Make {where}, or take its name out of the agents.",
            )  # fmt: skip


def tasks(files: Files, crew: Node, entrypoint: str) -> None:
    before: list[str] = []
    for number, task in enumerate(crew.members.get("tasks", NOWHERE).items, 1):
        name = task.members.get("name", NOWHERE).text
        called = f"the task {name or number}"
        agent = task.members.get("agent", NOWHERE)
        if agent.text and agent.text not in files.agents:
            known = (
                f"There are: {', '.join(sorted(files.agents))}." if files.agents else 'There are none under "agents".'
            )
            message = f"{called} names the agent {agent.text!r}, which the crew does not have."
            files.error("unknown_agent", message, entrypoint, agent.line, known)
        for context in task.members.get("context", NOWHERE).items:
            if context.text and context.text not in before:
                known = f"Before it are: {', '.join(before)}." if before else "No task with a name is before it."
                message = f"the context of {called} names {context.text!r}, which is no task before it."
                files.error("unknown_context", message, entrypoint, context.line, known)
        if name:
            before.append(name)


def unused_inputs(files: Files, crew: Node, entrypoint: str) -> Iterator[Finding]:
    """Yields a warning for each input that no text uses.

    Yields nothing for a crew with callbacks before the kickoff, because their code may read any input.
    """
    if "before_kickoff_callbacks" in crew.members:
        return
    rest = [node for name, node in crew.members.items() if name != "inputs"]
    others = [node for name, node in files.nodes.items() if name != entrypoint]
    texts = [text for node in (*rest, *others) for text in node.texts()]
    for name, node in crew.members.get("inputs", NOWHERE).members.items():
        if not any(f"{{{name}}}" in text for text in texts):
            yield Finding(
                "unused_input", Level.WARNING, f"the input {name!r} is in no text of the crew.", entrypoint, node.line,
                f"Write {{{name}}} where it belongs, or take it out.",
            )  # fmt: skip


def located(found: Finding, files: Files) -> Finding | None:
    """Adds the file and the line to a finding of crewai. Returns None if this module has reported it already."""
    for code, words in CREWAI_MESSAGE.items():
        if matched := words.search(found.message):
            if any(one.code == code for one in files.findings) or comes_of_its_file(code, matched, files):
                return None
            found = replace(found, code=code)
    file, _, rest = found.message.partition(": ")
    if file not in files.nodes or not rest:
        return found
    node = files.nodes[file]
    if number := re.match(r"tasks\[(\d+)]", rest):
        tasks_found = node.members.get("tasks", NOWHERE).items
        node = tasks_found[int(number[1])] if int(number[1]) < len(tasks_found) else node
    names = re.findall(r"'(\w+)'", rest) + re.findall(r"\w+", rest.partition("field(s)")[2])
    named = next((node.members[name] for name in names if name in node.members), node)
    return replace(found, message=rest, file=file, line=named.line)


def comes_of_its_file(code: str, matched: re.Match[str], files: Files) -> bool:
    """Returns whether an unknown agent is in the crew's list, so that the error is in the agent's own file."""
    return code == "unknown_agent" and matched[1] in files.agents
