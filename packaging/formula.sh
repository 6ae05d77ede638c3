#!/bin/sh
# The formula for Homebrew on Linux of a release: packaging/formula.sh FOLDER VERSION > yggc.rb
#
# FOLDER has the SHA256SUMS of `.ci/release`. Processors of which it names no static program are left out.
set -eu

if [ $# -ne 2 ]; then
    echo "formula.sh: expected FOLDER VERSION, found $# arguments" >&2
    exit 2
fi
sums=$1/SHA256SUMS version=$2

# What Homebrew calls a processor, and what archives do.
block() {
    name=yggc-$version-$2-unknown-linux-musl.tar.gz
    digest=$(sed -n "s/^\([0-9a-f]\{64\}\) [ *]$name\$/\1/p" "$sums")
    if [ -z "$digest" ]; then return; fi
    cat <<END
    on_$1 do
      url "https://github.com/yggdrasil-rt/yggc/releases/download/v$version/$name"
      sha256 "$digest"
    end
END
}

blocks=$(block intel x86_64; block arm aarch64)
if [ -z "$blocks" ]; then
    echo "formula.sh: expected a digest of yggc-$version-*-unknown-linux-musl.tar.gz in $sums, found none" >&2
    exit 1
fi
cat <<END
class Yggc < Formula
  desc "Exactly lossless speculative decoding, planned for this machine"
  homepage "https://github.com/yggdrasil-rt/yggc"
  version "$version"
  license "Apache-2.0"
  depends_on :linux

  on_linux do
$blocks
  end

  def install
    bin.install "yggc"
    man1.install Dir["man/man1/*"]
    bash_completion.install "completions/yggc.bash" => "yggc"
    zsh_completion.install "completions/_yggc"
    fish_completion.install "completions/yggc.fish"
    doc.install "LICENSES-OF-DEPENDENCIES.txt"
  end

  test do
    assert_equal "yggc #{version}", shell_output("#{bin}/yggc --version").strip
  end
end
END
