"""
ModelMesh as a V2 gRPC server: it finds a model in any pod, and needs to be told which one a call is about.

Sources: ModelMesh's `DataplaneApiConfig.java` (of ModelInfer and ModelMetadata it reads the name in the message, of all else a header),
`GrpcSupport.java` (names of the headers); modelmesh-serving's `cluster_config.go`.
"""

from __future__ import annotations

import re
from typing import Any

from adapter.inference import Failure, InferenceFailed, ServerInfo
from adapter.stubs import model_config_pb2, service_pb2
from adapter.triton.inference.client import HEALTH_SECONDS, Metadata, TritonInference

HEADER = "mm-vmodel-id"
BINARY_HEADER = f"{HEADER}-bin"
_VISIBLE = re.compile(r"[!-~]+")
_AWAY = frozenset({Failure.UNAVAILABLE, Failure.TIMEOUT})


class MeshInference(TritonInference):
    """As `TritonInference`. What is asked of no model has ModelMesh itself for an answer: it does not forward such calls."""

    _question_seconds = None  # ModelMesh may have to load the model first, and ends that wait itself

    async def is_live(self) -> bool:
        """Whether it answers at all: it refuses the call, having no model for it."""
        try:
            return bool((await self._call(self._stub.ServerLive, service_pb2.ServerLiveRequest(), HEALTH_SECONDS, self._headers)).live)
        except InferenceFailed as failed:
            return failed.failure not in _AWAY

    async def is_ready(self) -> bool:
        """As `is_live`: a model that is asked for is loaded then."""
        return await self.is_live()

    async def server_info(self) -> ServerInfo:
        """Its runtimes may be of any kind; what a front serves over it, their protocol has."""
        return ServerInfo("modelmesh", "", ("binary_tensor_data", "parameters"))

    def _about(self, model: str) -> Metadata:
        named = (HEADER, model) if _VISIBLE.fullmatch(model) else (BINARY_HEADER, model.encode())
        return (*self._headers, named)

    async def _config_for_asking(self, model: str, version: str) -> Any:
        """A runtime that is no Triton has no such call."""
        try:
            return await self._config(model, version)
        except InferenceFailed as failed:
            if failed.failure is not Failure.UNSUPPORTED:
                raise
            return model_config_pb2.ModelConfig()
