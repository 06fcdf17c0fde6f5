# SPDX-License-Identifier: Apache-2.0
"""A model of a training or inference job on devices: who does what when, as a profiler would see it. Times are in microseconds.

The device's times follow from the work (products, attention, bytes), the host's from its speed, the waits from both. Same seed, same job.
"""
import random
from collections import namedtuple
from dataclasses import dataclass, field

# `kind`: call, kernel, copy, operator or range; `lane`: the thread, of kernels and copies the stream; `more`: what the writers need besides.
Event = namedtuple("Event", "kind name begin us lane more")
COMPUTE, NETWORK = 7, 20  # streams
FLOP_PER_US, ATTENTION_FLOP_PER_US, BYTES_PER_US = 5e8, 3e8, 2.5e6
WORKERS, NO_WORKERS = (f"enumerate(DataLoader)#_{loader}DataLoaderIter.__next__" for loader in ("MultiProcessing", "SingleProcess"))


@dataclass(frozen=True)
class Vendor:
    """How a profiler calls things on this vendor's devices; `kernels`: by what they do."""
    device: str
    launch: str
    copy: str
    wait: str
    graph: str
    kernels: dict
    runtime: str = "cuda_runtime"
    kernel: str = "kernel"
    memcpy: str = "gpu_memcpy"
    library: str = "nccl"


def elementwise(functor):
    return f"void at::native::vectorized_elementwise_kernel<4, {functor}, std::array<char*, 2ul> >(int, {functor}, std::array<char*, 2ul>)"


CUDA = Vendor("NVIDIA H100 80GB HBM3", "cudaLaunchKernel", "cudaMemcpyAsync", "cudaStreamSynchronize", "cudaGraphLaunch", {
    "product": "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
    "attention": "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass::bfloat16_t> >"
                 "(flash::Flash_fwd_params)",
    "attention_backward": "void flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128, 64, 128, 8, cutlass::bfloat16_t> >"
                          "(flash::Flash_bwd_params)",
    "norm": "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float, true>(int, float, c10::BFloat16 const*)",
    "norm_backward": "void at::native::(anonymous namespace)::layer_norm_grad_input_kernel_vectorized<c10::BFloat16, float>(c10::BFloat16 const*)",
    "activation": elementwise("at::native::silu_kernel(at::TensorIteratorBase&)::{lambda()#1}"),
    "activation_backward": elementwise("at::native::silu_backward_kernel(at::TensorIteratorBase&)::{lambda()#1}"),
    "optimizer": "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::TensorListMetadata<3>, "
                 "at::native::(anonymous namespace)::FusedSgdMathFunctor<float, 3> >(at::native::(anonymous namespace)::TensorListMetadata<3>)",
    "all_reduce": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "all_to_all": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
})
HIP = Vendor("AMD Instinct MI250X", "hipLaunchKernel", "hipMemcpyAsync", "hipStreamSynchronize", "hipGraphLaunch", {
    **CUDA.kernels, "product": "Cijk_Ailk_Bljk_BBS_BH_MT128x256x32_MI32x32x8x1_SN_1LDSB0_APM1_tn.kd",
    "attention": "_ZN2ck16kernel_gemm_xdlopsE_fwd.kd",
    "attention_backward": "_ZN2ck16kernel_gemm_xdlopsE_bwd.kd", "all_reduce": "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)"})
XPU = Vendor("Intel(R) Data Center GPU Max 1100", "urEnqueueKernelLaunch", "urEnqueueUSMMemcpy", "urQueueFinish", "urCommandBufferEnqueueExp", {
    **CUDA.kernels, "product": "gemm_kernel_tn", "attention": "xe_fmha_fwd", "attention_backward": "xe_fmha_bwd",
    "norm": "at::native::xpu::LayerNormForwardKernelFunctor<c10::BFloat16>", "optimizer": "at::native::xpu::FusedSgdMathFunctor<float>",
    "all_reduce": "oneccl_allreduce_topo_bf16"}, runtime="xpu_runtime", library="xccl")


