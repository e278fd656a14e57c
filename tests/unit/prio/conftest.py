"""Checks of reports run as servers run them."""

from __future__ import annotations

from hdpmf.common.aggregation.two_servers.prio import compile_kernels

compile_kernels()
