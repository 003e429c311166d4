"""Why a script dies: what this machine really grants it, and what killed its workers.

`examine` looks at the machine and needs no script; `watch` runs one and keeps an eye on all its
processes; `causes_of` names what fits. Everything here only looks: nothing is changed, installed
or ended.
"""

from tokenmill.doctor.causes import Cause as Cause
from tokenmill.doctor.causes import causes_of as causes_of
from tokenmill.doctor.examination import examine as examine
from tokenmill.doctor.findings import Finding as Finding
from tokenmill.doctor.watch import watch as watch
