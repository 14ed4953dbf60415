"""Models that are files of this machine already: pulled by the storage helper, or in a mounted volume claim."""
