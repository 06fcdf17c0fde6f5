/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KANSOKU_SOFTGPU_COOPERATIVE_GROUPS_H
#define KANSOKU_SOFTGPU_COOPERATIVE_GROUPS_H
#define _COOPERATIVE_GROUPS_H_

/* Groups of threads that work together: a block, a grid, a tile of 1 to 32 lanes, or the lanes that
 * are there. All functions are the device's. Each member of a group must call what the group does
 * together: sync, shfl..., any, all, ballot, match..., reduce.
 *   cg::thread_block block = cg::this_thread_block();
 *   auto tile = cg::tiled_partition<8>(block);
 *   for (int i = tile.size() / 2; i > 0; i /= 2) sum += tile.shfl_down(sum, i);
 * Not there: tiles of more than 32 lanes, groups of several devices, clusters, asynchronous
 * barriers of the grid. */

#include "cuda_runtime.h"

#if defined(__CUDA__) && defined(__cplusplus)

#define KANSOKU_GROUP static __device__ inline
#define KANSOKU_MEMBER __device__ inline

namespace cooperative_groups {

namespace details {

KANSOKU_GROUP unsigned lane() {
  return __nvvm_read_ptx_sreg_laneid();
}
KANSOKU_GROUP unsigned lanes_before() {
  return (1U << lane()) - 1U;
}
KANSOKU_GROUP unsigned block_threads() {
  return blockDim.x * blockDim.y * blockDim.z;
}
KANSOKU_GROUP unsigned block_rank() {
  return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
}

/* The place of the bit of `mask` that has `rank` set bits below it; 32 if there is none. */
KANSOKU_GROUP unsigned nth_lane(unsigned mask, unsigned rank) {
  for (unsigned i = 0; i < rank; ++i)
    mask &= mask - 1U;
  return mask == 0U ? 32U : static_cast<unsigned>(__ffs(static_cast<int>(mask))) - 1U;
}

/* Exchanges a value of any size between lanes, word by word. `exchange` takes and gives an int. */
template <class T, class Exchange>
__device__ inline T by_words(const T& value, Exchange exchange) {
  static_assert(__is_trivially_copyable(T), "lanes exchange trivially copyable values alone");
  constexpr unsigned kWords = (sizeof(T) + 3) / 4;
  int words[kWords] = {};
  __builtin_memcpy(words, &value, sizeof(T));
#pragma unroll
  for (unsigned i = 0; i < kWords; ++i)
    words[i] = exchange(words[i]);
  T result;
  __builtin_memcpy(&result, words, sizeof(T));
  return result;
}

/* Address of the grid's barrier: 0 unless the launch was a cooperative one. */
KANSOKU_GROUP unsigned long long grid_workspace() {
  unsigned low, high;
  asm("mov.u32 %0, %%envreg1;" : "=r"(low));
  asm("mov.u32 %0, %%envreg2;" : "=r"(high));
  return static_cast<unsigned long long>(high) << 32 | low;
}

/* Blocks take tickets from one counter, which begins at 0 with each launch. Who has ticket t waits
 * until all tickets of its round are taken. The counter may wrap once 2^32 tickets are taken, which
 * no kernel does. */
KANSOKU_GROUP void grid_sync() {
  __syncthreads();
  if (block_rank() == 0) {
    const unsigned long long workspace = grid_workspace();
    if (workspace == 0) __trap(); /* no cooperative launch: the blocks might wait for ever */
    volatile unsigned* const taken = reinterpret_cast<volatile unsigned*>(workspace);
    const unsigned blocks = gridDim.x * gridDim.y * gridDim.z;
    __threadfence();
    const unsigned ticket = atomicAdd(const_cast<unsigned*>(taken), 1U);
    const unsigned round_end = (ticket / blocks + 1U) * blocks;
    while (static_cast<int>(*taken - round_end) < 0) {
    }
    __threadfence();
  }
  __syncthreads();
}

enum class group_kind : unsigned { block, grid, lanes };

} /* namespace details */

/* Any of the groups below, for functions that do not care which. */
class thread_group {
 public:
  KANSOKU_MEMBER void sync() const {
    if (kind_ == details::group_kind::block)
      __syncthreads();
    else if (kind_ == details::group_kind::grid)
      details::grid_sync();
    else
      __syncwarp(mask_);
  }
  KANSOKU_MEMBER unsigned long long size() const {
    if (kind_ == details::group_kind::lanes) return static_cast<unsigned>(__popc(mask_));
    const unsigned long long block = details::block_threads();
    return kind_ == details::group_kind::block ? block : block * gridDim.x * gridDim.y * gridDim.z;
  }
  KANSOKU_MEMBER unsigned long long num_threads() const { return size(); }
  KANSOKU_MEMBER unsigned long long thread_rank() const {
    if (kind_ == details::group_kind::lanes)
      return static_cast<unsigned>(__popc(mask_ & details::lanes_before()));
    if (kind_ == details::group_kind::block) return details::block_rank();
    const unsigned long long blocks_before =
        (static_cast<unsigned long long>(blockIdx.z) * gridDim.y + blockIdx.y) * gridDim.x +
        blockIdx.x;
    return blocks_before * details::block_threads() + details::block_rank();
  }
  KANSOKU_MEMBER bool is_valid() const {
    return kind_ != details::group_kind::grid || details::grid_workspace() != 0;
  }

