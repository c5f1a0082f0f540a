#!/usr/bin/env bash
# Run a command beside COINSTAC's engine: packages of Debian and npm, a base image, our image and a
# container service, all made here and kept in a git-ignored folder for the next time.
#
#     packaging/with-engine.sh .venv/bin/python -m pytest -m engine
#
# The command finds DOCKER_HOST, NODE_PATH, CAPE_ENGINE (the folder) and CAPE_IMAGE; with
# CAPE_ENGINE_PAPERS=skip there is no image of the papers' computations.  It runs in
# mount, process and network namespaces of its own: whatever it starts or mounts is gone when it
# ends, however it ends, and it reaches nothing outside.  Needs root on Debian.
set -euo pipefail
cd "$(dirname "$0")/.."
SELF=$PWD/packaging/with-engine.sh

WORK=${CAPE_ENGINE_FOLDER:-$PWD/.engine}
BASE=localhost/cape-base:latest
IMAGE=localhost/coinstac-cape:latest
PAPERS=localhost/coinstac-cape-papers:latest
DEPENDENCIES=localhost/cape-dependencies:latest
SUITE=bookworm
export CONTAINERS_CONF=$WORK/containers.conf

fail() {
    printf 'engine: %s\nengine: remedy: %s\n' "$1" "$2" >&2
    exit 1
}

podman_here() {
    podman --root "$WORK/store" "$@"
}

# Updates in the background hold its locks for minutes on a computer that was just started.
wait_for_apt() {
    local i
    for i in $(seq 100); do
        apt_is_locked || return 0
        [ "$i" = 1 ] && echo "engine: another program uses apt; waiting up to 5 minutes"
        sleep 3
    done
    fail "apt is locked for 5 minutes" "wait until the other installation has ended, then try again"
}

apt_is_locked() {
    local file
    for file in /var/lib/apt/lists/lock /var/lib/dpkg/lock-frontend /var/cache/apt/archives/lock; do
        # Its locks are of another kind than flock's; the kernel lists the holders of both.
        [ -e "$file" ] && grep -q ":$(stat -c %i "$file") " /proc/locks && return 0
    done
    return 1
}

install_packages() {
    local missing=() pair
    for pair in podman:podman runc:runc conmon:conmon iptables:iptables ip:iproute2 \
        debootstrap:debootstrap unshare:util-linux node:nodejs npm:npm; do
        command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
    done
    for pair in netavark aardvark-dns; do
        [ -x "/usr/lib/podman/$pair" ] || missing+=("$pair")
    done
    [ "${#missing[@]}" -eq 0 ] && return
    command -v apt-get >/dev/null || fail "missing: ${missing[*]}" "install them, then try again"
    echo "engine: installing ${missing[*]}"
    wait_for_apt
    apt-get update -qq || fail "apt-get update failed" "check the network, then try again"
    DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends \
        ca-certificates "${missing[@]}" >"$WORK/apt.log" 2>&1 ||
        fail "apt-get install ${missing[*]} failed: $(tail -n 1 "$WORK/apt.log")" "install them by hand"
}

install_node_packages() {
    local from=cape/lab/engines/engine_program
    cmp -s "$from/package-lock.json" "$WORK/npm/installed.json" && return
    echo "engine: installing node packages"
    rm -rf "$WORK/npm"
    mkdir -p "$WORK/npm"
    cp "$from/package.json" "$from/package-lock.json" "$from/.npmrc" "$WORK/npm/"
    (cd "$WORK/npm" && env -u CI npm ci --loglevel=error) ||
        fail "npm ci failed" "check the network, then try again"
    cp "$from/package-lock.json" "$WORK/npm/installed.json"
}

write_configuration() {
    # The default limits are more than a container may ask for here; crun refuses hybrid cgroups;
    # a fresh store would choose another kind of network.
    cat >"$CONTAINERS_CONF" <<-'END'
	[containers]
	default_ulimits = ["nofile=16384:16384", "nproc=16384:16384"]
	[network]
	network_backend = "netavark"
	[engine]
	runtime = "runc"
	cgroup_manager = "cgroupfs"
	events_logger = "file"
	END
}

# State of containers lives here only as long as this script.
mount_own_folders() {
    local place
    for place in /run/containers /run/libpod /run/netns /run/runc /dev/shm; do
        mkdir -p "$place"
        mount -t tmpfs tmpfs "$place"
    done
}

