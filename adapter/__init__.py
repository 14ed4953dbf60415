"""A ModelMesh model-runtime adapter for NVIDIA Triton: loads and unloads models beside a Triton server."""
