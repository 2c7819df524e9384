# The short way to everything; CMakePresets.json is what it drives. "make help" lists the targets.

JOBS ?= $(shell nproc)
# AUTO (on where nvcc is found), ON or OFF.
DROVER_CUDA ?= AUTO
# "no" skips scripts/setup.sh, for systems where the libraries were installed by hand.
SETUP ?= yes
# How long each fuzz target runs.
FUZZ_SECONDS ?= 60

MAKEFLAGS += --no-print-directory

# Warnings and errors go to standard error; the rest of what CMake says is noise on every build but the first.
configure = cmake --preset $(1) -DDROVER_CUDA=$(DROVER_CUDA) >/dev/null
build = cmake --build --preset $(1) --parallel $(JOBS)

.DEFAULT_GOAL := build
.PHONY: build setup demo test test-asan test-tsan test-full fuzz format clean help
# Several goals of one command line share build folders, and every build is parallel inside.
.NOTPARALLEL:

build: setup ## set up and build the program, build/release/drover (what "make" alone does)
	@$(call configure,release)
	@$(call build,release) --target drover

setup: ## install what is missing (Debian, Ubuntu; root or sudo); SETUP=no skips it
ifneq ($(SETUP),no)
	@scripts/setup.sh
endif

demo: build ## train a small Llama on Shakespeare's plays, from text, on the CPU (about two minutes)
	@build/release/drover run_clm --config_name examples/configs/llama-5m.json \
	    --tokenizer_name examples/tokenizers/shakespeare-4k --train_file examples/data/tinyshakespeare/text.txt \
	    --do_train --do_eval --block_size 256 --max_steps 300 --learning_rate 2e-3 --lr_scheduler_type cosine \
	    --warmup_steps 30 --logging_steps 25 --save_strategy no --output_dir build/demo --overwrite_output_dir
	@build/release/drover generate --model build/demo --prompt "ROMEO:" --max_new_tokens 80 --temperature 0.8 --top_k 40

test: setup ## build everything and run all tests
	@$(call configure,release)
	@$(call build,release)
	@ctest --preset release

test-asan: setup ## unit tests under the address and undefined-behaviour sanitizers
	@$(call configure,asan)
	@$(call build,asan)
	@ctest --preset asan

test-tsan: setup ## ranks as threads, communicators and training, under the thread sanitizer
	@$(call configure,tsan)
	@$(call build,tsan)
	@ctest --preset tsan

test-full: test test-asan test-tsan fuzz ## test, test-asan, test-tsan and fuzz

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

clean: ## remove every build folder
	@rm -rf build

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r target text; do \
	    printf '  make %-10s %s\n' "$$target" "$$text"; done
	@echo 'Variables: JOBS=$(JOBS) DROVER_CUDA=$(DROVER_CUDA) SETUP=$(SETUP) FUZZ_SECONDS=$(FUZZ_SECONDS)'
