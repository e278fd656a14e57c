"""The report: one HTML page, CSV and LaTeX, all from a folder of results."""

from __future__ import annotations

from hdpmf.lab.report.page import ReportFiles, write_report

__all__ = ["ReportFiles", "write_report"]
