// SPDX-License-Identifier: Apache-2.0
// Cooperative groups, exchange between lanes, atomics and packed integers, as the
// headers of share/softgpu/toolkit give them, against what the host works out.
#include "headers_check.h"

#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

#include <algorithm>
#include <cmath>

// Programs include these by name; all that is theirs comes with the runtime's header.
#include <cuda_device_runtime_api.h>
#include <cuda_profiler_api.h>
#include <device_atomic_functions.h>
#include <device_functions.h>
#include <device_launch_parameters.h>
#include <math_constants.h>
#include <math_functions.h>
#include <sm_20_intrinsics.h>
#include <sm_30_intrinsics.h>
#include <sm_61_intrinsics.h>

namespace cg = cooperative_groups;

namespace {

Random chance(1);

// --- groups --------------------------------------------------------------------------------------

__global__ void ranks(unsigned* out) {
  const cg::thread_block block = cg::this_thread_block();
  const auto tile = cg::tiled_partition<16>(block);
  const auto part = cg::tiled_partition<4>(tile);
  const cg::thread_group any = cg::tiled_partition(block, 8);
  const cg::grid_group grid = cg::this_grid();
  unsigned* const mine = out + 16 * grid.thread_rank();
  mine[0] = block.thread_rank() * 1000 + block.size();
  mine[1] = tile.thread_rank() * 1000 + tile.size();
  mine[2] = tile.meta_group_rank() * 1000 + tile.meta_group_size();
  mine[3] = part.thread_rank() * 1000 + part.meta_group_rank() * 10 + part.meta_group_size();
  mine[4] = static_cast<unsigned>(any.thread_rank() * 1000 + any.size());
  mine[5] = block.group_index().x * 100 + block.group_index().y * 10 + block.thread_index().z;
  mine[6] = block.dim_threads().x * 100 + block.dim_threads().y * 10 + grid.dim_blocks().y;
  mine[7] = static_cast<unsigned>(grid.size() * 100 + grid.num_blocks() * 10 + grid.block_rank());
  mine[8] = cg::this_thread().size();
  any.sync();
}
void group_ranks() {
  const std::size_t threads = 6 * 4 * 2 * 2, blocks = 4;
  Array<unsigned> out(16 * threads * blocks);
  ranks<<<dim3(2, 2), dim3(6, 4, 4)>>>(out);
  const std::vector<unsigned> got = out.host();
  for (unsigned g = 0; g < threads * blocks; ++g) {
    const unsigned* const mine = &got[16 * g];
    const unsigned t = g % 96, b = g / 96;
    const unsigned want[] = {t * 1000 + 96,
                             t % 16 * 1000 + 16,
                             t / 16 * 1000 + 6,
                             t % 4 * 1000 + t % 16 / 4 * 10 + 4,
                             t % 8 * 1000 + 8,
                             b % 2 * 100 + b / 2 * 10 + t / 24,
                             642,
                             38440 + b,
                             1};
    if (std::equal(want, want + 9, mine)) continue;
    std::printf("group_ranks: thread %u\n", g);
    ++wrong;
    return;
  }
}

struct Three {
  int a;
  short b;
  double c;
};
template <int Lanes>
__global__ void tiles(const int* in, int* out) {
  const auto tile = cg::tiled_partition<Lanes>(cg::this_thread_block());
  const int value = in[threadIdx.x];
  int* const mine = out + 16 * threadIdx.x;
  mine[0] = cg::reduce(tile, value, cg::plus<int>());
  mine[1] = cg::reduce(tile, value, cg::less<int>());
  mine[2] = cg::reduce(tile, value, cg::greater<int>());
  mine[3] = cg::reduce(tile, value, cg::bit_xor<int>());
  mine[4] = cg::inclusive_scan(tile, value);
  mine[5] = cg::exclusive_scan(tile, value, cg::plus<int>());
  mine[6] = static_cast<int>(tile.ballot(value & 1));
  mine[7] = tile.any(value % 7 == 0) * 10 + tile.all(value % 7 != 3);
  mine[8] = tile.shfl(value, Lanes / 3);
  mine[9] = tile.shfl_up(value, 1) ^ tile.shfl_down(value, 2);
  const Three three =
      tile.shfl_xor(Three{value, static_cast<short>(value), value * 0.5}, Lanes / 2);
  mine[10] = three.a + three.b + static_cast<int>(three.c * 2);
  tile.sync();
}
template <int Lanes>
void check_tiles() {
  std::vector<int> host(96);
  for (int& value : host)
    value = static_cast<int>(chance.below(1000)) - 300;
  Array<int> in(host), out(96 * 16);
  tiles<Lanes><<<1, 96>>>(in, out);
  const std::vector<int> got = out.host();
  for (int t = 0; t < 96; ++t) {
    const int first = t / Lanes * Lanes, rank = t - first;
    const auto at = [&](int i) { return host[static_cast<std::size_t>(first + i)]; };
    int want[11] = {0, at(0), at(0), 0, 0, 0, 0, 1, at(Lanes / 3), 0, 0};
    for (int i = 0; i < Lanes; ++i) {
      want[0] += at(i);
      want[1] = std::min(want[1], at(i));
      want[2] = std::max(want[2], at(i));
      want[3] ^= at(i);
      want[4] += i <= rank ? at(i) : 0;
      want[5] += i < rank ? at(i) : 0;
      want[6] |= static_cast<int>(static_cast<unsigned>(at(i) & 1) << i);
      if (at(i) % 7 == 0) want[7] |= 1024;
      if (at(i) % 7 == 3) want[7] &= ~1;
    }
    want[7] = (want[7] & 1024 ? 10 : 0) + (want[7] & 1);
    want[9] = at(rank > 0 ? rank - 1 : rank) ^ at(rank + 2 < Lanes ? rank + 2 : rank);
    want[10] = 3 * at(rank ^ (Lanes / 2));
    for (int i = 0; i < 11; ++i) {
      if (want[i] == got[static_cast<std::size_t>(16 * t + i)]) continue;
      std::printf("tiles of %d: thread %d, result %d: %d, not %d\n", Lanes, t, i,
                  got[static_cast<std::size_t>(16 * t + i)], want[i]);
      ++wrong;
      return;
    }
  }
}

// Threads whose bit is set in `members` work together while the others do so, too.
__global__ void coalesced(const int* in, int* out, unsigned members) {
  const bool is_in = (members >> (threadIdx.x % 32) & 1) != 0;
  int* const mine = out + 8 * threadIdx.x;
  const int value = in[threadIdx.x];
  if (is_in) {
    const cg::coalesced_group group = cg::coalesced_threads();
    mine[0] = static_cast<int>(group.thread_rank() * 100 + group.size());
    mine[1] = cg::reduce(group, value, cg::plus<int>());
    mine[2] = cg::exclusive_scan(group, value);
    mine[3] = static_cast<int>(group.ballot(value & 1));
    mine[4] = group.shfl(value, group.size() - 1) + group.any(value == 5) + group.all(value < 9999);
    const cg::coalesced_group half = cg::binary_partition(group, value % 3 == 0);
    mine[5] = static_cast<int>(half.size() * 100 + half.thread_rank());
    const cg::coalesced_group four = cg::tiled_partition(group, 4);
    mine[6] = cg::reduce(four, value, cg::plus<int>());
    group.sync();
  }
}
void check_coalesced(unsigned members) {
  std::vector<int> host(64), those;
  for (int& value : host)
    value = static_cast<int>(chance.below(1000)) * 2 + 8;
  Array<int> in(host), out(64 * 8);
  coalesced<<<1, 64>>>(in, out, members);
  const std::vector<int> got = out.host();
  for (int warp = 0; warp < 2; ++warp) {
    those.clear();
    for (int i = 0; i < 32; ++i)
      if ((members >> i & 1) != 0) those.push_back(host[static_cast<std::size_t>(32 * warp + i)]);
    int rank = 0, before = 0, odd = 0;
    const int size = static_cast<int>(those.size());
    for (int r = 0; r < size; ++r)
      odd |= (those[static_cast<std::size_t>(r)] & 1) << r;
    for (int i = 0; i < 32; ++i) {
      if ((members >> i & 1) == 0) continue;
      const int value = those[static_cast<std::size_t>(rank)];
      int sum = 0, same = 0, same_before = 0, four = 0;
      for (int r = 0; r < size; ++r) {
        const int other = those[static_cast<std::size_t>(r)];
        sum += other;
        if ((other % 3 == 0) == (value % 3 == 0)) same += r < rank ? (++same_before, 1) : 1;
        if (r / 4 == rank / 4) four += other;
      }
      const int want[] = {rank * 100 + size,        sum, before, odd, those.back() + 1,
                          same * 100 + same_before, four};
      if (!std::equal(want, want + 7, &got[static_cast<std::size_t>(8 * (32 * warp + i))])) {
        std::printf("coalesced group %08x: lane %d\n", members, i);
        ++wrong;
        return;
      }
      before += value;
      ++rank;
    }
  }
}

__global__ void copied(const int* in, int* out) {
  __shared__ int room[100];
  const cg::thread_block block = cg::this_thread_block();
  cg::memcpy_async(block, room, in, sizeof room);
  cg::wait(block);
  for (unsigned i = block.thread_rank(); i < 100; i += block.size())
    out[i] = room[99 - i];
}
void check_copied() {
  std::vector<int> host(100);
  for (int& value : host)
    value = static_cast<int>(chance.bits());
  Array<int> in(host), out(100);
  copied<<<1, 48>>>(in, out);
  std::reverse(host.begin(), host.end());
  EXPECT(out.host() == host);
}

// --- lanes, atomics, packed integers -------------------------------------------------------------

__global__ void lanes(const int* in, int* out) {
  const int lane = static_cast<int>(threadIdx.x), value = in[lane];
  int* const mine = out + 16 * lane;
  mine[0] = __shfl_sync(~0U, value, 5);
  mine[1] = __shfl_up_sync(~0U, value, 3, 8);
  mine[2] = __shfl_down_sync(~0U, value, 3, 8);
  mine[3] = __shfl_xor_sync(~0U, value, 17);
  mine[4] = static_cast<int>(__ballot_sync(~0U, value > 0));
  mine[5] = __any_sync(~0U, value == 0) * 2 + __all_sync(~0U, value != 0);
  mine[6] = static_cast<int>(__shfl_xor_sync(~0U, static_cast<long long>(value) << 20, 1) >> 20);
  mine[7] = static_cast<int>(__shfl_xor_sync(~0U, value * 0.25, 2) * 4);
  mine[8] = static_cast<int>(__activemask());
#if __CUDA_ARCH__ >= 800
  mine[9] = __reduce_add_sync(~0U, value);
  mine[10] = static_cast<int>(__match_any_sync(~0U, value % 3));
#else
  mine[9] = value;
  for (int i = 1; i < 32; i *= 2)
    mine[9] += __shfl_xor_sync(~0U, mine[9], i);
  for (int i = 0; i < 32; ++i) {
    const int other = __shfl_sync(~0U, value % 3, i);
    if (other == value % 3) mine[10] |= 1 << i;
  }
#endif
}
void check_lanes() {
  std::vector<int> host(32);
  for (int& value : host)
    value = static_cast<int>(chance.below(2000)) - 1000;
  Array<int> in(host), out(32 * 16);
  lanes<<<1, 32>>>(in, out);
  const std::vector<int> got = out.host();
  const auto at = [&](std::size_t i) { return host[i]; };
  for (std::size_t lane = 0; lane < 32; ++lane) {
    int want[11] = {at(5),
                    at(lane % 8 >= 3 ? lane - 3 : lane),
                    at(lane % 8 + 3 < 8 ? lane + 3 : lane),
                    at(lane ^ 17),
                    0,
                    1,
                    at(lane ^ 1),
                    at(lane ^ 2),
                    -1,
                    0,
                    0};
    for (std::size_t i = 0; i < 32; ++i) {
      want[4] |= static_cast<int>((at(i) > 0 ? 1U : 0U) << i);
      if (at(i) == 0) want[5] = 2;
      want[9] += at(i);
      want[10] |= static_cast<int>((at(i) % 3 == at(lane) % 3 ? 1U : 0U) << i);
    }
    for (std::size_t i = 0; i < 11; ++i) {
      if (got[16 * lane + i] == want[i]) continue;
      std::printf("lanes: lane %zu, result %zu: %d, not %d\n", lane, i, got[16 * lane + i],
                  want[i]);
      ++wrong;
      return;
    }
  }
}

struct Places {
  int add, sub, least, most, last;
  unsigned both, either, odd, up, down, most_unsigned, swapped;
  unsigned long long sum, and_all, greatest;
  long long least_long;
  float floats;
  double doubles;
  int in_block, in_system;
};
__global__ void atomics(Places* p) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const unsigned u = static_cast<unsigned>(i);
  atomicAdd(&p->add, i);
  atomicSub(&p->sub, i);
  atomicMin(&p->least, 500 - i);
  atomicMax(&p->most, i - 700);
  atomicExch(&p->last, i);
  atomicAnd(&p->both, ~(1U << (u % 7)));
  atomicOr(&p->either, 1U << (u % 11));
  atomicXor(&p->odd, u);
  atomicInc(&p->up, 6);
  atomicDec(&p->down, 6);
  atomicMax(&p->most_unsigned, u << 20);
  atomicAdd(&p->sum, static_cast<unsigned long long>(u) << 32);
  atomicAnd(&p->and_all, ~(1ULL << (u % 40)));
  atomicMax(&p->greatest, static_cast<unsigned long long>(u) << 40);
  atomicMin(&p->least_long, -(static_cast<long long>(i) << 33));
  atomicAdd(&p->floats, 0.5F);
  atomicAdd(&p->doubles, 0.25);
  atomicAdd_block(&p->in_block, blockIdx.x == 0 ? 1 : 0);
  atomicAdd_system(&p->in_system, 1);
  // A lock-free maximum of two halves, by comparing and exchanging.
  unsigned seen = p->swapped, before;
  do {
    before = seen;
    seen = atomicCAS(&p->swapped, before, before + (u & 3));
  } while (seen != before);
}
void check_atomics() {
  Places begin{};
  begin.both = ~0U;
  begin.and_all = ~0ULL;
  Array<Places> place(std::vector<Places>{begin});
  const int n = 8 * 96;
  atomics<<<8, 96>>>(place);
  const Places got = place.host()[0];
  unsigned odd = 0;
  for (unsigned i = 0; i < n; ++i)
    odd ^= i;
  EXPECT(got.add == n * (n - 1) / 2 && got.sub == -n * (n - 1) / 2);
  EXPECT(got.least == 500 - (n - 1) && got.most == n - 1 - 700 && got.last >= 0 && got.last < n);
  EXPECT(got.both == ~0x7fU && got.either == 0x7ffU && got.odd == odd);
  EXPECT(got.up == n % 7 && got.down == (7 - n % 7) % 7 && got.most_unsigned == (n - 1U) << 20);
  EXPECT(got.sum == static_cast<unsigned long long>(n * (n - 1) / 2) << 32);
  EXPECT(got.and_all == ~0ULL << 40 && got.greatest == (n - 1ULL) << 40);
  EXPECT(got.least_long == -(static_cast<long long>(n - 1) << 33));
  EXPECT(got.floats == n * 0.5F && got.doubles == n * 0.25);
  EXPECT(got.in_block == 96 && got.in_system == n && got.swapped == n / 4 * 6);
}

