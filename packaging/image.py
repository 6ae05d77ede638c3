#!/usr/bin/env python3
"""An OCI image of a release, for every processor whose static program is there, without a daemon or a registry.

usage: image.py FOLDER OUT.oci.tar

FOLDER has the archives of `.ci/release`. `podman load -i OUT.oci.tar` and `docker load -i` take the image of their
processor; `skopeo copy --all oci-archive:OUT.oci.tar docker://REGISTRY/yggc` sends all of them. The same archives give
the same bytes.
"""
import gzip, hashlib, io, json, pathlib, re, sys, tarfile

# As the image's users call them, by the first part of the archive's triple.
PROCESSORS = {"x86_64": "amd64", "aarch64": "arm64"}
# No person's account on the host has it.
USER = 10001


def entry(name, kind=tarfile.REGTYPE, mode=0o755, owner=0, size=0):
    made = tarfile.TarInfo(name)
    made.type, made.mode, made.size = kind, mode, size
    made.uid = made.gid = owner
    return made


def layer(archive):
    """The files of an image as an uncompressed tar: the program, its texts, a user, and folders that can be written."""
    files = {"etc/passwd": f"yggc:x:{USER}:{USER}::/var/cache:/sbin/nologin\n".encode()}
    files["etc/group"] = f"yggc:x:{USER}:\n".encode()
    with tarfile.open(archive) as release:
        for member in release:
            inner = member.name.partition("/")[2]
            if inner == "yggc":
                files["usr/local/bin/yggc"] = release.extractfile(member).read()
            elif inner in ("LICENSE", "LICENSES-OF-DEPENDENCIES.txt"):
                files[f"usr/share/doc/yggc/{inner}"] = release.extractfile(member).read()
    if "usr/local/bin/yggc" not in files:
        sys.exit(f"image.py: {archive} has no program `yggc`; .ci/release makes archives that do")
    folders = {str(parent) for name in files for parent in pathlib.PurePath(name).parents} - {"."}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for folder in sorted(folders | {"var", "var/cache"}):
            tar.addfile(entry(folder, tarfile.DIRTYPE))
        tar.addfile(entry("var/cache/yggc", tarfile.DIRTYPE, owner=USER))
        tar.addfile(entry("tmp", tarfile.DIRTYPE, mode=0o1777))
        for name, data in sorted(files.items()):
            mode = 0o755 if name.startswith("usr/local/bin/") else 0o644
            tar.addfile(entry(name, mode=mode, size=len(data)), io.BytesIO(data))
    return out.getvalue()


def main(folder, out):
    blobs = {}

    def blob(data, kind):
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = data
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

    def as_json(value):
        return json.dumps(value, sort_keys=True).encode()

    manifests, version = [], None
    for archive in sorted(pathlib.Path(folder).glob("yggc-*-musl.tar.gz")):
        version, processor = re.fullmatch(r"yggc-(.+?)-([a-z0-9_]+)-unknown-linux-musl\.tar\.gz", archive.name).groups()
        files = layer(archive)
        packed = blob(gzip.compress(files, 9, mtime=0), "layer.v1.tar+gzip")
        config = {
            "architecture": PROCESSORS[processor],
            "os": "linux",
            "config": {
                "User": f"{USER}:{USER}",
                "Env": ["PATH=/usr/local/bin", "XDG_CACHE_HOME=/var/cache"],
                # Within a container every address is its own: who may reach it is said by the port that is published.
                "Entrypoint": ["yggc", "serve", "--host", "0.0.0.0"],
                "ExposedPorts": {"8080/tcp": {}},
                "Volumes": {"/var/cache/yggc": {}},
                "StopSignal": "SIGTERM",
                "Labels": {
                    "org.opencontainers.image.version": version,
                    "org.opencontainers.image.licenses": "Apache-2.0",
                    "org.opencontainers.image.source": "https://github.com/yggdrasil-rt/yggc",
                },
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(files).hexdigest()}"]},
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": blob(as_json(config), "config.v1+json"),
            "layers": [packed],
        }
        platform = {"architecture": config["architecture"], "os": "linux"}
        manifests.append(blob(as_json(manifest), "manifest.v1+json") | {"platform": platform})
    if not manifests:
        sys.exit(f"image.py: expected archives yggc-*-musl.tar.gz in {folder}, found none; .ci/release makes them")
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": manifests}
    # Readers take what the outermost index names; it names one thing, the image of all processors.
    name = {"org.opencontainers.image.ref.name": f"yggc:{version}"}
    named = blob(as_json(index), "index.v1+json") | {"annotations": name}
    outermost = as_json({"schemaVersion": 2, "manifests": [named]})
    files = {"oci-layout": as_json({"imageLayoutVersion": "1.0.0"}), "index.json": outermost} | blobs
    with tarfile.open(out, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in files.items():
            tar.addfile(entry(name, mode=0o644, size=len(data)), io.BytesIO(data))
    print(f"{out}: yggc:{version} for {', '.join(sorted(each['platform']['architecture'] for each in manifests))}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
