"""The messages of DAP (draft-ietf-ppm-dap-18), between devices, servers and collector.

Bytes only: what is in the shares is ``hdpmf.common.aggregation.two_servers.prio``'s, and who
answers what is the servers'. It imports nothing else of ours. What of the draft is here is in
``spec/wire.md``.
"""
