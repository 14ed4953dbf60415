"""HTTP of storage, over libcurl: the only place where storage meets the network."""
