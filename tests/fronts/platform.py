"""
A multi-model platform in small: a model is loaded when it is first asked, and after a 507 the one unused for longest goes.

Polls /ping and /models all the time, as SageMaker does. Source: AWS, "Multi-model endpoints", how a model is cached and unloaded.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping

from tests.fronts.rig import Answer, FrontsPod

POLL_SECONDS = 0.2


class Platform:
    """One client; `urls` has every model there is."""

    def __init__(self, pod: FrontsPod, urls: Mapping[str, str]) -> None:
        self._pod = pod
        self._urls = urls
        self._loaded: OrderedDict[str, None] = OrderedDict()
        self.most_listed = 0
        self.unloads = 0
        self.bad_polls: list[tuple[str, int | None]] = []
        self._end = threading.Event()
        self._poller = threading.Thread(target=self._poll)

    def __enter__(self) -> Platform:
        self._poller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._poller.join()

    def ask(self, name: str, value: float) -> Answer:
        """One prediction, whatever must be done for it first."""
        if name not in self._loaded:
            self._load(name)
        self._loaded.move_to_end(name)
        return self._pod.invoke(name, value)

    def _load(self, name: str) -> None:
        while (answer := self._pod.sagemaker("POST", "/models", {"model_name": name, "url": self._urls[name]})).status == 507:
            oldest, _ = self._loaded.popitem(last=False)
            gone = self._pod.unload(oldest)
            assert gone.status == 200, gone.body
            self.unloads += 1
        assert answer.status == 200, answer.body
        self._loaded[name] = None

    def _poll(self) -> None:
        while not self._end.wait(POLL_SECONDS):
            for path in ("/ping", "/models"):
                status = self._pod.status(path)
                if status != 200:
                    self.bad_polls.append((path, status))
            self.most_listed = max(self.most_listed, len(self._pod.listed()))
