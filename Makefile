# SPDX-License-Identifier: Apache-2.0
# The front door. `make demo` on a fresh Debian 12 machine installs what it needs, builds, and shows what Kansoku does.
SHELL := /bin/bash
PREFIX ?= /usr/local
PHILLY ?= ../shared/data/philly/philly_jobs_train.csv.gz
JOBS ?= $(shell nproc)
KANSOKU := build/kansoku

.PHONY: deps-fuzz help build build-tests softgpu demo test test-fast test-all mutants bench eval diff-eval probe-eval simulate-eval simulate-experiments faults false-confidence equal-work calibration watch-eval watch-soak watch-cost kernel-check fresh-root check install asan tsan fuzz nobpf clean deps-build deps-demo deps-test deps-bench deps-check deps-faults deps-watch deps-kernels deps-fresh-root deps-softgpu deps-store deps-otlp deps-llama deps-torch torch-eval llama demo-cuda cuda-eval cuda-causes cuda-clock cuda-cost cuda-stuck gpu-check

help:
	@echo "make demo     install what it needs (apt), build, run the example job and diagnose it"
	@echo "make test     install what the tests need (apt), build, run tools/check --fast and all tests but those that only test-all has"
	@echo "              FLAKY=1 also runs the tests that a change touches again and again, for three minutes"
	@echo "make test-fast  unit tests and pure cases alone: two minutes when it is built. One test: tools/test NAME or PATH"
	@echo "make test-all  every configuration, sanitizers, fuzzing, evaluations, in parts of half an hour: call it until it is done"
	@echo "              (PART=list shows them, PART=NAME runs one; docs/testing.md)"
	@echo "make build    build $(KANSOKU)"
	@echo "make softgpu  build the libraries of the software GPU beside it, for \`kansoku run --softgpu\`"
	@echo "make llama    build llama.cpp with its CUDA backend for the software GPU (npm package, MIT; half an hour, cached)"
	@echo "make demo-cuda  a generation by llama.cpp's CUDA backend on the software GPU, beside the CPU"
	@echo "make cuda-eval  every operator of that backend against the CPU's, in parts of half an hour: call it until it is done"
	@echo "make cuda-stuck  what never ends on a GPU, and what only takes its time: does kansoku hang tell them apart? (half an hour; STUCK=PART)"
	@echo "make gpu-check  179 checks of CUDA's documented behaviour, on the software device and on a GPU if there is one (minutes)"
	@echo "make cuda-clock  the map of a skewed event clock over ten minutes (MINUTES=10), and causes of idle time against a program's own times"
	@echo "make cuda-causes  ten planted causes on the software GPU, each with its twin, live (CAUSES=\"sync leak\" for some): half an hour"
	@echo "make mutants  changes of the program drawn at random: do the tests find them? (an hour, goes on where it stood; MUTANTS=options of run.py)"
	@echo "make bench    benchmarks (BENCH=trace|diagnose|stats|simulate|gpu|python|probes|cuda|overhead for one module)"
	@echo "make cuda-cost  what the CUDA library costs a training, switched on and off in one process (10 minutes; CUDA_COST=options of cuda_cost.py)"
	@echo "make eval     planted faults and clean runs, scored (long: about 45 minutes)"
	@echo "make diff-eval  kansoku diff on planted changes and on equal runs (20 minutes; DIFF=model|wall|ddp for a part)"
	@echo "make probe-eval   calls of 20,000 generated functions, counted by probes and by themselves (PROBES=options of evaluate.py)"
	@echo "make simulate-eval  arrival models against recorded queues (PHILLY=jobs.csv.gz; about 10 minutes)"
	@echo "make simulate-experiments  the simulator's experiments E1 to E9, with reports in build/experiments (some minutes)"
	@echo "make deps-torch  install PyTorch 2.15, Lightning, Ray Train, Transformers and DeepSpeed (PyPI, 5 GB) into ~/.cache/kansoku/torch (TORCH_ENVIRONMENTS=names of tests/torch/environment.py list: other versions)"
	@echo "make torch-eval  jobs of these, recorded and diagnosed: rank, function, cost (hours, goes on where it stood; TORCH=options of run.py)"
	@echo "make faults   many kinds of faults in real jobs, scored (hours; FAULT=NAME for one, FAULTS=... for options of run.py)"
	@echo "make false-confidence  healthy, foreign and broken off programs: is anything said that is not true? (half an hour; FALSE=options of run.py)"
	@echo "make equal-work  jobs whose ranks do equal work, or work that moves: is anybody blamed? (two hours, goes on where it stood; EQUAL=options of run.py)"
	@echo "make calibration  which findings of finished evaluations are true, by their confidence"
	@echo "make watch-eval PART=...  always-on watching under planted faults, in parts of half an hour (PART=list, NAME, all, table)"
	@echo "make watch-soak  two hours of watching while processes come and go, in the background (SOAK=start|status|report|stop)"
	@echo "make watch-cost  what watching costs a job (COST=steps|rate|report; up to 20 minutes)"
	@echo "make kernel-check  the unit tests of probing under Debian's kernel, in qemu (KERNEL=package for another)"
	@echo "make fresh-root  a newcomer's first hour in a new Debian root: make demo, README's commands, each hint (half an hour; FRESH=--test: make test, too)"
	@echo "make check    every check (tools/check --fast is the quick form)"
	@echo "make install  into PREFIX [$(PREFIX)], under DESTDIR"
	@echo "make deps-store   install DuckDB (npm), which writes Parquet files and keeps history"
	@echo "make asan | tsan | fuzz | nobpf   other builds, tested"

