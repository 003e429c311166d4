"""Slurm's `sbatch`, for tests: runs the job at once, the tasks of an array one after the other."""

import os
import re
import subprocess
import sys
from pathlib import Path

*options, script = sys.argv[1:]
text = Path(script).read_text()
count = Path(sys.argv[0]).with_suffix(".count")
job = int(count.read_text()) + 1 if count.exists() else 1
count.write_text(str(job))
array = re.search(r"--array=([\d,-]+)", f"{' '.join(options)}\n{text}")
first, _, last = array[1].partition("-") if array else ("", "", "")
tasks = [str(number) for number in range(int(first), int(last) + 1)] if last else first.split(",")
for task in tasks:
    log = f"slurm-{job}_{task}.out" if task else f"slurm-{job}.out"
    with open(log, "w") as out:
        environment = {**os.environ, "SLURM_ARRAY_TASK_ID": task}
        subprocess.run(["bash", script], env=environment, stdout=out, stderr=out, check=False)
print(job if "--parsable" in options else f"Submitted batch job {job}")
