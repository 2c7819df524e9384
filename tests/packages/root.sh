# shellcheck shell=bash disable=SC2154  # root_test is set by who sources this
# Sourced by tests of packages: Debian 12 in a folder, made by debootstrap once, of which every test gets a fresh copy.
# Commands run there in mount and process namespaces of their own, so that nothing stays mounted. The network is the
# machine's. Messages begin with $root_test.

root_say() { echo "$root_test: $*"; }
root_fail() {
    echo "$root_test: $*" >&2
    exit 1
}
root_skip() {
    echo "$root_test: skipped, because $*"
    exit 77
}

# root_possible: skips the test where there can be no such system.
root_possible() {
    [ "$(id -u)" -eq 0 ] || root_skip 'it needs root, to make a system in a folder (debootstrap, chroot).'
    command -v debootstrap >/dev/null || root_skip 'debootstrap is not installed (package debootstrap).'
    unshare --mount true 2>/dev/null || root_skip 'this machine does not allow mount namespaces.'
}

# root_remove FOLDER: never what is mounted in it, such as /proc.
root_remove() { rm -rf --one-file-system "$1"; }

# root_open FOLDER: makes FOLDER/bookworm, the untouched system, unless it is there. One test at a time uses FOLDER.
root_open() {
    root_possible
    root_folder=$1
    root_base=$root_folder/bookworm
    mkdir -p "$root_folder"
    exec 9>"$root_folder/lock"
    flock --nonblock 9 || root_fail "another test uses $root_folder now. Wait until it has ended."
    [ ! -f "$root_base.complete" ] || return 0
    root_say 'making a Debian 12 (once)'
    root_remove "$root_base"
    # debootstrap mounts /proc, also where it is killed before it unmounts it.
    # shellcheck disable=SC2086  # nothing where DEBIAN_MIRROR is not set
    unshare --mount debootstrap --variant=minbase bookworm "$root_base" ${DEBIAN_MIRROR-} >"$root_folder/debootstrap.log" 2>&1 || {
        tail "$root_folder/debootstrap.log" >&2
        root_fail 'debootstrap failed, see above.'
    }
    : >"$root_base.complete"
}

# root_fresh: a new copy, with the ordinary user "someone"; $root is its folder.
root_fresh() {
    root=$root_folder/root
    root_remove "$root"
    cp -a --reflink=auto "$root_base" "$root"
    root_run 'useradd --create-home someone'
}

# root_run COMMAND: as root. root_user COMMAND: as someone.
root_run() { root_enter 0:0 /root "$1"; }
root_user() { root_enter someone:someone /home/someone "$1"; }

root_enter() {
    # shellcheck disable=SC2016  # the inner shell expands them
    unshare --mount --pid --fork --kill-child bash -c '
        set -e
        mount -t proc proc "$1/proc"
        mount --rbind /dev "$1/dev"
        mount -t tmpfs tmpfs "$1/dev/shm"
        mount --bind -o ro /etc/resolv.conf "$1/etc/resolv.conf"
        # For networks whose proxies have certificates of their own.
        touch "$1/run/certificates.crt"
        [ ! -e /etc/ssl/certs/ca-certificates.crt ] || mount --bind -o ro /etc/ssl/certs/ca-certificates.crt "$1/run/certificates.crt"
        exec env -i PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
            HOME="$3" PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CERT=/run/certificates.crt \
            chroot --userspec="$2" "$1" /bin/sh -euc "cd; $4"' - "$root" "$1" "$2" "$3"
}

# root_apt WORDS: apt-get in it, silent unless it fails.
root_apt() {
    root_run "apt-get -qq update && apt-get -qq -y $*" >"$root_folder/apt.log" 2>&1 </dev/null || {
        tail -n 20 "$root_folder/apt.log" >&2
        root_fail "apt-get $* failed, see above."
    }
}
