# Sourced by the other scripts: finds Python, installs what is missing, makes the virtual environment.
# shellcheck shell=bash
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
VENV=$ROOT/.venv
cd "$ROOT"

say() { printf '== %s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# The first Python that is new enough and can make virtual environments.
find_python() {
    local each
    for each in ${MEGAHARNESS_PYTHON:+"$MEGAHARNESS_PYTHON"} python3 python3.13 python3.12 python3.11; do
        if "$each" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$each"
            return
        fi
    done
}

# need COMMAND:PACKAGE... installs the packages whose command is missing (as root), or names them.
need() {
    local each missing=()
    for each in "$@"; do
        command -v "${each%%:*}" >/dev/null || missing+=("${each#*:}")
    done
    [ -n "$(find_python)" ] || missing+=(python3 python3-venv)
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "installing ${missing[*]}"
        DEBIAN_FRONTEND=noninteractive apt-get update -qq >&2
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
    else
        printf 'Something is missing. Install it with this line, then start again:\n\n' >&2
        printf '    sudo apt-get install -y %s\n\n' "${missing[*]}" >&2
        exit 1
    fi
    [ -n "$(find_python)" ] || die "no Python 3.11 or newer was found; name one: MEGAHARNESS_PYTHON=/path/to/python3"
}

# What the tests and the proofs call.
# shellcheck disable=SC2034
TEST_NEEDS=(
    git:git tmux:tmux flock:util-linux ps:procps strace:strace faketime:faketime mount:mount
    mkfs.ext4:e2fsprogs mkfs.xfs:xfsprogs mkfs.btrfs:btrfs-progs
    vim:vim nano:nano rsync:rsync
)

# environment runtime|dev makes or completes .venv and sets PYTHON. A second call does nothing.
environment() {
    local kind=$1 python want stamp
    python=$(find_python)
    stamp=$VENV/.installed-$kind
    exec 9>"$ROOT/.venv.lock"
    flock 9
    PYTHON=$VENV/bin/python
    # Programs in a virtual environment hold its path, so a moved clone needs a new one.
    if [ -e "$VENV" ] && { [ "$(cat "$VENV/.root" 2>/dev/null || echo "$ROOT")" != "$ROOT" ] ||
        ! "$PYTHON" -m pip --version >/dev/null 2>&1; }; then
        say "making .venv again: it was moved, or its Python has gone"
        rm -rf "$VENV"
    fi
    if [ ! -e "$VENV" ]; then
        say "making .venv with $("$python" --version)"
        "$python" -m venv "$VENV"
        echo "$ROOT" >"$VENV/.root"
    fi
    want=$(cat "requirements/$kind.txt" requirements/build.txt pyproject.toml | sha256sum)
    if [ "$(cat "$stamp" 2>/dev/null)" != "$want" ]; then
        say "installing the $kind requirements into .venv (locked by hash)"
        "$PYTHON" -m pip install -qq --disable-pip-version-check --require-hashes \
            -r "requirements/$kind.txt" -r requirements/build.txt >&2
        "$PYTHON" -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation -e . >&2
        echo "$want" >"$stamp"
    fi
    flock -u 9
    exec 9>&-
}

# pinned FROM TO installs what FROM/package-lock.json names into TO/node_modules; without install scripts. The lock names
# no host, so the registry is the one that this machine is set up for.
pinned() {
    mkdir -p "$2" && cp "$1/package.json" "$1/package-lock.json" "$2" &&
        npm ci --prefix "$2" --include=optional --ignore-scripts --no-audit --no-fund --loglevel=error >&2
}

# harnesses installs the real programs of the tests into .harnesses, pinned by tests/harnesses. A second call does nothing.
harnesses() {
    local home=$ROOT/.harnesses want each found
    local platforms=(
        claude:@anthropic-ai/claude-code-linux-*/claude
        codex:@openai/codex-linux-*/vendor/*/bin/codex
        opencode:opencode-linux-*/bin/opencode
    )
    mkdir -p "$home"
    exec 9>"$home/.lock"
    flock 9
    want=$(cat tests/harnesses/package.json tests/harnesses/package-lock.json | sha256sum)
    if [ "$(cat "$home/.installed" 2>/dev/null)" != "$want" ]; then
        say "installing the real harnesses into .harnesses (locked by hash, about 1 GB)"
        rm -rf "$home/.installed" "$home/bin"
        mkdir "$home/bin"
        pinned tests/harnesses "$home" || true
        for each in "${platforms[@]}"; do
            # What a platform has no package of stays away, and so do its tests.
            for found in "$home"/node_modules/${each#*:}; do
                [ ! -x "$found" ] || ln -sf "..${found#"$home"}" "$home/bin/${each%%:*}"
            done
        done
        # What is optional fails without a word, an unreachable registry too.
        [ -x "$home/bin/claude" ] && [ -x "$home/bin/codex" ] ||
            die "npm has not installed claude and codex: is its registry within reach? scripts/test --quick does without"
        echo "$want" >"$home/.installed"
    fi
    flock -u 9
    exec 9>&-
}
