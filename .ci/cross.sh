#!/usr/bin/env bash
# Compiles the core for Linux on aarch64, and links it, and compiles it for 64-bit Windows with MinGW. Warnings are errors.
# It runs nothing: it checks that the C files are portable. MSVC is not checked; the core needs gcc or clang.
# Requires Debian with its cross compilers (apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross
# gcc-mingw-w64-x86-64), apt-get's network and PyPI. The headers are those of each system: for aarch64 of Debian's
# libpython3.11-dev, for Windows of CPython's source and its PC/pyconfig.h, and of NumPy's wheels.
# PYTHON is an interpreter with pip.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
repository=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{lists,archives,sources}/partial "$work"/{aarch64,windows}
cd "$work"

# Lists of their own, so that the system's architectures and sources do not change.
echo 'deb-src http://deb.debian.org/debian bookworm main' >sources.list
arm64=(-qq -o APT::Sandbox::User=root -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o Dir::State::lists="$work/lists")
sources=(-qq -o APT::Sandbox::User=root -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists="$work/sources")
apt-get "${arm64[@]}" -o Dir::Cache="$work" update
apt-get "${arm64[@]}" -o Dir::Cache="$work" download libpython3.11-dev
dpkg -x libpython3.11-dev_*.deb debian
apt-get "${sources[@]}" update
apt-get "${sources[@]}" source --download-only --tar-only python3.11
tar -xzf python3.11_*.orig.tar.gz --wildcards --strip-components=1 '*/Include' '*/PC/pyconfig.h'

flags=$("$python" -c "import runpy; print(*runpy.run_path('$repository/hatch_build.py')['FLAGS'], '-Werror -DNDEBUG')")
define="-DZEROCOPY_SOURCES=\"00000000\""
compile() { # platform of the wheel of NumPy, folder, compiler and its flags
  local platform=$1 folder=$2
  shift 2
  "$python" -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: \
    --platform "$platform" --python-version 3.11 -d "$folder" numpy
  "$python" -m zipfile -e "$folder"/numpy-*.whl "$folder"
  for source in "$repository"/zerocopy/_native/*.c; do
    "$@" $flags "$define" -I"$folder/numpy/_core/include" -c "$source" -o "$folder/$(basename "$source" .c).o"
  done
}

compile manylinux_2_28_aarch64 aarch64 aarch64-linux-gnu-gcc -fPIC -Idebian/usr/include -Idebian/usr/include/python3.11
aarch64-linux-gnu-gcc -shared -o aarch64/_core.so aarch64/*.o
newest=$(aarch64-linux-gnu-objdump -T aarch64/_core.so | grep -o 'GLIBC_[0-9.]*' | sort -V | tail -1)
echo "aarch64: $(ls aarch64/*.o | wc -l) files compiled and linked; requires $newest"

# PC/pyconfig.h leaves this to MSVC.
compile win_amd64 windows x86_64-w64-mingw32-gcc -DMS_WIN64 -IInclude -IPC
echo "Windows: $(ls windows/*.o | wc -l) files compiled with MinGW, not linked"
