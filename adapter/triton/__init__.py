"""
The face towards Triton: its gRPC calls, its repository folder, and waiting for what it does.

`server` is the `ModelServer`, `repository` the `ModelRepository` of `adapter.ports`. What is known of
Triton's behaviour, and how it was observed, is in this package's README.md.
"""
