# openprompt_meta as a service. CPU by default; a CUDA base by argument:
#
#   docker build -t openprompt-meta .
#   docker build -t openprompt-meta --build-arg BASE=nvidia/cuda:12.6.3-devel-ubuntu24.04 --build-arg TORCH_INDEX= .
#   docker run --rm -p 8000:8000 openprompt-meta serve --host 0.0.0.0
#   docker run --rm -v "$PWD:/work" openprompt-meta fit --data few.csv --out my_classifier
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
# Where torch comes from: wheels without CUDA. Empty for those of PyPI, which bring it.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ENV DEBIAN_FRONTEND=noninteractive PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# The compiler builds learn2learn and stays behind in this stage.
RUN apt-get update && apt-get install -y --no-install-recommends build-essential python3 python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN python3 -m venv /opt/venv \
    && /opt/venv/bin/pip install ${TORCH_INDEX:+--extra-index-url ${TORCH_INDEX}} -r requirements/torch.txt \
    && /opt/venv/bin/pip install ".[serve,report]" \
    && /opt/venv/bin/pip install --no-deps -r requirements/no-deps.txt

FROM ${BASE}
RUN if ! command -v python3 >/dev/null; then \
        apt-get update && apt-get install -y --no-install-recommends python3 && rm -rf /var/lib/apt/lists/*; fi
COPY --from=build /opt/venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH
# Nobody in particular, in a folder that can be mounted.
RUN useradd --create-home user && install -d -o user /work
USER user
WORKDIR /work
EXPOSE 8000
ENTRYPOINT ["openprompt-meta"]
CMD ["doctor"]
