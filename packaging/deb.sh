#!/bin/sh
# A Debian package of an archive of a release, with the service of systemd: packaging/deb.sh ARCHIVE OUT
#
# The service is not started: `systemctl enable --now yggc` does, after a look at /etc/yggc/serve.toml.
set -eu

if [ $# -ne 2 ]; then
    echo "deb.sh: expected ARCHIVE OUT, found $# arguments" >&2
    exit 2
fi
archive=$1 out=$2
here=$(dirname "$0")
name=${archive##*/}
name=${name%.tar.gz}
version=${name#yggc-}
version=${version%%-*}
case $name in
yggc-*-x86_64-unknown-linux-*) machine=amd64 ;;
yggc-*-aarch64-unknown-linux-*) machine=arm64 ;;
*)
    echo "deb.sh: expected yggc-VERSION-TRIPLE.tar.gz for Linux on x86_64 or aarch64, found $archive" >&2
    exit 1
    ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
tar -xzf "$archive" -C "$work"
from=$work/$name root=$work/tree

put() {
    install -D -m "$1" "$2" "$root/$3"
}

put 755 "$from/yggc" usr/bin/yggc
for page in "$from"/man/man1/*; do
    put 644 "$page" "usr/share/man/man1/${page##*/}"
    gzip -9n "$root/usr/share/man/man1/${page##*/}"
done
put 644 "$from/completions/yggc.bash" usr/share/bash-completion/completions/yggc
put 644 "$from/completions/_yggc" usr/share/zsh/vendor-completions/_yggc
put 644 "$from/completions/yggc.fish" usr/share/fish/vendor_completions.d/yggc.fish
put 644 "$here/serve.toml" etc/yggc/serve.toml
sed 's|/usr/local/bin/|/usr/bin/|' "$here/yggc.service" >"$work/yggc.service"
put 644 "$work/yggc.service" usr/lib/systemd/system/yggc.service
cat "$from/LICENSE" "$from/LICENSES-OF-DEPENDENCIES.txt" >"$work/copyright"
put 644 "$work/copyright" usr/share/doc/yggc/copyright

# A static program needs nothing, another one the glibc whose newest symbol it uses.
glibc=$(readelf -V "$from/yggc" 2>/dev/null | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1 | cut -d_ -f2 || true)
mkdir "$root/DEBIAN"
echo /etc/yggc/serve.toml >"$root/DEBIAN/conffiles"
{
    echo "Package: yggc"
    echo "Version: $version"
    echo "Architecture: $machine"
    echo "Maintainer: the Yggdrasil project <https://github.com/yggdrasil-rt/yggc>"
    echo "Installed-Size: $(du -sk "$root" | cut -f1)"
    if [ -n "$glibc" ]; then echo "Depends: libc6 (>= $glibc), libgcc-s1"; fi
    echo "Section: science"
    echo "Priority: optional"
    echo "Homepage: https://github.com/yggdrasil-rt/yggc"
    echo "Description: run a language model with exactly lossless speculative decoding"
    echo " One request at a time with the lowest latency that this machine can reach, on"
    echo " the command line, as a service with OpenAI's API, and planned for the machine."
} >"$root/DEBIAN/control"
dpkg-deb --build --root-owner-group "$root" "$out/yggc_${version}_$machine.deb"
