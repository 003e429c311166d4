#!/bin/bash
# After the tasks of slurm.sh: assembles what they encoded. One process; most of it is copying.
#SBATCH --job-name=tokenmill-finish
#SBATCH --cpus-per-task=4
#SBATCH --mem=16G
#SBATCH --time=08:00:00
set -euo pipefail

OUT=/shared/data/mine

tokenmill finish "$OUT"
tokenmill verify "$OUT"
