#!/bin/sh
# Create the virtual environment $VENV with $PYTHON, or with the first Python >= 3.11 on the path.
set -eu

found=""
for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python}; do
    # Asked by running it: a name on the path may be a shim for a Python that is not installed.
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
        found="$candidate"
        break
    fi
done
if [ -z "$found" ]; then
    echo "spuir needs Python 3.11 or newer, and ${PYTHON:-the path} has none: install one, or name it as in 'make PYTHON=python3.12 test'." >&2
    exit 1
fi

create() {
    rm -rf "$VENV"
    "$found" -m venv "$VENV" >/dev/null 2>&1 && "$VENV/bin/python" -m pip --version >/dev/null 2>&1
}

create && exit 0

# Debian and Ubuntu ship Python without venv and pip until a package adds them.
version=$("$found" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "Python $version cannot create virtual environments yet: installing python$version-venv." >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get install -y -qq "python$version-venv" >/dev/null 2>&1 ||
        { apt-get update -qq && apt-get install -y -qq "python$version-venv"; } >/dev/null || true
    create && exit 0
fi
rm -rf "$VENV"
echo "Python $version cannot create virtual environments: install its venv module (on Debian: apt-get install python$version-venv) and run make again." >&2
exit 1
