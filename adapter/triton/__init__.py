"""The face towards Triton: its gRPC calls, its repository folder, the layout of a model."""
