# SPDX-License-Identifier: Apache-2.0
"""Pairs of profiles: more work, slower work, both, other names, and what only looks like a change."""
from dataclasses import replace

from files.kineto import profiles, save, without_args
from files.timeline import CUDA, HIP, Model, elementwise, tiny
from scenario import FINE, FOUND, May, Scenario

GROUP, ASK, SURE, ANY = "differences", ("diff", "--json", "{folder}/before.json", "{folder}/after.json"), frozenset({FOUND}), frozenset({0, FOUND})
FOLDERS = ("diff", "--json", "{folder}/before", "{folder}/after")
# A row may be told with any word but those of speed: more calls, larger, new, removed, ...
NO_SPEED = May(r"(?!.*(slower|faster)).*")
SLOWER = r".*slower.*"
WAITS = May("slower|faster", evidence="Synchronize|aten::item")  # they take as long as the device has work


def pair(before, after, seeds=(11, 12), world=1):
    """Gives what writes both sides; each is what profiles() takes."""
    def make(folder):
        for name, seed, options in (("before", seeds[0], before), ("after", seeds[1], after)):
            profiles(world, seed, name=name + (".json" if world == 1 else "/rank-{}.json"), **{"steps": 16, **options})(folder)
    return make


def scenario(name, why, before, after, statuses=SURE, findings=(NO_SPEED,), **more):
    return Scenario("diff_" + name, GROUP, why, make=pair(before, after), ask=ASK, statuses=statuses,
                    findings=(*findings, WAITS) if findings else (), **more)


def renamed(**names):
    return {"of": {"vendor": replace(CUDA, kernels=CUDA.kernels | names)}}


def more_work():
    half_more = "Half as many sequences again: every kernel but the optimizer has half as much work again."
    yield scenario("batch_4_to_6", half_more, {}, {"model": Model(batch=6)}, says=(r"1\.5",))
    yield scenario("batch_8_to_2", "A quarter of the sequences: every kernel has less work.", {"model": Model(batch=8)}, {"model": Model(batch=2)},
                   says=(r"0\.25|/ ?4",))
    yield scenario("batch_on_fixed_grids", half_more + " The kernels stay on 132 blocks, so only the operators' shapes tell.",
                   {"model": Model(fixed_grid=True)},
                   {"model": Model(fixed_grid=True, batch=6)}, statuses=ANY)
    yield scenario("sequence_2048_to_3072", "Longer sequences: attention grows with their square.", {}, {"model": Model(sequence=3072)},
                   findings=(NO_SPEED, May(SLOWER, evidence="flash_(fwd|bwd)")), says=(r"1\.5",))
    yield scenario("width_4096_to_5120", "A wider model: all have more work, products by the square.", {}, {"model": Model(width=5120, heads=40)},
                   findings=(NO_SPEED, May(SLOWER, evidence="multi_tensor_apply")),)
    yield scenario("layers_2_to_3", "A layer more: more calls that take as long as before.", {}, {"model": Model(layers=3)})
    yield scenario("layers_4_to_3_on_4_ranks", "A layer fewer: fewer calls that take as long as before.", {"model": Model(layers=4)},
                   {"model": Model(layers=3)})
    yield scenario("heads_32_to_64", "Twice as many heads of half the size: attention has another grid and the same work.", {},
                   {"model": Model(heads=64)}, statuses=ANY)

    def of_a_list(chunks):
        def run(ranks):
            for rank in ranks:
                for step in range(16):
                    begin = rank.now
                    for _ in range(6):
                        rank.launch("aten::mm", "product", *rank.model.product(8192, 4096, 4096), dims=([8192, 4096], [4096, 4096]))
                    rank.launch("fleet::fused_update", "fused_update_kernel(UpdateArguments)", chunks * 0.4, (chunks, 1, 1), ([],))
                    rank.read_loss()
                    rank.end_step(step, begin)
        return {"run": run}
    yield scenario("list_of_tensors", "An operator of a list of tensors, which profilers record as []: its grid and its time grow by half.",
                   of_a_list(2048), of_a_list(3072))
    single = {name: text.replace("c10::BFloat16", "float").replace("cutlass::bfloat16_t", "float").replace("bf16bf16_bf16f32", "tf32tf32_f32f32")
              for name, text in CUDA.kernels.items()}
    yield scenario("bfloat16_to_float32", "Other types, so other kernels and twice the bytes: that each takes longer may be said.", {},
                   {"model": Model(element_bytes=4), **renamed(**single)}, findings=(May(".*"),))


