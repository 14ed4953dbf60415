"""Inference through a V2 gRPC server, for the HTTP fronts. Imported only where a front is on."""
