"""The words for kickoffs that were made to end by somebody."""

from windlass.kickoffs.outcome import Ending
from windlass.kickoffs.states import Reason, State

STOPPED = "the kickoff was stopped on request."
SUPERSEDED = "a newer kickoff with the same concurrencyKey took its place."


def stopped() -> Ending:
    return Ending(State.CANCELLED, Reason.CANCELLED, STOPPED)
