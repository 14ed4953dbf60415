"""What each lane takes, in virtual time: every byte once, no span for long, and all lanes end together."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.storage.bucket import StoredObject
from adapter.storage.pull.spans import SPAN_SECONDS, SPAN_SIZES, Plan, Span, SpanSizes
from adapter.units import MIB


@dataclass
class Connection:
    latency: float
    rate: float


def an_object(key: str, size_bytes: int, **fields: bool) -> StoredObject:
    return StoredObject(key, size_bytes, "etag", **fields)


class Pull:
    """Lanes over connections, each busy for as long as its spans take."""

    def __init__(self, sizes_bytes: Sequence[int], connections: Sequence[Connection], sizes: SpanSizes = SPAN_SIZES) -> None:
        self.now = 0.0
        self.plan = Plan({f"m/{at}": an_object(f"m/{at}", size) for at, size in enumerate(sizes_bytes)}, sizes, lambda: self.now)
        self.connections = connections
        self.spans: list[tuple[int, float, Span]] = []
        """Lane, seconds, span."""
        self.ends = [0.0] * len(connections)

    def run(self) -> float:
        lanes = [self.plan.lane() for _ in self.connections]
        busy = [(0.0, number) for number in range(len(lanes))]
        while busy:
            self.now, number = heapq.heappop(busy)
            for at, _ in busy:
                other = lanes[_]
                if other.span is not None:
                    left = (at - self.now) * self.connections[_].rate
                    other.moved_bytes += max(0, other.open_bytes - int(left))
            lane = lanes[number]
            if lane.span is not None:
                lane.moved_bytes += lane.open_bytes
                self.plan.end(lane)
            span = self.plan.take(lane, len(lanes))
            if span is None:
                self.ends[number] = self.now
                continue
            seconds = self.connections[number].latency + span.length / self.connections[number].rate
            self.spans.append((number, seconds, span))
            heapq.heappush(busy, (self.now + seconds, number))
        return max(self.ends)


def test_a_model_of_ten_mib_is_shared_by_all_connections() -> None:
    """There is no second round."""
    pull = Pull([10 * MIB], [Connection(0.03, 50e6)] * 4)
    pull.run()
    assert [span.length for _, _, span in pull.spans] == [10 * MIB // 4] * 4


@pytest.mark.parametrize("lanes", [4, 16, 32, 64])
@pytest.mark.parametrize("latency", [0.0, 0.01, 0.03, 0.1])
def test_all_lanes_end_together(lanes: int, latency: float) -> None:
    """2 GiB take hardly longer than the bytes and a few round trips, and no lane is idle while others have much to do."""
    pull = Pull([2048 * MIB], [Connection(latency, 50e6)] * lanes)
    ideal = 2048 * MIB / (lanes * 50e6)
    assert pull.run() <= 1.06 * ideal * (1 + latency / SPAN_SECONDS) + 8 * latency
    assert max(pull.ends) - min(pull.ends) <= 2 * (latency + 2 * MIB / 50e6)


@pytest.mark.parametrize("lanes", [16, 32, 64])
@pytest.mark.parametrize("latency", [0.01, 0.03, 0.1])
def test_spans_do_not_shrink_towards_the_end(lanes: int, latency: float) -> None:
    """Each would cost a round trip: what others have in flight is part of what is shared."""
    pull = Pull([2048 * MIB], [Connection(latency, 50e6)] * lanes)
    assert pull.run() <= 2048 * MIB / (lanes * 50e6) + 6 * latency


def test_a_slow_connection_among_fast_ones_keeps_nobody_waiting() -> None:
    """It takes less."""
    pull = Pull([4096 * MIB], [Connection(0.01, 100e6)] * 7 + [Connection(0.01, 2e6)])
    assert pull.run() <= 1.1 * 4096 * MIB / (7 * 100e6)


@pytest.mark.parametrize("rate", [0.5e6, 5e6, 50e6, 500e6])
def test_a_span_is_pulled_in_about_a_second_so_a_newcomer_waits_no_longer(rate: float) -> None:
    """The first ones prove how fast the connection is; the least span bounds the slowest."""
    pull = Pull([4096 * MIB if rate > 1e7 else 100 * MIB], [Connection(0.02, rate)] * 2)
    pull.run()
    later = [(seconds, span.length) for _, seconds, span in pull.spans[2:]]
    assert max(seconds for seconds, _ in later) <= max(1.0, 0.02 + SPAN_SIZES.least_bytes / rate)
    assert max(length for _, length in later) <= SPAN_SIZES.most_bytes
    if rate >= 50e6:
        assert len(later) < 2 * 4096 // 32 + 20, "requests are few where connections are fast"


@pytest.mark.parametrize("fields", [{"is_divisible": False}, {"etag": ""}])
def test_what_cannot_be_divided_is_one_span(fields: dict[str, object]) -> None:
    stored = StoredObject(**{"key": "m", "size_bytes": 500 * MIB, "etag": "e"} | fields)  # type: ignore[arg-type]
    plan = Plan({"m": stored}, SPAN_SIZES, lambda: 0.0)
    assert plan.most_lanes(64) == 1
    span = plan.take(plan.lane(), 4)
    assert span is not None and span.is_whole and not plan


def test_small_files_are_spread_one_by_one() -> None:
    """Each lane takes the next one; none has a pile of its own."""
    pull = Pull([64 * 1024] * 1000, [Connection(0.02, 50e6)] * 32)
    assert pull.run() <= 1.1 * 1000 / 32 * (0.02 + 65536 / 50e6) + 0.05


@given(
    sizes_bytes=st.lists(st.integers(0, 300), max_size=12),
    connections=st.lists(st.builds(Connection, st.floats(0, 3), st.floats(1, 1000)), min_size=1, max_size=9),
    sizes=st.builds(SpanSizes, st.integers(10, 40), st.integers(1, 10), st.integers(40, 100)),
)
def test_every_byte_is_taken_once(sizes_bytes: list[int], connections: list[Connection], sizes: SpanSizes) -> None:
    """Whatever the connections give; spans keep to their bounds."""
    pull = Pull(sizes_bytes, connections, sizes)
    pull.run()
    for at, size_bytes in enumerate(sizes_bytes):
        spans = sorted((span.start, span.length) for _, _, span in pull.spans if span.path == f"m/{at}")
        ends = [start + length for start, length in spans]
        assert [start for start, _ in spans] == [0, *ends[:-1]] and ends[-1] == size_bytes
        assert all(length <= sizes.most_bytes for _, length in spans)
        assert all(length >= sizes.least_bytes for _, length in spans[:-1])


@pytest.mark.parametrize(
    ("sizes", "is_of_bytes"), [((10,), True), ((10, 1, 1), True), ((2, 1, 1, 1), False), ((1,) * 5, False), ((), False)]
)
def test_a_plan_knows_whether_bytes_count_more_than_requests(sizes: tuple[int, ...], is_of_bytes: bool) -> None:
    objects = {str(number): StoredObject(str(number), size * MIB, "etag") for number, size in enumerate(sizes)}
    assert Plan(objects, SpanSizes(MIB, MIB, MIB), lambda: 0.0).is_of_bytes is is_of_bytes
