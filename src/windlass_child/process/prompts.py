"""Finds the values of secret variables in prompts: the provider of the model sees them there, and so may its users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from windlass_child.process.error_text import ProjectFault
from windlass_child.protocol.messages import Warned

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from windlass_child.masking.secret_values import SecretValues

SECRET_IN_PROMPT = "secret_in_prompt"  # noqa: S105 - no password
"""The code of the warning, and the name of the option that refuses such prompts."""
REFUSE = "refuse"
HINT = "Remove it from the texts of the crew and from its inputs. Let a tool read the variable."


class SecretRefused(ProjectFault):
    """A prompt has the value of a secret variable, and the project or its deployment refuses that."""

    reason = "secrets"


class Prompt(NamedTuple):
    """A text that a model gets. `where` names it. `task` is the position of its task, if it has one."""

    where: str
    text: str
    task: int | None = None


class Prompts:
    """Checks the prompts of a run, or the texts of a project."""

    def __init__(self, secrets: SecretValues, *, refuse: bool = False) -> None:
        self._secrets = secrets
        self._refuse = refuse
        self._found: set[str] = set()

    def __bool__(self) -> bool:
        """Whether there is anything to find."""
        return bool(self._secrets)

    def check(self, prompts: Iterable[Prompt]) -> list[Warned]:
        """Returns a warning for each variable whose value is in a prompt for the first time. Raises SecretRefused if
        such prompts are refused.
        """
        return [warned for prompt in prompts for warned in self._check(prompt)] if self else []

    def _check(self, prompt: Prompt) -> Iterator[Warned]:
        for name in sorted(self._secrets.names_in(prompt.text)):
            words = f"the value of the secret variable {name} is in {prompt.where}"
            if self._refuse:
                raise SecretRefused(f'{words}, which {SECRET_IN_PROMPT} = "{REFUSE}" does not permit', HINT)
            if name not in self._found:
                self._found.add(name)
                sentence = f"{words[0].upper()}{words[1:]}, so the provider of the model gets it. {HINT}"
                yield Warned(SECRET_IN_PROMPT, sentence, prompt.task)


def texts_in(messages: Any) -> Iterator[str]:
    """Yields the texts of a model's messages: one text, or objects whose content is a text or a list of parts."""
    if isinstance(messages, str):
        yield messages
    elif isinstance(messages, dict):
        for item in messages.values():
            yield from texts_in(item)
    elif isinstance(messages, list | tuple):
        for item in messages:
            yield from texts_in(item)
