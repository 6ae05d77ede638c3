#!/usr/bin/env bash
# Puts nvcc 13.0 and what it needs into FOLDER, from the Python package index, and prints what CUDA_HOME is to be: for building the kernels
# where no toolkit is installed, and for reading their machine code (cuobjdump, nvdisasm). 111 MB; needs pip, gcc and g++. No driver, no GPU.
#
# usage: export CUDA_HOME=$(kernels/cuda/toolkit.sh FOLDER)
set -euo pipefail

if (($# != 1)); then
    echo "usage: $0 FOLDER" >&2
    exit 2
fi
home=$1/nvidia/cu13
if [[ ! -x $home/bin/nvcc || ! -x $home/bin/nvdisasm ]]; then
    python3 -m pip install --quiet --no-deps --disable-pip-version-check --root-user-action ignore --target "$1" \
        nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 \
        nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85 nvidia-cuda-cuobjdump==13.2.51 nvidia-cuda-nvdisasm==13.2.51 >&2
fi
realpath "$home"
