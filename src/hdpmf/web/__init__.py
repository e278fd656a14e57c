"""What pages in a browser share, whoever serves them: safety of a local page, templates, the look."""
