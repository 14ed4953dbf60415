"""What happens to a model, decided without knowing gRPC, storage or Triton."""
