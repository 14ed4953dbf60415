"""The table decides, and nothing else."""

import itertools

import pytest

from adapter.lifecycle.states import MOVES, IllegalMoveError, State, check_move


@pytest.mark.parametrize(("before", "after"), list(itertools.product(State, State)))
def test_every_pair_is_listed_or_refused(before: State, after: State) -> None:
    if (before, after) in MOVES:
        check_move(before, after)
    else:
        with pytest.raises(IllegalMoveError, match=f"{before.name} cannot become {after.name}"):
            check_move(before, after)


def test_every_state_leads_back_to_absent() -> None:
    """From anywhere the model can be gone again."""
    back = {State.ABSENT}
    while more := {before for before, after in MOVES if after in back} - back:
        back |= more
    assert back == set(State)


def test_memory_is_only_held_after_triton_was_asked() -> None:
    """LOADED can be entered from LOADING, or be found at the start."""
    assert {before for before, after in MOVES if after is State.LOADED} == {State.LOADING, State.ABSENT}