@dataclass(frozen=True)
class Model:
    """Sizes of a transformer. `factors`: of a kernel's time; `fixed_grid`: kernels that stay on the device's 132 multiprocessors."""
    layers: int = 2
    batch: int = 4
    sequence: int = 2048
    width: int = 4096
    heads: int = 32
    element_bytes: int = 2
    factors: dict = field(default_factory=dict)
    fixed_grid: bool = False

    @property
    def tokens(self):
        return self.batch * self.sequence

    def product(self, m, n, k):
        """Time and grid."""
        return 2.0 * m * n * k / FLOP_PER_US * self.element_bytes / 2, (132, 1, 1) if self.fixed_grid else (-(-m // 128), -(-n // 128), 1)

    def attention(self):
        flop = 2.0 * self.batch * self.sequence ** 2 * self.width
        grid = (132, 1, 1) if self.fixed_grid else (-(-self.sequence // 128), self.batch, self.heads)
        return flop / ATTENTION_FLOP_PER_US * self.element_bytes / 2, grid

    def rows(self):
        """A kernel that reads and writes all activations, a block a token."""
        return 2.0 * self.tokens * self.width * self.element_bytes / BYTES_PER_US, (132 if self.fixed_grid else self.tokens, 1, 1)

    def elements(self):
        """The same, a block 2,048 elements."""
        return self.rows()[0], (132 if self.fixed_grid else self.tokens * self.width // 2048, 1, 1)

    def updates(self):
        """Of the optimizer: chunks of 65,536 weights, 320 of them a launch."""
        chunks = self.layers * 4 * self.width ** 2 // 65536
        for first in range(0, chunks, 320):
            blocks = min(320, chunks - first)
            yield blocks * 65536 * 12 / BYTES_PER_US, (blocks, 1, 1)


@dataclass(frozen=True)
class Job:
    """What the ranks do in each step. `slow`: factors of the time of a rank's kernels, by rank or (rank, kernel); `loader_of`, `host`: of single
    ranks, `host` with the name of the range ("": none is seen); `once`: (steps, name, us, ranks) of something rare; `wait_every`: the
    loss is read in each so-manieth step; `reduce_us`: of one bucket."""
    steps: int = 12
    first_step: int = 2
    loader_us: float = 250.0
    loader: str = WORKERS
    loader_of: dict = field(default_factory=dict)
    host: dict = field(default_factory=dict)
    slow: dict = field(default_factory=dict)
    once: tuple = ()
    reduce_us: float = 600.0
    wait_every: int = 1
    exchange_us: float = 0.0
    has_steps: bool = True


class Rank:
    """One process with one device. `now`: its host's time; `free`: when each stream has nothing to do; `call_us`, `operator_us`: the host's speed."""

    def __init__(self, rank=0, world=1, vendor=CUDA, seed=1, pid=None, device=None, noise=0.01):
        self.rank, self.world, self.vendor, self.noise = rank, world, vendor, noise
        self.pid, self.device = pid or 2300 + 41 * rank, rank % 8 if device is None else device
        self.thread, self.autograd = self.pid, self.pid + 88
        self.chance = random.Random(seed * 1009 + rank)
        self.begin = self.now = 7_340_000.0 + 25.0 * self.chance.random()
        self.free, self.events, self.correlation, self.external = {}, [], 400, 10
        self.call_us, self.operator_us, self.model, self.job = 6.0, 7.0, Model(), Job()

    def about(self, us):
        return max(0.4, us * (1.0 + self.chance.gauss(0.0, self.noise)))

    def add(self, kind, name, begin, us, lane, **more):
        self.events.append(Event(kind, name, begin, us, lane, more))

    def call(self, name, us, thread=None, correlation=True):
        """A call of the runtime that begins now; host time is the caller's to move."""
        self.correlation += correlation
        self.add("call", name, self.now, us, thread or self.thread, correlation=self.correlation, external=self.external)

    def launch(self, operator, key, us, grid=(1024, 1, 1), dims=(), backward=False, after=0.0, suffix=""):
        """An operator that launches one kernel."""
        thread, begin = self.autograd if backward else self.thread, self.now
        self.external += 1
        self.now += self.about(self.operator_us)
        call_us = self.about(self.call_us)
        self.call(self.vendor.launch, call_us, thread)
        start = max(self.free.get(COMPUTE, 0.0), self.now + 0.6 * call_us + 3.5, after)
        factor = self.job.slow.get(self.rank, 1.0) * self.job.slow.get((self.rank, key), 1.0) * self.model.factors.get(key, 1.0)
        us = self.about(us * factor)
        name = self.vendor.kernels.get(key, key)
        self.add("kernel", name.replace("_tn", suffix) if suffix else name, start, us, COMPUTE, correlation=self.correlation,
                 external=self.external, grid=grid)
        self.free[COMPUTE] = start + us
        self.now += call_us + self.about(2.0)
        self.add("operator", operator, begin, self.now - begin, thread, external=self.external, dims=dims)
        self.now += self.about(1.5)

    def copy(self, way, size, gb_per_s=22.0, call_us=8.0, blocking=False):
        """`way`: as CUPTI says it, "HtoD (Pinned -> Device)"."""
        self.external += 1
        start = max(self.free.get(COMPUTE, 0.0), self.now + 6.0)
        us = self.about(size / gb_per_s / 1e3 + 1.2)
        self.free[COMPUTE] = start + us
        held = max(call_us, start + us - self.now + 4.0) if blocking else call_us
        self.call(self.vendor.copy, held)
        self.add("copy", "Memcpy " + way, start, us, COMPUTE, correlation=self.correlation, external=self.external, bytes=size, gb_per_s=gb_per_s)
        self.now += held + 3.0

    def wait(self):
        """For the device, as reading a value does."""
        us = max(4.0, self.free.get(COMPUTE, 0.0) - self.now) + self.about(5.0)
        self.call(self.vendor.wait, us)
        self.now += us

    def read_loss(self):
        begin = self.now
        self.external += 1
        self.copy("DtoH (Device -> Pinned)", 4, call_us=6.0)
        self.wait()
        self.add("operator", "aten::item", begin, self.now - begin, self.thread, external=self.external, dims=((),))
        self.now += 20.0

    def busy(self, name, us):
        """Host work; without a name no event tells of it."""
        begin, self.now = self.now, self.now + self.about(us)
        if name:
            self.add("range", name, begin, self.now - begin, self.thread)

    def end_step(self, number, begin):
        self.add("range", f"ProfilerStep#{number}", begin, self.now - begin, self.thread)
        self.now += 1.0

    def graph(self, keys, us):
        """A launch of a graph with these kernels."""
        self.call(self.vendor.graph, 18.0)
        start = max(self.free.get(COMPUTE, 0.0), self.now + 14.0)
        for at, key in enumerate(keys):
            took = self.about(us * (0.5 + at % 3 * 0.5))
            self.add("kernel", self.vendor.kernels[key], start, took, COMPUTE, correlation=self.correlation, external=self.external,
                     grid=(264, 1, 1), node=700 + at)
            start += took + 0.9
        self.free[COMPUTE] = start
        self.now += 20.0


def collective(ranks, key, us, elements, backward=True):
    """All ranks join; it ends for all `us` after the last one's device is there."""
    ready = []
    for rank in ranks:
        thread = rank.autograd if backward else rank.thread
        rank.external += 1
        rank.add("operator", "record_param_comms", rank.now, 20.0, thread, external=rank.external, dims=(), elements=elements)
        rank.add("range", f"{rank.vendor.library}:{key}", rank.now + 2.0, 17.0, thread)
        rank.now += 8.0
        rank.call(rank.vendor.launch + ("ExC" if rank.vendor is CUDA else ""), 8.0, thread)
        rank.now += 14.0
        ready.append(max(rank.free.get(NETWORK, 0.0), rank.free.get(COMPUTE, 0.0), rank.now))
    end = max(ready) + ranks[0].about(us)
    for rank, start in zip(ranks, ready):
        own_end = end + 3.0 * rank.chance.random()
        rank.add("kernel", rank.vendor.kernels[key], start, own_end - start, NETWORK, correlation=rank.correlation, external=rank.external,
                 grid=(24, 1, 1), elements=elements, collective=key)
        rank.free[NETWORK] = own_end


def forward(rank, model):
    hidden, weight = [model.batch, model.sequence, model.width], [model.width, model.width]
    flat = [model.tokens, model.width]
    head = [model.batch, model.sequence, model.heads, model.width // model.heads]
    for _ in range(model.layers):
        rank.launch("aten::native_layer_norm", "norm", *model.rows(), dims=(hidden, [model.width], [model.width], []))
        rank.launch("aten::mm", "product", *model.product(model.tokens, 3 * model.width, model.width), dims=(flat, [model.width, 3 * model.width]))
        rank.launch("aten::_flash_attention_forward", "attention", *model.attention(), dims=(head,) * 3)
        rank.launch("aten::silu", "activation", *model.elements(), dims=(hidden,))
        rank.launch("aten::mm", "product", *model.product(model.tokens, model.width, model.width), dims=(flat, weight))


def backward(rank, model):
    """Of one layer; of each product the gradients of its input (nn) and of its weight (nt)."""
    flat, weight, wide = [model.tokens, model.width], [model.width] * 2, [model.tokens, 3 * model.width]
    begin = rank.now
    rank.launch("aten::mm", "product", *model.product(model.tokens, model.width, model.width), dims=(flat, weight), backward=True, suffix="_nn")
    rank.launch("aten::mm", "product", *model.product(model.width, model.width, model.tokens), dims=(flat[::-1], flat), backward=True, suffix="_nt")
    rank.launch("aten::silu_backward", "activation_backward", *model.elements(), dims=([model.batch, model.sequence, model.width],) * 2,
                backward=True)
    us, grid = model.attention()
    rank.launch("aten::_flash_attention_backward", "attention_backward", 2.0 * us, grid,
                ([model.batch, model.sequence, model.heads, model.width // model.heads],) * 4, True)
    rank.launch("aten::mm", "product", *model.product(model.tokens, model.width, 3 * model.width), dims=(wide, [3 * model.width, model.width]),
                backward=True, suffix="_nn")
    rank.launch("aten::mm", "product", *model.product(model.width, 3 * model.width, model.tokens), dims=(flat[::-1], wide), backward=True,
                suffix="_nt")
    rank.launch("aten::native_layer_norm_backward", "norm_backward", *model.rows(), dims=([model.batch, model.sequence, model.width],), backward=True)
    rank.add("operator", "autograd::engine::evaluate_function: MmBackward0", begin, rank.now - begin, rank.autograd, external=rank.external, dims=())


def input_of(rank, job, step):
    if job.once and step in job.once[0] and (job.once[3] is None or rank.rank in job.once[3]):
        rank.busy(job.once[1], job.once[2])
    rank.busy(job.loader, job.loader_of.get(rank.rank, job.loader_us))
    rank.now += 8.0
    if rank.rank in job.host:
        rank.busy(*job.host[rank.rank])
    rank.copy("HtoD (Pinned -> Device)", rank.model.tokens * 8)


def train(ranks, job=Job(), model=Model(), models=None):
    """Data parallel: a bucket a layer, reduced beside the next one's backward. `models`: of ranks that have other sizes."""
    for rank in ranks:
        rank.job, rank.model = job, (models or {}).get(rank.rank, model)
    for step in range(job.steps):
        begins = [rank.now for rank in ranks]
        for rank in ranks:
            input_of(rank, job, step)
            forward(rank, rank.model)
        if job.exchange_us:
            collective(ranks, "all_to_all", job.exchange_us, model.tokens * model.width, backward=False)
            for rank in ranks:
                rank.free[COMPUTE] = max(rank.free[COMPUTE], rank.free[NETWORK])
        for _ in range(model.layers):
            for rank in ranks:
                backward(rank, rank.model)
            if ranks[0].world > 1:
                collective(ranks, "all_reduce", job.reduce_us, 4 * model.width ** 2)
        for rank, begin in zip(ranks, begins):
            entered = rank.now
            for us, grid in rank.model.updates():
                rank.launch("aten::_fused_sgd_", "optimizer", us, grid, ([],), after=rank.free.get(NETWORK, 0.0))
            rank.add("range", "Optimizer.step#SGD.step", entered, rank.now - entered, rank.thread)
            if (step + 1) % job.wait_every == 0:
                rank.read_loss()
            if job.has_steps:
                rank.end_step(job.first_step + step, begin)
    return ranks


def tiny(ranks, steps=16, kernels=150, kernel_us=3.0, operator_us=45.0, call_us=14.0, first_step=2):
    """Eager steps of tiny kernels: the host is slower than the device."""
    for rank in ranks:
        rank.call_us, rank.operator_us = call_us, operator_us
    for step in range(steps):
        for rank in ranks:
            begin = rank.now
            for _ in range(kernels):
                rank.launch("aten::mul", "activation", kernel_us, (64, 1, 1), ([256, 256], []))
            rank.wait()
            rank.end_step(first_step + step, begin)
    return ranks
