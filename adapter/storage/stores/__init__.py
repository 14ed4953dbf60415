"""A module or package for each type of store that keeps buckets, one row for each in `table`, and what they share."""
