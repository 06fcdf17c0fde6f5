// SPDX-License-Identifier: Apache-2.0
#include "softcuda/nccl/internal/operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "softcuda/nccl/internal/reduction.h"

namespace kansoku::softcuda::nccl {
namespace {

using Kind = Operation::Kind;

constexpr std::size_t kSmallBytes = std::size_t{32} << 10;  // reduced by each rank for itself
constexpr std::size_t kStageBytes = std::size_t{2} << 20;   // of others' data at a time

constexpr std::array<const char*, 7> kNames{"ncclAllReduce", "ncclReduce",        "ncclBroadcast",
                                            "ncclAllGather", "ncclReduceScatter", "ncclSend",
                                            "ncclRecv"};

/// A bijection that spreads every bit (the finaliser of splitmix64).
std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/// The ranks after `rank` in a circle, so that not all talk to the same one first.
template <class Visit>
Result<void> for_peers(const Mesh& mesh, const Visit& visit) {
  for (int step = 1; step < mesh.ranks; ++step)
    TRY_VOID(visit((mesh.rank + step) % mesh.ranks));
  return {};
}

/// One operation's way through its arrays.
class Run {
 public:
  Run(const Operation& operation, const Mesh& mesh, std::vector<std::byte>& scratch)
      : it_(operation),
        mesh_(mesh),
        scratch_(scratch),
        element_(bytes_of(operation.type)),
        own_(static_cast<std::size_t>(mesh.rank)),
        ranks_(static_cast<std::size_t>(mesh.ranks)),
        reduction_(operation.type, operation.op, mesh.ranks) {}

  Result<void> all_reduce() { return it_.count * element_ <= kSmallBytes ? small() : sliced(); }
  Result<void> reduce_scatter();
  Result<void> all_gather();
  Result<void> broadcast();

 private:
  struct Range {
    std::size_t begin{0}, count{0};  // elements
  };
  [[nodiscard]] bool is_receiver(int rank) const {
    return it_.kind == Kind::kAllReduce || rank == it_.peer;
  }
  /// Place of `piece` of `rank` while it is waited for, then room to combine pieces in.
  std::byte* staged(std::size_t rank, std::size_t piece_bytes) {
    return scratch_.data() + rank * piece_bytes;
  }
  void make_room(std::size_t piece) {
    const std::size_t bytes = piece * (ranks_ * element_ + reduction_.wide_bytes());
    if (scratch_.size() < bytes) scratch_.resize(bytes);
  }
  void combine_staged(std::size_t count, std::size_t piece_bytes, std::byte* to);
  Result<void> small();
  Result<void> sliced();
  Result<void> slice(Range all, std::size_t piece_bytes);
  /// Part of a slice that rank `rank` combines.
  [[nodiscard]] Range shard(Range slice, std::size_t rank) const {
    const std::size_t begin = slice.count * rank / ranks_;
    return {slice.begin + begin, slice.count * (rank + 1) / ranks_ - begin};
  }

