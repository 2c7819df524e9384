#!/usr/bin/env bash
# mpijob.sh IMAGE-FOLDER: runs examples/kubernetes/mpijob.yaml with a smaller model, without Kubernetes. The launcher and
# two workers are network and process namespaces over the image (made by dockerfile.py), with the hostfile, the names, the
# variables and the mounted key that the MPI operator gives them. Needs root, iproute2, and python3 with yaml.
# Exits with 77 where there are no network namespaces.
set -euo pipefail
cd "$(dirname "$0")/../.."

image=$(realpath "$1")
root=$image/final
names=(pretrain-launcher pretrain-worker-0 pretrain-worker-1)
# Other networks than this one may be in use.
bridge=drover-test network=10.203.77

remove() {
    for i in 0 1 2; do
        ip netns pids "$bridge$i" 2>/dev/null | xargs -r kill -9 || true
        ip netns del "$bridge$i" 2>/dev/null || true
    done
    ip link del "$bridge" 2>/dev/null || true
}
if ! command -v ip >/dev/null || ! ip link add "$bridge" type bridge 2>/dev/null; then
    echo 'mpijob: skipped, because this machine has no network namespaces (package iproute2; root).'
    exit 77
fi
trap remove EXIT
ip link set "$bridge" up

# words ROLE KEY: a list of the manifest's container for this role, a word per line.
words() {
    python3 - "$1" "$2" <<'PYTHON'
import sys
import yaml
manifest = yaml.safe_load(open("examples/kubernetes/mpijob.yaml"))
container = manifest["spec"]["mpiReplicaSpecs"][sys.argv[1]]["template"]["spec"]["containers"][0]
print("\n".join(container[sys.argv[2]]))
PYTHON
}
mapfile -t server < <(words Worker command; words Worker args)
# The words of the launcher, up to the command that trains. They are all read, or python3 complains of a closed pipe.
mapfile -t launch < <(words Launcher args | sed '1,/^run_clm$/!d; s/--nproc_per_node=8/--nproc_per_node=1/')

# The key is mounted from a secret: files of root that all can read.
ssh=$root/home/drover/.ssh
rm -rf "$ssh"
mkdir -p "$ssh" "$root/etc/mpi"
ssh-keygen -q -t ecdsa -b 521 -N '' -C '' -f "$ssh/id_rsa"
cp "$ssh/id_rsa.pub" "$ssh/authorized_keys"
chmod 644 "$ssh"/*
: >"$root/etc/mpi/hostfile"
echo '127.0.0.1 localhost' >"$root/etc/hosts"
for i in 0 1 2; do
    domain=${names[i]}.pretrain.default.svc
    echo "$network.$((i + 1)) $domain ${names[i]}" >>"$root/etc/hosts"
    [ $i -eq 0 ] || echo "$domain slots=1" >>"$root/etc/mpi/hostfile"
    ip netns add "$bridge$i"
    ip link add "$bridge-$i" type veth peer name eth0 netns "$bridge$i"
    ip link set "$bridge-$i" master "$bridge" up
    ip -n "$bridge$i" address add "$network.$((i + 1))/24" dev eth0
    ip -n "$bridge$i" link set eth0 up
    ip -n "$bridge$i" link set lo up
done

# enter POD WORDS…: runs them there as the image's user.
enter() {
    local pod=$1
    shift
    # shellcheck disable=SC2016  # the inner shell expands them
    ip netns exec "$bridge$pod" unshare --uts --mount --pid --fork --kill-child bash -c '
        set -e
        root=$1
        hostname "$2"
        shift 2
        mount -t proc proc "$root/proc"
        mount --rbind /sys "$root/sys"
        mount --rbind /dev "$root/dev"
        mount -t tmpfs tmpfs "$root/dev/shm"
        exec env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/home/drover DROVER_CACHE=/tmp/cache \
            OMPI_MCA_orte_keep_fqdn_hostnames=true OMPI_MCA_orte_default_hostfile=/etc/mpi/hostfile \
            OMPI_MCA_plm_rsh_args="-o ConnectionAttempts=10" OMPI_MCA_orte_set_default_slots=1 \
            OMPI_MCA_btl_vader_single_copy_mechanism=none \
            chroot --userspec=10001:10001 "$root" sh -c "cd && exec \"\$@\"" - "$@"' - "$root" "${names[pod]}" "$@"
}

for i in 1 2; do enter $i "${server[@]}" >"$image/worker-$i.log" 2>&1 & done
examples=/usr/share/drover/examples
status=0
enter 0 /usr/bin/tini -- /usr/local/bin/drover-container "${launch[@]}" --config_name $examples/configs/llama-5m.json \
    --tokenizer_name $examples/tokenizers/shakespeare-4k --train_file $examples/data/tinyshakespeare/text.txt --block_size 64 \
    --max_train_samples 32 --fsdp full_shard --do_train --max_steps 3 --output_dir /tmp/mpijob >"$image/launcher.log" 2>&1 || status=$?
if [ $status -ne 0 ] || ! grep -q '2 processes on 2 machines' "$image/launcher.log" || [ ! -s "$root/tmp/mpijob/model.safetensors" ]; then
    cat "$image"/worker-*.log "$image/launcher.log" >&2
    echo "mpijob: the job ended with status $status, see above." >&2
    exit 1
fi
