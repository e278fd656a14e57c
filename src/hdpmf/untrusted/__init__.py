"""The UNTRUSTED side: recommenders and the servers that sum reports.

Nothing private may be imported.
"""
