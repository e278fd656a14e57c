"""One of the two servers that sum devices' reports: a leader or a helper."""
