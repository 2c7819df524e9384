#!/usr/bin/env bash
# A Slurm cluster of this machine alone, for tests: munged, slurmctld and slurmd with all their files in one
# folder. Needs root and the packages slurm-wlm and munge.
#
# cluster.sh start FOLDER    starts it; prints why and exits with 77 where that is impossible
# cluster.sh stop FOLDER
# Afterwards SLURM_CONF=FOLDER/slurm.conf makes sbatch, srun and squeue use it.
set -euo pipefail

[ $# -eq 2 ] || { echo "usage: $0 start|stop FOLDER" >&2; exit 2; }
folder=$2

cannot() {
    echo "Slurm cannot be tested here: $1"
    exit 77
}

# Waits until a command succeeds, at most 20 seconds.
wait_until() {
    for _ in $(seq 100); do
        if "$@" >/dev/null 2>&1; then return 0; fi
        sleep 0.2
    done
    return 1
}

start() {
    [ "$(id -u)" = 0 ] || cannot 'its daemons need root.'
    for program in munged slurmctld slurmd srun sbatch; do
        command -v "$program" >/dev/null || cannot "$program is not installed (packages slurm-wlm and munge)."
    done
    mkdir -p "$folder"/{munge,state,spool,log}
    folder=$(cd "$folder" && pwd)
    # munged refuses folders that others could write into.
    chmod 755 "$folder" "$folder/munge"
    [ -f "$folder/munge/key" ] || (umask 077 && head -c 128 /dev/urandom >"$folder/munge/key")
    munged --force --key-file "$folder/munge/key" --socket "$folder/munge/socket" --pid-file "$folder/munge/pid" \
        --log-file "$folder/log/munged" --seed-file "$folder/munge/seed" || cannot "munged does not start."

    host=$(hostname -s)
    memory=$(awk '/^MemTotal/ { print int($2 / 1024) }' /proc/meminfo)
    # Of two jobs of this file at a time, each has its own ports.
    port=$((20000 + $$ % 10000))
    cat >"$folder/slurm.conf" <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/log/slurmctld
SlurmdLogFile=$folder/log/slurmd
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
SchedulerType=sched/builtin
SelectType=select/linear
InactiveLimit=0
KillWait=5
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) RealMemory=$memory State=UNKNOWN
PartitionName=test Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
    export SLURM_CONF=$folder/slurm.conf
    slurmctld || cannot "slurmctld does not start: $(tail -n 1 "$folder/log/slurmctld" 2>/dev/null)"
    slurmd || cannot "slurmd does not start: $(tail -n 1 "$folder/log/slurmd" 2>/dev/null)"
    wait_until sh -c "sinfo --noheader --states idle --format %N | grep -q ." ||
        cannot "the node does not become idle: $(sinfo --noheader --format '%N %T %E' 2>&1 | head -n 1)"
    wait_until srun true || cannot "srun does not start a task: $(tail -n 1 "$folder/log/slurmd")"
}

stop() {
    for daemon in slurmd.pid slurmctld.pid munge/pid; do
        if [ -f "$folder/$daemon" ]; then kill "$(cat "$folder/$daemon")" 2>/dev/null || true; fi
    done
}

"$1"
