"""The UNTRUSTED side: recommenders and the servers that sum reports.

Nothing here may import the private side.
"""
