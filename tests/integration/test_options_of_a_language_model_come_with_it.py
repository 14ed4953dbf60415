"""A model's `serving.properties` comes from its bucket over ModelMesh's load, and counts at the port of LMI."""

from __future__ import annotations

from collections.abc import Callable

from tests.fronts.llm_rig import EVENTS, ask, lines, with_options
from tests.fronts.rig import Http
from tests.integration.conftest import Rig, Start
from tests.real.llm_models import vllm
from tests.real.mesh import Mesh
from tests.real.ports import free_ports

Put = Callable[[str, dict[str, bytes]], None]


def test_options_come_from_the_bucket(start_adapter: Start, rig: Rig, put: Put) -> None:
    (port,) = free_ports(1)
    http = Http(port)
    adapter = start_adapter(LMI_PORT=str(port), HTTP_ADDRESS="127.0.0.1")
    put("tgi", dict(with_options(vllm(), "option.tgi_compat=true")))
    put("plain", dict(vllm()))
    with Mesh(adapter.channel_target, rig.triton_target) as mesh:
        mesh.start()
        mesh.load("one", "python", "tgi")
        mesh.load("two", "python", "plain")
        assert [line["index"] for line in lines(ask(http, "one", "a", True, max_new_tokens=2), EVENTS)] == [1, 2]
        assert ask(http, "two", "a", max_new_tokens=2).json == {"generated_text": " a a"}
        mesh.unload("one")
        assert ask(http, "one", "a").status == 404
        put("tgi", dict(with_options(vllm(), "option.rolling_batch=disable")))
        mesh.load("one", "python", "tgi")
        assert ask(http, "one", "a", max_new_tokens=1).json == [{"generated_text": " a"}]
        mesh.unload("one")
        mesh.unload("two")
