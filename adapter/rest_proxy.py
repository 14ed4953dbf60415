"""
The REST proxy of a ModelMesh pod as a process of its own: the V2 front before ModelMesh, and nothing else.

There is no volume, no Triton and no call of ModelMesh in it. Source of the variables: KServe's `rest-proxy`, `proxy/main.go`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from adapter.errors import StartError
from adapter.settings import ProxySettings, RestProxySettings
from adapter.units import Endpoint

if TYPE_CHECKING:
    from adapter.fronts.doors import Doors
    from adapter.triton.inference.mesh import MeshInference


def modelmesh(endpoint: Endpoint, proxy: RestProxySettings) -> MeshInference:
    """
    A client of ModelMesh, or of whatever server V2_REST_ENDPOINT names.

    Raises:
        StartError: TLS is wanted and its files cannot be used.
    """
    from adapter.triton.inference.mesh import MeshInference  # noqa: PLC0415 - brings gRPC, in a process that has a front
    from adapter.triton.inference.pinned import pinned  # noqa: PLC0415

    if not proxy.listen_port:
        return MeshInference(endpoint.target)
    tls = pinned(proxy.certificate, proxy.key) if proxy.uses_tls and proxy.certificate and proxy.key else None
    return MeshInference(endpoint.target, tls=tls, max_message_bytes=proxy.max_message_bytes)


@asynccontextmanager
async def build(settings: ProxySettings) -> AsyncIterator[Doors]:
    """
    Open the port, and close it with the context.

    Raises:
        StartError: it cannot start.
    """
    try:
        from adapter.fronts import v2  # noqa: PLC0415 - an extra
        from adapter.fronts.doors import Doors  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise StartError(
            f"the REST proxy needs {error.name}, which is not installed: pip install 'modelmesh-triton-adapter[http]'"
        ) from error
    async with AsyncExitStack() as stack:
        inference = modelmesh(settings.v2.endpoint or settings.rest_proxy.endpoint, settings.rest_proxy)
        stack.push_async_callback(inference.close)
        doors = Doors()
        stack.push_async_callback(doors.close)
        variable = "V2_REST_PORT" if settings.v2.port != settings.rest_proxy.listen_port else "REST_PROXY_LISTEN_PORT"
        await doors.open(v2.front(settings.v2, inference, inference), settings.v2.port, variable, settings.http)
        yield doors
