"""What a device sends for a task: reports to two servers, and ratings that its owner shows."""