 protected:
  KANSOKU_MEMBER thread_group(details::group_kind kind, unsigned mask) : kind_(kind), mask_(mask) {}
  details::group_kind kind_;
  unsigned mask_; /* of lanes: which ones of the warp */
  friend __device__ thread_group tiled_partition(const thread_group& parent, unsigned lanes);
};

class thread_block : public thread_group {
 public:
  KANSOKU_GROUP void sync() { __syncthreads(); }
  KANSOKU_GROUP unsigned size() { return details::block_threads(); }
  KANSOKU_GROUP unsigned num_threads() { return size(); }
  KANSOKU_GROUP unsigned thread_rank() { return details::block_rank(); }
  KANSOKU_GROUP dim3 group_index() { return dim3(blockIdx.x, blockIdx.y, blockIdx.z); }
  KANSOKU_GROUP dim3 thread_index() { return dim3(threadIdx.x, threadIdx.y, threadIdx.z); }
  KANSOKU_GROUP dim3 dim_threads() { return dim3(blockDim.x, blockDim.y, blockDim.z); }
  KANSOKU_GROUP dim3 group_dim() { return dim_threads(); }

 private:
  KANSOKU_MEMBER thread_block() : thread_group(details::group_kind::block, 0) {}
  friend __device__ thread_block this_thread_block();
};
__device__ inline thread_block this_thread_block() {
  return thread_block();
}

/* All blocks. They meet in sync() only in a cooperative launch (is_valid()); otherwise it traps. */
class grid_group : public thread_group {
 public:
  KANSOKU_MEMBER void sync() const { details::grid_sync(); }
  KANSOKU_GROUP dim3 dim_blocks() { return dim3(gridDim.x, gridDim.y, gridDim.z); }
  KANSOKU_GROUP dim3 group_dim() { return dim_blocks(); }
  KANSOKU_GROUP dim3 block_index() { return dim3(blockIdx.x, blockIdx.y, blockIdx.z); }
  KANSOKU_GROUP unsigned long long num_blocks() {
    return static_cast<unsigned long long>(gridDim.x) * gridDim.y * gridDim.z;
  }
  KANSOKU_GROUP unsigned long long block_rank() {
    return (static_cast<unsigned long long>(blockIdx.z) * gridDim.y + blockIdx.y) * gridDim.x +
           blockIdx.x;
  }

