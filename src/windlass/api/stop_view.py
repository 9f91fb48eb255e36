"""What a stop came to, as the body of its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.kickoffs.states import State

if TYPE_CHECKING:
    from windlass.store.kickoffs import KickoffStatus


def stop_body(before: KickoffStatus, state: State, grace: float) -> dict[str, str]:
    """`before` is the kickoff as it was found, `state` the one that it has since the stop is recorded, `grace` the
    seconds in which a running one is gone.
    """
    return {
        "kickoff_id": str(before.id),
        "status": state.status_on_the_wire,
        "state": state.state_on_the_wire,
        "message": _message(before, state, grace),
    }


def _message(before: KickoffStatus, state: State, grace: float) -> str:
    if not state.ended:
        seconds = "second" if grace == 1 else "seconds"
        return f"It is being stopped: its processes are gone within {grace:g} {seconds}."
    if before.state.ended or state is not State.CANCELLED:
        return "It had ended before: nothing is left to stop."
    if before.state is State.STARTED:
        return "It is stopped."
    return "It was waiting and will never start." if before.attempt == 0 else "It was waiting and will not go on."
