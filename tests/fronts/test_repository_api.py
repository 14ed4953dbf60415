"""The model repository API on the real Triton: folders of others, models that come with a request, and the adapter's own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from tests.fronts.rig import Answer, FrontsPod, infer_body
from tests.real.mesh import Mesh
from tests.real.models import affine, ensemble, write
from tests.real.polls import until
from tests.real.ports import free_ports

FILES = affine(2, 1)
CONFIG = {
    "backend": "python",
    "max_batch_size": 0,
    "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [-1]}],
    "instance_group": [{"kind": "KIND_CPU", "count": 1}],
    "parameters": {"factor": {"string_value": "10"}, "summand": {"string_value": "0"}},
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrontsPod]:
    with FrontsPod(tmp_path_factory.mktemp("pod"), {"V2_REPOSITORY_API": "true"}) as pod:
        yield pod


@pytest.fixture
def pod(shared: FrontsPod) -> Iterator[FrontsPod]:
    yield shared
    shared.clear()
    for name, state in index(shared).items():
        if state == "READY":
            assert unload(shared, name).status == 200
    for path in shared.repository.iterdir():
        shutil.rmtree(path)


@pytest.fixture
def client(shared: FrontsPod) -> Iterator[Any]:
    """Triton's own client."""
    with triton_http.InferenceServerClient(f"127.0.0.1:{shared.v2.port}") as client:
        yield client


def index(pod: FrontsPod) -> dict[str, str]:
    return {row["name"]: row.get("state", "") for row in pod.v2("POST", "/v2/repository/index").json}


def ask(pod: FrontsPod, name: str, value: float = 3.0) -> Answer:
    return pod.v2("POST", f"/v2/models/{name}/infer", infer_body(value))


def given(answer: Answer) -> float:
    assert answer.status == 200, answer.body
    return float(answer.json["outputs"][0]["data"][0])


def load(pod: FrontsPod, name: str, **parameters: str) -> Answer:
    return pod.v2("POST", f"/v2/repository/models/{name}/load", {"parameters": parameters} if parameters else None)


def unload(pod: FrontsPod, name: str, body: Any = None) -> Answer:
    return pod.v2("POST", f"/v2/repository/models/{name}/unload", body)


def test_a_folder_of_others_is_loaded_and_unloaded_and_never_touched(pod: FrontsPod, client: Any) -> None:
    write(FILES, pod.repository / "theirs")
    assert client.get_model_repository_index() == [{"name": "theirs"}]
    client.load_model("theirs")
    assert client.is_model_ready("theirs")
    assert {"name": "theirs", "version": "1", "state": "READY"} in client.get_model_repository_index()
    assert given(ask(pod, "theirs")) == 7
    client.unload_model("theirs")
    assert index(pod) == {"theirs": "UNAVAILABLE"}
    assert pod.v2("POST", "/v2/repository/index", {"ready": True}).json == []
    assert ask(pod, "theirs").status in (400, 404, 503)
    assert (pod.repository / "theirs" / "1" / "model.py").is_file()
    assert load(pod, "theirs").status == 200
    assert load(pod, "theirs").status == 200
    assert given(ask(pod, "theirs")) == 7
    assert pod.listed() == []
    assert unload(pod, "theirs").status == 200


def test_a_load_may_bring_its_own_config_and_files(pod: FrontsPod, client: Any) -> None:
    write(FILES, pod.repository / "theirs")
    client.load_model("theirs", config=json.dumps(CONFIG))
    assert given(ask(pod, "theirs")) == 30
    client.unload_model("theirs")
    large = {"file:1/model.py": FILES["1/model.py"] + b"# " + bytes([97]) * 500_000}
    client.load_model("large", config=json.dumps(CONFIG), files=large)
    assert given(ask(pod, "large")) == 30
    client.unload_model("large")
    client.load_model("nowhere", config=json.dumps(CONFIG), files={"file:1/model.py": FILES["1/model.py"]})
    assert given(ask(pod, "nowhere", 4)) == 40
    client.unload_model("nowhere")
    assert ask(pod, "nowhere").status == 404
    assert sorted(path.name for path in pod.repository.iterdir()) == ["theirs"]


def test_dependents_go_where_that_is_asked_for(pod: FrontsPod) -> None:
    for path, content in ensemble(scale=FILES, shift=FILES).items():
        write({path: content}, pod.repository)
    (pod.repository / "both" / "1").mkdir()
    parts = {"scale", "shift"}
    for wanted, left in ((False, parts), (True, set())):
        assert load(pod, "both").status == 200
        assert given(ask(pod, "both")) == 15
        assert unload(pod, "both", {"parameters": {"unload_dependents": wanted}}).status == 200
        assert {name for name, state in index(pod).items() if state == "READY"} == left


def test_models_of_the_adapter_stay_its_own(pod: FrontsPod) -> None:
    assert pod.load("ours").status == 200
    assert load(pod, "ours").status == 200
    refused = load(pod, "ours", config=json.dumps(CONFIG))
    assert (refused.status, "overrides" in refused.json["error"]) == (400, True)
    assert unload(pod, "ours").status == 200
    assert (pod.listed(), list(pod.repository.iterdir())) == ([], [])
    assert load(pod, "ours").status == 400