 private:
  KANSOKU_MEMBER grid_group() : thread_group(details::group_kind::grid, 0) {}
  friend __device__ grid_group this_grid();
};
__device__ inline grid_group this_grid() {
  return grid_group();
}

template <unsigned Lanes, class Parent = void>
class thread_block_tile;

/* The lanes of a warp that were there when coalesced_threads() was called, or a part of them. Ranks
 * follow the lanes. Lanes that shfl reads beyond the group give the own value. */
class coalesced_group : public thread_group {
 public:
  KANSOKU_MEMBER void sync() const { __syncwarp(mask_); }
  KANSOKU_MEMBER unsigned size() const { return static_cast<unsigned>(__popc(mask_)); }
  KANSOKU_MEMBER unsigned num_threads() const { return size(); }
  KANSOKU_MEMBER unsigned thread_rank() const {
    return static_cast<unsigned>(__popc(mask_ & details::lanes_before()));
  }
  KANSOKU_MEMBER unsigned meta_group_rank() const { return meta_rank_; }
  KANSOKU_MEMBER unsigned meta_group_size() const { return meta_size_; }
  template <class T>
  KANSOKU_MEMBER T shfl(const T& value, unsigned rank) const {
    const unsigned source = mask_ == ~0U ? rank : details::nth_lane(mask_, rank);
    const int lane = static_cast<int>(source < 32U ? source : details::lane());
    const unsigned mask = mask_;
    return details::by_words(value, [=](int word) { return __shfl_sync(mask, word, lane, 32); });
  }
  template <class T>
  KANSOKU_MEMBER T shfl_up(const T& value, unsigned delta) const {
    const unsigned rank = thread_rank();
    return shfl(value, rank >= delta ? rank - delta : rank);
  }
  template <class T>
  KANSOKU_MEMBER T shfl_down(const T& value, unsigned delta) const {
    const unsigned rank = thread_rank();
    return shfl(value, rank + delta < size() ? rank + delta : rank);
  }
  KANSOKU_MEMBER int any(int predicate) const { return __ballot_sync(mask_, predicate) != 0U; }
  KANSOKU_MEMBER int all(int predicate) const { return __ballot_sync(mask_, predicate) == mask_; }
  /* Bit r: the answer of the member with rank r. */
  KANSOKU_MEMBER unsigned ballot(int predicate) const {
    return packed(__ballot_sync(mask_, predicate));
  }
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 700
  template <class T>
  KANSOKU_MEMBER unsigned match_any(T value) const {
    return packed(__match_any_sync(mask_, value));
  }
  template <class T>
  KANSOKU_MEMBER unsigned match_all(T value, int& predicate) const {
    return packed(__match_all_sync(mask_, value, &predicate));
  }
#endif

 private:
  KANSOKU_MEMBER coalesced_group(unsigned mask, unsigned meta_rank, unsigned meta_size)
      : thread_group(details::group_kind::lanes, mask),
        meta_rank_(meta_rank),
        meta_size_(meta_size) {}
  KANSOKU_MEMBER unsigned packed(unsigned lanes) const {
    if (mask_ == ~0U) return lanes;
    unsigned result = 0, bit = 1;
    for (unsigned rest = mask_; rest != 0U; rest &= rest - 1U, bit <<= 1)
      if ((lanes & rest & (0U - rest)) != 0U) result |= bit;
    return result;
  }
  unsigned meta_rank_, meta_size_;

  friend __device__ coalesced_group coalesced_threads();
  friend __device__ coalesced_group binary_partition(const coalesced_group&, bool);
  template <unsigned Lanes, class Parent>
  friend __device__ coalesced_group binary_partition(const thread_block_tile<Lanes, Parent>& parent,
                                                     bool predicate);
  friend __device__ coalesced_group tiled_partition(const coalesced_group&, unsigned);
};
__device__ inline coalesced_group coalesced_threads() {
  return coalesced_group(__activemask(), 0, 1);
}

/* A tile of a block or of a greater tile: a power of two of neighbouring lanes, 32 at most. */
template <unsigned Lanes>
class thread_block_tile<Lanes, void> : public thread_group {
  static_assert(Lanes >= 1 && Lanes <= 32 && (Lanes & (Lanes - 1)) == 0,
                "tiles have 1, 2, 4, 8, 16 or 32 lanes: larger ones are not supported");

