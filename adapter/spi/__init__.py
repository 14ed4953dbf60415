"""The face towards ModelMesh: decode, call the lifecycle, encode."""
