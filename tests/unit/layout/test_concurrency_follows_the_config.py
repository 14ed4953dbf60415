"""`LIMIT_PER_MODEL_CONCURRENCY=auto`: how many requests a model can use at once, as its config says."""

import pytest

from adapter.layout import rules
from adapter.layout.model_config import read
from tests.builders import a_listing, a_spec


@pytest.mark.parametrize(
    ("config", "requests"),
    [
        ("", 1),
        ("max_batch_size: 8", 1),
        ("instance_group { count: 4 }", 4),
        ("instance_group { count: 2 gpus: [0, 1] } instance_group { count: 1 kind: KIND_CPU }", 5),
        ("instance_group { count: 3 passive: true }", 1),
        ("max_batch_size: 8 dynamic_batching { }", 16),
        ("max_batch_size: 8 instance_group { count: 2 } dynamic_batching { default_queue_policy { max_queue_size: 100 } }", 132),
        ("instance_group { count: 2147483647 } instance_group { count: 1 }", 2**31 - 1),
    ],
)
def test_instances_batches_and_queue_count(config: str, requests: int) -> None:
    assert read(config.encode()).concurrency == requests


def test_a_layout_has_that_of_its_config_or_none() -> None:
    listing = a_listing(["config.pbtxt", "1/model.onnx"])
    config = b'backend: "onnxruntime" instance_group { count: 3 }'
    assert rules.plan(a_spec("m", model_type="onnx"), listing, dict.fromkeys(rules.wanted(listing), config)).concurrency == 3
    bare = a_listing(["1/model.onnx"])
    assert rules.plan(a_spec("m", model_type="onnx"), bare, {}).concurrency == 0
