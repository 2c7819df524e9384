# Shortcuts for the presets of CMakePresets.json. "make help" lists the targets.

JOBS ?= $(shell nproc)
# AUTO (on where nvcc is found), ON or OFF.
DROVER_CUDA ?= AUTO
# "no" skips scripts/setup.sh, for systems where the libraries were installed by hand.
SETUP ?= yes
# Which GPUs to compile for: native (this machine's), release (all), or a list such as "80;90a".
# Empty: those of the build before, at first native.
CUDA_ARCHITECTURES ?=
# "--tests" packs the test programs that can use a GPU too.
BUNDLE ?=
# How long each fuzz target runs.
FUZZ_SECONDS ?= 60
# How often test-kills kills.
KILLS ?= 200
# How long test-mesh tries random meshes.
SOAK_SECONDS ?= 1800

MAKEFLAGS += --no-print-directory

# Warnings and errors go to standard error. The rest of CMake's output is noise on every build but the first.
configure = cmake --preset $(1) -DDROVER_CUDA=$(DROVER_CUDA) \
    $(if $(CUDA_ARCHITECTURES),-DDROVER_CUDA_ARCHITECTURES="$(CUDA_ARCHITECTURES)") >/dev/null
build = cmake --build --preset $(1) --parallel $(JOBS)
version = "$$(sed -n 's/^project(drover VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)"

.DEFAULT_GOAL := build
.PHONY: build setup demo demo-time python test bundle deb wheel test-docs test-kills test-packages test-container test-slurm test-mesh test-profile test-gpu test-gpu-ptx test-gpu-ranks test-asan test-tsan test-full fuzz format clean help
# Goals given together share build folders, and each build is parallel by itself.
.NOTPARALLEL:

build: setup ## set up and build the program, build/release/drover (what "make" alone does)
	@$(call configure,release)
	@$(call build,release) --target drover

setup: ## install what is missing (Debian, Ubuntu; root or sudo); SETUP=no skips it
ifneq ($(SETUP),no)
	@scripts/setup.sh
endif

demo: demo-time build ## train a small Llama on Shakespeare's plays, on the CPU; stop it, resume it, generate text (two to three minutes)
	@scripts/demo.sh

# Said before the build, which is the longer part the first time.
demo-time:
	@[ -x build/release/drover ] || echo 'demo: the first build takes about 10 minutes of processor time, so about' \
	    "$$(((10 + $(JOBS) - 1) / $(JOBS))) minutes with JOBS=$(JOBS); the demo then takes two to three."

python: setup ## build the Python module, build/release/python (for PYTHONPATH), with MPI and what else it can load
	@[ '$(SETUP)' = no ] || scripts/setup.sh python
	@$(call configure,release)
	@$(call build,release) --target drover_python drover

test: setup ## build everything and run all tests
	@$(call configure,release)
	@$(call build,release)
	@ctest --preset release

bundle: CUDA_ARCHITECTURES = release
bundle: setup ## pack program and libraries for machines like this one, with any GPU: build/release/drover-*.tar.xz
	@$(call configure,release)
	@$(call build,release) --target drover $(if $(findstring --tests,$(BUNDLE)),test_backend test_train test_generate test_comm_nccl test_parallel_mpi test_api finetune_quotes trainer_program)
	@XZ_OPT=-T0 scripts/bundle.sh build/release $(version) $(BUNDLE)

deb: CUDA_ARCHITECTURES = release
deb: setup ## make a Debian package of the program, build/release/drover_*.deb (needs dpkg-dev)
	@command -v dpkg-shlibdeps >/dev/null || { echo 'deb: dpkg-shlibdeps is not installed (package dpkg-dev).' >&2; exit 1; }
	@$(call configure,release)
	@$(call build,release) --target drover
	@rm -f build/release/drover_*.deb
	@cpack -B build/release --config build/release/CPackConfig.cmake >build/release/cpack.log 2>&1 || { cat build/release/cpack.log >&2; exit 1; }
	@ls build/release/drover_*.deb

wheel: CUDA_ARCHITECTURES = release
wheel: python ## make a wheel of the Python module and the program, dist/drover_trainer-*.whl (needs pip)
	@scripts/python_wheel.sh build/release $(version)

# Runs the given script on this machine's GPU, from a bundle.
define on_gpu
	@if ! nvidia-smi >/dev/null 2>&1; then \
	    echo '$@: skipped, because nvidia-smi finds no GPU here.'; \
	else \
	    set -e; \
	    $(call configure,release); \
	    $(call build,release) --target drover test_backend test_train test_generate test_comm_nccl test_parallel_mpi test_api finetune_quotes trainer_program; \
	    XZ_OPT=-1 scripts/bundle.sh build/release test --tests; \
	    $(1) build/release/drover-test-linux-$$(uname -m) $(2); \
	fi
endef

test-gpu: setup ## test the bundle on this machine's GPU (says so and stops where there is none)
	$(call on_gpu,scripts/test_gpu.sh)

# The module alone, in a folder of its own.
test-gpu-ptx: setup ## the same with kernels that the GPU's driver compiles, as they are for other GPUs than Hopper
	@if nvidia-smi >/dev/null 2>&1; then \
	    cmake --preset release -B build/ptx -DDROVER_CUDA=ON -DDROVER_CUDA_ARCHITECTURES=80-virtual -DDROVER_TESTS=OFF >/dev/null && \
	    cmake --build build/ptx --parallel $(JOBS) --target drover_cuda; \
	fi
	$(call on_gpu,DROVER_CUDA_MODULE=$(CURDIR)/build/ptx/drover_cuda.so scripts/test_gpu.sh,ptx)

