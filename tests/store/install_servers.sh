#!/bin/sh
# Installs a PostgreSQL and PgBouncer from Debian, for the tests of the store. Starts no server and makes no cluster.
set -e
mkdir -p /etc/postgresql-common/createcluster.d
echo "create_main_cluster = false" > /etc/postgresql-common/createcluster.d/windlass-tests.conf
if [ ! -e /usr/sbin/policy-rc.d ]; then  # while it is there, packages start no services
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
    printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d
    chmod +x /usr/sbin/policy-rc.d
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql pgbouncer