// One row for each function: what the device and what the host says. Bytes of a word by index:
unsigned byte_of(unsigned word, int i) {
  return word >> (8 * i) & 0xffU;
}
int signed_byte(unsigned word, int i) {
  return static_cast<signed char>(byte_of(word, i));
}

__global__ void packed(const unsigned* in, unsigned* out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned a = in[3 * i], b = in[3 * i + 1], c = in[3 * i + 2];
  unsigned* const mine = out + 32 * i;
  mine[0] =
      static_cast<unsigned>(__dp4a(static_cast<int>(a), static_cast<int>(b), static_cast<int>(c)));
  mine[1] = __dp4a(a, b, c);
  mine[2] = static_cast<unsigned>(
      __dp2a_lo(static_cast<int>(a), static_cast<int>(b), static_cast<int>(c)));
  mine[3] = __dp2a_hi(a, b, c);
  mine[4] = __byte_perm(a, b, c);
  mine[5] = static_cast<unsigned>(__popc(a));
  mine[6] = static_cast<unsigned>(__clz(static_cast<int>(a >> (b & 31))));
  mine[7] = static_cast<unsigned>(__ffs(static_cast<int>(a << (b & 31))));
  mine[8] = __brev(a);
  mine[9] = __umulhi(a, b);
  mine[10] = static_cast<unsigned>(__mulhi(static_cast<int>(a), static_cast<int>(b)));
  mine[11] = __funnelshift_l(a, b, c);
  mine[12] = __funnelshift_r(a, b, c);
  mine[13] = __vadd4(a, b);
  mine[14] = __vsub4(a, b);
  mine[15] = __vsubss4(a, b);
  mine[16] = __vcmpne4(a, b & 0xff00ff00U);
  mine[17] = __vmaxs4(a, b);
  mine[18] = __vabsdiffu4(a, b);
  mine[19] = __sad(static_cast<int>(a), static_cast<int>(b), c);
  mine[20] = static_cast<unsigned>(__mul24(static_cast<int>(a), static_cast<int>(b)));
  mine[21] = __uhadd(a, b);
  mine[22] = static_cast<unsigned>(__rhadd(static_cast<int>(a), static_cast<int>(b)));
  mine[23] = static_cast<unsigned>(__popcll(static_cast<unsigned long long>(a) << 32 | b));
  mine[24] = static_cast<unsigned>(
      __clzll(static_cast<long long>((static_cast<unsigned long long>(a) << 32 | b) >> (c & 63))));
  mine[25] = static_cast<unsigned>(__umul64hi(static_cast<unsigned long long>(a) << 32 | b,
                                              static_cast<unsigned long long>(c) << 32 | a) >>
                                   32);
}
template <class Function>
unsigned bytes(unsigned a, unsigned b, Function function) {
  unsigned result = 0;
  for (int i = 0; i < 4; ++i)
    result |= (static_cast<unsigned>(function(a, b, i)) & 0xffU) << (8 * i);
  return result;
}
void want_bytes(unsigned a, unsigned b, unsigned* want) {
  want[13] =
      bytes(a, b, [](unsigned x, unsigned y, int i) { return byte_of(x, i) + byte_of(y, i); });
  want[14] =
      bytes(a, b, [](unsigned x, unsigned y, int i) { return byte_of(x, i) - byte_of(y, i); });
  want[15] = bytes(a, b, [](unsigned x, unsigned y, int i) {
    return std::clamp(signed_byte(x, i) - signed_byte(y, i), -128, 127);
  });
  want[16] = bytes(a, b & 0xff00ff00U, [](unsigned x, unsigned y, int i) {
    return byte_of(x, i) != byte_of(y, i) ? 0xff : 0;
  });
  want[17] = bytes(a, b, [](unsigned x, unsigned y, int i) {
    return std::max(signed_byte(x, i), signed_byte(y, i));
  });
  want[18] = bytes(a, b, [](unsigned x, unsigned y, int i) {
    return std::abs(static_cast<int>(byte_of(x, i)) - static_cast<int>(byte_of(y, i)));
  });
}
void want_words(unsigned a, unsigned b, unsigned c, unsigned* want) {
  const auto s = [](unsigned value) { return static_cast<int>(value); };
  const auto wide = [&](unsigned value) { return static_cast<long long>(s(value)); };
  want[0] = want[1] = want[2] = want[3] = c;
  for (int i = 0; i < 4; ++i) {
    want[0] += static_cast<unsigned>(signed_byte(a, i) * signed_byte(b, i));
    want[1] += byte_of(a, i) * byte_of(b, i);
    want[4] |= byte_of((c >> (4 * i) & 4) != 0 ? b : a, s(c >> (4 * i) & 3)) << (8 * i);
  }
  for (int i = 0; i < 2; ++i) {
    want[2] += static_cast<unsigned>(static_cast<short>(a >> (16 * i)) * signed_byte(b, i));
    want[3] += (a >> (16 * i) & 0xffffU) * byte_of(b, i + 2);
  }
  want[5] = static_cast<unsigned>(__builtin_popcount(a));
  const unsigned right = a >> (b & 31), left = a << (b & 31);
  want[6] = right == 0 ? 32U : static_cast<unsigned>(__builtin_clz(right));
  want[7] = static_cast<unsigned>(__builtin_ffs(s(left)));
  for (int i = 0; i < 32; ++i)
    want[8] |= (a >> i & 1U) << (31 - i);
  want[9] = static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
  want[10] = static_cast<unsigned>(wide(a) * wide(b) >> 32);
  const unsigned long long pair = static_cast<unsigned long long>(b) << 32 | a;
  want[11] = static_cast<unsigned>(pair << (c & 31) >> 32);
  want[12] = static_cast<unsigned>(pair >> (c & 31));
  want_bytes(a, b, want);
  want[19] = c + static_cast<unsigned>(std::llabs(wide(a) - wide(b)));
  want[20] = static_cast<unsigned>(static_cast<long long>(s(a << 8) >> 8) * (s(b << 8) >> 8));
  want[21] = static_cast<unsigned>((static_cast<unsigned long long>(a) + b) >> 1);
  want[22] = static_cast<unsigned>((wide(a) + wide(b) + 1) >> 1);
  const unsigned long long whole = static_cast<unsigned long long>(a) << 32 | b;
  want[23] = static_cast<unsigned>(__builtin_popcountll(whole));
  const unsigned long long rest = whole >> (c & 63);
  want[24] = rest == 0 ? 64U : static_cast<unsigned>(__builtin_clzll(rest));
  const unsigned __int128 product =
      static_cast<unsigned __int128>(whole) * (static_cast<unsigned long long>(c) << 32 | a);
  want[25] = static_cast<unsigned>(static_cast<unsigned long long>(product >> 64) >> 32);
}
void check_packed() {
  std::vector<unsigned> host(3 * 256);
  for (unsigned& value : host)
    value = static_cast<unsigned>(chance.bits());
  for (std::size_t i = 0; i < 12; ++i)
    host[i] = i % 2 == 0 ? 0x80808080U : 0U;
  for (std::size_t i = 12; i < 24; ++i)
    host[i] = i % 3 == 0 ? 0x7f80ff01U : ~0U;
  Array<unsigned> in(host), out(32 * 256);
  packed<<<2, 128>>>(in, out);
  const std::vector<unsigned> got = out.host();
  bool told[26] = {};
  for (std::size_t i = 0; i < 256; ++i) {
    unsigned want[26] = {};
    want_words(host[3 * i], host[3 * i + 1], host[3 * i + 2], want);
    for (std::size_t k = 0; k < 26; ++k) {
      if (got[32 * i + k] == want[k] || told[k]) continue;
      std::printf("packed integers: function %zu of %08x %08x %08x: %08x, not %08x\n", k,
                  host[3 * i], host[3 * i + 1], host[3 * i + 2], got[32 * i + k], want[k]);
      told[k] = true;
      ++wrong;
    }
  }
}

}  // namespace

int main() {
  EXPECT(CUDART_INF_F > 3e38F && CUDART_NAN_F != CUDART_NAN_F && CUDART_INF > 1e308);
  EXPECT(CUDART_PI == std::acos(-1.0) && CUDART_LN2_F == std::log(2.0F));
  group_ranks();
  check_tiles<32>();
  check_tiles<16>();
  check_tiles<8>();
  check_tiles<2>();
  check_tiles<1>();
  for (const unsigned members : {~0U, 1U, 0x80000000U, 0x00ff00f0U, 0x13579bdfU})
    check_coalesced(members);
  check_copied();
  check_lanes();
  check_atomics();
  check_packed();
  MUST(cudaDeviceSynchronize());
  return report("groups, lanes, atomics, integers");
}