deps-build deps-demo deps-test deps-bench deps-check deps-fuzz deps-faults deps-watch deps-kernels deps-fresh-root deps-softgpu deps-store deps-otlp deps-llama: deps-%:
	@tools/install_deps.sh $*

# $(call configure,PRESET): in silence, unless it fails.
configure = @cmake --preset $(1) > build.log 2>&1 || { cat build.log; rm -f build.log; exit 1; }; rm -f build.log

# timed(PART,COMMAND): prints how long the part took. ctest prints its own time, as the last lines.
timed = @begin=$$(date +%s); $(2) && echo "part: $(1) took $$(($$(date +%s) - begin)) s"

build: deps-build
	$(call configure,release)
	cmake --build --preset release -j $(JOBS) --target kansoku
	@ln -sfn release/kansoku $(KANSOKU)

softgpu: deps-softgpu build
	$(call configure,release)
	cmake --build --preset release -j $(JOBS) --target softgpu

# llama.cpp's own tree, its CUDA backend compiled by clang, in a cache outside of the build folder; `make test` and demo-cuda build a part.
llama: deps-llama softgpu
	tests/llama/run.py build whole-80

cuda-eval: llama
	tests/llama/run.py evaluate

STUCK ?= all
cuda-stuck: softgpu
	tests/cuda/stuck/evaluate.py $(STUCK)

MINUTES ?= 10
cuda-clock: deps-test
	cmake --preset release
	cmake --build --preset release -j $(JOBS) --target kansoku softgpu kansoku_cuda cuda_planned
	tests/cuda/clock_eval.py build/release/kansoku build/release/tests/cuda_planned build/release/tests/cuda_clock $(MINUTES)
	tests/cuda/causes_by_plan.py build/release/kansoku build/release/tests/cuda_planned build/release/tests/cuda_clock 30

CAUSES ?= all
cuda-causes: deps-demo softgpu build
	tests/cuda/causes/evaluate.py $(CAUSES)

demo-cuda: deps-llama softgpu
	tests/llama/run.py demo

# On a machine with a GPU, nvcc and a copy of the sources alone: tests/gpu_check/run.sh gpu
gpu-check: softgpu
	tests/gpu_check/run.sh $(GPU_CHECK)

demo: deps-demo build
	$(KANSOKU) demo

# The part of `make test` that comes before its checks and tests.
build-tests: deps-test
	@tools/install_deps.sh store || echo "without DuckDB: tests that need it are skipped"
	@tools/install_deps.sh otlp || echo "without OpenTelemetry's decoder: its test is skipped"
	cmake --preset release
	$(call timed,build,cmake --build --preset release -j $(JOBS))

