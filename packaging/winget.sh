#!/bin/sh
# The manifest for winget of a release, three files into the folder OUT: packaging/winget.sh FOLDER VERSION OUT
#
# FOLDER has the SHA256SUMS of `.ci/release`. They go to `manifests/y/Yggdrasil/yggc/VERSION` of the repository of packages;
# `winget install --manifest OUT` tries them.
set -eu

if [ $# -ne 3 ]; then
    echo "winget.sh: expected FOLDER VERSION OUT, found $# arguments" >&2
    exit 2
fi
sums=$1/SHA256SUMS version=$2 out=$3
name=yggc-$version-x86_64-pc-windows-gnu
digest=$(sed -n "s/^\([0-9a-f]\{64\}\) [ *]$name\.zip\$/\1/p" "$sums" | tr a-f A-F)
if [ -z "$digest" ]; then
    echo "winget.sh: expected a digest of $name.zip in $sums, found none" >&2
    exit 1
fi
mkdir -p "$out"

# A file of the manifest: what follows its head comes from standard input.
manifest() {
    {
        echo "PackageIdentifier: Yggdrasil.yggc"
        echo "PackageVersion: $version"
        cat
        echo "ManifestType: $2"
        echo "ManifestVersion: 1.6.0"
    } >"$out/Yggdrasil.yggc$1.yaml"
}

manifest "" version <<END
DefaultLocale: en-US
END
manifest .installer installer <<END
InstallerType: zip
NestedInstallerType: portable
NestedInstallerFiles:
- RelativeFilePath: $name\\yggc.exe
  PortableCommandAlias: yggc
Installers:
- Architecture: x64
  InstallerUrl: https://github.com/yggdrasil-rt/yggc/releases/download/v$version/$name.zip
  InstallerSha256: $digest
END
manifest .locale.en-US defaultLocale <<END
PackageLocale: en-US
Publisher: Yggdrasil
PublisherUrl: https://github.com/yggdrasil-rt
PackageName: yggc
PackageUrl: https://github.com/yggdrasil-rt/yggc
License: Apache-2.0
ShortDescription: Exactly lossless speculative decoding, planned for this machine
END
