#!/bin/sh
# Install the servers and the browser that tests start themselves. SeaweedFS comes with the Python
# packages.
set -eu
packages=""
command -v prometheus >/dev/null && command -v promtool >/dev/null || packages="prometheus"
command -v amtool >/dev/null || packages="$packages prometheus-alertmanager"
command -v chromium >/dev/null || packages="$packages chromium fonts-dejavu-core"
if [ -z "$packages" ]; then
    exit 0
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing for the tests: $packages" >&2
    apt-get -qq -o DPkg::Lock::Timeout=500 update
    # shellcheck disable=SC2086  # the list is to be split
    DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=500 install -y \
        --no-install-recommends $packages >/dev/null
else
    echo "Missing, and only root can install: $packages. Tests that need them are skipped." >&2
    echo "With your package manager: prometheus, promtool, alertmanager, amtool and chromium on the PATH." >&2
fi
