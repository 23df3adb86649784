#!/usr/bin/env bash
# scripts/setup-vm.sh [arm64]
# Installs what the guest-kernel tests (tests/vm) want: an emulator, and tools to build the guest's first files.
# With arm64 also what that guest and tests/vm/cross-arm64 want. The kernel itself is downloaded by tests/vm/prepare into
# target/vm.
set -euo pipefail

# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

VM_PACKAGES=(qemu-system-x86 busybox-static cpio kmod xz-utils zstd debian-archive-keyring iproute2 nftables tcpdump python3)
readonly ARM64_PACKAGES=(qemu-system-arm gcc-aarch64-linux-gnu libc6-dev-arm64-cross)

install_vm() {
	say "installing ${VM_PACKAGES[*]}"
	refresh_lists
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq -o Dpkg::Use-Pty=0 --no-install-recommends \
		"${VM_PACKAGES[@]}" </dev/null >/dev/null || die "the packages above could not be installed"
}

main_vm() {
	case $* in
	"") ;;
	arm64) VM_PACKAGES+=("${ARM64_PACKAGES[@]}") ;;
	*) die "usage: scripts/setup-vm.sh [arm64]" ;;
	esac
	check_root
	command -v apt-get >/dev/null || die "this is not Debian: tests/vm wants qemu, busybox, cpio, kmod and a Debian kernel"
	forbid_services
	install_vm
	say "ready: tests/vm/run SCRIPT"
}

main_vm "$@"
