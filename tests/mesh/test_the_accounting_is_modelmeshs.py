"""The cache, its buffer for unloads and its arithmetic, against the numbers of the contract."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.mesh.accounts import Accounts, Phase
from tests.mesh.announced import Announced, units_of

MIB = 1 << 20


def announced(**numbers: int) -> Announced:
    return replace(Announced(capacity_bytes=300 * MIB, default_bytes=1 * MIB, threads=2, timeout_ms=90_000), **numbers)  # type: ignore[arg-type]


def held(accounts: Accounts, model_id: str, weight: int, at: float = 0) -> list[str]:
    """Inserted, asked for, claimed: who was evicted for it."""
    evicted = accounts.insert(model_id, at) + accounts.request(model_id, weight)
    accounts.check()
    assert accounts.claim(model_id)
    accounts.check()
    return [entry.model_id for entry in evicted]


@pytest.mark.parametrize(
    ("threads", "default_mib", "reserve_mib"),
    [(1, 10, 5), (2, 10, 10), (4, 10, 10), (8, 10, 20), (1, 1, 3), (8, 20, 30)],
)
def test_the_reserve_is_a_share_of_the_loads_between_1_and_10_percent(threads: int, default_mib: int, reserve_mib: int) -> None:
    numbers = announced(threads=threads, default_bytes=default_mib * MIB)

    assert numbers.reserve_units == reserve_mib * MIB // 8192
    assert numbers.usable_units == (300 - reserve_mib) * MIB // 8192


@pytest.mark.parametrize(
    ("numbers", "is_fine"),
    [
        ({}, True),
        ({"default_bytes": 50 * MIB}, False),  # observed: 300 MiB with a default of 50 MiB is refused
        ({"default_bytes": 50 * MIB, "capacity_bytes": 500 * MIB}, True),
        ({"default_bytes": 600 * MIB, "capacity_bytes": 1199 * MIB}, False),
        ({"default_bytes": 0}, False),
        ({"threads": 0}, False),
        ({"timeout_ms": 99}, False),
        ({"timeout_ms": 100}, True),
    ],
)
def test_numbers_that_modelmesh_refuses(numbers: dict[str, int], is_fine: bool) -> None:
    assert (not list(announced(**numbers).problems())) is is_fine


def test_a_load_waits_for_the_unloads_that_make_room_for_it() -> None:
    accounts = Accounts(100, 10)
    held(accounts, "old", 90)
    assert [entry.model_id for entry in accounts.insert("new", 1) + accounts.request("new", 60)] == ["old"]

    assert not accounts.claim("new")
    assert accounts.accounted == 90
    accounts.end_unload(90, is_free=True)
    assert accounts.claim("new")
    assert (accounts.accounted, accounts.balance) == (60, 0)
    accounts.check()


def test_a_model_larger_than_predicted_evicts_the_others_afterwards() -> None:
    """Observed: predicted 50 MiB, 400 MiB reported, 300 MiB of capacity: the other four and the new one itself are evicted."""
    numbers = announced()
    accounts = Accounts(numbers.capacity_units, numbers.reserve_units)
    for number in range(4):
        held(accounts, f"m{number}", units_of(50 * MIB), at=number)
    held(accounts, "new", units_of(50 * MIB), at=10)

    evicted = accounts.measure("new", units_of(400 * MIB))

    assert [entry.model_id for entry in evicted] == ["m0", "m1", "m2", "m3", "new"]
    accounts.check()


def test_a_failed_load_keeps_one_unit_and_unloads_the_rest() -> None:
    accounts = Accounts(100, 10)
    held(accounts, "m", 30)

    assert accounts.fail("m") == (29, [])
    assert (accounts.entries["m"].phase, accounts.entries["m"].weight, accounts.leaving) == (Phase.FAILED, 1, 29)
    accounts.check()


@pytest.mark.parametrize("seed", range(10))
def test_what_is_held_never_exceeds_the_capacity_but_for_a_deficit(seed: int) -> None:
    rng = random.Random(seed)
    accounts, leaving = Accounts(500, 30), list[int]()
    for step in range(400):
        name = f"m{rng.randrange(30)}"
        entry, evicted = accounts.entries.get(name), []
        if entry is None:
            evicted = accounts.insert(name, step)
            if name in accounts.entries:
                evicted += accounts.request(name, rng.randint(1, 120))
        elif entry.phase is Phase.REQUESTED:
            accounts.claim(name)
        elif rng.random() < 0.3:
            accounts.remove(name)
            leaving += [entry.weight] if entry.phase is Phase.HELD else []
        elif entry.phase is Phase.HELD and rng.random() < 0.2:
            weight, evicted = accounts.fail(name)
            leaving += [weight] if weight else []
        elif entry.phase is Phase.HELD and rng.random() < 0.2:
            evicted = accounts.measure(name, max(1, entry.weight + rng.randint(-40, 40)))
        leaving += [gone.weight for gone in evicted if gone.phase is Phase.HELD]
        if leaving and rng.random() < 0.5:
            accounts.end_unload(leaving.pop(rng.randrange(len(leaving))), is_free=True)
        accounts.check()
        assert sum(leaving) == accounts.leaving
