"""
Bytes from a bucket onto our volume: plan → stage → verify, and publish for whoever does no more with them.

Invariants: nothing is visible before it is whole; a pull that fails or is cancelled leaves nothing,
and its threads have ended before it says so; memory is bounded by the threads, whatever the size.
One pull has at most `lanes` threads, and gives each back after one span, or some small files, so that a big pull
does not starve a small one; one endpoint has at most half of the threads. Knows no store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from time import process_time

from adapter.space import Reservation
from adapter.storage.bucket import Bucket, StoredObject
from adapter.storage.lanes import EndpointThreads
from adapter.storage.pull.growth import Growth, Work
from adapter.storage.pull.spans import Lane, Plan, SpanSizes
from adapter.storage.pull.staged import StagedFiles
from adapter.telemetry.metrics import PULLED_BYTES, PULLED_FILES
from adapter.units import MIB
from adapter.volume import Volume
from adapter.waits import Waits
from adapter.workers import Stop, Workers

_FILES_PER_TURN = 64
"""Small files that a thread pulls before it looks whether others wait for it."""
_BYTES_PER_TURN = 16 * MIB
"""The same, of those that are not so small."""
_TURN_SECONDS = 0.5
"""The same, of a store that is slow to answer."""
_FILE_WORTH_BYTES = 256 * 1024
"""A request moves the pull on like so many bytes: among small files, bytes alone would tell little."""


class Puller:
    """Pulls models, any number at once, over one pool of threads."""

    def __init__(self, *, volume: Volume, pulls: EndpointThreads, files: Workers, lanes: int, sizes: SpanSizes) -> None:
        """
        Args:
            volume: where files go.
            pulls: threads that talk to stores.
            files: threads that work on the volume alone.
            lanes: threads that one pull may have at once.
            sizes: of the spans that large files are pulled in.
        """
        self._volume = volume
        self._pulls = pulls
        self._files = files
        self._lanes = lanes
        self._sizes = sizes

    async def pull(
        self,
        bucket: Bucket,
        objects: Mapping[str, StoredObject],
        waits: Waits,
        *,
        room: Reservation,
        staged: Path | None = None,
        name: str | None = None,
    ) -> Path:
        """
        Pull objects into a directory, and check that each is as long as it was listed.

        What is waited for until a thread is free is noted in `waits`; the bucket notes the rest.

        Args:
            bucket: where they are.
            objects: path in the directory → object, from a checked listing.
            waits: of those who wait for it.
            room: grows by the bytes of the objects; whoever has it counts on for what was pulled.
            staged: a staging directory that may hold other files already; a new one without it. It is the puller's until
                it returns: a pull that fails or is cancelled discards it.
            name: publish the directory as an artifact of this name.

        Returns:
            The directory, which is the caller's: the artifact with a name, else still in staging.

        Raises:
            SourceError: the first one that any object met.
            DiskFull: with the numbers; nothing that is idle is left to give way.
        """
        plan = Plan(objects, self._sizes, waits.clock)
        files = StagedFiles(volume=self._volume, objects=objects, room=room, staged=staged, place=bucket.place)
        try:
            crew = _Crew(plan, files, bucket, waits, pulls=self._pulls, ceiling=self._lanes)
            if len(objects) == 1 and not any(map(plan.is_cut, objects.values())):
                made = await self._pulls.run(bucket.endpoint, waits, partial(crew.take_all, name))
            else:
                await self._files.run(partial(files.prepare, plan))
                await crew.run()
                made = await self._files.run(partial(files.finish, name))
        except BaseException:
            await self._files.run_to_end(files.undo)
            raise
        PULLED_FILES.labels(bucket.kind).inc(len(objects))
        return made


class _Crew:
    """The lanes of one pull: as many as are of use, until nothing is left."""

    def __init__(self, plan: Plan, files: StagedFiles, bucket: Bucket, waits: Waits, *, pulls: EndpointThreads, ceiling: int) -> None:
        self._plan = plan
        self._files = files
        self._bucket = bucket
        self._waits = waits
        self._pulls = pulls
        work = Work.ASKING if not plan.is_of_bytes else Work.DECRYPTING if bucket.is_encrypted else Work.MOVING
        self._growth = Growth(plan.most_lanes(ceiling), waits.clock(), work)
        self._at_work: set[Lane] = set()
        self._group = asyncio.TaskGroup()
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Until all is there. Raises the first error that any lane met; the others are stopped because of it."""
        failures: BaseExceptionGroup[BaseException] | None = None
        try:
            async with self._group:
                self._look()
        except BaseExceptionGroup as group:
            failures = group
        finally:
            self._stop_looking()
        if failures is not None:
            raise failures.exceptions[0]

    def _look(self) -> None:
        """Let the number of lanes be decided, and come again."""
        progress = sum(lane.moved_bytes + lane.ended * _FILE_WORTH_BYTES for lane in self._plan.lanes)
        are_all_moving = 0 < len(self._at_work) <= self._growth.lanes and all(lane.is_moving for lane in self._at_work)
        self._growth.look(self._waits.clock(), progress, are_all_moving=are_all_moving, cpu_seconds=process_time())
        while self._plan and len(self._at_work) < self._growth.lanes:
            lane = self._plan.lane()
            work = self._work(lane)
            try:
                self._group.create_task(work)
            except RuntimeError:  # somebody has cancelled the pull just now
                work.close()
                return
            self._at_work.add(lane)
        if self._plan:
            self._timer = asyncio.get_running_loop().call_later(self._growth.look_seconds, self._look)

    def _stop_looking(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _work(self, lane: Lane) -> None:
        try:
            while self._plan and len(self._at_work) <= self._growth.lanes:
                await self._pulls.run(self._bucket.endpoint, self._waits, partial(self._take_turn, lane))
        except BaseException:
            self._stop_looking()
            raise
        finally:
            self._at_work.discard(lane)

    def take_all(self, name: str | None, stop: Stop) -> Path:
        """All of a pull that is one span: three threads, one after the other, would take longer. In a thread."""
        self._files.prepare(self._plan, stop)
        self._take_turn(self._plan.lane(), stop)
        return self._files.finish(name, stop)

    def _take_turn(self, lane: Lane, stop: Stop) -> None:
        """Pull a span, or as many small files as are a fair share. In a thread."""
        plan, before = self._plan, lane.moved_bytes
        until = plan.clock() + _TURN_SECONDS
        try:
            for _ in range(_FILES_PER_TURN):
                span = plan.take(lane, self._growth.lanes)
                if span is None:
                    return
                stop.check()
                with self._files.open(span, lane) as sink:
                    if span.length:
                        self._bucket.read(span.stored, span.start, span.length, sink, stop)
                plan.end(lane)
                if not span.is_whole or lane.moved_bytes - before >= _BYTES_PER_TURN or plan.clock() >= until:
                    return
        finally:
            PULLED_BYTES.labels(self._bucket.kind).inc(lane.moved_bytes - before)
