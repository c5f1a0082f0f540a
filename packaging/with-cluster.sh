#!/usr/bin/env bash
# Run a command beside a SLURM cluster of one node: Debian's packages, this computer, nothing kept.
#
#     packaging/with-cluster.sh .venv/bin/python -m pytest -k slurm
#
# The command finds SLURM_CONF, so that sbatch reaches this cluster.  Needs root on Debian.
set -euo pipefail

missing=()
for pair in slurmctld:slurmctld slurmd:slurmd sbatch:slurm-client munged:munge; do
    command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
done
if [ "${#missing[@]}" -gt 0 ]; then
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
        echo "cluster: missing: ${missing[*]}; remedy: install these packages, or run this as root on Debian" >&2
        exit 1
    fi
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

work=$(mktemp -d)
chmod 755 "$work"
started=()
stop() {
    kill "${started[@]}" 2>/dev/null || true
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap stop EXIT

# The daemons know each other by a key that lives as long as they do.
head -c 128 /dev/urandom > "$work/munge.key"
chmod 400 "$work/munge.key"
munged --foreground --force --key-file "$work/munge.key" --socket "$work/munge" \
    --log-file "$work/munged.log" --pid-file "$work/munged.pid" --seed-file "$work/seed" 2>/dev/null &
started+=($!)

# What the node is said to have is what the job of docs/cluster.md asks for, whatever is here.
host=$(hostname -s)
cat > "$work/slurm.conf" <<CONF
ClusterName=here
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthInfo=socket=$work/munge
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmctldPort=26817
SlurmdPort=26818
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
NodeName=$host NodeAddr=127.0.0.1 CPUs=2 RealMemory=4096
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
mkdir "$work/state" "$work/spool"
export SLURM_CONF=$work/slurm.conf
slurmctld -D > "$work/slurmctld.log" 2>&1 &
started+=($!)
slurmd -D > "$work/slurmd.log" 2>&1 &
started+=($!)

for _ in $(seq 60); do
    [ "$(sinfo -h -o %T 2>/dev/null)" = idle ] && break
    sleep 0.5
done
if [ "$(sinfo -h -o %T 2>/dev/null)" != idle ]; then
    tail -n 5 "$work"/*.log >&2
    echo "cluster: the node did not come up; remedy: see the lines above" >&2
    exit 1
fi
"$@"
