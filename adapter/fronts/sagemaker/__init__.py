"""SageMaker's multi-model contract over HTTP."""

from adapter.fronts.sagemaker.routes import front

__all__ = ["front"]
