"""From a bucket to files on our volume: listing, pulling, unpacking. Knows no store."""