test-gpu-ranks: setup ## several ranks of the bundle, sharing this machine's GPUs through NCCL
	$(call on_gpu,scripts/test_gpu_ranks.sh)

test-asan: setup ## unit tests under the address and undefined-behaviour sanitizers
	@$(call configure,asan)
	@$(call build,asan)
	@ctest --preset asan

test-tsan: setup ## ranks as threads, communicators and training, under the thread sanitizer
	@$(call configure,tsan)
	@$(call build,tsan)
	@ctest --preset tsan

test-full: test test-docs test-kills test-slurm test-mesh test-profile test-packages test-container test-gpu test-gpu-ptx test-gpu-ranks test-asan test-tsan fuzz ## all tests above and below, and fuzz

test-docs: setup ## every command of README.md and docs/ at full length, where this machine can run it
	@$(call configure,release)
	@$(call build,release)
	@tests/docs/run_page.py --full

test-kills: setup ## kill -9 a run KILLS times while it saves, and resume it each time
	@$(call configure,release)
	@$(call build,release) --target test_app
	@DROVER_KILLS=$(KILLS) build/release/tests/test_app --gtest_filter=Interruption.AKillAtAnyMoment*

test-slurm: setup ## neuronx-distributed's guide, command by command, in a Slurm on this machine (root; packages slurm-wlm, munge)
	@$(call configure,release)
	@$(call build,release) --target drover
	@tests/slurm/walk.sh build/release/drover || [ $$? -eq 77 ]

test-packages: setup ## install deb, wheel and bundle in a Debian 12 with nothing else, and train there (root; package debootstrap)
	@scripts/test_packages.sh build/release || [ $$? -eq 77 ]

test-container: setup ## carry out the Dockerfile without Docker, and run its image (a whole build; root; package debootstrap)
	@scripts/test_container.sh build/packages || [ $$? -eq 77 ]

test-profile: setup ## profile a run and open it with TensorBoard's profile plugin (python3, and the network once)
	@$(call configure,release)
	@$(call build,release) --target drover
	@tests/profile/tensorboard.sh build/release/drover || [ $$? -eq 77 ]

test-mesh: setup ## every combination of mesh, model and optimizer; then random ones, SOAK_SECONDS long
	@$(call configure,release)
	@$(call build,release) --target test_parallel test_app
	@seq $(JOBS) | OMP_NUM_THREADS=1 xargs -P $(JOBS) -I {} env DROVER_MESH_MATRIX={}/$(JOBS) \
	    build/release/tests/test_parallel --gtest_filter='MeshMatrix.*:PipelineMatrix.*'
	@DROVER_SOAK_SECONDS=$$(($(SOAK_SECONDS) * 3 / 4)) build/release/tests/test_parallel --gtest_filter=MeshSoak.*
	@DROVER_SOAK_SECONDS=$$(($(SOAK_SECONDS) / 4)) build/release/tests/test_app --gtest_filter=ProcessSoak.*

fuzz: setup ## run each fuzz target for FUZZ_SECONDS (needs clang)
	@if ! command -v clang++ >/dev/null; then \
	    echo 'fuzz: skipped, because clang++ is not installed (packages clang and libomp-dev).'; \
	else \
	    set -e; \
	    $(call configure,fuzz); \
	    $(call build,fuzz) --target fuzz; \
	    targets=$$(find build/fuzz -type f -name '*_fuzz' -perm -u+x | sort); \
	    [ -n "$$targets" ] || { echo 'fuzz: no target was built.' >&2; exit 1; }; \
	    for target in $$targets; do \
	        name=$$(basename $$target _fuzz); \
	        found=build/fuzz/found/$$name; \
	        mkdir -p $$found; \
	        seeds=tests/fuzz/corpus/$$name; \
	        [ -d $$seeds ] || seeds=; \
	        log=build/fuzz/$$name.log; \
	        echo "fuzz: $$name for $(FUZZ_SECONDS) s"; \
	        if ! $$target -max_total_time=$(FUZZ_SECONDS) -timeout=10 -print_final_stats=1 \
	            -artifact_prefix=build/fuzz/$$name- $$found $$seeds >$$log 2>&1; then \
	            tail -n 80 $$log >&2; \
	            echo "fuzz: $$name failed; the input is named above, the whole output is in $$log." >&2; \
	            exit 1; \
	        fi; \
	        sed -n 's/^stat::number_of_executed_units: */fuzz: clean, inputs tried: /p' $$log; \
	    done; \
	fi

format: ## clang-format every C++ and CUDA source
	@command -v clang-format >/dev/null || { echo 'format: clang-format is not installed (package clang-format).' >&2; exit 1; }
	@git ls-files -z --cached --others --exclude-standard '*.h' '*.cpp' '*.cu' '*.cuh' | xargs -0 -r clang-format -i

clean: ## remove every build folder, and dist
	@rm -rf build dist

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r target text; do \
	    printf '  make %-14s %s\n' "$$target" "$$text"; done
	@echo 'Variables: JOBS=$(JOBS) DROVER_CUDA=$(DROVER_CUDA) SETUP=$(SETUP) FUZZ_SECONDS=$(FUZZ_SECONDS) KILLS=$(KILLS) SOAK_SECONDS=$(SOAK_SECONDS) BUNDLE=$(BUNDLE) CUDA_ARCHITECTURES=$(CUDA_ARCHITECTURES)'
