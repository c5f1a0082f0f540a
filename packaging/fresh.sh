#!/usr/bin/env bash
# Run commands as a plain user of an empty Debian, in a copy of the tracked files.
#
#     packaging/fresh.sh trixie 'make run' 'make smoke'
#
# debootstrap makes the system of what README names (Python and make); it is removed at the end.
# pip reaches in there what it reaches here: its settings, and files and folders that they name.
# Everything is mounted in a namespace that ends before anything is removed.  Needs root on Debian.
set -euo pipefail
cd "$(dirname "$0")/.."
SELF=$PWD/packaging/fresh.sh

PACKAGES=python3,python3-venv,make,ca-certificates # the last: pip here trusts this computer's authorities
VISITOR=visitor # the plain user of that system, and below where it lives there
HOUSE=/home/$VISITOR
SETTINGS=(/etc/pip.conf /etc/xdg/pip/pip.conf ~/.config/pip/pip.conf ~/.pip/pip.conf "${PIP_CONFIG_FILE:-/etc/pip.conf}")

fail() {
    printf 'fresh: %s\nfresh: remedy: %s\n' "$1" "$2" >&2
    exit 1
}

# Give the system a file or a folder of this computer at the same place, unless it has one there.
lend() {
    [ -e "$1" ] && [ ! -e "$SYSTEM$1" ] || return 0
    if [ -d "$1" ]; then
        mkdir -p "$SYSTEM$1"
        mount --bind "$1" "$SYSTEM$1" 2>/dev/null || cp -a "$1/." "$SYSTEM$1"
    else
        install -D -m 644 "$1" "$SYSTEM$1"
    fi
}

lend_pip() {
    local file
    rm -f "$SYSTEM"/etc/{resolv.conf,hosts,ssl/certs/ca-certificates.crt}
    for file in /etc/resolv.conf /etc/hosts /etc/ssl/certs/ca-certificates.crt "${SETTINGS[@]:0:2}"; do
        lend "$file"
    done
    # Settings of this user become the visitor's.
    for file in .config/pip/pip.conf .pip/pip.conf; do
        [ ! -f ~/"$file" ] || install -D -m 644 ~/"$file" "$SYSTEM$HOUSE/$file"
    done
    # Absolute paths in settings: certificates, constraints, wheels; an index with what lies beside it.
    { env | grep -E '^(PIP_|SSL_CERT)' || true; cat "${SETTINGS[@]}" 2>/dev/null || true; } |
        { grep -oE '(^|[[:space:]=]|file://)/[^[:space:]]+' || true; } |
        sed -E 's#^file://(.*)/[^/]+/?$#\1#; s#^[[:space:]=]##' | sort -u |
        while read -r file; do lend "$file"; done
}

make_system() {
    echo "fresh: making an empty Debian $SUITE: minutes"
    debootstrap --variant=minbase --include="$PACKAGES" "$SUITE" "$SYSTEM" >"$SYSTEM.log" 2>&1 ||
        fail "debootstrap failed: $(tail -n 1 "$SYSTEM.log")" "check the network, then try again"
}

as_visitor() {
    local passed
    mapfile -t passed < <(env | grep -iE '^(PIP_|SSL_CERT_|[a-z]+_proxy=)' || true)
    chroot --userspec="$VISITOR:$VISITOR" "$SYSTEM" env -i "${passed[@]}" HOME="$HOUSE" USER="$VISITOR" \
        PATH=/usr/local/bin:/usr/bin:/bin bash -c "cd ~/cape && $1"
}

# In the namespace: the system, and in it the commands.
run_inside() {
    local command began
    make_system
    chmod 1777 "$SYSTEM/dev/shm"
    mount --rbind /dev "$SYSTEM/dev" 2>/dev/null || true # debootstrap has made the devices that matter
    mount -t proc proc "$SYSTEM/proc" || echo "fresh: there is no /proc in the system: what reads it fails"
    chroot "$SYSTEM" useradd --create-home --user-group --shell /bin/bash "$VISITOR"
    lend_pip
    mkdir "$SYSTEM$HOUSE/cape"
    git ls-files -z | tar -c --null --files-from=- | tar -x -C "$SYSTEM$HOUSE/cape"
    chroot "$SYSTEM" chown -R "$VISITOR:$VISITOR" "$HOUSE"
    for command in "$@"; do
        echo "fresh: Debian $SUITE, $(as_visitor 'python3 --version'): $command"
        began=$SECONDS
        as_visitor "$command" || fail "'$command' failed on an empty Debian $SUITE" "see the lines above"
        echo "fresh: Debian $SUITE: $command: $((SECONDS - began)) s"
    done
}

if [ "${1:-}" = --inside ]; then
    SUITE=$2 SYSTEM=$3
    run_inside "${@:4}"
    exit
fi

[ $# -ge 2 ] || fail "no system or no command given" "packaging/fresh.sh SUITE COMMAND ..."
[ "$(id -u)" -eq 0 ] || fail "another system needs root" "run this as root on Debian"
if ! command -v debootstrap >/dev/null; then
    command -v apt-get >/dev/null || fail "debootstrap is missing" "install it, then try again"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends debootstrap >/dev/null
fi
top=$(mktemp -d)
chmod 755 "$top"
mkdir "$top/system"
inside=
stop() {
    # unshare takes all processes of its namespace with it.
    if [ -n "$inside" ] && kill -KILL "$inside" 2>/dev/null; then sleep 1; fi
    rm -rf --one-file-system "$top"
}
trap stop EXIT
namespace=(unshare --mount --pid --fork --kill-child --mount-proc)
"${namespace[@]}" true 2>/dev/null || namespace=()
"${namespace[@]}" "$SELF" --inside "$1" "$top/system" "${@:2}" &
inside=$!
wait "$inside"