 public:
  KANSOKU_MEMBER void sync() const { __syncwarp(mask_); }
  KANSOKU_GROUP constexpr unsigned size() { return Lanes; }
  KANSOKU_GROUP constexpr unsigned num_threads() { return Lanes; }
  KANSOKU_GROUP unsigned thread_rank() { return details::lane() & (Lanes - 1U); }
  KANSOKU_MEMBER unsigned meta_group_rank() const { return meta_rank_; }
  KANSOKU_MEMBER unsigned meta_group_size() const { return meta_size_; }
  template <class T>
  KANSOKU_MEMBER T shfl(const T& value, int rank) const {
    const unsigned mask = mask_;
    return details::by_words(
        value, [=](int word) { return __shfl_sync(mask, word, rank, static_cast<int>(Lanes)); });
  }
  template <class T>
  KANSOKU_MEMBER T shfl_up(const T& value, unsigned delta) const {
    const unsigned mask = mask_;
    return details::by_words(value, [=](int word) {
      return __shfl_up_sync(mask, word, delta, static_cast<int>(Lanes));
    });
  }
  template <class T>
  KANSOKU_MEMBER T shfl_down(const T& value, unsigned delta) const {
    const unsigned mask = mask_;
    return details::by_words(value, [=](int word) {
      return __shfl_down_sync(mask, word, delta, static_cast<int>(Lanes));
    });
  }
  template <class T>
  KANSOKU_MEMBER T shfl_xor(const T& value, unsigned lanes) const {
    const unsigned mask = mask_;
    return details::by_words(value, [=](int word) {
      return __shfl_xor_sync(mask, word, static_cast<int>(lanes), static_cast<int>(Lanes));
    });
  }
  KANSOKU_MEMBER int any(int predicate) const { return __ballot_sync(mask_, predicate) != 0U; }
  KANSOKU_MEMBER int all(int predicate) const { return __ballot_sync(mask_, predicate) == mask_; }
  /* Bit r: the answer of the member with rank r. */
  KANSOKU_MEMBER unsigned ballot(int predicate) const {
    return __ballot_sync(mask_, predicate) >> first_lane();
  }
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 700
  template <class T>
  KANSOKU_MEMBER unsigned match_any(T value) const {
    return __match_any_sync(mask_, value) >> first_lane();
  }
  template <class T>
  KANSOKU_MEMBER unsigned match_all(T value, int& predicate) const {
    return __match_all_sync(mask_, value, &predicate) >> first_lane();
  }
#endif

 protected:
  KANSOKU_MEMBER thread_block_tile(unsigned meta_rank, unsigned meta_size)
      : thread_group(details::group_kind::lanes, (~0U >> (32U - Lanes)) << first_lane()),
        meta_rank_(meta_rank),
        meta_size_(meta_size) {}