test: build-tests
	@ln -sfn release/kansoku $(KANSOKU)
	$(call timed,check,tools/check --fast)
	$(call timed,llama.cpp's CUDA backend,KANSOKU=$(CURDIR)/build/release/kansoku tests/llama/run.py build || { test $$? = 77 && echo "without llama.cpp: its tests are skipped"; })
	@tools/once.py --list build/release
	$(if $(FLAKY),KANSOKU_FLAKY_MINUTES=3) ctest --test-dir build/release -j $$(($(JOBS) + 1)) --output-on-failure --no-tests=error

# One more than processors: some tests mostly wait for the kernel.
test-fast: deps-test
	$(call configure,release)
	cmake --build --preset release -j $(JOBS) --target fast
	@ln -sfn release/kansoku $(KANSOKU)
	ctest --test-dir build/release -j $$(($(JOBS) + 1)) -L '^fast$$' --output-on-failure --no-tests=error

mutants: deps-test
	$(call configure,release)
	tests/mutants/run.py $(MUTANTS)

test-all: $(if $(filter list table,$(PART)),,deps-check deps-fuzz)
	tests/all/run.py $(or $(PART),next)

bench: deps-bench
	cmake --preset release
	cmake --build --preset release -j $(JOBS)
	bench/run.sh $(BENCH)

CUDA_COST ?= long
cuda-cost: deps-bench
	cmake --preset release
	cmake --build --preset release -j $(JOBS)
	bench/cuda_cost.py build/release $(CUDA_COST)

eval: deps-demo build
	tests/eval/evaluate.py hits
	tests/eval/evaluate.py kinds
	tests/eval/evaluate.py clean
	tests/eval/evaluate.py plain

DIFF ?= all
diff-eval: deps-demo softgpu
	tests/diff/evaluate.py $(DIFF)

probe-eval: deps-test build
	tests/capture/bodies/evaluate.py $(PROBES)

simulate-eval: deps-test
	$(call configure,release)
	cmake --build --preset release -j $(JOBS) --target bursts_eval
	set -o pipefail; gzip -dc $(PHILLY) | build/release/tests/bursts_eval -
	set -o pipefail; gzip -dc $(PHILLY) | build/release/tests/bursts_eval - --fits

simulate-experiments: build
	tests/simulate/experiments.py $(KANSOKU) build/experiments

faults: deps-faults build
	tests/faults/run.py $(addprefix --fault ,$(FAULT)) $(FAULTS)

deps-torch:
	@tools/install_deps.sh torch
	tests/torch/environment.py install $(TORCH_ENVIRONMENTS)

torch-eval: deps-torch build
	tests/torch/run.py $(TORCH)

false-confidence: deps-faults build
	tests/false_confidence/run.py $(FALSE)

calibration:
	tests/calibration/run.py

equal-work: deps-faults build
	tests/equal_work/run.py $(EQUAL)

# What exists is asked for without building.
SOAK ?= start
COST ?= steps
watch-eval: $(if $(filter list table,$(or $(PART),list)),,deps-watch softgpu)
	tests/watch/run.py $(or $(PART),list) $(WATCH)

watch-soak: $(if $(filter start,$(SOAK)),deps-watch softgpu)
	tests/watch/soak.py $(SOAK) $(WATCH)

watch-cost: $(if $(filter report,$(COST)),,deps-watch softgpu)
	tests/watch/cost.py $(COST) $(WATCH)

kernel-check: deps-kernels
	$(call configure,release)
	cmake --build --preset release -j $(JOBS) --target kansoku capture_bpf_test
	tests/kernels/run.py $(if $(KERNEL),--package $(KERNEL))

fresh-root: deps-fresh-root
	tests/fresh_root/run.py $(FRESH)

check: deps-check
	cmake --preset release
	cmake --preset files
	tools/check

install: softgpu
	cmake --install build/release --prefix $(PREFIX)

# Programs that load an instrumented library begin without the runtime of the sanitizer. That of the thread sanitizer cannot come later: only our
# own programs are tested with it, and without the scripts that run longer under it than their limits.
asan: export ASAN_OPTIONS = verify_asan_link_order=0
asan: TESTS = -LE cases
tsan: export TSAN_OPTIONS = suppressions=$(CURDIR)/tests/tsan.supp:die_after_fork=0
tsan: TESTS = -R '[.]unit$$|^(fuzz|export)[.]'
asan tsan: deps-test
	cmake --preset $@
	cmake --build --preset $@ -j $(JOBS)
	ctest --test-dir build/$@ -j $(JOBS) --output-on-failure --no-tests=error $(TESTS)

nobpf: deps-test
	cmake --preset nogpu-nobpf
	cmake --build --preset nogpu-nobpf -j $(JOBS)
	ctest --test-dir build/nogpu-nobpf -j $(JOBS) --output-on-failure --no-tests=error -LE cases

fuzz: deps-fuzz
	cmake --preset fuzz
	cmake --build --preset fuzz -j $(JOBS)
	tools/fuzz_once.sh build/fuzz $(FUZZ_SECONDS)

clean:
	rm -rf build
