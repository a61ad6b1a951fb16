#!/usr/bin/env bash
# Compiles the core in a copy of the package and runs its tests: `tests/native/sanitize.sh address` with
# AddressSanitizer and UndefinedBehaviorSanitizer, `tests/native/sanitize.sh debug` with assertions. Further arguments
# are passed to pytest. `tests/native/sanitize.sh hostile --count 10000` runs `python -m tests.hostile` with the
# sanitizers. The library of an editable installation does not change. It requires gcc and Linux. `PYTHON` selects the
# interpreter.
set -euo pipefail
cd "$(dirname "$0")/../.."

kind=$1
shift
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Subprocesses of the tests import this copy too, and fail if its core cannot be loaded.
export PYTHONPATH=$work ZEROCOPY_NATIVE=1 TF_CPP_MIN_LOG_LEVEL=3

case $kind in
  address | hostile)
    export ZEROCOPY_CFLAGS="-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g -O1 -UNDEBUG"
    # Python itself is not compiled with the sanitizers, so their runtime is loaded first. Python's memory
    # comes from malloc, where the sanitizer sees it. Python and the frameworks leak at exit.
    preload="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)"
    asan=detect_leaks=0:allocator_may_return_null=1
    if [ "$kind" = hostile ]; then
      # Allocations of one size lie side by side, with 16 bytes between them, as those of malloc.
      asan=$asan:redzone=16:max_redzone=16:quarantine_size_mb=16
      set -- tests.hostile "$@"
    else
      set -- pytest tests/native --ignore tests/native/test_build.py "$@"
    fi
    set -- env LD_PRELOAD="$preload" PYTHONMALLOC=malloc UBSAN_OPTIONS=print_stacktrace=1 \
      ASAN_OPTIONS=$asan "$python" -m "$@"
    ;;
  debug)
    export ZEROCOPY_CFLAGS="-UNDEBUG -O0 -g"
    set -- env PYTHONMALLOC=debug "$python" -X faulthandler -m pytest tests/native --ignore tests/native/test_build.py "$@"
    ;;
  *)
    echo "usage: $0 address|debug|hostile [further arguments]" >&2
    exit 2
    ;;
esac

cp -r zerocopy tests hatch_build.py pyproject.toml README.md LICENSE "$work"
rm -f "$work"/zerocopy/_native/*.so
cd "$work"
"$python" hatch_build.py
"$@"
