"""Explains why a script dies: what this machine allows it, and what killed its workers.

`examine` looks at the machine and needs no script; `watch` runs a script and watches all its
processes; `causes_of` names the causes that fit. Everything here only observes: nothing is changed,
installed or killed.
"""

from tokenmill.doctor.causes import Cause as Cause
from tokenmill.doctor.causes import causes_of as causes_of
from tokenmill.doctor.examination import examine as examine
from tokenmill.doctor.findings import Finding as Finding
from tokenmill.doctor.watch import watch as watch
