"""SageMaker's multi-model contract over HTTP."""
