"""
What holds in every pod with Triton and the adapter, whoever made its runtime: each check yields sentences about what does not.

The checks see the pod as the controller assembles it. `PodView` reads what the two containers will be told.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

from adapter.settings import Settings, SettingsError, explained
from adapter.settings.storage import REPOSITORY_DIR
from tests.chart.controller import GRACE_SECONDS
from tests.chart.pod.env import CannotStartError, Objects, environment, quantity, words

TRITON, ADAPTER = "triton", "triton-adapter"
CACHE_SHARE = Decimal("0.9")
INJECTED_PORTS = {"mm": (8033, 8080, 8089, 8090, 2112), "rest-proxy": (8008,), "puller": (8086,)}
"""Where ModelMesh's containers listen, declared or not: one network for the whole pod."""
DATA_ENDPOINT = "RUNTIME_DATA_ENDPOINT"
"""The controller tells it to every adapter; ours asks the port."""
LIBRARIES = ("AWS_", "AZURE_", "GOOGLE_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_")
"""What libraries of the adapter read by themselves."""
_OPTION = re.compile(r"--([a-z-]+)=(\S+)")


@dataclass(frozen=True)
class PodView:
    """A pod template, and the Secrets of its namespace."""

    template: Mapping[str, Any]
    secrets: Objects

    @cached_property
    def spec(self) -> Mapping[str, Any]:
        """Of the pod."""
        return dict(self.template["spec"])

    @cached_property
    def containers(self) -> dict[str, dict[str, Any]]:
        """By name."""
        return {container["name"]: container for container in self.spec["containers"]}

    def env(self, name: str) -> dict[str, str]:
        """Of a container. Raises CannotStartError."""
        return environment(self.containers[name], self.spec, self.secrets)

    def plain(self, name: str) -> dict[str, str]:
        """Those variables of a container that are written as they are."""
        return {entry["name"]: entry["value"] for entry in self.containers[name]["env"] if "value" in entry}

    @cached_property
    def options(self) -> dict[str, str]:
        """Of tritonserver."""
        command = " ".join(words(self.containers[TRITON], self.env(TRITON)))
        return {name: value.strip("\"';") for name, value in _OPTION.findall(command)}

    @cached_property
    def settings(self) -> Settings:
        """Of the adapter, by its own reader. Raises SettingsError and CannotStartError."""
        return Settings.from_env(self.env(ADAPTER))

    def place(self, name: str, path: str) -> tuple[str, str] | None:
        """Volume and path in it that a container sees there; None on its own root."""
        mounts = self.containers[name].get("volumeMounts") or ()
        above = [mount for mount in mounts if (path + "/").startswith(mount["mountPath"].rstrip("/") + "/")]
        if not above:
            return None
        mount = max(above, key=lambda mount: len(mount["mountPath"]))
        inside = posixpath.join(mount.get("subPath", ""), posixpath.relpath(path, mount["mountPath"]))
        return mount["name"], posixpath.normpath(inside)

    def volume(self, name: str) -> Mapping[str, Any]:
        """By name; empty if there is none."""
        return next((volume for volume in self.spec["volumes"] if volume["name"] == name), {})


def problems(view: PodView) -> list[str]:
    """Everything that is wrong beside what an API server refuses. What the adapter would not start with hides the rest."""
    try:
        return [problem for check in TOLD for problem in check(view)]
    except CannotStartError as error:
        return [f"a container cannot start: {error}"]
    except SettingsError as error:
        return [f"the adapter does not start: {problem}" for problem in error.problems]


def listeners(view: PodView) -> Iterator[str]:
    """No two servers on one port."""
    triton = [int(view.options.get(f"{name}-port", default)) for name, default in (("grpc", 8001), ("http", 8000), ("metrics", 8002))]
    listen = {name: ports for name, ports in INJECTED_PORTS.items() if name in view.containers}
    settings = view.settings
    fronts = (settings.sagemaker.port, settings.v2.port, settings.llm.port)
    listen |= {TRITON: tuple(triton), ADAPTER: (settings.spi.port, settings.telemetry.metrics_port, *fronts)}
    by_port: dict[int, list[str]] = {}
    for name, ports in listen.items():
        for port in filter(None, ports):
            by_port.setdefault(port, []).append(name)
    yield from (f"{' and '.join(who)} listen on {port}" for port, who in by_port.items() if len(who) > 1)
    for name, container in ((name, view.containers[name]) for name in (TRITON, ADAPTER)):
        for port in container.get("ports") or ():
            if port["containerPort"] not in listen[name]:
                yield f"{name} declares the port {port['containerPort']}, where it does not listen"


