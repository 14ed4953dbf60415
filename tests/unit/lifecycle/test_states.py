"""The table decides, and nothing else."""

import itertools

import pytest

from adapter.lifecycle.states import TRANSITIONS, Event, IllegalTransitionError, State, next_state


@pytest.mark.parametrize(("state", "event"), list(itertools.product(State, Event)))
def test_every_pair_is_listed_or_refused(state: State, event: Event) -> None:
    """A listed pair gives its state, an unlisted one is an error."""
    if (state, event) in TRANSITIONS:
        assert next_state(state, event) is TRANSITIONS[state, event]
    else:
        with pytest.raises(IllegalTransitionError, match=event.name):
            next_state(state, event)


def test_every_state_can_be_reached_and_left() -> None:
    """No state is a dead end."""
    assert set(TRANSITIONS.values()) == set(State)
    assert {state for state, _ in TRANSITIONS} == set(State)


def test_every_state_leads_back_to_absent() -> None:
    """From anywhere the model can be gone again."""
    back = {State.ABSENT}
    while more := {state for (state, _), target in TRANSITIONS.items() if target in back} - back:
        back |= more
    assert back == set(State)


def test_memory_is_only_held_after_triton_was_asked() -> None:
    """LOADED can be entered from LOADING, or be found at the start."""
    assert {state for (state, _), target in TRANSITIONS.items() if target is State.LOADED} == {State.LOADING, State.ABSENT}
