"""How long ModelMesh waits, and for what. All in seconds; sources as in `adapter/spi/README.md`."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class Times:
    """The constants of ModelMesh. Tests shorten them; an operator shortens the memory of failures alone (`hurried`)."""

    poll: float = 2.0
    """Between two questions for the runtime's status."""
    start: float = 180.0
    """For all questions of one start. Source: `SidecarModelMesh.java` 116, 600-611."""
    predict: float = 0.5
    """Deadline of `predictModelSize`. Source: `SidecarModelMesh.java` 118."""
    size: float = 30.0
    """Deadline of `modelSize`."""
    space: float = 180.0
    """A load waits this long for the unloads that free its space. Source: `ModelMesh.java` 2271-2305."""
    after_failure: float = 1.0
    """From a failed load to its unload."""
    after_timeout: float = 3.0
    """From a load that was cancelled at the announced timeout to its unload."""
    after_removal: float = 3.0
    """From the removal of a model that is being loaded to its unload."""
    after_eviction: float = 0.5
    """The same, where it was evicted. Source: `ModelMesh.java` 1940-1945."""
    idle: float = 0.2
    """From the removal of a loaded model to the first look whether requests are in flight."""
    busy: float = 0.5
    """Further looks come after 2, 4, 8… times this. Source: `ModelMesh.java` 2009-2027."""
    first_retry: float = 1.0
    """From a failed unload to its first repetition."""
    next_retry: float = 10.0
    """One queued unload is repeated each time this has passed. Source: `SidecarModelMesh.java` 128-130."""
    expiry: float = 900.0
    """A failure is forgotten after this…"""
    hot_expiry: float = 450.0
    """… or after this, for a model that was used within the last `hot` seconds. Source: `ModelMesh.java` 219-221."""
    hot: float = 180.0
    janitor: float = 360.0
    """Between two looks for failures that have expired."""

    def hurried(self, factor: float) -> Times:
        """Failures are forgotten sooner by this factor."""
        return replace(
            self, expiry=self.expiry / factor, hot_expiry=self.hot_expiry / factor, hot=self.hot / factor, janitor=self.janitor / factor
        )
