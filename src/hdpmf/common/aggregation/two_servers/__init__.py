"""Sums by two servers that do not collude: Prio3 (``prio``) in DAP's messages (``dap``)."""
