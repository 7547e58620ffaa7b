#!/bin/bash
# Train under Slurm, whose jobs end after a time limit: the job saves, queues itself again and continues.
#
#     sbatch examples/slurm_requeue.sh photos/ runs/photos
#
# Two minutes before the limit Slurm sends SIGTERM to this script, which hands it on: `automix train` writes a
# checkpoint and exits. A job that is preempted, or whose machine fails, is queued again by Slurm itself.
#
#SBATCH --job-name=automix
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --gpus-per-node=2
#SBATCH --cpus-per-task=16
#SBATCH --time=04:00:00
#SBATCH --signal=B:TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append

data=${1:?give the data, a name or a folder} out=${2:?give the run folder}

training= stopped=
trap 'stopped=1; kill -TERM $training' TERM
automix train "$data" --out "$out" --resume auto --processes "${SLURM_GPUS_ON_NODE:-1}" &
training=$!
wait "$training"
code=$?
if [ -n "$stopped" ]; then
    wait "$training" # the first wait ended with the signal, the training a little later
    exec scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
