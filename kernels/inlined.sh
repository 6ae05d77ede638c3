#!/usr/bin/env bash
# Says whether the kernels of a program for x86-64 call intrinsics: `kernels/inlined.sh PROGRAM [NM]`. What calls one was compiled without the
# features that it needs, as a closure that is not inlined is: decoding by states took 1.7 times as long once. Symbols must be there.
set -euo pipefail

# A broadcast of a constant may be a call, and what searches bytes for words looks for features by itself.
allowed='::(_mm(256|512)_set1_ps|_mm256_loadu_si256)$'
called=$("${2:-nm}" -C "$1" | grep -oE 'core::core_arch::x86::[a-z0-9_:]+::_mm[0-9a-z_]+$' | grep -vE "$allowed" | sort -u || true)
if [[ -n $called ]]; then
    echo "$1: expected every intrinsic of a kernel to be inlined, found functions:" >&2
    echo "$called" >&2
    echo "disassemble it (objdump -dC) to see what calls them, and pass no closure there" >&2
    exit 1
fi
