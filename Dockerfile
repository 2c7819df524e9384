# syntax=docker/dockerfile:1
# An image of Drover: for CPUs, or with "--build-arg device=cuda" for NVIDIA GPUs. How to use it: docs/install.md.

ARG device=cpu

# Where it is built, and where it runs. Both are systems that scripts/setup.sh knows.
FROM debian:12-slim AS build-cpu
ENV DROVER_CUDA=OFF
FROM nvidia/cuda:13.0.1-cudnn-devel-ubuntu24.04 AS build-cuda
ENV DROVER_CUDA=ON
FROM debian:12-slim AS run-cpu
FROM nvidia/cuda:13.0.1-cudnn-runtime-ubuntu24.04 AS run-cuda

FROM build-${device} AS build
WORKDIR /source
RUN apt-get update \
    && apt-get install -y --no-install-recommends binutils ca-certificates dpkg-dev make python3-pip
# What is installed depends on these alone, so that a change of the program does not repeat it.
COPY scripts/setup.sh scripts/wheel.sh scripts/fetch_arrow.sh scripts/fetch_cudnn_frontend.sh scripts/
# setup.sh goes on without Arrow if pip cannot fetch it; an image is not made without.
RUN scripts/setup.sh && test -e /root/.cache/drover/pyarrow-*/pyarrow
COPY . .
# How many files are compiled at once; as many as there are processors if it is empty.
ARG jobs=""
# What `drover --version` names; the checkout's own git is not copied.
ARG commit=""
RUN echo "$commit" >cmake/commit.txt && make deb SETUP=no JOBS="${jobs:-$(nproc)}"

FROM run-${device}
# tini passes signals on, and openmpi-bin starts several processes. The MPI operator of Kubernetes reaches them through the ssh server. The
# server's keys come with a job, and are not those of the image.
RUN --mount=type=bind,from=build,source=/source/build/release,target=/packages \
    apt-get update \
    && apt-get install -y --no-install-recommends \
        /packages/drover_*.deb ca-certificates libcurl4 openmpi-bin openssh-client openssh-server tini \
    && rm -rf /var/lib/apt/lists/* /etc/ssh/ssh_host_* \
    && useradd --create-home --uid 10001 drover \
    && mkdir -p /run/sshd
COPY --chmod=644 packaging/container/ssh_config /etc/ssh/ssh_config.d/drover.conf
COPY --chmod=644 packaging/container/sshd_config /etc/ssh/drover_sshd_config
COPY --chmod=755 packaging/container/entrypoint.sh /usr/local/bin/drover-container
# By default containers may not read each other's memory, nor their own processes'.
ENV OMPI_MCA_btl_vader_single_copy_mechanism=none

# What the image trains when it is given no command: the arguments of PyTorch/XLA's guide to Llama 2 in Docker.
ARG spmd_sharding_flag="--spmd_2d_sharding 2"
ARG train_config=examples/configs/llama2-7b.json
ARG global_batch_size=256
# Flags of the TPU's compiler. They change nothing; the run says so.
ARG libtpu_init_args=""
COPY --chmod=644 ${train_config} /config.json
ENV SPMD_SHARDING_FLAG="${spmd_sharding_flag}" \
    GLOBAL_BATCH_SIZE="${global_batch_size}" \
    LIBTPU_INIT_ARGS="${libtpu_init_args}"

# By number, so that Kubernetes sees that it is not root.
USER 10001:10001
WORKDIR /home/drover
ENTRYPOINT ["/usr/bin/tini", "--", "/usr/local/bin/drover-container"]
