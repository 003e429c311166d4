#!/bin/bash
# tokenmill on a Slurm cluster: an array of tasks, each with its share of the corpus.
#
#   job=$(sbatch --parsable examples/cluster/slurm.sh)
#   sbatch --dependency=afterok:$job examples/cluster/slurm-finish.sh
#
# Tasks that failed are run again by number: sbatch --array=3,17 examples/cluster/slurm.sh
# PARTITIONS stays what it is then; it is not the number of tasks in this submission.
#SBATCH --job-name=tokenmill
#SBATCH --array=1-64
#SBATCH --cpus-per-task=16
#SBATCH --mem=64G
#SBATCH --time=04:00:00
set -euo pipefail

PARTITIONS=64
CORPUS=/shared/corpus
OUT=/shared/data/mine

tokenmill prepare "$CORPUS" -o "$OUT" --format megatron --partition "$SLURM_ARRAY_TASK_ID/$PARTITIONS"
