"""Messages that a device sends for a task: reports, and ratings that its owner shows."""
