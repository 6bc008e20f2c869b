# The base is named by tag; a release pins it by content as well:
#   docker build --build-arg PYTHON_DIGEST=sha256:... .
ARG PYTHON_IMAGE=python:3.13-slim-bookworm
ARG PYTHON_DIGEST=

FROM ${PYTHON_IMAGE}${PYTHON_DIGEST:+@${PYTHON_DIGEST}} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src

# What builds the wheel comes from the lock of the development tools: nothing is installed without a hash.
COPY requirements-dev.lock ./
RUN python -m venv /opt/tools \
    && /opt/tools/bin/pip install --require-hashes --only-binary :all: --requirement requirements-dev.lock

# Dependencies change less often than the service; installing compiles them to bytecode.
COPY requirements.lock ./
RUN python -m venv --without-pip /opt/dra-extender \
    && python -m pip --python /opt/dra-extender/bin/python install --require-hashes --only-binary :all: --requirement requirements.lock

COPY pyproject.toml README.md LICENSE ./
COPY app ./app
COPY deploy/examples ./deploy/examples
RUN /opt/tools/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /dist . \
    && python -m pip --python /opt/dra-extender/bin/python install --no-deps --no-index /dist/*.whl

FROM ${PYTHON_IMAGE}${PYTHON_DIGEST:+@${PYTHON_DIGEST}}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="dra-extender" \
      org.opencontainers.image.description="Kubernetes Dynamic Resource Allocation beside an unmodified kube-scheduler, without feature gates" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# The base brings an installer, which nothing needs at run time.
RUN ["python", "-m", "pip", "uninstall", "--yes", "pip"]
# The same path as in the build stage: scripts in the environment name their interpreter by it.
COPY --from=build /opt/dra-extender /opt/dra-extender
USER 65532:65532
WORKDIR /
EXPOSE 8080 8081
STOPSIGNAL SIGTERM
ENTRYPOINT ["/opt/dra-extender/bin/dra-extender"]
CMD ["serve"]
