# docker build -t automix --build-arg TORCH_INDEX=URL .
# docker run --rm -v "$PWD/photos:/data/photos:ro" -v "$PWD/runs:/app/runs" automix train /data/photos
#
# TORCH_INDEX is the index of torch's installation page for the device: "cpu" for an image without CUDA libraries. Without
# it, the ordinary Linux wheel of torch brings the CUDA toolkit along.
ARG BASE=python:3.11-slim
FROM ${BASE}
ARG TORCH_INDEX=""
WORKDIR /src
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY src ./src
RUN if [ -n "${TORCH_INDEX}" ]; then pip install --no-cache-dir --index-url "${TORCH_INDEX}" torch torchvision; fi \
    && pip install --no-cache-dir '.[offline-weights,evaluate,export]' \
    && automix --version
WORKDIR /app
ENV AUTOMIX_DATA=/data
ENTRYPOINT ["automix"]
CMD ["--help"]
