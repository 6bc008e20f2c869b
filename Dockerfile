# The base is named by tag; a release pins it by content as well:
#   docker build --build-arg PYTHON_DIGEST=sha256:... .
# Two builds on one base hold the same bytes (docs/start/install.md): nothing depends on the time of the build.
ARG PYTHON_IMAGE=python:3.13-slim-trixie
ARG PYTHON_DIGEST=

FROM ${PYTHON_IMAGE}${PYTHON_DIGEST:+@${PYTHON_DIGEST}} AS build
# A fixed seed: what a compiled file holds must not depend on the order of a set.
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore PYTHONHASHSEED=0
WORKDIR /src

# What builds the wheel comes from a lock as well: nothing is installed without a hash. The secrets are optional:
# a pip.conf that names another index, and the certificate authority of a proxy. Neither gets into the image.
COPY requirements-build.lock ./
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=secret,id=ca \
    python -m venv /opt/tools \
    && /opt/tools/bin/pip install --no-compile --require-hashes --only-binary :all: --requirement requirements-build.lock

# Dependencies change less often than the service. TRACING=1 adds what sends traces (docs/reference/traces.md).
ARG TRACING=
COPY requirements.lock requirements-tracing.lock ./
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=secret,id=ca \
    python -m venv --without-pip /opt/dra-extender \
    && python -m pip --python /opt/dra-extender/bin/python install --no-compile --require-hashes --only-binary :all: --requirement "requirements${TRACING:+-tracing}.lock"

COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY app ./app
COPY deploy/examples ./deploy/examples
RUN /opt/tools/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /dist . \
    && python -m pip --python /opt/dra-extender/bin/python install --no-compile --no-deps --no-index --find-links /dist dra-extender

# Bytecode that is valid whatever the time of its source: no later step may change a file without compiling it again.
RUN /opt/dra-extender/bin/python -m compileall -q -f --invalidation-mode unchecked-hash /opt/dra-extender/lib

FROM ${PYTHON_IMAGE}${PYTHON_DIGEST:+@${PYTHON_DIGEST}}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="dra-extender" \
      org.opencontainers.image.description="Kubernetes Dynamic Resource Allocation beside an unmodified kube-scheduler" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# The base brings an installer, which nothing needs at run time.
RUN ["python", "-B", "-m", "pip", "uninstall", "--yes", "pip"]
# The same path as in the build stage: scripts in the environment name their interpreter by it.
COPY --from=build /opt/dra-extender /opt/dra-extender
USER 65532:65532
WORKDIR /
EXPOSE 8080 8081
STOPSIGNAL SIGTERM
ENTRYPOINT ["/opt/dra-extender/bin/dra-extender"]
CMD ["serve"]
