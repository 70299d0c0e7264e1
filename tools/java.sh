#!/bin/sh
# Java for Spark: installed with apt-get where there is none and we are root; otherwise said, and the tests skip.
set -eu
if command -v java >/dev/null 2>&1; then
    exit 0
fi
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends openjdk-17-jre-headless >/dev/null
else
    echo "no Java: the tests of Spark are skipped; install Java 17 to run them" >&2
fi
