#!/usr/bin/env bash
# Makes kernels/src/cuda/abi.rs of kernels/cuda/abi.h. Needs bindgen 0.73.2 (cargo install bindgen-cli) and libclang.
# With --check it only says whether the file is as it should be.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

made=$(mktemp)
trap 'rm -f "$made"' EXIT
{
    echo "//! Parameters of the CUDA kernels: bindings of \`kernels/cuda/abi.h\`, made by \`kernels/cuda/bindings.sh\`."
    echo
    echo "#![allow(missing_docs, non_camel_case_types, clippy::unreadable_literal, clippy::allow_attributes_without_reason, reason = \"made of a C header, which documents them\")]"
    echo
    bindgen abi.h --allowlist-type 'Ygg.*' --allowlist-var 'YGG_.*' --default-enum-style consts --no-prepend-enum-name \
        --no-doc-comments --disable-header-comment --use-core --merge-extern-blocks
} >"$made"
rustfmt --edition 2024 --config-path ../../rustfmt.toml "$made"
if [[ "${1-}" == --check ]]; then
    diff -u ../src/cuda/abi.rs "$made"
else
    cp "$made" ../src/cuda/abi.rs
fi
