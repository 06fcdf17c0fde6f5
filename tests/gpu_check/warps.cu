// SPDX-License-Identifier: Apache-2.0
// Lanes of a warp and threads of a block: exchanges, votes, matches, reductions, barriers; copies
// that go on beside the thread.
#include <algorithm>

#include "device.h"

namespace gpu_check {

namespace {

constexpr u32 kAll = 0xffffffff;

// One warp; `code` makes `d` and the predicate `is_valid` of `value`, `by` and `clamp`.
#define SHUFFLE(id, mode)                                          \
  __global__ void id(u32* out, const u32* in, u32 by, u32 clamp) { \
    const u32 lane = threadIdx.x;                                  \
    u32 d, valid;                                                  \
    asm volatile("{ .reg .pred p; shfl.sync." mode                 \
                 ".b32 %0|p, %2, %3, %4, 0xffffffff; "             \
                 "selp.u32 %1, 1, 0, p; }"                         \
                 : "=r"(d), "=r"(valid)                            \
                 : "r"(in[lane]), "r"(by), "r"(clamp));            \
    out[lane] = d;                                                 \
    out[lane + 32] = valid;                                        \
  }
SHUFFLE(shuffle_up, "up")
SHUFFLE(shuffle_down, "down")
SHUFFLE(shuffle_bfly, "bfly")
SHUFFLE(shuffle_idx, "idx")

enum class Mode { kUp, kDown, kBfly, kIdx };
// As the PTX ISA says it: segments of the lanes whose bits the mask in `clamp` keeps.
std::vector<u32> shuffled(Mode mode, const std::vector<u32>& in, u32 by, u32 clamp) {
  std::vector<u32> out(64);
  const u32 mask = clamp >> 8 & 31, last = clamp & 31, b = by & 31;
  for (u32 lane = 0; lane < 32; ++lane) {
    const u32 most = (lane & mask) | (last & ~mask), least = lane & mask;
    int from = 0;
    bool is_valid = false;
    switch (mode) {
      case Mode::kUp:
        from = int(lane) - int(b);
        is_valid = from >= int(most);
        break;
      case Mode::kDown:
        from = int(lane + b);
        is_valid = from <= int(most);
        break;
      case Mode::kBfly:
        from = int(lane ^ b);
        is_valid = from <= int(most);
        break;
      case Mode::kIdx:
        from = int(least | (b & ~mask));
        is_valid = from <= int(most);
        break;
    }
    out[lane] = in[is_valid ? std::size_t(from) : lane];
    out[lane + 32] = is_valid;
  }
  return out;
}

__global__ void votes(u32* out, u32 set) {
  const u32 lane = threadIdx.x;
  const bool mine = (set >> lane & 1) != 0;
  out[lane] = __ballot_sync(kAll, mine);
  out[lane + 32] = u32(__any_sync(kAll, mine) != 0) + 2 * u32(__all_sync(kAll, mine) != 0);
  u32 uniform;
  asm volatile(
      "{ .reg .pred p, q; setp.ne.u32 p, %1, 0; vote.sync.uni.pred q, p, 0xffffffff; "
      "selp.u32 %0, 1, 0, q; }"
      : "=r"(uniform)
      : "r"(u32(mine)));
  out[lane + 64] = uniform;
}
__global__ void partial_votes(u32* out) {
  const u32 lane = threadIdx.x;
  if (lane % 3 == 0) {
    out[lane] = __activemask();
    out[lane + 32] = __ballot_sync(0x49249249, lane > 10);
  } else {
    out[lane] = 0;
    out[lane + 32] = __ballot_sync(~0x49249249U, lane > 20);
  }
  __syncwarp();
}
__global__ void matches(u32* out, const u32* in) {
  const u32 lane = threadIdx.x;
  int is_same = 0;
  out[lane] = __match_any_sync(kAll, in[lane]);
  out[lane + 32] = __match_all_sync(kAll, in[lane], &is_same);
  out[lane + 64] = u32(is_same != 0);
}
__global__ void reductions(u32* out, const u32* in) {
  const u32 lane = threadIdx.x;
  out[lane] = __reduce_add_sync(kAll, in[lane]);
  out[lane + 32] = __reduce_min_sync(kAll, in[lane]);
  out[lane + 64] = u32(__reduce_max_sync(kAll, int(in[lane])));
  out[lane + 96] = __reduce_and_sync(kAll, in[lane]);
  out[lane + 128] = __reduce_or_sync(kAll, in[lane]);
  out[lane + 160] = __reduce_xor_sync(kAll, in[lane]);
}
__global__ void block_votes(int* out) {
  const int t = int(threadIdx.x);
  out[t] = __syncthreads_count(t % 5 == 0);
  out[t + 96] = int(__syncthreads_and(t < 1000) != 0) + 2 * int(__syncthreads_and(t < 90) != 0);
  out[t + 192] = int(__syncthreads_or(t == 77) != 0) + 2 * int(__syncthreads_or(t == 1000) != 0);
}
// The first two warps wait for each other at barrier 1, which the last ones never see.
__global__ void named_barriers(int* out) {
  __shared__ int values[128];
  const int t = int(threadIdx.x);
  if (t < 64) {
    values[t] = t * t;
    asm volatile("bar.sync 1, 64;" ::: "memory");
    out[t] = values[63 - t];
  } else {
    values[t] = t;
    asm volatile("bar.sync 2, 64;" ::: "memory");
    out[t] = values[191 - t];
  }
}
// Producers arrive without waiting, consumers wait for them.
__global__ void producers(int* out) {
  __shared__ int values[32];
  const int t = int(threadIdx.x);
  if (t < 32) {
    values[t] = 100 + t;
    __threadfence_block();
    asm volatile("bar.arrive 3, 64;" ::: "memory");
  } else {
    asm volatile("bar.sync 3, 64;" ::: "memory");
    out[t - 32] = values[63 - t];
  }
}
__global__ void copies_beside(u32* out, const u32* in) {
  __shared__ __align__(16) u32 values[128];
  const u32 t = threadIdx.x;
  for (u32 i = t; i < 128; i += 32)
    values[i] = kAll;
  __syncthreads();
  const u32 to = u32(__cvta_generic_to_shared(values + 4 * t));
  // 16 bytes from lanes below 16; of the others 4 bytes, and zeros for the rest.
  const u32 bytes = t < 16 ? 16 : 4;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(in + 4 * t),
               "r"(bytes)
               : "memory");
  asm volatile("cp.async.commit_group;" ::: "memory");
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads();
  for (u32 i = t; i < 128; i += 32)
    out[i] = values[i];
}
// Lanes that part come together where __syncwarp says so, and then see each other's stores.
__global__ void divergent(int* out) {
  __shared__ int values[32];
  const int lane = int(threadIdx.x);
  if (lane % 2 == 0) {
    for (int i = 0; i < lane; ++i)
      values[lane] = i;
    values[lane] = 2 * lane;
  } else {
    values[lane] = -lane;
  }
  __syncwarp();
  out[lane] = values[31 - lane];
}

std::vector<u32> random_lanes(u64 seed, u32 mask) {
  Random random(seed);
  std::vector<u32> values(32);
  for (u32& value : values)
    value = u32(random.bits()) & mask;
  return values;
}

}  // namespace

