#!/usr/bin/env bash
# Makes a Debian or Ubuntu machine ready to build, test and demonstrate Sluice: installs what is missing, says what
# and why, and changes nothing when everything is there.
set -euo pipefail

export HOME="${HOME:-/root}"
readonly CARGO_PLACE=${CARGO_HOME:-$HOME/.cargo}
readonly RUSTUP_PLACE=${RUSTUP_HOME:-$HOME/.rustup}
export PATH="$CARGO_PLACE/bin:${PATH:-/usr/bin:/bin}:/usr/local/sbin:/usr/sbin:/sbin"

readonly OLDEST_KERNEL=6.8
readonly OLDEST_CLANG=18
# rustup and its installer take both variables; whoever has a mirror names it there.
readonly RUSTUP_URL=${RUSTUP_UPDATE_ROOT:-https://static.rust-lang.org/rustup}/rustup-init.sh
readonly RUST_SERVER=${RUSTUP_DIST_SERVER:-https://static.rust-lang.org}

say() { echo "setup: $*"; }
die() {
	echo "setup: $*" >&2
	exit 1
}

# COMMAND:PACKAGE:WHY
readonly COMMANDS=(
	"gcc:gcc:links Rust programs"
	"make:make:builds libbpf"
	"pkg-config:pkg-config:finds libelf and zlib"
	"nft:nftables:the guard against kernel forwarding past Sluice"
	"ip:iproute2:network namespaces of lab and tests"
	"nsenter:util-linux:runs programs inside the lab's namespaces"
	"ethtool:ethtool:prepares the lab's devices for XDP"
	"iperf3:iperf3:bulk traffic of the demo"
	"nginx:nginx-light:the demo's web servers"
	"curl:curl:the demo's web client"
	"unbound:unbound:DNS64 for the IPv6-only client of the demo"
	"rsyslogd:rsyslog:real receivers of a fan-out in demo and tests"
	"openssl:openssl:its certificates"
	"setpriv:util-linux:the daemon with no more capabilities than its unit gives it, in tests"
	"redis-server:redis-server:the demo's gated database"
	"redis-cli:redis-tools:that database's client"
	"traceroute:traceroute:paths in the demo, and from the shell"
	"tmux:tmux:a terminal in which tests type into the shell"
	"arping:arping:asks for the addresses that the gateway answers for"
	"ping:iputils-ping:reachability in demo and tests"
	"tcpdump:tcpdump:looking at the lab's packets"
	"strace:strace:ends the daemon at any of its writes in tests"
	"tshark:tshark:an independent judge of packets in tests"
	"/usr/bin/python3:python3:runs scapy"
)

# FILE:PACKAGE:WHY
readonly FILES=(
	"/etc/ssl/certs/ca-certificates.crt:ca-certificates:whom to believe when crates and kernels are fetched"
	"/usr/include/libelf.h:libelf-dev:libbpf reads BPF objects with it"
	"/usr/include/zlib.h:zlib1g-dev:libbpf needs it"
	"/usr/include/linux/bpf.h:linux-libc-dev:the kernel's BPF interface"
	"/usr/lib/$(uname -m)-linux-gnu/rsyslog/lmnsd_ossl.so:rsyslog-openssl:a collector over TLS in tests"
	"/usr/lib/python3/dist-packages/scapy:python3-scapy:an independent maker of packets in tests"
	"/usr/lib/python3/dist-packages/pyftpdlib:python3-pyftpdlib:an FTP server behind translation in tests"
	"/usr/lib/python3/dist-packages/prometheus_client:python3-prometheus-client:an independent reader of metrics in tests"
	"/usr/lib/python3/dist-packages/jsonschema:python3-jsonschema:an independent judge of the bench's results and the daemon's answers in tests"
)

# Not every distribution has these; their tests say so and go without.
readonly OPTIONAL=(
	"/usr/lib/frr/zebra:frr:routing daemons beside Sluice in tests"
	"/usr/sbin/bird:bird2:a foreign neighbour of routing protocols in tests"
	"dnsmasq:dnsmasq-base:a DHCP server in tests"
	"kea-dhcp4:kea-dhcp4-server:a DHCP server in tests"
	"kea-dhcp6:kea-dhcp6-server:a DHCPv6 server in tests"
	"radvd:radvd:sends router advertisements in tests"
	"turnserver:coturn:a STUN server and client (RFC 5780) that say how translation behaves"
	"kea-dhcp4:kea-dhcp4-server:the DHCP server of the gateway in tests"
	"dhclient:isc-dhcp-client:a DHCPv6 client in tests"
	"rdisc6:ndisc6:a host that asks for router advertisements in tests"
	"udhcpc:udhcpc:a DHCP client in tests"
	"zsh:zsh:reads in tests what completes for it"
	"fish:fish:reads in tests what completes for it"
)

# What it takes to boot another kernel in a guest (tests/vm); the tests load the data plane on Debian 13's.
readonly GUEST=(
	"qemu-system-x86_64:qemu-system-x86:boots Debian 13's kernel in tests"
	"/usr/share/doc/busybox-static:busybox-static:the first program of that guest"
	"cpio:cpio:packs the guest's first files"
	"depmod:kmod:the guest's modules"
	"xz:xz-utils:unpacks kernel modules"
	"zstd:zstd:unpacks kernel modules"
	"/usr/share/keyrings/debian-archive-keyring.gpg:debian-archive-keyring:checks that a kernel is Debian's"
)

# What it takes to make clean systems in which setup is tried (tests/chroot).
readonly CHROOTS=(
	"debootstrap:debootstrap:makes clean systems to try setup in"
	"gpgv:gpgv:checks that their packages are Debian's and Ubuntu's"
	"git:git:what is tried is a clone"
	"/usr/share/keyrings/debian-archive-keyring.gpg:debian-archive-keyring:whose packages are Debian's"
)

missing=()
want() { # PACKAGE WHY
	say "missing: $1 ($2)"
	missing+=("$1")
}

check_kernel() {
	local release oldest
	release=$(uname -r)
	oldest=$(printf '%s\n%s\n' "$OLDEST_KERNEL" "$release" | sort -V | head -n1)
	[ "$oldest" = "$OLDEST_KERNEL" ] ||
		die "kernel $release is too old: Sluice needs $OLDEST_KERNEL or newer (Ubuntu 24.04, Debian 13)." \
			"Install a newer kernel and boot it."
	[ -r /sys/kernel/btf/vmlinux ] ||
		die "the kernel has no type information (/sys/kernel/btf/vmlinux): boot one built with" \
			"CONFIG_DEBUG_INFO_BTF=y, as the distributions' kernels are."
}

check_root() {
	[ "$(id -u)" = 0 ] ||
		die "must run as root: packages are installed, and lab and tests make network namespaces and load BPF" \
			"programs. Try: sudo -E make ${SLUICE_TARGET:-setup}"
}

mount_bpffs() {
	if ! grep -qs ' /sys/fs/bpf bpf ' /proc/mounts; then
		say "mounting the BPF file system on /sys/fs/bpf (programs and flow tables are kept there)"
		mount -t bpf bpf /sys/fs/bpf || die "cannot mount /sys/fs/bpf: is this a container without CAP_SYS_ADMIN?"
	fi
}

# Ubuntu 24.04 has no package of that name, but a wrapper that runs what a kernel's own tools bring.
check_bpftool() {
	if bpftool version >/dev/null 2>&1; then return; fi
	local package
	if command -v apt-get >/dev/null; then refresh_lists; fi
	for package in $(bpftool_packages); do want "$package" "shows what the kernel has loaded"; done
}

bpftool_packages() {
	local tools
	for tools in bpftool "linux-tools-common linux-tools-$(uname -r)" "linux-tools-common linux-tools-generic"; do
		if apt_offers "${tools##* }"; then
			echo "$tools"
			return
		fi
	done
	echo bpftool
}

# A kernel that is not Ubuntu's has no tools there: those of another kernel show it as well.
link_bpftool() {
	if bpftool version >/dev/null 2>&1; then return; fi
	local newest
	newest=$(compgen -G '/usr/lib/linux-tools/*/bpftool' | sort -V | tail -n1) || true
	[ -n "$newest" ] || die "bpftool does not run: see what bpftool version says, and put one that runs into PATH"
	say "linking /usr/local/sbin/bpftool to $newest (apt has no linux-tools-$(uname -r))"
	ln -sf "$newest" /usr/local/sbin/bpftool
}

newest_clang() { # prints the clang to use, if one is new enough
	local name major
	for name in clang-19 clang-22 clang-21 clang-20 clang-18 clang; do
		command -v "$name" >/dev/null || continue
		major=$("$name" -dumpversion | cut -d. -f1)
		if [ "$major" -ge "$OLDEST_CLANG" ]; then
			echo "$name"
			return
		fi
	done
}

# clang compiles the data plane, clang-format checks it, libclang lets bindgen read the shared headers.
check_clang() {
	local version
	version=$(newest_clang)
	version=${version#clang}
	version=${version#-}
	if [ -z "$(newest_clang)" ]; then
		refresh_lists
		version=$(newest_packaged_clang)
		[ -n "$version" ] || die "apt offers no clang $OLDEST_CLANG or newer: add https://apt.llvm.org/ and try again"
		want "clang-$version" "compiles the data plane"
	fi
	local suffix=${version:+-$version}
	if ! command -v "clang-format$suffix" >/dev/null; then want "clang-format$suffix" "checks the data plane's layout"; fi
	if ! compgen -G '/usr/lib/llvm-*/lib/libclang*.so*' >/dev/null; then
		want "libclang${suffix}-dev" "bindgen reads the shared headers with it"
	fi
}

# Not `apt-cache show | grep -q`: grep ends at its first line, and apt-cache, still writing, fails the pipe.
apt_offers() { # PACKAGE
	local text
	text=$(apt-cache show "$1" 2>/dev/null) || return 1
	[[ $'\n'$text = *$'\nFilename:'* ]]
}

# Ubuntu has browsers as snaps only, which do not run as root everywhere: there it is the user's to install one.
check_browser() {
	local name
	for name in chromium chromium-browser google-chrome; do
		if command -v "$name" >/dev/null; then return; fi
	done
	refresh_lists
	if apt_offers chromium; then
		want chromium "opens the bench's report in a test"
	else
		say "apt has no chromium: the tests that open the bench's report need google-chrome or another one in PATH"
	fi
}

# FILE IN target/venv:PACKAGE:WHY. Independent judges from PyPI; their tests fail without them, or with SLUICE_OFFLINE=1 say so
# and go without.
readonly JUDGES=(
	"bin/schemathesis:schemathesis:asks the gateway and the monitor thousands of questions over HTTP"
	"lib/python3*/site-packages/MLRsearch:MLRsearch==1.2.1:the search of no-drop rates is compared with it"
)

install_judges() {
	case ${SLUICE_TARGET:-} in test | soak) ;; *) return 0 ;; esac
	local entry what package why
	for entry in "${JUDGES[@]}"; do
		IFS=: read -r what package why <<<"$entry"
		if compgen -G "target/venv/$what" >/dev/null; then continue; fi
		say "installing $package into target/venv ($why)"
		mkdir -p target
		python3 -c 'import ensurepip' 2>/dev/null ||
			DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv </dev/null >/dev/null || true
		if ! python3 -m venv target/venv >/dev/null || ! target/venv/bin/pip install -q "$package" >/dev/null 2>&1; then
			say "not available: $package; SLUICE_OFFLINE=1 make test goes without it"
		fi
	done
}

# FOLDER IN target:PACKAGE:WHY. Packages that exclude others which tests need, too: unpacked there, and nothing of them runs
# but in tests.
readonly UNPACKED=(
	"syslog-ng:syslog-ng-core:a second judge of the session log in tests"
)

unpack_judges() {
	case ${SLUICE_TARGET:-} in test | soak) ;; *) return 0 ;; esac
	local entry folder package why
	for entry in "${UNPACKED[@]}"; do
		IFS=: read -r folder package why <<<"$entry"
		if [ -e "target/$folder" ]; then continue; fi
		refresh_lists
		say "unpacking $package into target/$folder ($why)"
		unpack "$package" "target/$folder" ||
			say "not available: $package; SLUICE_OFFLINE=1 make test goes without it"
	done
}