 private:
  KANSOKU_GROUP unsigned first_lane() {
    return details::lane() & ~(Lanes - 1U);
  }
  KANSOKU_MEMBER unsigned lanes() const {
    return mask_;
  }
  unsigned meta_rank_, meta_size_;
  template <unsigned L, class Parent>
  friend __device__ coalesced_group binary_partition(const thread_block_tile<L, Parent>&, bool);
};
template <unsigned Lanes, class Parent>
class thread_block_tile : public thread_block_tile<Lanes, void> {
  KANSOKU_MEMBER thread_block_tile(unsigned meta_rank, unsigned meta_size)
      : thread_block_tile<Lanes, void>(meta_rank, meta_size) {}
  template <unsigned L>
  friend __device__ thread_block_tile<L, thread_block> tiled_partition(const thread_block&);
  template <unsigned L, unsigned ParentLanes, class GrandParent>
  friend __device__ thread_block_tile<L, thread_block_tile<ParentLanes, GrandParent>>
  tiled_partition(const thread_block_tile<ParentLanes, GrandParent>&);
};

/* Parts of `Lanes` neighbours; the last one of a block may lack threads. */
template <unsigned Lanes>
__device__ inline thread_block_tile<Lanes, thread_block> tiled_partition(const thread_block&) {
  return thread_block_tile<Lanes, thread_block>(details::block_rank() / Lanes,
                                                (details::block_threads() + Lanes - 1U) / Lanes);
}
template <unsigned Lanes, unsigned ParentLanes, class GrandParent>
__device__ inline thread_block_tile<Lanes, thread_block_tile<ParentLanes, GrandParent>>
tiled_partition(const thread_block_tile<ParentLanes, GrandParent>& parent) {
  static_assert(Lanes <= ParentLanes, "a part is not greater than the whole");
  return thread_block_tile<Lanes, thread_block_tile<ParentLanes, GrandParent>>(
      parent.thread_rank() / Lanes, ParentLanes / Lanes);
}
/* The thread alone. */
__device__ inline thread_block_tile<1, thread_block> this_thread() {
  return tiled_partition<1>(this_thread_block());
}

/* Neighbours by rank, with a number of lanes that is known only as the kernel runs. */
__device__ inline coalesced_group tiled_partition(const coalesced_group& parent, unsigned lanes) {
  const unsigned tile = parent.thread_rank() / lanes;
  unsigned mask = 0, rank = 0;
  for (unsigned rest = parent.mask_; rest != 0U; rest &= rest - 1U, ++rank)
    if (rank / lanes == tile) mask |= rest & (0U - rest);
  return coalesced_group(mask, tile, (parent.size() + lanes - 1U) / lanes);
}
/* Part of a block: a power of two of lanes, 32 at most. */
__device__ inline thread_group tiled_partition(const thread_group& parent, unsigned lanes) {
  unsigned mask = (~0U >> (32U - lanes)) << (details::lane() & ~(lanes - 1U));
  if (parent.kind_ == details::group_kind::lanes) mask &= parent.mask_;
  return thread_group(details::group_kind::lanes, mask);
}

/* Those that say the same. */
__device__ inline coalesced_group binary_partition(const coalesced_group& parent, bool predicate) {
  const unsigned those = __ballot_sync(parent.mask_, predicate);
  return coalesced_group(predicate ? those : parent.mask_ & ~those, predicate ? 1 : 0, 2);
}
template <unsigned Lanes, class Parent>
__device__ inline coalesced_group binary_partition(const thread_block_tile<Lanes, Parent>& parent,
                                                   bool predicate) {
  const thread_block_tile<Lanes, void>& tile = parent;
  const unsigned those = __ballot_sync(tile.lanes(), predicate);
  return coalesced_group(predicate ? those : tile.lanes() & ~those, predicate ? 1 : 0, 2);
}

/* Functions for members. */
template <class Group>
__device__ inline void sync(const Group& group) {
  group.sync();
}
template <class Group>
__device__ inline auto thread_rank(const Group& group) -> decltype(group.thread_rank()) {
  return group.thread_rank();
}
template <class Group>
__device__ inline auto group_size(const Group& group) -> decltype(group.size()) {
  return group.size();
}
/* One of the members runs `function`. */
template <class Group, class Function, class... Arguments>
__device__ inline void invoke_one(const Group& group, Function&& function,
                                  Arguments&&... arguments) {
  if (group.thread_rank() == 0) function(static_cast<Arguments&&>(arguments)...);
}

} /* namespace cooperative_groups */

#undef KANSOKU_GROUP
#undef KANSOKU_MEMBER
#endif /* __CUDA__ && __cplusplus */

#endif /* KANSOKU_SOFTGPU_COOPERATIVE_GROUPS_H */
