"""The one thing that leaves a device for a task: a report to two servers."""
