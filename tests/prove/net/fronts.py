"""Mistakes in the HTTP fronts."""

from __future__ import annotations

from tests.prove.net.mistakes import Mistake

MISTAKES = (
    Mistake(
        "restricted for none",
        "A restricted call is admitted without its header.",
        "adapter/fronts/edge.py",
        "return hmac.compare_digest(",
        "return bool(rule) or hmac.compare_digest(",
        ("fronts/test_what_may_fail.py",),
    ),
    Mistake(
        "a page too many",
        "The last page of models has a token of a next one.",
        "adapter/fronts/sagemaker.py",
        "if start + most < len(models) else None",
        "if start + most <= len(models) else None",
        ("fronts/test_the_multi_model_contract.py",),
    ),
    Mistake(
        "length of the head",
        "The length of the JSON before binary data is one too large.",
        "adapter/fronts/v2/infer.py",
        "*binary)), len(text)",
        "*binary)), len(text) + 1",
        ("fronts/test_v2_rest.py", "fronts/test_v2_clients.py"),
    ),
    Mistake(
        "number out of range",
        "A number that its datatype cannot hold is wrapped around.",
        "adapter/fronts/tensors.py",
        "if not (limits.min <= min(flat) and max(flat) <= limits.max):",
        "if not limits.min <= min(flat):",
        ("fronts/test_v2_rest.py",),
    ),
    Mistake(
        "body without bound",
        "A body longer than HTTP_MAX_BODY_BYTES is read.",
        "adapter/fronts/bodies.py",
        "                    if len(body) > self._limit:\n                        raise _too_large(self._limit)\n",
        "",
        ("fronts/test_v2_rest.py", "fronts/test_bodies_take_bounded_memory.py"),
    ),
    Mistake(
        "memory not given back",
        "A request keeps the memory that was counted for its body.",
        "adapter/fronts/bodies.py",
        "self._budget.taken -= self._taken",
        "self._budget.taken -= 0",
        ("fronts/test_bodies_take_bounded_memory.py",),
    ),
    Mistake(
        "parsing not counted",
        "What parsing makes of a body has no bound.",
        "adapter/fronts/children.py",
        "resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))",
        "resource.setrlimit(resource.RLIMIT_DATA, (-1, -1))",
        ("fronts/test_bodies_take_bounded_memory.py",),
    ),
    Mistake(
        "one token more",
        "A generation that ends at its most tokens is not told as `length`.",
        "adapter/fronts/llm/generating.py",
        "if self.generated_tokens >= self._wishes.max_new_tokens:",
        "if self.generated_tokens > self._wishes.max_new_tokens:",
        ("fronts/test_lmi.py", "fronts/test_tgi.py"),
    ),
    Mistake(
        "failed invoke is full",
        "Every failed invoke that speaks of memory of the host is 507.",
        "adapter/fronts/answers.py",
        "(_expressions(_LOAD, text) if is_load else set())",
        "_expressions(_LOAD, text)",
        ("unit/fronts/sagemaker/test_the_contracts_rules.py", "fronts/test_the_multi_model_contract.py"),
    ),
    Mistake(
        "too many requests",
        "More requests than HTTP_MAX_REQUESTS are worked on.",
        "adapter/fronts/edge.py",
        "and len(self._running) > self.settings.max_requests:",
        "and len(self._running) > 10**9:",
        ("fronts/test_what_may_fail.py",),
    ),
    Mistake(
        "loaded twice",
        "A second load of a name is not 409.",
        "adapter/fronts/answers.py",
        "AlreadyLoaded: 409",
        "AlreadyLoaded: 400",
        ("fronts/test_the_multi_model_contract.py",),
    ),
    Mistake(
        "proxy to another place",
        "The REST proxy does not ask the server that V2_REST_ENDPOINT names.",
        "adapter/wiring.py",
        "settings.v2.endpoint or settings.rest_proxy.endpoint",
        "settings.rest_proxy.endpoint",
        ("fronts/test_rest_proxy.py",),
    ),
)