unpack() { # PACKAGE FOLDER
	local place libraries
	place=$(mktemp -d)
	libraries=$(apt-cache depends "$1" | sed -n 's/^ *|\?Depends: \(lib[^ ]*\)$/\1/p')
	# shellcheck disable=SC2086 # a word a package
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq -o Dpkg::Use-Pty=0 --no-upgrade --no-install-recommends $libraries </dev/null >/dev/null &&
		(cd "$place" && apt-get download -qq -o APT::Sandbox::User=root "$1") &&
		dpkg -x "$place"/*.deb "$place/unpacked" &&
		mkdir -p target && mv "$place/unpacked" "$2"
	local done=$?
	rm -rf "$place"
	return $done
}

newest_packaged_clang() {
	local version
	for version in 19 22 21 20 18; do
		if apt-cache show "clang-$version" >/dev/null 2>&1; then
			echo "$version"
			return
		fi
	done
}

check_packages() {
	local entry what package why
	for entry in "${COMMANDS[@]}"; do
		IFS=: read -r what package why <<<"$entry"
		command -v "$what" >/dev/null || want "$package" "$why"
	done
	for entry in "${FILES[@]}"; do
		IFS=: read -r what package why <<<"$entry"
		[ -e "$what" ] || want "$package" "$why"
	done
}

check_optional() {
	local entry what package why
	for entry in "${OPTIONAL[@]}"; do
		IFS=: read -r what package why <<<"$entry"
		if command -v "$what" >/dev/null; then continue; fi
		refresh_lists
		if apt_offers "$package"; then
			want "$package" "$why"
		else
			say "apt has no $package ($why): the tests that need it say so and go without"
		fi
	done
}

# Where apt has them not, the test in the guest says so and goes without.
check_guest() {
	case ${SLUICE_TARGET:-} in test | kernels) ;; *) return 0 ;; esac
	check_offered "no test boots another kernel" "${GUEST[@]}"
}

check_chroots() {
	case ${SLUICE_TARGET:-} in chroots | debtest) ;; *) return 0 ;; esac
	check_offered "no clean systems to try setup in" "${CHROOTS[@]}"
}

check_offered() { # WITHOUT ENTRY...
	local entry what package why without=$1
	shift
	for entry in "$@"; do
		IFS=: read -r what package why <<<"$entry"
		if [ -e "$what" ] || command -v "$what" >/dev/null; then continue; fi
		refresh_lists
		if apt_offers "$package"; then
			want "$package" "$why"
		else
			say "apt has no $package ($why): $without"
		fi
	done
}

lists_fresh=
refresh_lists() {
	if [ -z "$lists_fresh" ]; then
		say "refreshing the package lists"
		apt-get update -qq || die "cannot refresh the package lists, see above: is there a network, are apt's sources right?"
		lists_fresh=1
	fi
}

# Packages must not start services here: nginx, frr and unbound are only ever run by lab and tests, inside their namespaces.
forbid_services() {
	[ -e /usr/sbin/policy-rc.d ] && return
	printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
	chmod 755 /usr/sbin/policy-rc.d
	trap 'rm -f /usr/sbin/policy-rc.d' EXIT
}

install_missing() {
	[ ${#missing[@]} -gt 0 ] || return 0
	command -v apt-get >/dev/null ||
		die "this is not Debian or Ubuntu: install the packages above (or what your distribution calls them) yourself"
	refresh_lists
	forbid_services
	say "installing: ${missing[*]}"
	local had_nginx='' had_frr='' had_unbound='' had_rsyslog=''
	command -v nginx >/dev/null && had_nginx=1
	[ -e /usr/lib/frr/zebra ] && had_frr=1
	command -v unbound >/dev/null && had_unbound=1
	command -v rsyslogd >/dev/null && had_rsyslog=1
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq -o Dpkg::Use-Pty=0 --no-install-recommends "${missing[@]}" </dev/null ||
		die "apt could not install the packages above and says why: is there a network, does another apt run?"
	# It must not come up with the next boot either; one that was here before is the owner's.
	if [ -z "$had_nginx" ] && command -v systemctl >/dev/null; then
		systemctl disable nginx.service >/dev/null 2>&1 || true
	fi
	if [ -z "$had_rsyslog" ] && command -v systemctl >/dev/null; then
		systemctl disable rsyslog.service syslog.socket >/dev/null 2>&1 || true
	fi
	if [ -z "$had_frr" ] && command -v systemctl >/dev/null; then
		systemctl disable frr.service >/dev/null 2>&1 || true
	fi
	if [ -z "$had_unbound" ] && command -v systemctl >/dev/null; then
		systemctl disable unbound.service >/dev/null 2>&1 || true
	fi
}

# The toolchain that rust-toolchain.toml asks for comes by rustup, which Debian 13 and Ubuntu 24.04 have as a package. What
# will be fetched, and from where, is said with everything else that is missing.
rustup_script=
check_rustup() {
	if command -v rustup >/dev/null; then
		:
	elif command -v cargo >/dev/null; then
		check_cargo_alone
		return
	elif apt_has_rustup; then
		want rustup "installs Rust"
	else
		say "missing: rustup (installs Rust); apt has none, so it will be fetched from $RUSTUP_URL into $CARGO_PLACE"
		rustup_script=1
	fi
	say_toolchain
}

apt_has_rustup() {
	command -v apt-get >/dev/null || return 1
	refresh_lists
	apt_offers rustup
}

rust_channel() { sed -n 's/^channel *= *"\(.*\)"/\1/p' rust-toolchain.toml; }

has_toolchain() { compgen -G "$RUSTUP_PLACE/toolchains/$(rust_channel)-*/bin/rustc" >/dev/null; }

say_toolchain() {
	has_toolchain ||
		say "missing: Rust $(rust_channel) (rust-toolchain.toml asks for it); rustup will fetch it from $RUST_SERVER into $RUSTUP_PLACE"
}

# The distributions' own compilers are too old, and their packages are the owner's to remove.
check_cargo_alone() {
	local oldest version
	oldest=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' Cargo.toml)
	version=$(cargo --version | cut -d' ' -f2)
	[ "$(printf '%s\n%s\n' "$oldest" "$version" | sort -V | head -n1)" = "$oldest" ] ||
		die "$(command -v cargo) is Rust $version without rustup, and Sluice needs $oldest or newer: remove it" \
			"(apt-get remove cargo rustc), and the next run installs what is needed"
}

install_rustup() {
	[ -n "$rustup_script" ] || return 0
	local script
	script=$(mktemp)
	say "installing rustup from $RUSTUP_URL into $CARGO_PLACE"
	curl --proto-redir '=https' --tlsv1.2 -fsSL --retry 2 "$RUSTUP_URL" -o "$script" ||
		die "cannot fetch $RUSTUP_URL: $(rust_by_hand)"
	sh "$script" -y -q --no-modify-path --profile minimal --default-toolchain none >/dev/null ||
		die "rustup's installer failed, see above: $(rust_by_hand)"
	rm -f "$script"
}

rust_by_hand() {
	echo "is the server reachable from here? Name a mirror by RUSTUP_UPDATE_ROOT (rustup) and RUSTUP_DIST_SERVER (Rust)," \
		"or install Rust $(rust_channel) by hand (https://rustup.rs), and try again"
}

check_rust() {
	command -v cargo >/dev/null || die "no cargo in PATH after all: $(rust_by_hand)"
	if command -v rustup >/dev/null; then
		if ! has_toolchain; then
			say "installing Rust $(rust_channel) with rustfmt and clippy from $RUST_SERVER into $RUSTUP_PLACE"
			# rustup is its owner's to update, and Ubuntu 24.04's fails when it tries to
			rustup toolchain install "$(rust_channel)" --no-self-update --profile minimal --component rustfmt --component clippy ||
				die "cannot install Rust $(rust_channel) from $RUST_SERVER: $(rust_by_hand)"
		elif ! { cargo fmt --version && cargo clippy --version; } >/dev/null 2>&1; then
			say "installing rustfmt and clippy (the tests check layout and lints) from $RUST_SERVER into $RUSTUP_PLACE"
			rustup component add --toolchain "$(rust_channel)" rustfmt clippy ||
				die "cannot install rustfmt and clippy from $RUST_SERVER: $(rust_by_hand)"
		fi
	fi
	cargo --version >/dev/null || die "cargo does not run; see above"
}

# make and libbpf's build take a blank for the end of a name.
check_place() {
	case $PWD in *[[:space:]]*) die "$PWD has blanks in its name, and make cannot build there: move it to a path without" ;; esac
}

main() {
	cd "$(dirname "${BASH_SOURCE[0]}")/.."
	check_place
	check_kernel
	check_root
	check_packages
	check_optional
	check_bpftool
	check_guest
	check_chroots
	check_clang
	check_browser
	check_rustup
	install_missing
	link_bpftool
	install_rustup
	mount_bpffs
	check_rust
	install_judges
	unpack_judges
	say "everything is in place"
}

# Other scripts read this one for its functions.
[ "${BASH_SOURCE[0]}" != "$0" ] || main "$@"
