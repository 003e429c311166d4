"""Is this folder what it says it is? Every file, every token, and if asked, every document again.

    report = verify("data/mine", sample=100)
    report.is_whole, report.failures, report.checks

verification.py is the file to read first; checks.py lists the checks, and has what comes out.
"""

from tokenmill.dataset.verify.checks import Check, Failure, Report
from tokenmill.dataset.verify.verification import verify

__all__ = ["Check", "Failure", "Report", "verify"]
