#!/bin/sh
# Install the servers that tests start themselves. SeaweedFS comes with the Python packages.
set -eu
if command -v prometheus >/dev/null && command -v promtool >/dev/null; then
    exit 0
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing Prometheus for the tests" >&2
    apt-get -qq -o DPkg::Lock::Timeout=500 update
    DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=500 install -y \
        --no-install-recommends prometheus >/dev/null
else
    echo "Prometheus is missing and only root can install it: tests that need it are skipped." >&2
    echo "Install it with your package manager: prometheus and promtool on the PATH." >&2
fi