GPU_CHECK_BODY(warps, shuffles) {
  const std::vector<u32> in = random_lanes(1, kAll);
  Array<u32> device_in(c, in), out(c, 64);
  struct Form {
    const char* name;
    Mode mode;
    void (*kernel)(u32*, const u32*, u32, u32);
  };
  const Form forms[] = {{"up", Mode::kUp, shuffle_up},
                        {"down", Mode::kDown, shuffle_down},
                        {"bfly", Mode::kBfly, shuffle_bfly},
                        {"idx", Mode::kIdx, shuffle_idx}};
  for (const Form& form : forms)
    for (const u32 width : {32U, 16U, 8U, 4U})
      for (const u32 by : {0U, 1U, 3U, 7U, 16U, 31U}) {
        const u32 clamp = (32 - width) << 8 | (form.mode == Mode::kUp ? 0 : 31);
        form.kernel<<<1, 32>>>(out, device_in, by, clamp);
        c.all_equal(std::string(form.name) + " by " + std::to_string(by) + " in segments of " +
                        std::to_string(width),
                    out.host(), shuffled(form.mode, in, by, clamp));
      }
}

GPU_CHECK_BODY(warps, votes) {
  Array<u32> out(c, 96);
  for (const u32 set : {0U, kAll, 1U, 0x80000000U, 0x12345678U}) {
    votes<<<1, 32>>>(out, set);
    std::vector<u32> want(32, set);
    want.insert(want.end(), 32, (set != 0) + 2 * u32(set == kAll));
    want.insert(want.end(), 32, set == 0 || set == kAll);
    c.all_equal("votes of " + std::to_string(set), out.host(), want);
  }
}