def slower():
    attention = May(SLOWER, evidence="flash_bwd")
    yield scenario("one_kernel_slower", "The backward of attention takes 1.25 times as long, at equal shapes.", {},
                   {"model": Model(factors={"attention_backward": 1.25})},
                   findings=(attention,), says=("flash_bwd",))
    yield scenario("one_kernel_faster", "Attention takes 0.6 of its time.", {}, {"model": Model(factors={"attention": 0.6})},
                   findings=(May(r".*faster.*", evidence="flash_fwd"),), says=("flash_fwd",))
    yield scenario("two_kernels_slower", "Two kernels are slower, by 1.5 and 1.3.", {}, {"model": Model(factors={"norm": 1.5, "attention": 1.3})},
                   findings=(May(SLOWER, evidence="flash_fwd"), May(SLOWER, evidence="vectorized_layer_norm")),
                   says=("flash_fwd", "vectorized_layer_norm"))
    yield scenario("one_slower_one_faster", "One takes 1.4 times as long, another 0.7: the step hardly changes.", {},
                   {"model": Model(factors={"attention": 1.4, "attention_backward": 0.8})},
                   findings=(May(SLOWER, evidence="flash_fwd"), May(".*faster.*", evidence="flash_bwd")), says=("flash_fwd", "flash_bwd"))
    yield scenario("batch_and_slower", "Half as many sequences again, and attention is 1.35 times as slow at equal work.", {},
                   {"model": Model(batch=6, factors={"attention_backward": 1.35})}, findings=(May(SLOWER, evidence="flash_bwd"), NO_SPEED),
                   says=(r'"slower"',))
    yield scenario("layers_and_slower", "A layer more, and each attention takes 1.4 times as long.", {},
                   {"model": Model(layers=3, factors={"attention": 1.4})},
                   findings=(May(SLOWER, evidence="flash_fwd"), NO_SPEED), says=("slower",))
    yield scenario("another_kernel_slower", "Another kernel stands where the norm was, and takes 3 times as long.", {},
                   {"model": Model(factors={"norm": 3.0}), **renamed(norm="triton_per_fused_native_layer_norm_2")},
                   findings=(May(".*", evidence="layer_norm"),), says=("triton_per_fused",))
    yield scenario("host_function_slower", "Tokenizing takes 7 ms where it took 3.", {"host": {0: ("tokenize", 3000.0)}},
                   {"host": {0: ("tokenize", 7000.0)}},
                   findings=(May(SLOWER, evidence="tokenize"),), never=("nothing that was recorded tells why",))
    yield scenario("slower_clock", "The device runs at 5/6 of its clock: everything on it takes 1.2 times as long.", {}, {"slow": {0: 1.2}},
                   statuses=ANY,
                   findings=(May(SLOWER),), says=(r"1\.[12]\d",))
    yield Scenario("diff_one_rank_of_4_slower", GROUP, "On rank 2 alone attention takes 1.5 times as long; others wait longer in reductions.",
                   ask=FOLDERS,
                   make=pair({}, {"slow": {(2, "attention_backward"): 1.5}}, world=4), statuses=frozenset({FOUND, 2}),
                   findings=(May(SLOWER, (2,), evidence="flash_bwd"), May(SLOWER, (), evidence="flash_bwd"),
                             May(SLOWER, evidence="AllReduce|all_reduce")))


def no_change():
    yield scenario("equal", "The same job twice.", {}, {}, statuses=FINE, findings=())
    yield Scenario("diff_equal_and_noisy", GROUP, "The same job twice, each kernel 5 % longer or shorter by chance.", ask=ASK, statuses=FINE,
                   make=pair({"of": {"noise": 0.05}}, {"of": {"noise": 0.05}}, (13, 14)))
    yield scenario("more_steps", "The same job, with more steps in the second profile and from another one on.", {"steps": 10},
                   {"steps": 30, "first_step": 400}, statuses=FINE,
                   findings=())
    yield scenario("steps_not_named", "The same job; the second profile has no marks of steps.", {}, {"has_steps": False},
                   statuses=frozenset({0, 11}), findings=())
    build = renamed(activation=elementwise("at::native::(anonymous namespace)::silu_kernel(at::TensorIteratorBase&)::{lambda()#2}"),
                    norm=CUDA.kernels["norm"].replace("float, true", "float, true, 8"))
    yield scenario("another_build", "Two kernels have other template arguments and the same times.", {}, build, statuses=ANY)
    yield scenario("loss_read_rarely",
                   "The host waits for the device in every fourth step only, and runs ahead: it reads less often, no kernel is slower.",
                   {}, {"wait_every": 4}, statuses=ANY, never=(r'(?s)"step_ms": \{\s*"before": 1\d\.\d+,\s*"after": \d\.',),
                   findings=(May(NO_SPEED.kind, evidence="Synchronize|aten::item|DtoH|MemcpyAsync"),))
    yield Scenario("diff_one_stall", GROUP, "One step of 20 has a pause of 300 ms: no kernel is slower, and once is no change.", ask=ASK,
                   statuses=FINE,
                   make=pair({"steps": 20}, {"steps": 20, "once": ((11,), "", 300_000.0, None)}))

    def graphs(ranks):
        for rank in ranks:
            for step in range(40):
                begin = rank.now
                rank.graph(("activation",) * 100, 3.0)
                rank.wait()
                rank.end_step(step, begin)
    yield scenario("eager_to_graph", "The kernels of a step were launched one by one and are one graph now: launches are gone, and gaps.",
                   {"run": lambda ranks: tiny(ranks, 40, 100)}, {"run": graphs}, findings=(NO_SPEED,))
    yield scenario("slower_launches", "The device sets the pace; each launch call takes 4 times as long on the host.", {},
                   {"prepare": lambda rank: setattr(rank, "call_us", 24.0)},
                   findings=(May(SLOWER, evidence="cudaLaunchKernel|aten::|evaluate_function|Optimizer.step"),),
                   statuses=ANY)


