"""The owner's choices of privacy, and previews of what they would send or show."""
