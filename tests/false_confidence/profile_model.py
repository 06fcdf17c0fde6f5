# SPDX-License-Identifier: Apache-2.0
"""A small model of training on devices, which profiles are written from: ranks that compute, meet in an all-reduce and wait for their device."""
import collections
import gzip
import json
import os
import random
import sqlite3

Vendor = collections.namedtuple("Vendor", "runtime launch sync kernel gemm collective annotation")
CUDA = Vendor("cuda_runtime", "cudaLaunchKernel", "cudaStreamSynchronize", "kernel", "ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x4_tn",
              "ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "nccl:all_reduce")
DRIVER = CUDA._replace(runtime="cuda_driver", launch="cuLaunchKernelEx", gemm="triton_tem_fused_mm_3")
ROCM = CUDA._replace(launch="hipExtModuleLaunchKernel", sync="hipDeviceSynchronize", gemm="Cijk_Ailk_Bljk_HHS_BH_MT128x128x32_MI32x32x8x1")
XPU = CUDA._replace(runtime="xpu_runtime", launch="urEnqueueKernelLaunchWithArgsExp", sync="urQueueFinish", gemm="gemm_kernel",
                    collective="oneccl_allreduce_ring_fp16", annotation="xccl:all_reduce")
OWN = CUDA._replace(runtime="privateuse1_runtime", launch="acmeEnqueue", sync="acmeStreamWait", gemm="acme_mm_f16")
ELEMENTWISE = ("void at::native::vectorized_elementwise_kernel<4, at::native::{}Functor<float>, std::array<char*, 3ul> >"
               "(int, at::native::{}Functor<float>, std::array<char*, 3ul>)")
COMPUTE, COMMUNICATION = 7, 20


class Rank:
    """The host's clock, when each stream is free, and the events of a profile; times in microseconds."""

    def __init__(self, number=0, world=1, vendor=CUDA, device=None, pid=None, seed=1):
        self.number, self.world, self.vendor = number, world, vendor
        self.device = number % 8 if device is None else device
        self.pid = pid or 7000 + 31 * number
        self.random = random.Random(1000 * seed + number)
        self.now = 40_000_000.0 + 3 * number
        self.free, self.events, self.correlation = collections.defaultdict(float), [], 0

    def about(self, us):
        return max(0.2, us * (1 + 0.01 * self.random.gauss(0, 1)))

    def add(self, category, name, begin, us, thread=None, **args):
        self.events.append({"ph": "X", "cat": category, "name": name, "pid": self.pid, "tid": self.pid if thread is None else thread,
                            "ts": round(begin, 3), "dur": round(us, 3), "args": args})

    def host(self, category, name, us):
        us = self.about(us)
        self.add(category, name, self.now, us)
        self.now += us

    def pause(self, us):
        """The host does something that the profiler does not see."""
        self.now += self.about(us)

    def enqueue(self, call_us, stream, operator_us=0.0, operator="", dims=()):
        """A call that hands work to the device: its correlation number, and when the work may begin."""
        begin = self.now
        self.correlation += 1
        self.now += self.about(operator_us / 2)
        call = self.about(call_us)
        self.add(self.vendor.runtime, self.vendor.launch, self.now, call, correlation=self.correlation)
        self.now += call + self.about(operator_us / 2 + 0.5)
        if operator:
            self.add("cpu_op", operator, begin, self.now - begin, **({"Input Dims": dims} if dims else {}))
        return max(self.free[stream], self.now + 2)

    def run(self, name, begin, us, stream, **args):
        self.add(self.vendor.kernel, name, begin, us, stream, correlation=self.correlation, device=self.device, context=1, stream=stream, **args)
        self.events[-1]["pid"] = self.device
        self.free[stream] = begin + us

    def kernel(self, name, us, operator="aten::mm", blocks=256, dims=(), operator_us=10.0, call_us=5.0):
        begin = self.enqueue(call_us, COMPUTE, operator_us, operator, dims)
        self.run(name, begin, self.about(us), COMPUTE, grid=[blocks, 1, 1], block=[256, 1, 1])

    def wait(self):
        begin = self.now
        self.now = max(self.now + 4, max(self.free.values(), default=0.0)) + self.about(4)
        self.add(self.vendor.runtime, self.vendor.sync, begin, self.now - begin)


def all_reduce(ranks, us, elements):
    """Begins on a rank when its gradients are there, and ends on all of them together."""
    begins = []
    for rank in ranks:
        rank.free[COMMUNICATION] = max(rank.free[COMMUNICATION], rank.free[COMPUTE])
        before = rank.now
        begins.append(rank.enqueue(6, COMMUNICATION))
        rank.add("user_annotation", rank.vendor.annotation, before, rank.now - before)
    end = max(begins) + us
    for rank, begin in zip(ranks, begins):
        rank.run(rank.vendor.collective, begin, end - begin + rank.random.random(), COMMUNICATION, grid=[16, 1, 1], block=[512, 1, 1],
                 **{"Collective name": "allreduce", "In msg nelems": elements, "Out msg nelems": elements, "Group size": rank.world, "dtype": "Half"})


def step(ranks, number, layers=4, batch=8, width=2048, reduce_us=900.0, loader_us=200.0, of_rank=None, slower=None, gemm=None, host_us=0.0, host_name="",
         unseen_us=0.0, has_steps=True):
    """`of_rank`: {rank: {"loader_us" "host_us" "host_name" "kernels": factor}}; `slower`: {kernel: factor}; work grows with `batch` and `layers`."""
    begins = [rank.now for rank in ranks]
    work, slower, blocks = batch / 8 * (width / 2048), slower or {}, batch * 32
    for rank in ranks:
        own = {"loader_us": loader_us, "host_us": host_us, "host_name": host_name, "kernels": 1.0, **(of_rank or {}).get(rank.number, {})}
        rank.host("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", own["loader_us"])
        if own["host_us"]:
            rank.host("user_annotation", own["host_name"], own["host_us"])
        if unseen_us:
            rank.pause(unseen_us)
        for _ in range(layers):
            for name, operator, us in ((gemm or rank.vendor.gemm, "aten::mm", 900), ("attention", "aten::_flash_attention_forward", 500),
                                       ("GeluCUDA", "aten::gelu", 260), ("LayerNorm", "aten::native_layer_norm", 180), (gemm or rank.vendor.gemm, "aten::mm", 880)):
                shown = ELEMENTWISE.format(name, name) if name in ("GeluCUDA", "LayerNorm") else "flash_fwd_kernel" if name == "attention" else name
                rank.kernel(shown, us * work * own["kernels"] * slower.get(name, 1.0), operator, blocks, [[batch, width], [width, width]])
    if ranks[0].world > 1:
        all_reduce(ranks, reduce_us, width * width)
    for rank, begin in zip(ranks, begins):
        rank.wait()
        if has_steps:
            rank.add("user_annotation", f"ProfilerStep#{number}", begin, rank.now - begin)


def train(count=1, steps=14, vendor=CUDA, seed=1, **options):
    ranks = [Rank(number, count, vendor, seed=seed) for number in range(count)]
    for number in range(steps):
        step(ranks, number, **options)
    return ranks


def profile(rank, **more):
    out = {"schemaVersion": 1, "deviceProperties": [{"id": rank.device, "name": "a device", "numSms": 100}], "traceEvents": rank.events}
    if rank.world > 1:
        out["distributedInfo"] = {"backend": "nccl", "rank": rank.number, "world_size": rank.world}
    return {**out, **more}


def write(folder, name, value):
    """`value`: text, bytes, or anything as JSON; compressed by its name."""
    data = value if isinstance(value, bytes) else (value if isinstance(value, str) else json.dumps(value)).encode()
    with open(os.path.join(folder, name), "wb") as file:
        file.write(gzip.compress(data, 1, mtime=0) if name.endswith(".gz") else data)


def write_all(folder, ranks, name="rank-{}.pt.trace.json", **more):
    for rank in ranks:
        write(folder, name.format(rank.number), profile(rank, **more))


def write_nsight(path, ranks):
    """The tables that an export of Nsight Systems has of kernels and calls; each process numbers its devices by itself."""
    texts, calls, kernels = {}, [], []
    for rank in ranks:
        process = rank.pid << 24
        for event in rank.events:
            begin, end = round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000)
            text = texts.setdefault(event["name"], len(texts) + 1)
            if event["cat"] == rank.vendor.runtime:
                calls.append((begin, end, process | rank.pid, event["args"].get("correlation", 0), text))
            elif event["cat"] == rank.vendor.kernel:
                kernels.append((begin, end, rank.device, event["tid"], event["args"]["correlation"], process, text, text, *event["args"]["grid"]))
    with sqlite3.connect(path) as base:
        base.executescript("""create table StringIds(id integer primary key, value text);
            create table CUPTI_ACTIVITY_KIND_RUNTIME(start, end, globalTid, correlationId, nameId, returnValue default 0);
            create table CUPTI_ACTIVITY_KIND_KERNEL(start, end, deviceId, streamId, correlationId, globalPid, demangledName, shortName, gridX, gridY, gridZ,
                blockX default 256, blockY default 1, blockZ default 1, contextId default 1);""")
        base.executemany("insert into StringIds(value, id) values(?, ?)", texts.items())
        base.executemany("insert into CUPTI_ACTIVITY_KIND_RUNTIME(start, end, globalTid, correlationId, nameId) values(?, ?, ?, ?, ?)", calls)
        base.executemany("""insert into CUPTI_ACTIVITY_KIND_KERNEL(start, end, deviceId, streamId, correlationId, globalPid, demangledName, shortName, gridX,
            gridY, gridZ) values(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""", kernels)
    base.close()