  const Operation& it_;
  const Mesh& mesh_;
  std::vector<std::byte>& scratch_;
  const std::size_t element_;  // bytes
  const std::size_t own_, ranks_;
  const Reduction reduction_;
};

/// Combines what is staged, in the order of ranks.
void Run::combine_staged(std::size_t count, std::size_t piece_bytes, std::byte* to) {
  std::byte* const wide = staged(ranks_, piece_bytes);
  reduction_.load(wide, staged(0, piece_bytes), count);
  for (std::size_t rank = 1; rank < ranks_; ++rank)
    reduction_.combine(wide, staged(rank, piece_bytes), count);
  reduction_.store(to, wide, count);
}

/// One round: everyone sends everything, and who wants the result combines it.
Result<void> Run::small() {
  const std::size_t bytes = it_.count * element_;
  make_room(it_.count);
  Exchange exchange(mesh_.link);
  const auto post = [&](int peer) -> Result<void> {
    if (is_receiver(mesh_.rank))
      TRY_VOID(
          exchange.receive(peer, it_.slot, staged(static_cast<std::size_t>(peer), bytes), bytes));
    return is_receiver(peer) ? exchange.send(peer, it_.slot, it_.from, bytes) : Result<void>();
  };
  TRY_VOID(for_peers(mesh_, post));
  TRY_VOID(exchange.wait());
  if (!is_receiver(mesh_.rank)) return {};
  std::memcpy(staged(own_, bytes), it_.from, bytes);
  combine_staged(it_.count, bytes, it_.to);
  return {};
}

/// Slice after slice: each rank combines a shard of it and hands that to the receivers.
Result<void> Run::sliced() {
  const std::size_t piece = std::max<std::size_t>(kStageBytes / ranks_ / element_, 1);
  make_room(piece);
  for (std::size_t begin = 0; begin < it_.count; begin += piece * ranks_) {
    TRY_VOID(slice({begin, std::min(piece * ranks_, it_.count - begin)}, piece * element_));
  }
  return {};
}

Result<void> Run::slice(Range all, std::size_t piece_bytes) {
  const Range mine = shard(all, own_);
  const std::size_t bytes = mine.count * element_;
  Exchange exchange(mesh_.link);
  const auto post = [&](int peer) -> Result<void> {
    const auto index = static_cast<std::size_t>(peer);
    const Range theirs = shard(all, index);
    TRY_VOID(exchange.receive(peer, it_.slot, staged(index, piece_bytes), bytes));
    return exchange.send(peer, it_.slot, it_.from + theirs.begin * element_,
                         theirs.count * element_);
  };
  TRY_VOID(for_peers(mesh_, post));
  TRY_VOID(exchange.wait());
  std::memcpy(staged(own_, piece_bytes), it_.from + mine.begin * element_, bytes);
  // A rank that keeps no result has no array for it: its shard goes into the room of its own piece.
  const bool keeps = is_receiver(mesh_.rank);
  std::byte* const result = keeps ? it_.to + mine.begin * element_ : staged(own_, piece_bytes);
  combine_staged(mine.count, piece_bytes, result);
  const auto pass_on = [&](int peer) -> Result<void> {
    const Range theirs = shard(all, static_cast<std::size_t>(peer));
    if (keeps) {
      TRY_VOID(exchange.receive(peer, it_.slot + 1, it_.to + theirs.begin * element_,
                                theirs.count * element_));
    }
    return is_receiver(peer) ? exchange.send(peer, it_.slot + 1, result, bytes) : Result<void>();
  };
  TRY_VOID(for_peers(mesh_, pass_on));
  return exchange.wait();
}

Result<void> Run::reduce_scatter() {
  const std::size_t piece =
      std::min(std::max<std::size_t>(kStageBytes / ranks_ / element_, 1), it_.count);
  const std::size_t piece_bytes = piece * element_;
  make_room(piece);
  for (std::size_t begin = 0; begin < it_.count; begin += piece) {
    const std::size_t count = std::min(piece, it_.count - begin);
    const auto block = [&](std::size_t rank) {
      return it_.from + (rank * it_.count + begin) * element_;
    };
    Exchange exchange(mesh_.link);
    const auto post = [&](int peer) -> Result<void> {
      const auto index = static_cast<std::size_t>(peer);
      TRY_VOID(exchange.receive(peer, it_.slot, staged(index, piece_bytes), count * element_));
      return exchange.send(peer, it_.slot, block(index), count * element_);
    };
    TRY_VOID(for_peers(mesh_, post));
    TRY_VOID(exchange.wait());
    std::memcpy(staged(own_, piece_bytes), block(own_), count * element_);
    combine_staged(count, piece_bytes, it_.to + begin * element_);
  }
  return {};
}

Result<void> Run::all_gather() {
  const std::size_t bytes = it_.count * element_;
  Exchange exchange(mesh_.link);
  const auto post = [&](int peer) -> Result<void> {
    TRY_VOID(
        exchange.receive(peer, it_.slot, it_.to + static_cast<std::size_t>(peer) * bytes, bytes));
    return exchange.send(peer, it_.slot, it_.from, bytes);
  };
  TRY_VOID(for_peers(mesh_, post));
  if (it_.to + own_ * bytes != it_.from) std::memmove(it_.to + own_ * bytes, it_.from, bytes);
  return exchange.wait();
}

Result<void> Run::broadcast() {
  const std::size_t bytes = it_.count * element_;
  Exchange exchange(mesh_.link);
  if (mesh_.rank != it_.peer) {
    TRY_VOID(exchange.receive(it_.peer, it_.slot, it_.to, bytes));
    return exchange.wait();
  }
  const auto post = [&](int peer) { return exchange.send(peer, it_.slot, it_.from, bytes); };
  TRY_VOID(for_peers(mesh_, post));
  if (it_.to != it_.from) std::memmove(it_.to, it_.from, bytes);
  return exchange.wait();
}

Result<void> run_collective(const Operation& operation, const Mesh& mesh,
                            std::vector<std::byte>& scratch) {
  Run run(operation, mesh, scratch);
  switch (operation.kind) {
    case Kind::kAllReduce:
    case Kind::kReduce:
      return run.all_reduce();
    case Kind::kReduceScatter:
      return run.reduce_scatter();
    case Kind::kAllGather:
      return run.all_gather();
    case Kind::kBroadcast:
      return run.broadcast();
    default:
      CHECK(false);
  }
  return {};
}

/// Copies what a rank sends to itself: the nth send is for the nth receive.
void copy_to_self(std::span<const Operation> operations, int rank) {
  auto receiver = operations.begin();
  for (const Operation& sender : operations) {
    if (sender.kind != Kind::kSend || sender.peer != rank) continue;
    while (receiver->kind != Kind::kReceive || receiver->peer != rank)
      ++receiver;
    std::memmove(receiver->to, sender.from, sender.count * bytes_of(sender.type));
    ++receiver;
  }
}

Error with_operation(const Operation& operation, const Error& error) {
  return Error{error.code, fmt::format("{}: {}", describe(operation), error.what)};
}

}  // namespace

std::string describe(const Operation& operation) {
  const char* const name = kNames[static_cast<std::size_t>(operation.kind)];
  if (operation.is_collective()) {
    return fmt::format("{} {} ({} {})", name, operation.number, operation.count,
                       name_of(operation.type));
  }
  return fmt::format("{} {} {} rank {} ({} {})", name, operation.number,
                     operation.kind == Kind::kSend ? "to" : "from", operation.peer, operation.count,
                     name_of(operation.type));
}

std::uint64_t slot_of(const Operation& operation, int rank) {
  // Number made of the facts that both ends know, the same on both.
  std::uint64_t slot = mixed(operation.number + 1);
  if (operation.is_collective()) {
    const bool has_root = operation.kind == Kind::kReduce || operation.kind == Kind::kBroadcast;
    for (const std::uint64_t word :
         {static_cast<std::uint64_t>(operation.kind), static_cast<std::uint64_t>(operation.type),
          static_cast<std::uint64_t>(operation.op), std::uint64_t{operation.count},
          static_cast<std::uint64_t>(has_root ? operation.peer : 0)})
      slot = mixed(slot ^ word);
  } else {
    const int sender = operation.kind == Kind::kSend ? rank : operation.peer;
    for (const std::uint64_t word :
         {static_cast<std::uint64_t>(Kind::kSend), static_cast<std::uint64_t>(sender),
          std::uint64_t{operation.count} * bytes_of(operation.type)})
      slot = mixed(slot ^ word);
  }
  return slot & ~std::uint64_t{1};
}

Result<void> perform(std::span<const Operation> operations, const Mesh& mesh,
                     std::vector<std::byte>& scratch) {
  Exchange passing(mesh.link);
  copy_to_self(operations, mesh.rank);
  std::size_t passing_count = 0;
  const Operation* last = nullptr;
  for (const Operation& operation : operations) {
    if (operation.is_collective() || operation.peer == mesh.rank) continue;
    last = &operation;
    ++passing_count;
    const std::size_t bytes = operation.count * bytes_of(operation.type);
    const auto posted = operation.kind == Kind::kSend
                            ? passing.send(operation.peer, operation.slot, operation.from, bytes)
                            : passing.receive(operation.peer, operation.slot, operation.to, bytes);
    if (!posted) return with_operation(operation, posted.error());
  }
  for (const Operation& operation : operations) {
    if (!operation.is_collective() || operation.count == 0) continue;
    if (const auto done = run_collective(operation, mesh, scratch); !done)
      return with_operation(operation, done.error());
  }
  if (const auto done = passing.wait(); !done) {
    if (passing_count == 1) return with_operation(*last, done.error());
    return Error{done.error().code,
                 fmt::format("ncclSend and ncclRecv of a group: {}", done.error().what)};
  }
  return {};
}

}  // namespace kansoku::softcuda::nccl
