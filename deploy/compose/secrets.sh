#!/bin/sh
# Makes the secrets of compose.yaml that are missing: passwords, the master key, and a certificate for NAME (localhost) to try it with.
# Replace tls_certificate and tls_key by those of your name. The folder is closed to other users; the files in it are readable for the
# users of the containers.
set -eu
name=${1:-localhost}
folder=$(dirname "$0")/secrets
mkdir -p "$folder"
chmod 700 "$folder"
cd "$folder"
make_file() {
    if [ ! -s "$1" ]; then
        cat >"$1.new"
        chmod 444 "$1.new"
        mv "$1.new" "$1"
        echo "made $folder/$1"
    fi
}
openssl rand -hex 32 | make_file database_password
printf 'postgresql://windlass:%s@postgres/windlass\n' "$(cat database_password)" | make_file database_url
openssl rand -base64 32 | make_file master_key
if [ ! -s tls_key ]; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 365 -subj "/CN=$name" \
        -addext "subjectAltName=DNS:$name,DNS:localhost,IP:127.0.0.1" -keyout tls_key.made -out tls_certificate.made 2>/dev/null
    make_file tls_certificate <tls_certificate.made
    make_file tls_key <tls_key.made
    rm -f tls_key.made tls_certificate.made
fi
