#!/bin/sh
# wrk, which puts the service under load in the benchmarks: installed with apt-get where there is none and we are root;
# otherwise said, and the service is not measured.
set -u
if ! command -v wrk >/dev/null 2>&1 && [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends wrk >/dev/null
fi
command -v wrk >/dev/null 2>&1 || echo "no wrk: the service is not measured; install wrk to measure it" >&2
