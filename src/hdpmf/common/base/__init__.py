"""Files, databases, logs, progress, threads and other ground that the rest stands on."""