build_base() {
    podman_here image exists "$BASE" && return
    echo "engine: making a base image of Debian $SUITE (once, up to 6 minutes on two busy cores)"
    rm -rf "$WORK/rootfs"
    debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates "$SUITE" \
        "$WORK/rootfs" >"$WORK/debootstrap.log" 2>&1 ||
        fail "debootstrap failed: $(tail -n 1 "$WORK/debootstrap.log")" "check the network, then try again"
    ln -sf python3 "$WORK/rootfs/usr/bin/python"
    rm -rf "$WORK"/rootfs/var/cache/apt/archives/*.deb "$WORK"/rootfs/var/lib/apt/lists/*
    # pip in a build trusts what this computer trusts.
    mkdir -p "$WORK/rootfs/usr/local/share/engine"
    cp "${PIP_CERT:-/etc/ssl/certs/ca-certificates.crt}" "$WORK/rootfs/usr/local/share/engine/ca.crt"
    tar -C "$WORK/rootfs" -c . |
        podman_here import -q -c 'ENV PIP_CERT=/usr/local/share/engine/ca.crt' - "$BASE" >/dev/null ||
        fail "the base image could not be imported" "see the line above"
    rm -rf "$WORK/rootfs"
}

try_container() {
    local said
    said=$(podman_here run --rm --network=none "$BASE" true 2>&1) ||
        fail "no container can be started here: ${said##*$'\n'}" \
            "run on a machine (or in a container with --privileged) where root may start containers, or set CAPE_ENGINE_TESTS=skip"
}

build_image() {
    local revision version
    version=$(sed -n 's/^VERSION = "\(.*\)"$/\1/p' cape/settings/config.py)
    revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
    echo "engine: building our image (minutes at first, seconds where nothing changed)"
    # The stage with the dependencies has a name, so that pruning keeps it for the next build.
    build --target trimmed --tag "$DEPENDENCIES" .
    build --build-arg "REVISION=$revision" --tag "$IMAGE" --tag "${IMAGE%:*}:$version" .
    [ "${CAPE_ENGINE_PAPERS:-}" = skip ] ||
        build --build-arg "REVISION=$revision" --build-arg LEFT_OUT=lab --tag "$PAPERS" --tag "${PAPERS%:*}:$version" .
    podman_here image prune --force >/dev/null
}

build() {
    podman_here build --quiet --layers --network=host --format docker \
        --build-arg "BASE_IMAGE=$BASE" "$@" >"$WORK/build.log" 2>&1 ||
        fail "the image could not be built: $(tail -n 1 "$WORK/build.log")" "see $WORK/build.log"
}

# Stage 2, in namespaces of mounts and processes: images.
make_images() {
    mount_own_folders
    # A store does not survive that its folder is moved, or that it was half written.
    podman_here info >/dev/null 2>&1 || rm -rf "$WORK/store"
    podman_here rm --all --force >/dev/null 2>&1 || true # of a run that was killed
    build_base
    try_container
    build_image
    exec unshare --net "$SELF" --inside "$@"
}

# Stage 3, in a network of its own too: the service and the command.
run_inside() {
    ip link set lo up
    local socket=/run/libpod/cape.sock i status=0
    podman_here system service --time=0 "unix://$socket" >"$WORK/service.log" 2>&1 &
    for i in $(seq 100); do
        [ -S "$socket" ] && break
        sleep 0.1
    done
    [ -S "$socket" ] || fail "the container service did not start: $(tail -n 1 "$WORK/service.log")" \
        "see $WORK/service.log"
    export DOCKER_HOST=unix://$socket NODE_PATH=$WORK/npm/node_modules CAPE_ENGINE=$WORK CAPE_IMAGE=$IMAGE
    "$@" || status=$?
    podman_here rm --all --force >/dev/null 2>&1 || true
    return "$status"
}

case ${1:-} in
--images)
    shift
    make_images "$@"
    ;;
--inside)
    shift
    run_inside "$@"
    ;;
'') fail "no command given" "packaging/with-engine.sh COMMAND ..." ;;
*)
    # Beside the engine already: its lock is held by the one that started this.
    [ -n "${CAPE_ENGINE:-}" ] && [ -S "${DOCKER_HOST#unix://}" ] && exec "$@"
    if [ "${CAPE_ENGINE_TESTS:-}" = skip ]; then
        echo "engine: SKIPPED, nothing was tested, because CAPE_ENGINE_TESTS=skip"
        exit 0
    fi
    [ "$(id -u)" -eq 0 ] || fail "containers of the engine need root" "run as root, or set CAPE_ENGINE_TESTS=skip"
    mkdir -p "$WORK"
    exec 9>"$WORK/lock"
    flock 9 # one at a time: the store is shared
    install_packages
    install_node_packages
    write_configuration
    # unshare ignores SIGTERM, so the kernel ends it, and all inside with it, when this shell has ended.
    setpriv --pdeathsig KILL \
        unshare --mount --pid --fork --kill-child --mount-proc "$SELF" --images "$@" 9>&- || exit $?
    ;;
esac
