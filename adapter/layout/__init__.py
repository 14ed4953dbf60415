"""How a model must look for Triton: pure rules over listings, schemas and config.pbtxt. No I/O, no gRPC."""
