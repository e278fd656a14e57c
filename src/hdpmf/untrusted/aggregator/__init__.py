"""One of the two servers that sum devices' reports: leader or helper, each run by its own
organisation.
"""
