"""The volume: its folders, what may be written and what must go, its failures in words. Knows no store and no Triton."""
