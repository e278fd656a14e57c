"""The owner's choice of privacy, and a preview of what a run would send."""
