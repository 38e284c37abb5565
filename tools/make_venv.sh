#!/bin/sh
# Makes the virtual environment "$1" with the newest suitable Python of this machine; keeps one that works.
# Debian keeps the part of Python that does this in a package of its own: installed here if we are root.
set -eu

venv=$1

suits() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

if [ -x "$venv/bin/python" ] && suits "$venv/bin/python" && "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    exit 0
fi

python=
for candidate in python3.14 python3.13 python3.12 python3.11 python3; do
    if suits "$candidate"; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    echo "Expected Python 3.11 or newer, got none. Install it, on Debian or Ubuntu with: apt-get install python3" >&2
    exit 1
fi

rm -rf "$venv"
"$python" -c 'import ensurepip, venv' 2>/dev/null || missing=yes
if [ "${missing:-no}" = yes ]; then
    package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "Expected $python to come with venv and pip, got one without. Install them with:" >&2
        echo "    sudo apt-get install $package" >&2
        exit 1
    fi
    echo "Installing $package, which $python lacks"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$package"
fi
"$python" -m venv "$venv"
