#!/usr/bin/env bash
# Makes an image with Debian 12 and its Python 3.11, as a base for the Dockerfile where no registry of images can be reached.
# Needs root, debootstrap and podman. MIRROR and MIRROR_OF_SECURITY replace the mirrors of debootstrap and of this machine.
# Usage: deploy/image/base.sh [NAME]
set -euo pipefail
name=${1:-localhost/windlass-base:bookworm}
folder=$(mktemp -d "${TMPDIR:-/var/tmp}/windlass-base-XXXXXX")
trap 'rm -rf --one-file-system "$folder"' EXIT

debootstrap --variant=minbase --include=ca-certificates,python3,tini bookworm "$folder" ${MIRROR:+"$MIRROR"} >"$folder.log" ||
    { tail -n 20 "$folder.log" >&2; exit 1; }
rm -f "$folder.log"
mirror=$(awk '$1 == "deb" { print $2; exit }' "$folder/etc/apt/sources.list")
security=${MIRROR_OF_SECURITY:-$(apt-get indextargets --format '$(SITE) $(RELEASE)' 2>/dev/null | awk '$2 ~ /-security$/ { print $1; exit }')}
cat >"$folder/etc/apt/sources.list" <<END
deb $mirror bookworm main
deb $mirror bookworm-updates main
${security:+deb $security bookworm-security main}
END
# As in Debian's slim images: no documentation and no translations, also for packages that are installed later.
cat >"$folder/etc/dpkg/dpkg.cfg.d/slim" <<END
path-exclude /usr/share/doc/*
path-include /usr/share/doc/*/copyright
path-exclude /usr/share/man/*
path-exclude /usr/share/info/*
path-exclude /usr/share/locale/*
path-exclude /usr/share/lintian/*
END
find "$folder/usr/share/doc" -depth -not -type d -not -name copyright -delete
find "$folder/usr/share/doc" -depth -type d -empty -delete
rm -rf "$folder"/usr/share/{man,info,locale,lintian}/* "$folder"/var/{lib/apt/lists,cache/apt,cache/debconf,log}/* \
    "$folder"/etc/{resolv.conf,hostname,machine-id}
tar --numeric-owner --one-file-system -C "$folder" -c . | podman import --quiet \
    --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
    --change 'ENV LANG=C.UTF-8' --change 'CMD ["/bin/bash"]' - "$name" >/dev/null
echo "made $name"
