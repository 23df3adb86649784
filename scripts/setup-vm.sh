#!/usr/bin/env bash
# Installs what the guest-kernel tests (tests/vm) want: an emulator, and tools to build the guest's first files.
# The kernel itself is downloaded by tests/vm/prepare into target/vm.
set -euo pipefail

# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

readonly VM_PACKAGES=(qemu-system-x86 busybox-static cpio kmod xz-utils zstd debian-archive-keyring iproute2 nftables tcpdump python3)

install_vm() {
	say "installing ${VM_PACKAGES[*]}"
	refresh_lists
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq -o Dpkg::Use-Pty=0 --no-install-recommends \
		"${VM_PACKAGES[@]}" </dev/null >/dev/null || die "the packages above could not be installed"
}

main_vm() {
	check_root
	command -v apt-get >/dev/null || die "this is not Debian: tests/vm wants qemu, busybox, cpio, kmod and a Debian kernel"
	forbid_services
	install_vm
	say "ready: tests/vm/run SCRIPT"
}

main_vm
