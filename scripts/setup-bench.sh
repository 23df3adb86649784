#!/usr/bin/env bash
# Installs what only the bench wants: peers to be compared with and external generators.
# Everything here is optional: a suite says what it misses and goes on.
set -euo pipefail

# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

# COMMAND:PACKAGE:WHY
readonly PEERS=(
	"perf:linux-perf:names the functions that the profile suite finds"
	"trafgen:netsniff-ng:an external generator to be cross-checked with"
	"dpdk-testpmd:dpdk-dev:a peer rung of the ladder"
	"sockperf:sockperf:an external generator to be cross-checked with"
)

install_peers() {
	local entry what package why
	for entry in "${PEERS[@]}"; do
		IFS=: read -r what package why <<<"$entry"
		command -v "$what" >/dev/null && continue
		say "installing $package ($why)"
		refresh_lists
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq -o Dpkg::Use-Pty=0 --no-install-recommends "$package" \
			</dev/null >/dev/null || say "not available: $package; the bench goes on without it"
	done
	# A boot service comes along with testpmd; the bench starts testpmd itself.
	if command -v systemctl >/dev/null && [ -e /lib/systemd/system/dpdk.service ]; then
		systemctl disable dpdk.service >/dev/null 2>&1 || true
	fi
}

main_bench() {
	check_root
	command -v apt-get >/dev/null || die "this is not Debian or Ubuntu: the bench goes on without its optional peers"
	forbid_services
	install_peers
	say "the bench has what can be had here"
}

main_bench
