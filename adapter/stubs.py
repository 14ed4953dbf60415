"""
Triton's generated messages and gRPC stubs, without the rest of `tritonclient`.

`import tritonclient.grpc` runs a package that brings numpy and a second client along: 110 ms and
14 MiB that the adapter never uses. The three generated modules need nothing but protobuf and grpc,
and look for each other under the package's name; so while they are imported that name stands for a
package that has a path and no content. Afterwards it is free again: a real `import tritonclient.grpc`
later in the same process works, and shares these modules.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib import import_module
from typing import Any

_PACKAGE = "tritonclient.grpc"
_is_whole = _PACKAGE in sys.modules

if not _is_whole:
    _spec: Any = importlib.util.find_spec(_PACKAGE)
    sys.modules[_PACKAGE] = importlib.util.module_from_spec(_spec)
model_config_pb2: Any = import_module(f"{_PACKAGE}.model_config_pb2")
service_pb2: Any = import_module(f"{_PACKAGE}.service_pb2")
service_pb2_grpc: Any = import_module(f"{_PACKAGE}.service_pb2_grpc")
if not _is_whole:
    del sys.modules[_PACKAGE]
sys.modules |= {"model_config_pb2": model_config_pb2, "grpc_service_pb2": service_pb2}
"""By the names that the messages have for their modules, so that they can be pickled."""
