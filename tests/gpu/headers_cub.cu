// SPDX-License-Identifier: Apache-2.0
// The algorithms of share/softgpu/toolkit/include/cub against those of the standard library.
#include <cub/cub.cuh>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "headers_check.h"

namespace {

Random chance(1);
const std::size_t kSizes[] = {0, 1, 2, 31, 127, 128, 129, 500, 2048, 2049, 4096, 4097, 9999, 70001};

// Calls twice: for the bytes, and with as many.
template <class Call>
void twice(Call call) {
  std::size_t bytes = 0;
  MUST(call(nullptr, bytes));
  EXPECT(bytes > 0);
  Array<unsigned char> temporary(bytes);
  MUST(call(static_cast<void*>(static_cast<unsigned char*>(temporary)), bytes));
}

// --- reductions and scans ------------------------------------------------------------------------

void sums(std::size_t n) {
  std::vector<int> host(n);
  for (int& value : host)
    value = static_cast<int>(chance.below(2001)) - 1000;
  Array<int> in(host), out(1);
  const int count = static_cast<int>(n);
  twice([&](void* t, std::size_t& b) {
    return cub::DeviceReduce::Sum(t, b, (int*)in, (int*)out, count);
  });
  EXPECT(out.host()[0] == std::accumulate(host.begin(), host.end(), 0));
  twice([&](void* t, std::size_t& b) {
    return cub::DeviceReduce::Max(t, b, (int*)in, (int*)out, count);
  });
  EXPECT(out.host()[0] == (n == 0 ? std::numeric_limits<int>::lowest()
                                  : *std::max_element(host.begin(), host.end())));
  twice([&](void* t, std::size_t& b) {
    return cub::DeviceReduce::Min(t, b, (int*)in, (int*)out, count);
  });
  EXPECT(out.host()[0] ==
         (n == 0 ? std::numeric_limits<int>::max() : *std::min_element(host.begin(), host.end())));
  using Pair = cub::KeyValuePair<int, int>;
  Array<Pair> best(1);
  twice([&](void* t, std::size_t& b) {
    return cub::DeviceReduce::ArgMax(t, b, (int*)in, (Pair*)best, count);
  });
  const auto most = std::max_element(host.begin(), host.end());
  if (n > 0) EXPECT(best.host()[0].key == most - host.begin() && best.host()[0].value == *most);
  if (n == 0) EXPECT(best.host()[0].key == 1);
  std::vector<float> floats(n);
  for (float& value : floats)
    value = static_cast<float>(chance.between(-1, 1));
  Array<float> float_in(floats), float_out(1);
  twice([&](void* t, std::size_t& b) {
    return cub::DeviceReduce::Sum(t, b, (float*)float_in, (float*)float_out,
                                  static_cast<long long>(n));
  });
  const double sum = std::accumulate(floats.begin(), floats.end(), 0.0);
  EXPECT(std::fabs(float_out.host()[0] - sum) <= 1e-6 * (static_cast<double>(n) + 1));
}

// Does not commute: the composition of x -> a x + b, first the left one.
struct Line {
  unsigned a, b;
  bool operator==(const Line& other) const { return a == other.a && b == other.b; }
};
struct Then {
  __host__ __device__ Line operator()(const Line& first, const Line& second) const {
    return {first.a * second.a, first.b * second.a + second.b};
  }
};

void lines(std::size_t n) {
  std::vector<Line> host(n);
  for (Line& line : host)
    line = {static_cast<unsigned>(chance.bits()) | 1U, static_cast<unsigned>(chance.bits())};
  Array<Line> in(host), out(n + 1);
  const Line begin{3, 5};
  std::vector<Line> inclusive(n), exclusive(n);
  Line running = begin;
  for (std::size_t i = 0; i < n; ++i) {
    inclusive[i] = i == 0 ? host[0] : Then()(inclusive[i - 1], host[i]);
    exclusive[i] = running;
    running = Then()(running, host[i]);
  }
  twice([&](void* t, std::size_t& b) {
    return cub::DeviceReduce::Reduce(t, b, (Line*)in, (Line*)out, static_cast<int>(n), Then(),
                                     begin);
  });
  EXPECT(out.host()[0] == running);
  const auto head = [&] {
    std::vector<Line> values = out.host();
    values.resize(n);
    return values;
  };
  twice([&](void* t, std::size_t& b) {
    return cub::DeviceScan::InclusiveScan(t, b, (Line*)in, (Line*)out, Then(), static_cast<int>(n));
  });
  EXPECT(head() == inclusive);
  twice([&](void* t, std::size_t& b) {
    return cub::DeviceScan::ExclusiveScan(t, b, (Line*)in, (Line*)out, Then(), begin,
                                          static_cast<int>(n));
  });
  EXPECT(head() == exclusive);
}

void prefix_sums(std::size_t n) {
  std::vector<int> host(n), want(n);
  for (int& value : host)
    value = static_cast<int>(chance.below(2001)) - 1000;
  Array<int> in(host), out(n);
  twice([&](void* t, std::size_t& b) {
    return cub::DeviceScan::InclusiveSum(t, b, (int*)in, (int*)out, static_cast<long long>(n));
  });
  std::partial_sum(host.begin(), host.end(), want.begin());
  EXPECT(out.host() == want);
  twice([&](void* t, std::size_t& b) {
    return cub::DeviceScan::ExclusiveSum(t, b, (int*)in, (int*)in, static_cast<int>(n));
  });
  for (std::size_t i = 0; i < n; ++i)
    want[i] -= host[i];
  EXPECT(in.host() == want);
}

// --- sorts ---------------------------------------------------------------------------------------

template <class Key>
Key random_key(bool has_few) {
  const std::uint64_t bits = has_few ? chance.below(5) : chance.bits();
  Key key;
  if constexpr (std::is_floating_point<Key>::value) {
    key = has_few ? static_cast<Key>(static_cast<int>(bits) - 2) * Key{0}
                  : static_cast<Key>(chance.between(-1e3, 1e3));
  } else {
    key = static_cast<Key>(bits);
  }
  return key;
}

template <class Key>
void sort_pairs(std::size_t n, bool has_few, int begin, int end) {
  std::vector<Key> keys(n);
  for (Key& key : keys)
    key = random_key<Key>(has_few);
  std::vector<int> order(n);
  std::iota(order.begin(), order.end(), 0);
  Array<Key> in(keys), out(n);
  Array<int> values_in(order), values_out(n);
  // Keys by the bits asked for: whole ones, or unsigned ones masked.
  const auto part = [&](Key key) {
    if constexpr (std::is_unsigned<Key>::value) {
      const std::uint64_t mask = end - begin == 64 ? ~0ULL : (1ULL << (end - begin)) - 1;
      return static_cast<Key>(static_cast<std::uint64_t>(key) >> begin & mask);
    } else {
      return key;
    }
  };
  for (const bool is_descending : {false, true}) {
    std::vector<int> want = order;
    std::stable_sort(want.begin(), want.end(), [&](int a, int b) {
      const Key x = part(keys[static_cast<std::size_t>(a)]),
                y = part(keys[static_cast<std::size_t>(b)]);
      return is_descending ? y < x : x < y;
    });
    twice([&](void* t, std::size_t& b) {
      Key *const k = in, *const o = out;
      int *const v = values_in, *const w = values_out;
      return is_descending ? cub::DeviceRadixSort::SortPairsDescending(
                                 t, b, k, o, v, w, static_cast<int>(n), begin, end)
                           : cub::DeviceRadixSort::SortPairs(t, b, k, o, v, w, static_cast<int>(n),
                                                             begin, end);
    });
    EXPECT(values_out.host() == want);
    const std::vector<Key> got = out.host();
    for (std::size_t i = 0; i < n; ++i) {
      if (std::memcmp(&got[i], &keys[static_cast<std::size_t>(want[i])], sizeof(Key)) == 0)
        continue;
      EXPECT(!"keys and values go together");
      break;
    }
  }
  EXPECT(in.host() == keys);
}

void sort_buffers() {
  std::vector<unsigned> keys(5000);
  for (unsigned& key : keys)
    key = static_cast<unsigned>(chance.bits());
  Array<unsigned> a(keys), b(keys.size());
  cub::DoubleBuffer<unsigned> buffers(a, b);
  twice([&](void* t, std::size_t& bytes) {
    return cub::DeviceRadixSort::SortKeys(t, bytes, buffers, 5000);
  });
  std::sort(keys.begin(), keys.end());
  EXPECT(buffers.selector == 1);
  std::vector<unsigned> got(keys.size());
  MUST(cudaMemcpy(got.data(), buffers.Current(), got.size() * 4, cudaMemcpyDeviceToHost));
  EXPECT(got == keys);
  std::size_t bytes = 8;
  EXPECT(cub::DeviceRadixSort::SortKeys(buffers.Current(), bytes, buffers, 5000) ==
         cudaErrorInvalidValue);
}

void sort_segments(const std::vector<int>& lengths, bool is_radix) {
  std::vector<int> offsets{3};  // elements before the first segment stay
  for (const int length : lengths)
    offsets.push_back(offsets.back() + length);
  const int n = offsets.back() + 2, segments = static_cast<int>(lengths.size());
  std::vector<float> keys(static_cast<std::size_t>(n));
  for (float& key : keys)
    key = static_cast<float>(static_cast<int>(chance.below(2000)) - 1000) / 8;
  std::vector<int> values(keys.size());
  std::iota(values.begin(), values.end(), 0);
  Array<float> in(keys);
  Array<int> values_in(values), begins(offsets);
  for (const bool is_descending : {false, true}) {
    Array<float> out(keys);
    Array<int> values_out(values);
    std::vector<int> want = values;
    for (std::size_t s = 0; s < lengths.size(); ++s) {
      std::stable_sort(want.begin() + offsets[s], want.begin() + offsets[s + 1], [&](int a, int b) {
        const float x = keys[static_cast<std::size_t>(a)], y = keys[static_cast<std::size_t>(b)];
        return is_descending ? y < x : x < y;
      });
    }
    int* const first = begins;
    twice([&](void* t, std::size_t& b) {
      float *const k = in, *const o = out;
      int *const v = values_in, *const w = values_out;
      if (is_radix)
        return is_descending ? cub::DeviceSegmentedRadixSort::SortPairsDescending(
                                   t, b, k, o, v, w, n, segments, first, first + 1, 0, 32)
                             : cub::DeviceSegmentedRadixSort::SortPairs(
                                   t, b, k, o, v, w, n, segments, first, first + 1, 0, 32);
      return is_descending ? cub::DeviceSegmentedSort::SortPairsDescending(
                                 t, b, k, o, v, w, n, segments, first, first + 1)
                           : cub::DeviceSegmentedSort::SortPairs(t, b, k, o, v, w, n, segments,
                                                                 first, first + 1);
    });
    EXPECT(values_out.host() == want);
  }
}

// --- blocks and warps ----------------------------------------------------------------------------

template <int Threads, cub::BlockLoadAlgorithm Load, cub::BlockStoreAlgorithm Store>
__global__ void copy(const int* in, int* out, int valid) {
  using Loads = cub::BlockLoad<int, Threads, 4, Load>;
  using Stores = cub::BlockStore<int, Threads, 4, Store>;
  __shared__ union {
    typename Loads::TempStorage load;
    typename Stores::TempStorage store;
  } storage;
  int items[4];
  Loads(storage.load).Load(in, items, valid, -7);
  __syncthreads();
  for (int& item : items)
    item = item * 2 + static_cast<int>(threadIdx.x) * 0;
  Stores(storage.store).Store(out, items, valid - 1);
}

struct Carry {
  int running;
  __device__ int operator()(int aggregate) {
    const int before = running;
    running += aggregate;
    return before;
  }
};
template <int Threads>
__global__ void scans(const int* in, int* out) {
  using Block = cub::BlockScan<int, Threads>;
  using Reduce = cub::BlockReduce<int, Threads>;
  __shared__ typename Block::TempStorage storage;
  __shared__ typename Reduce::TempStorage reduce_storage;
  const int t = static_cast<int>(threadIdx.x);
  int value, aggregate, items[3] = {in[3 * t], in[3 * t + 1], in[3 * t + 2]};
  Block(storage).InclusiveSum(in[t], value, aggregate);
  out[t] = value;
  out[Threads + t] = aggregate;
  __syncthreads();
  Block(storage).ExclusiveSum(in[t], value);
  out[2 * Threads + t] = value;
  __syncthreads();
  Block(storage).ExclusiveScan(in[t], value, 17, cub::Max());
  out[3 * Threads + t] = value;
  __syncthreads();
  Block(storage).InclusiveSum(items, items);
  for (int i = 0; i < 3; ++i)
    out[4 * Threads + 3 * t + i] = items[i];
  __syncthreads();
  Carry carry{1000};
  Block(storage).InclusiveSum(in[t], value, aggregate, carry);
  out[7 * Threads + t] = value;
  const int sum = Reduce(reduce_storage).Sum(in[t]);
  __syncthreads();
  const int most = Reduce(reduce_storage).Reduce(in[t], cub::Max(), Threads / 2 + 1);
  if (t == 0) out[8 * Threads] = sum;
  if (t == 0) out[8 * Threads + 1] = most;
}
template <int Threads>
void blocks() {
  std::vector<int> host(3 * Threads);
  for (int& value : host)
    value = static_cast<int>(chance.below(1000));
  Array<int> in(host), out(8 * Threads + 2);
  scans<Threads><<<1, Threads>>>(in, out);
  const std::vector<int> got = out.host();
  std::vector<int> want(8 * Threads + 2);
  int sum = 0, most = 17, of_three = 0;
  const int whole = std::accumulate(host.begin(), host.begin() + Threads, 0);
  for (std::size_t t = 0; t < Threads; ++t) {
    want[2 * Threads + t] = sum;
    want[3 * Threads + t] = most;
    sum += host[t];
    most = std::max(most, host[t]);
    want[t] = sum;
    want[Threads + t] = whole;
    want[7 * Threads + t] = 1000 + sum;
    for (std::size_t i = 3 * t; i < 3 * t + 3; ++i)
      want[4 * Threads + i] = of_three += host[i];
  }
  want[8 * Threads] = whole;
  want[8 * Threads + 1] = *std::max_element(host.begin(), host.begin() + Threads / 2 + 1);
  EXPECT(got == want);
}
template <cub::BlockLoadAlgorithm Load, cub::BlockStoreAlgorithm Store>
void copies() {
  std::vector<int> host(4 * 96), want(4 * 96, 0);
  std::iota(host.begin(), host.end(), 1);
  Array<int> in(host), out(4 * 96);
  copy<96, Load, Store><<<1, 96>>>(in, out, 301);
  for (std::size_t i = 0; i < 300; ++i)
    want[i] = host[i] * 2;
  EXPECT(out.host() == want);
}

template <int Lanes>
__global__ void warps(const int* in, int* out) {
  __shared__ typename cub::WarpReduce<int, Lanes>::TempStorage reduce;
  __shared__ typename cub::WarpScan<int, Lanes>::TempStorage scan;
  const int t = static_cast<int>(threadIdx.x);
  if (t / Lanes >= 32 / Lanes) return;
  const int sum = cub::WarpReduce<int, Lanes>(reduce).Sum(in[t], Lanes - 1);
  if (t % Lanes == 0) out[t / Lanes] = sum;
  int value, aggregate;
  cub::WarpScan<int, Lanes>(scan).ExclusiveSum(in[t], value, aggregate);
  out[32 + t] = value;
  out[64 + t] = aggregate;
}
template <int Lanes>
void groups_of() {
  std::vector<int> host(32), want(96, 0);
  for (int& value : host)
    value = static_cast<int>(chance.below(1000));
  Array<int> in(host), out(96);
  warps<Lanes><<<1, 32>>>(in, out);
  for (std::size_t g = 0; g < 32 / Lanes; ++g) {
    const auto first = host.begin() + static_cast<long>(g * Lanes);
    want[g] = std::accumulate(first, first + Lanes - 1, 0);
    for (std::size_t i = 0; i < Lanes; ++i) {
      want[32 + g * Lanes + i] = std::accumulate(first, first + static_cast<long>(i), 0);
      want[64 + g * Lanes + i] = std::accumulate(first, first + Lanes, 0);
    }
  }
  EXPECT(out.host() == want);
}

// --- iterators and capture -----------------------------------------------------------------------

struct Square {
  __host__ __device__ long long operator()(int i) const { return static_cast<long long>(i) * i; }
};
void iterators() {
  Array<long long> out(1);
  const cub::CountingInputIterator<int> count(1);
  const cub::TransformInputIterator<long long, Square, cub::CountingInputIterator<int>> squares(
      count, Square());
  twice([&](void* t, std::size_t& b) {
    return cub::DeviceReduce::Sum(t, b, squares, (long long*)out, 10000);
  });
  EXPECT(out.host()[0] == 333383335000LL);
}
void capture() {
  const int n = 5000;
  std::vector<float> keys(n);
  for (float& key : keys)
    key = static_cast<float>(chance.between(-1, 1));
  Array<float> in(keys), sorted(n), sums(n);
  std::size_t sort_bytes = 0, scan_bytes = 0;
  MUST(cub::DeviceRadixSort::SortKeys(nullptr, sort_bytes, (float*)in, (float*)sorted, n));
  MUST(cub::DeviceScan::InclusiveSum(nullptr, scan_bytes, (float*)sorted, (float*)sums, n));
  Array<char> sort_storage(sort_bytes), scan_storage(scan_bytes);
  cudaStream_t stream{};
  cudaGraph_t graph{};
  cudaGraphExec_t executable{};
  MUST(cudaStreamCreate(&stream));
  MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  MUST(cub::DeviceRadixSort::SortKeys((char*)sort_storage, sort_bytes, (float*)in, (float*)sorted,
                                      n, 0, 32, stream));
  MUST(cub::DeviceScan::InclusiveSum((char*)scan_storage, scan_bytes, (float*)sorted, (float*)sums,
                                     n, stream));
  MUST(cudaStreamEndCapture(stream, &graph));
  EXPECT(sorted.host()[1] == 0);
  MUST(cudaGraphInstantiate(&executable, graph, 0));
  MUST(cudaGraphLaunch(executable, stream));
  MUST(cudaStreamSynchronize(stream));
  std::sort(keys.begin(), keys.end());
  EXPECT(sorted.host() == keys);
  EXPECT(std::fabs(sums.host()[n - 1] - std::accumulate(keys.begin(), keys.end(), 0.0)) < 1e-2);
  MUST(cudaGraphExecDestroy(executable));
  MUST(cudaGraphDestroy(graph));
  MUST(cudaStreamDestroy(stream));
}

}  // namespace

