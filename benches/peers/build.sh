#!/usr/bin/env bash
# Builds llama.cpp, as llama-cpp-python bundles it, natively for this machine: once with OpenMP, once with its own threads.
#
# usage: benches/peers/build.sh DIR
#
# Leaves DIR/venv (Python with llama_cpp) and DIR/lib/{openmp,threads} (the two builds of its libraries). What is there and
# was built for this processor by this compiler is kept. CMAKE_BUILD_PARALLEL_LEVEL limits the compilers that run at once.
set -euo pipefail

VERSION=0.3.36
TOOLS=(scikit-build-core==1.1.2 cmake==4.4.4 ninja==1.13.2)
RUNTIME=(numpy==2.4.6 typing-extensions==4.16.0 diskcache==5.6.3 jinja2==3.1.6 gguf==0.19.0 pyyaml==6.0.3 requests==2.34.2 tqdm==4.70.1)

fail() { echo "$0: $*" >&2; exit 1; }
say() { printf '== %s\n' "$*" >&2; }

[[ $# == 1 && $1 != -* ]] || { sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
command -v python3 >/dev/null || fail "python3 is missing; on Debian: apt-get install python3 python3-venv"
command -v cc >/dev/null && command -v c++ >/dev/null || fail "a C and a C++ compiler are missing; on Debian: apt-get install gcc g++"
mkdir -p "$1"
dir=$(cd "$1" && pwd)

cpu=$(grep -m 1 '^model name' /proc/cpuinfo | cut -d: -f2; grep -m 1 '^flags' /proc/cpuinfo | cut -d: -f2 | tr ' ' '\n' | sort | sha256sum)
stamp="llama-cpp-python $VERSION; $(c++ --version | sed -n 1p);$cpu"
if [[ -f $dir/built && $(<"$dir/built") == "$stamp" ]]; then
    say "already built: $dir"
    exit 0
fi
rm -rf "$dir/built" "$dir/source" "$dir/build" "$dir/lib"

say "virtual environment"
python3 -m venv "$dir/venv" || fail "cannot make a virtual environment; on Debian: apt-get install python3-venv"
export PATH="$dir/venv/bin:$PATH" PIP_DISABLE_PIP_VERSION_CHECK=1
pip install -q "${TOOLS[@]}" "${RUNTIME[@]}" || fail "pip could not install the build tools; is a Python package index reachable?"

say "source of llama-cpp-python $VERSION"
mkdir "$dir/source"
pip download -q --no-deps --no-binary llama-cpp-python --no-build-isolation -d "$dir/source" "llama-cpp-python==$VERSION" ||
    fail "pip could not download llama-cpp-python $VERSION; is a Python package index reachable?"
tar -xzf "$dir"/source/*.tar.gz -C "$dir/source" --strip-components 1

# gcc 12 drops the stores that fill the configuration which _tile_loadconfig reads, and the process dies of SIGILL. An
# instruction with the structure as its operand keeps them.
if grep -qw amx_tile /proc/cpuinfo; then
    amx="$dir/source/vendor/llama.cpp/ggml/src/ggml-cpu/amx/mmq.cpp"
    [[ $(grep -c '_tile_loadconfig(&tc);' "$amx") == 1 ]] ||
        fail "this machine has AMX, and $amx does not hold '_tile_loadconfig(&tc);' once, as expected of $VERSION; correct the patch here"
    sed -i 's/_tile_loadconfig(&tc);/__asm__ volatile("ldtilecfg %0" : : "m"(tc));/' "$amx"
    say "AMX: patched the load of the tile configuration"
fi

export CMAKE_GENERATOR=Ninja
for threading in openmp threads; do
    say "building with $threading"
    openmp=$([[ $threading == openmp ]] && echo ON || echo OFF)
    CMAKE_ARGS="-DGGML_NATIVE=ON -DGGML_OPENMP=$openmp -DLLAVA_BUILD=OFF" pip install -q --no-deps --no-build-isolation --no-cache-dir \
        --force-reinstall -C build-dir="$dir/build" "$dir/source" || fail "the build failed; what the compiler said is above"
    [[ $(sed -n 's/^GGML_OPENMP_ENABLED:INTERNAL=//p' "$dir/build/CMakeCache.txt") == "$openmp" ]] ||
        fail "the build was to have GGML_OPENMP=$openmp and has not; does the compiler come with OpenMP?"
    mkdir -p "$dir/lib/$threading"
    cp -a "$dir"/venv/lib/python3*/site-packages/llama_cpp/lib/*.so* "$dir/lib/$threading/"
    LLAMA_CPP_LIB_PATH="$dir/lib/$threading" python -c 'import llama_cpp; print(llama_cpp.llama_print_system_info().decode())' >&2
done
printf '%s' "$stamp" >"$dir/built"
say "done: $dir"
