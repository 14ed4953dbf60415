# Triton and the adapter in one image, which serves SageMaker's multi-model contract alone:
# docker build -f deploy/sagemaker.Dockerfile -t modelmesh-triton-adapter-sagemaker:0.1.0 .
# The adapter's own image comes first (deploy/Dockerfile); both must have the same Python: deploy/docs/sagemaker.md

ARG ADAPTER_IMAGE=modelmesh-triton-adapter:0.1.0
ARG TRITON_IMAGE=nvcr.io/nvidia/tritonserver:25.06-py3

FROM ${ADAPTER_IMAGE} AS adapter

FROM ${TRITON_IMAGE}
# What a multi-model endpoint, and a pipeline of containers, ask an image for
LABEL com.amazonaws.sagemaker.capabilities.multi-models="true" \
      com.amazonaws.sagemaker.capabilities.accept-bind-to-port="true" \
      org.opencontainers.image.title="modelmesh-triton-adapter-sagemaker" \
      org.opencontainers.image.description="Triton behind SageMaker's multi-model contract" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=adapter /usr/share/sbom /usr/share/sbom/
COPY --from=adapter /opt/adapter/lib /opt/adapter/lib/
COPY --from=adapter /opt/adapter/bin/modelmesh-triton-adapter /opt/adapter/bin/
# The venv anew, over this image's Python; its folder is not in PATH, where the stubs of python models would find it.
# The import ends the build where the two Pythons differ.
RUN python3 -m venv --without-pip /opt/adapter \
 && /opt/adapter/bin/python -c "import adapter.app, aiohttp, grpc, numpy, orjson" \
 && ln -s /opt/adapter/bin/modelmesh-triton-adapter /usr/local/bin/modelmesh-triton-adapter \
 && mkdir -p /models /opt/ml/models \
 && chmod 777 /models
# Triton listens on the loopback interface alone. SAGEMAKER_BIND_TO_PORT of the platform, or 8080
ENV SAGEMAKER_MULTI_MODEL=true \
    ADAPTER_PORT=0 \
    LOADING_CONCURRENCY=4 \
    LOADTIME_TIMEOUT=350000 \
    UNLOAD_TIMEOUT_SECONDS=350 \
    TRITON_LOAD_THREADS=8 \
    TRITON_COMMAND="tritonserver --model-repository=/models/_triton_models --model-control-mode=explicit --strict-readiness=false --model-load-thread-count=8 --exit-timeout-secs=8 --grpc-address=127.0.0.1 --grpc-port=8001 --allow-http=false --allow-sagemaker=false --metrics-address=127.0.0.1 --metrics-port=8002" \
    PYTHONUNBUFFERED=1
USER 1000:0
EXPOSE 8080 9464
HEALTHCHECK --interval=30s --timeout=10s --start-period=120s CMD ["modelmesh-triton-adapter", "probe"]
ENTRYPOINT ["modelmesh-triton-adapter"]
CMD ["serve"]