int main() {
  for (const std::size_t n : kSizes) {
    sums(n);
    lines(n);
    prefix_sums(n);
    sort_pairs<unsigned>(n, n % 2 == 0, 0, 32);
  }
  for (const std::size_t n : {100UL, 3000UL, 6001UL}) {
    sort_pairs<unsigned>(n, false, 5, 18);
    sort_pairs<unsigned>(n, false, 9, 9);
    sort_pairs<int>(n, false, 0, 32);
    sort_pairs<float>(n, false, 0, 32);
    sort_pairs<float>(n, true, 0, 32);  // 0 and -0 are equal
    sort_pairs<double>(n, false, 0, 64);
    sort_pairs<unsigned char>(n, false, 0, 8);
    sort_pairs<short>(n, false, 0, 16);
    sort_pairs<long long>(n, false, 0, 64);
    sort_pairs<unsigned long long>(n, false, 30, 47);
  }
  sort_buffers();
  for (const bool is_radix : {false, true}) {
    sort_segments({}, is_radix);
    sort_segments({0, 1, 0, 5, 128, 129, 0, 1000, 2048, 2049, 5000, 0}, is_radix);
    sort_segments(std::vector<int>(200, 17), is_radix);
  }
  blocks<32>();
  blocks<96>();
  blocks<100>();
  blocks<1024>();
  copies<cub::BLOCK_LOAD_DIRECT, cub::BLOCK_STORE_WARP_TRANSPOSE>();
  copies<cub::BLOCK_LOAD_TRANSPOSE, cub::BLOCK_STORE_DIRECT>();
  copies<cub::BLOCK_LOAD_STRIPED, cub::BLOCK_STORE_STRIPED>();
  groups_of<32>();
  groups_of<8>();
  groups_of<5>();
  iterators();
  capture();
  return report("cub");
}
