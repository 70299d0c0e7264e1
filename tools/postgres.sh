#!/bin/sh
# PostgreSQL for the tests of the service: installed with apt-get where there is none and we are root. Where that is not
# possible, this says so, and the tests that need it are skipped. The tests start a server of their own.
set -u
there() { ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null 2>&1; }
if ! there && [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql >/dev/null
fi
there || echo "no PostgreSQL: the tests of its store are skipped; install PostgreSQL 13 or newer to run them" >&2