def test_a_name_of_others_is_not_taken(pod: FrontsPod) -> None:
    write(FILES, pod.repository / "theirs")
    assert load(pod, "theirs").status == 200
    answer = pod.load("theirs", affine(5, 5))
    assert (answer.status, answer.json["error"]) == (
        400,
        "Triton's folder has a model 'theirs' already, and the adapter has not put it there",
    )
    assert pod.unload("theirs").status == 404
    assert given(ask(pod, "theirs")) == 7
    assert unload(pod, "theirs").status == 200
    assert (pod.repository / "theirs" / "config.pbtxt").is_file()


def test_a_model_that_cannot_be_loaded_says_why(pod: FrontsPod) -> None:
    write({**FILES, "1/model.py": b"import no_such_module_at_all\n"}, pod.repository / "broken")
    answer = load(pod, "broken")
    assert (answer.status, "no_such_module_at_all" in answer.json["error"]) == (400, True)
    rows = pod.v2("POST", "/v2/repository/index").json
    assert any("no_such_module_at_all" in row.get("reason", "") for row in rows)
    assert load(pod, "absent").status == 400
    assert unload(pod, "absent").status == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("index", {"ready": "yes"}),
        ("index", []),
        ("index", b"{"),
        ("models/m/load", []),
        ("models/m/load", {"parameters": []}),
        ("models/m/load", {"parameters": {"x": "y"}}),
        ("models/m/load", {"parameters": {"config": 1}}),
        ("models/m/load", {"parameters": {"file:1/model.py": "AA=="}}),
        ("models/m/load", {"parameters": {"config": "{}", "file:1/model.py": "%"}}),
        ("models/m/load", {"parameters": {"config": "{}", "file:../../x": "AA=="}}),
        ("models/m/load", {"parameters": {"config": "{}", "file:/etc/x": "AA=="}}),
        ("models/m/load", {"parameters": {"config": "no JSON"}}),
        ("models/a%2Fb/load", None),
        ("models/..%2Fb/load", None),
        ("models/../load", None),
        ("models/adapter-probe-1/load", None),
        ("models/m/unload", {"parameters": {"unload_dependents": 1}}),
        ("models/m/unload", {"parameters": {"x": True}}),
        ("models/..%2Fb/unload", None),
    ],
)
def test_what_makes_no_sense_is_refused(pod: FrontsPod, path: str, body: Any) -> None:
    answer = pod.v2("POST", f"/v2/repository/{path}", body)
    assert (answer.status, list(answer.json)) == (400, ["error"]) or (answer.status == 404 and "/../" in f"/{path}"), answer


@pytest.mark.long
def test_it_outlives_a_kill_of_the_adapter(tmp_path: Path) -> None:
    with FrontsPod(tmp_path, {"V2_REPOSITORY_API": "true"}) as pod:
        write(FILES, pod.repository / "served")
        write(FILES, pod.repository / "idle")
        elsewhere = tmp_path / "elsewhere"
        write(FILES, elsewhere)
        (pod.repository / "linked").symlink_to(elsewhere)
        assert load(pod, "served").status == load(pod, "linked").status == 200
        assert pod.load("ours").status == 200
        pod.adapter.kill()
        pod.start_adapter()
        until(lambda: pod.listed() == ["ours"] or None, "the adapter's own model")
        assert given(ask(pod, "served")) == given(ask(pod, "linked")) == given(ask(pod, "ours")) == 7
        assert load(pod, "idle").status == 200
        assert unload(pod, "served").status == unload(pod, "linked").status == 200
        assert sorted(path.name for path in pod.repository.iterdir()) == ["idle", "linked", "ours", "served"]
        assert (elsewhere / "1" / "model.py").is_file()


def test_modelmesh_that_begins_unloads_them_and_leaves_their_folders(tmp_path: Path) -> None:
    with FrontsPod(tmp_path, {"V2_REPOSITORY_API": "true", "ADAPTER_PORT": str(free_ports(1)[0])}) as pod:
        write(FILES, pod.repository / "theirs")
        assert load(pod, "theirs").status == 200
        assert pod.load("ours").status == 200
        with Mesh(pod.adapter.channel_target, pod.triton.grpc_target) as mesh:
            mesh.start()
        assert index(pod) == {"theirs": "UNAVAILABLE"}
        assert (pod.repository / "theirs" / "1" / "model.py").is_file()
        assert pod.listed() == []


def test_it_is_shut_unless_opened(shared_pod: FrontsPod) -> None:
    for path in ("index", "models/m/load", "models/m/unload"):
        answer = shared_pod.v2("POST", f"/v2/repository/{path}")
        assert (answer.status, answer.json) == (403, {"error": "the model repository API is shut: V2_REPOSITORY_API=true opens it"})
    assert "model_repository" not in shared_pod.v2("GET", "/v2").json["extensions"]


def test_it_is_told_of(shared: FrontsPod, client: Any) -> None:
    assert {"model_repository", "model_repository(unload_dependents)"} <= set(client.get_server_metadata()["extensions"])
    with pytest.raises(InferenceServerException, match="Expected `bool`"):
        client.unload_model("m", unload_dependents=3)