def surroundings():
    """The same work on other ranks, devices, in other forms of file."""
    yield Scenario("diff_two_ranks_to_four", GROUP, "The same work a rank, on four ranks where there were two: reductions may take longer.",
                   ask=FOLDERS, statuses=ANY,
                   make=lambda folder: [profiles(2, 31, name="before/rank-{}.json")(folder),
                                        profiles(4, 32, name="after/rank-{}.json", reduce_us=750.0)(folder)],
                   findings=(May(".*", evidence="AllReduce|all_reduce|record_param_comms"), NO_SPEED, WAITS))
    yield scenario("another_vendor",
                   "The same model on another vendor's device: other kernels and calls, and that they are others is all that is sure.",
                   {}, {"of": {"vendor": HIP}, "slow": {0: 1.5}}, findings=(May(".*"),), says=("new", "removed"))
    yield Scenario("diff_plain_and_gzip", GROUP, "The same job, plain and as gzip.", ask=(*ASK[:3], "{folder}/after.json.gz"), statuses=FINE,
                   make=lambda folder: [profiles(1, 33, name="before.json", steps=16)(folder),
                                        profiles(1, 34, name="after.json.gz", steps=16)(folder)])
    yield scenario("three_steps", "Three steps a side: too few.", {"steps": 3}, {"steps": 3, "model": Model(factors={"attention": 1.5})},
                   statuses=frozenset({11}), findings=())
    yield Scenario("diff_not_a_profile", GROUP, "The second file is a text.", ask=ASK, statuses=frozenset({2}), says=("after.json",),
                   make=lambda folder: [profiles(1, 35, name="before.json")(folder), save(folder + "/after.json", "steps: 12\n")])
    yield scenario("unlinked", "Nothing links operations to calls on either side; attention takes 1.5 times as long.",
                   {"edit": without_args("correlation")},
                   {"edit": without_args("correlation"), "model": Model(factors={"attention_backward": 1.5})}, statuses=frozenset({FOUND, 11}),
                   findings=(May(SLOWER, evidence="flash_bwd"),))

    def two_sizes(small, large):
        """One kernel that does products of two sizes, so many of each in a step."""
        def run(ranks):
            for step in range(16):
                begin = ranks[0].now
                for width in [4096] * small + [12288] * large:
                    ranks[0].launch("aten::mm", "product", *ranks[0].model.product(8192, width, 4096), dims=([8192, 4096], [4096, width]))
                ranks[0].read_loss()
                ranks[0].end_step(step, begin)
        return {"run": run}
    yield scenario("more_of_the_small_size", "Three small products more a step, by the same kernel: its mean call is shorter, and no call is faster.",
                   two_sizes(6, 6),
                   two_sizes(9, 6), never=(r'"what": "[^"]*faster"',))
    yield scenario("small_to_large_size", "Three small products became large ones: more work by the same kernel, as the shapes say.", two_sizes(8, 4),
                   two_sizes(5, 7),
                   never=(r'(?s)"name": "sm90[^}]*"what": "slower"',))
    fixed = {"model": Model(fixed_grid=True), "edit": without_args("Input Dims", "Input type")}
    yield scenario("batch_unseen", "Twice the batch, on fixed grids and without shapes: one factor of nearly all kernels, whose cause is not seen.",
                   fixed,
                   {**fixed, "model": Model(fixed_grid=True, batch=8)}, statuses=ANY, findings=(May(".*"),), says=(r"1\.9|2\.0",))
    yield scenario("one_stream_more", "Equal work, with a copy in each step that was not there: that is new, and nothing else.", {},
                   {"once": (tuple(range(16)), "", 1.0, None), "host": {0: ("log_metrics", 40.0)}}, statuses=ANY)


SCENARIOS = [*more_work(), *slower(), *no_change(), *surroundings()]
