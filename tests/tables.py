"""Tables of the documents that are made from the code: settings, errors, metrics, storage parameters."""

from __future__ import annotations

from collections.abc import Iterable

from grpc import StatusCode
from prometheus_client.metrics import MetricWrapperBase

from adapter.errors import AdapterError
from adapter.fronts import bodies as of_fronts
from adapter.parameters import PARAMETERS
from adapter.settings import explained
from adapter.spi.codec import KINDS
from adapter.telemetry import metrics


def settings_markdown() -> str:
    """Variable, unit, default, meaning."""
    rows = ["| variable | unit | default | meaning |", "|---|---|---|---|"]
    for about, meaning in explained():
        default = f"`{about['default']}`" if about["default"] is not None else ""
        rows.append(f"| `{about['env']}` | {about['kind'].unit} | {default} | {meaning} |")
    return "\n".join(rows) + "\n"


def errors_markdown() -> str:
    """Code, reason, when. The reason is the label of logs and metrics."""
    rows = ["| code | reason | when |", "|---|---|---|"]
    kinds = sorted(KINDS, key=lambda kind: StatusCode[kind.code].value)
    rows += [f"| `{kind.code}` | `{kind.reason}` | {' '.join((kind.__doc__ or '').split())} |" for kind in kinds]
    rows.append(f"| `{StatusCode.INTERNAL.name}` | `{AdapterError.reason}` | A defect of the adapter; the log has the traceback. |")
    return "\n".join(rows) + "\n"


def metrics_markdown(table: Iterable[MetricWrapperBase] = (*metrics.TABLE, *of_fronts.TABLE)) -> str:
    """Name, type, labels, meaning."""
    rows = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for metric in table:
        family = next(iter(metric.describe()))
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = ", ".join(f"`{label}`" for label in metric._labelnames)  # the library has no public name for them
        rows.append(f"| `{name}` | {family.type} | {labels} | {family.documentation} |")
    return "\n".join(rows) + "\n"


def parameters_markdown() -> str:
    """Name, value, meaning."""
    rows = ["| storage parameter | value | meaning |", "|---|---|---|"]
    rows += [f"| `{row.name}` | {row.value} | {row.meaning} |" for row in PARAMETERS]
    return "\n".join(rows) + "\n"