def calls(view: PodView) -> Iterator[str]:
    """ModelMesh, the storage helper, the adapter and Triton find each other."""
    mm, adapter, triton = view.plain("mm"), str(view.settings.spi.port), view.options.get("grpc-port", "8001")
    if mm.get("INTERNAL_SERVING_GRPC_PORT") != triton:
        yield f"mm sends inference to {mm.get('INTERNAL_SERVING_GRPC_PORT')}, Triton listens on {triton}"
    asked = mm.get("INTERNAL_GRPC_PORT")
    if "puller" in view.containers:
        if asked != str(INJECTED_PORTS["puller"][0]):
            yield f"mm sends loads to {asked}, the storage helper listens on {INJECTED_PORTS['puller'][0]}"
        asked = view.env("puller")["MODEL_SERVER_ENDPOINT"].removeprefix("port:")
    if asked != adapter:
        yield f"loads are sent to {asked}, the adapter listens on {adapter}"
    if str(view.settings.triton.reach.port) != triton:
        yield f"the adapter calls Triton at {view.settings.triton.reach.port}, Triton listens on {triton}"
    probe = " ".join((view.containers[TRITON].get("livenessProbe") or {}).get("exec", {}).get("command", ()))
    for what, port in (("the adapter's health", view.settings.telemetry.metrics_port), ("Triton's", view.options.get("http-port", "8000"))):
        if f":{port}/" not in probe:
            yield f"the probe of Triton does not ask {what} at {port}"


def models(view: PodView) -> Iterator[str]:
    """Both containers see the models at one path of one volume, claims included, and the adapter may fill a part of it."""
    root = str(view.settings.volume.root)
    places = {name: view.place(name, root) for name in (TRITON, ADAPTER)}
    if places[TRITON] is None or places[TRITON] != places[ADAPTER]:
        yield f"{root} is {places[TRITON]} for Triton and {places[ADAPTER]} for the adapter"
    if view.options.get("model-repository") != f"{root}/{REPOSITORY_DIR}":
        yield f"Triton serves {view.options.get('model-repository')}, the adapter fills {root}/{REPOSITORY_DIR}"
    claims = {
        name: {mount["mountPath"] for mount in view.containers[name]["volumeMounts"] if mount["mountPath"].startswith("/pvc_mounts/")}
        for name in (TRITON, ADAPTER)
    }
    if claims[TRITON] != claims[ADAPTER]:
        yield f"claims of Triton: {sorted(claims[TRITON])}, of the adapter: {sorted(claims[ADAPTER])}"
    volume, most = view.volume((places[ADAPTER] or ("", ""))[0]), view.settings.volume.max_bytes
    limit = (volume.get("emptyDir") or {}).get("sizeLimit")
    if limit and limit != "0" and most is not None and most > quantity(limit) * CACHE_SHARE:
        yield f"CACHE_MAX_BYTES {most} is more than {CACHE_SHARE:.0%} of the volume's {limit}"


def threads(view: PodView) -> Iterator[str]:
    """Both know one number of load threads, more than the loads at once; both end before the pod does."""
    told, adapter = view.options.get("model-load-thread-count"), view.settings.triton.load_threads
    if told != str(adapter):
        yield f"Triton has {told} load threads, the adapter believes in {adapter}"
    if adapter <= view.settings.capacity.max_loading:
        yield f"{adapter} load threads for {view.settings.capacity.max_loading} loads at once"
    for what, seconds in (("Triton", view.options.get("exit-timeout-secs", "30")), ("the adapter", view.settings.lifetime.grace_seconds)):
        if float(seconds) >= GRACE_SECONDS:
            yield f"{what} takes {seconds} s to end, the pod has {GRACE_SECONDS} s"


def storage(view: PodView) -> Iterator[str]:
    """Whoever pulls sees the storage secret, and a pod of ours starts without it."""
    puller = "puller" if "puller" in view.containers else ADAPTER
    folder = view.env(puller).get("STORAGE_CONFIG_DIR", "/storage-config")
    volume = view.volume((view.place(puller, folder) or ("", ""))[0])
    if "secret" not in volume:
        yield f"{puller} sees no secret at {folder}"
    elif not volume["secret"].get("optional") and volume["name"] != "storage-config":
        yield f"without the secret {volume['secret']['secretName']} no pod starts"


def variables(view: PodView) -> Iterator[str]:
    """What the adapter is told are its settings, spelled as they are; nothing is told twice."""
    known = {about["env"] for about, _ in explained()}
    for name, container in view.containers.items():
        told = Counter(entry["name"] for entry in container.get("env") or ())
        yield from (f"variable {variable} of {name} is there {count} times" for variable, count in told.items() if count > 1)
        for variable in told if name == ADAPTER else ():
            if variable not in known | {DATA_ENDPOINT} and not variable.startswith(LIBRARIES):
                yield f"the adapter has no setting {variable}"


TOLD: tuple[Callable[[PodView], Iterator[str]], ...] = (variables, listeners, calls, models, threads, storage)
"""Checks that read what the containers are told."""
