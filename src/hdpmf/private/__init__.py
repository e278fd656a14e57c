"""The PRIVATE side: ratings live here. Nothing of ``hdpmf.untrusted`` may be imported."""
