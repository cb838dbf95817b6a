# One image for every process of Maestro; the arguments choose which: migrate, worker, api, connect web.
# docker-compose.yml runs them and holds their health checks, which differ by process.
FROM python:3.13.15-slim-trixie AS base


FROM base AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /build

# The packages before our code, because they change less often. Hashes and wheels only: nothing that was not reviewed
# with the lock files runs here, and no compiler is needed.
COPY requirements-build.lock requirements-image.lock ./
RUN python -m venv /opt/tools \
    && /opt/tools/bin/pip install --no-deps --require-hashes --only-binary :all: --requirement requirements-build.lock
RUN python -m venv --without-pip /opt/maestro \
    && /opt/tools/bin/pip --python /opt/maestro/bin/python install \
       --no-deps --require-hashes --only-binary :all: --compile --requirement requirements-image.lock

COPY pyproject.toml LICENSE ./
COPY maestro maestro
COPY connectors connectors
COPY activities activities
COPY workflows workflows
COPY temporal temporal
COPY api api
RUN /opt/tools/bin/hatchling build --target wheel \
    && /opt/tools/bin/pip --python /opt/maestro/bin/python install --no-deps --no-index --compile dist/*.whl


FROM base
RUN groupadd --gid 10001 maestro \
    && useradd --uid 10001 --gid 10001 --home-dir /nonexistent --no-create-home --shell /usr/sbin/nologin maestro \
    && install --directory --owner 10001 --group 10001 --mode 0700 /data
COPY --from=build /opt/maestro /opt/maestro
# The bytecode is there already, and litellm must not ask the internet for prices when it is imported.
ENV PATH=/opt/maestro/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    LITELLM_LOCAL_MODEL_COST_MAP=True \
    MAESTRO_DATA_DIR=/data
USER 10001:10001
WORKDIR /data
VOLUME /data
ENTRYPOINT ["maestro"]
CMD ["--help"]
