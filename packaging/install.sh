#!/bin/sh
# Installs yggc from the archives of a release, as `.ci/release` makes them; --help says how.
set -eu

releases=https://github.com/yggdrasil-rt/yggc/releases
prefix=${YGGC_PREFIX:-$HOME/.local}
from=${YGGC_RELEASES:-}
version=
task=install

usage() {
    cat <<'END'
install.sh [--prefix FOLDER] [--version VERSION] [--from PLACE] [--list] [--uninstall]

Takes the archive for this machine, checks its digest, and puts the program into FOLDER/bin (default ~/.local), manual
pages and completions into FOLDER/share; nothing outside FOLDER is changed. PLACE is a folder or an address with archives
and their SHA256SUMS (default: the newest release). --list tells which archives there are.
END
}

fail() {
    echo "install.sh: $*" >&2
    exit 1
}

value_of() {
    if [ "$1" -lt 2 ]; then fail "$2 needs a value"; fi
}

while [ $# -gt 0 ]; do
    case $1 in
    --prefix) value_of $# "$1"; prefix=$2; shift ;;
    --version) value_of $# "$1"; version=${2#v}; shift ;;
    --from) value_of $# "$1"; from=$2; shift ;;
    --list) task=list ;;
    --uninstall) task=uninstall ;;
    --help | -h) usage; exit ;;
    *) fail "unknown argument $1; expected --prefix, --version, --from, --list or --uninstall" ;;
    esac
    shift
done
case $prefix in
/*) ;;
*) prefix=$PWD/$prefix ;;
esac

manifest=$prefix/share/yggc/installed

if [ $task = uninstall ]; then
    if [ ! -f "$manifest" ]; then fail "nothing that this script installed is in $prefix"; fi
    while IFS= read -r file; do rm -f "$prefix/$file"; done <"$manifest"
    rm -f "$manifest"
    rmdir "$prefix/share/yggc" 2>/dev/null || true
    echo "yggc is removed from $prefix; caches stay in ${XDG_CACHE_HOME:-$HOME/.cache}/yggc"
    exit
fi

if [ -z "$from" ]; then
    from=$releases/latest/download
    if [ -n "$version" ]; then from=$releases/download/v$version; fi
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# Fetches a file of the release.
fetch() {
    case $from in
    http://* | https://*)
        if command -v curl >/dev/null; then
            curl --fail --silent --show-error --location --retry 3 --output "$work/$1" "$from/$1"
        elif command -v wget >/dev/null; then
            wget --quiet --tries=3 --output-document="$work/$1" "$from/$1"
        else
            fail "neither curl nor wget is here to fetch $from/$1"
        fi || fail "cannot fetch $from/$1"
        ;;
    *) cp "${from#file://}/$1" "$work/$1" || fail "expected $1 in $from" ;;
    esac
}

fetch SHA256SUMS
archives=$(sed -n 's/^[0-9a-f]\{64\} [ *]\(yggc-[^/]*\.tar\.gz\)$/\1/p' "$work/SHA256SUMS" | grep -v -e '-symbols\.tar\.gz$' || true)
if [ -n "$version" ]; then archives=$(echo "$archives" | grep -F "yggc-$version-" || true); fi
if [ $task = list ]; then
    echo "$archives"
    exit
fi

machine=$(uname -m)
case $machine in
amd64) machine=x86_64 ;;
arm64) machine=aarch64 ;;
esac
case $(uname -s) in
# The program of gnu can use an NVIDIA driver and needs a glibc; that of musl is static.
Linux)
    triples="$machine-unknown-linux-musl $machine-unknown-linux-gnu"
    if [ -e "${YGGC_NVIDIA:-/dev/nvidiactl}" ]; then triples="$machine-unknown-linux-gnu $machine-unknown-linux-musl"; fi
    ;;
Darwin) triples=$machine-apple-darwin ;;
*) triples=$machine-$(uname -s) ;;
esac

name=
for triple in $triples; do
    if [ -n "$name" ]; then break; fi
    name=$(echo "$archives" | grep -e "-$triple\.tar\.gz$" | sort -V | tail -n 1 || true)
done
if [ -z "$name" ]; then
    fail "$from has no archive for this machine ($triples); it has: $(echo "${archives:-none}" | tr '\n' ' ')"
fi

fetch "$name"
expected=$(sed -n "s/^\([0-9a-f]\{64\}\) [ *]$name\$/\1/p" "$work/SHA256SUMS")
if command -v sha256sum >/dev/null; then
    found=$(sha256sum "$work/$name" | cut -d' ' -f1)
else
    found=$(shasum -a 256 "$work/$name" | cut -d' ' -f1)
fi
if [ "$found" != "$expected" ]; then
    fail "$name is damaged: expected SHA-256 $expected, found $found; nothing was installed"
fi
tar -xzf "$work/$name" -C "$work"
folder=$work/${name%.tar.gz}
said=$("$folder/yggc" --version) || fail "the program in $name does not run here; nothing was installed"

mkdir -p "$prefix/share/yggc"
: >"$manifest.new"

# Puts a file below the prefix: beside its place, then there at once, so that a program that runs goes on.
put() {
    mkdir -p "$(dirname "$prefix/$2")"
    cp "$1" "$prefix/$2.new"
    mv -f "$prefix/$2.new" "$prefix/$2"
    echo "$2" >>"$manifest.new"
}

put "$folder/yggc" bin/yggc
for page in "$folder"/man/man1/*; do put "$page" "share/man/man1/${page##*/}"; done
put "$folder/completions/yggc.bash" share/bash-completion/completions/yggc
put "$folder/completions/_yggc" share/zsh/site-functions/_yggc
put "$folder/completions/yggc.fish" share/fish/vendor_completions.d/yggc.fish
for text in "$folder"/LICENSE*; do put "$text" "share/yggc/${text##*/}"; done

# What an earlier version put there and this one has not.
if [ -f "$manifest" ]; then
    while IFS= read -r file; do
        grep -qxF "$file" "$manifest.new" || rm -f "$prefix/$file"
    done <"$manifest"
fi
mv -f "$manifest.new" "$manifest"

echo "$said is in $prefix/bin"
case :$PATH: in
*:"$prefix/bin":*) ;;
*) echo "put it on the path: export PATH=\"$prefix/bin:\$PATH\"" ;;
esac
echo "begin with: yggc run -p \"Why is the sky blue?\""
