# Stackroom in a container: everything is fetched while building, nothing at run time. Runs without root and with a
# read-only root file system; /data is the one directory that it writes to.
#
#   docker build -t stackroom .
#   docker run -p 8000:8000 -v stackroom:/data stackroom          # everything in one container
#   docker compose up                                             # database, API and worker (docker-compose.yml)

FROM python:3.11-slim-bookworm AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
WORKDIR /src
RUN python -m venv /opt/stackroom
ENV PATH=/opt/stackroom/bin:$PATH
COPY requirements.lock requirements-build.lock ./
RUN pip install --require-hashes -r requirements.lock \
    && pip install --require-hashes -r requirements-build.lock
COPY scripts/model_data.sh scripts/model_data.sh
RUN sh scripts/model_data.sh python
COPY pyproject.toml README.md LICENSE ./
COPY migrations migrations
COPY app app
RUN pip install --no-deps --no-build-isolation .
RUN KB_MODEL_DIR=/opt/stackroom/model stackroom model build

FROM python:3.11-slim-bookworm
RUN groupadd --gid 10001 stackroom \
    && useradd --uid 10001 --gid 10001 --home-dir /data --no-create-home --shell /usr/sbin/nologin stackroom \
    && install --directory --mode 0700 --owner 10001 --group 10001 /data
COPY --from=build /opt/stackroom /opt/stackroom
ENV PATH=/opt/stackroom/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/data \
    TMPDIR=/data \
    KB_DATA_DIR=/data \
    KB_MODEL_DIR=/opt/stackroom/model
WORKDIR /data
VOLUME /data
USER 10001:10001
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request as web; web.urlopen('http://127.0.0.1:8000/healthz', timeout=4).read()"]
CMD ["stackroom", "serve", "--host", "0.0.0.0"]
