"""The report: one HTML page, CSV and LaTeX, all from a folder of results."""

from hdpmf.lab.report.page import ReportFiles, write_report

__all__ = ["ReportFiles", "write_report"]