GPU_CHECK_BODY(warps, votes_of_some_lanes) {
  Array<u32> out(c, 64);
  partial_votes<<<1, 32>>>(out);
  const std::vector<u32> got = out.host();
  std::vector<u32> ballots(got.begin() + 32, got.end()), want;
  bool is_inside = true;
  for (u32 lane = 0; lane < 32; ++lane) {
    const bool is_third = lane % 3 == 0;
    want.push_back(is_third ? 0x49249249U & ~0x7ffU : ~0x49249249U & ~0x1fffffU);
    // Which lanes are active together is the device's choice; never one of the other branch.
    if (is_third) is_inside &= (got[lane] & ~0x49249249U) == 0 && (got[lane] >> lane & 1) != 0;
  }
  c.all_equal("ballots", ballots, want);
  c.is_true("the active mask has the lane, and no lane of the other branch", is_inside);
}

GPU_CHECK_BODY(warps, matches) {
  Array<u32> out(c, 96);
  for (const u32 mask : {0U, 1U, 7U}) {
    const std::vector<u32> in = random_lanes(5, mask);
    Array<u32> device_in(c, in);
    matches<<<1, 32>>>(out, device_in);
    std::vector<u32> want;
    bool are_all_same = true;
    for (u32 lane = 0; lane < 32; ++lane) {
      u32 same = 0;
      for (u32 other = 0; other < 32; ++other)
        same |= u32(in[other] == in[lane]) << other;
      want.push_back(same);
      are_all_same &= same == kAll;
    }
    want.insert(want.end(), 32, are_all_same ? kAll : 0);
    want.insert(want.end(), 32, are_all_same);
    c.all_equal("lanes with values of the mask " + std::to_string(mask), out.host(), want);
  }
}

GPU_CHECK_BODY(warps, reductions) {
  const std::vector<u32> in = random_lanes(9, kAll);
  u32 sum = 0, least = kAll, all = kAll, some = 0, odd = 0;
  s32 most = INT32_MIN;
  for (const u32 value : in) {
    sum += value;
    least = std::min(least, value);
    most = std::max(most, s32(value));
    all &= value;
    some |= value;
    odd ^= value;
  }
  std::vector<u32> want;
  for (const u32 value : {sum, least, u32(most), all, some, odd})
    want.insert(want.end(), 32, value);
  Array<u32> device_in(c, in), out(c, 192);
  reductions<<<1, 32>>>(out, device_in);
  c.all_equal("sum, least, greatest, and, or, xor", out.host(), want);
}

GPU_CHECK_BODY(warps, barriers_that_vote) {
  Array<int> out(c, 288);
  block_votes<<<1, 96>>>(out);
  std::vector<int> want(96, 20);
  want.insert(want.end(), 192, 1);
  c.all_equal("count, and, or of 96 threads", out.host(), want);
}

GPU_CHECK_BODY(warps, named_barriers) {
  Array<int> out(c, 128);
  named_barriers<<<1, 128>>>(out);
  std::vector<int> want;
  for (int t = 0; t < 128; ++t)
    want.push_back(t < 64 ? (63 - t) * (63 - t) : 191 - t);
  c.all_equal("two halves of a block", out.host(), want);
}

GPU_CHECK_BODY(warps, arrivals_without_waiting) {
  Array<int> out(c, 32);
  producers<<<1, 64>>>(out);
  std::vector<int> want;
  for (int t = 0; t < 32; ++t)
    want.push_back(131 - t);
  c.all_equal("what the consumers saw", out.host(), want);
}

GPU_CHECK_BODY(warps, copies_beside_the_thread) {
  std::vector<u32> in, want;
  for (u32 i = 0; i < 128; ++i) {
    in.push_back(1000 + i);
    want.push_back(i < 64 || i % 4 == 0 ? 1000 + i : 0);
  }
  Array<u32> device_in(c, in), out(c, 128);
  copies_beside<<<1, 32>>>(out, device_in);
  c.all_equal("bytes and zeros", out.host(), want);
}

GPU_CHECK_BODY(warps, divergent_lanes_meet) {
  Array<int> out(c, 32);
  divergent<<<1, 32>>>(out);
  std::vector<int> want;
  for (int lane = 0; lane < 32; ++lane)
    want.push_back((31 - lane) % 2 == 0 ? 2 * (31 - lane) : -(31 - lane));
  c.all_equal("stores of both branches", out.host(), want);
}

}  // namespace gpu_check
