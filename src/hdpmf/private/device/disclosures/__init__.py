"""Disclosures: data that left the device, to whom, and the privacy spent on it."""
