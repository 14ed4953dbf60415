"""Where models come from: secrets, stores, pulls, artifacts on disk."""
