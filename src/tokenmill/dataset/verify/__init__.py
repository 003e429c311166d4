"""`verify`: checks every file and token of a dataset and, if asked, encodes documents again.

    report = verify("data/mine", sample=100)
    report.is_whole, report.failures, report.checks

verification.py is the file to read first; checks.py lists the checks and defines the report.
"""

from tokenmill.dataset.verify.checks import Check, Failure, Report
from tokenmill.dataset.verify.verification import verify

__all__ = ["Check", "Failure", "Report", "verify"]
