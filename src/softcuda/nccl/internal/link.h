// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/bytes.h"
#include "common/result.h"
#include "common/time.h"

namespace kansoku::softcuda::nccl {

/// The connections of one rank with all others of its communicator, over gloo's TCP transport. Any
/// thread.
class Link {
 public:
  struct Options {
    int rank{0}, ranks{2};    // of at least two
    std::string host;         // numeric address of this rank's interface
    Nanos timeout{};          // a wait without progress ends after it
    Nanos connect_timeout{};  // and one for the connections
  };
  /// Listens for the others. kUnavailable and the like name the lack of the network.
  [[nodiscard]] static Result<std::unique_ptr<Link>> open(const Options& options,
                                                          const Clock& clock);
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  /// Closes softly: sent data still arrive.
  ~Link();

  /// Bytes of an address; and for each rank in turn the address where this one waits for it.
  [[nodiscard]] std::size_t address_bytes() const;
  [[nodiscard]] ByteSpan addresses() const;
  /// Connects to all others; `table` has each rank's address for this one in turn, `greeting` is a
  /// secret of the ranks. Blocks until all are connected with each other, for `connect_timeout` at
  /// most.
  [[nodiscard]] Result<void> connect(ByteSpan table, std::uint64_t greeting);
  /// Closes hard, for good: waits on the link fail, and those of the peers as well.
  void close();

 private:
  friend class Exchange;
  struct Impl;
  explicit Link(std::unique_ptr<Impl> impl);
  [[nodiscard]] Result<void> greet(std::uint64_t greeting);
  const std::unique_ptr<Impl> impl_;
};

/// Sends and receives that go on together. The peer receives the data of a slot with the same slot,
/// in order of posting; a slot that the peer never uses is waited for until the timeout. The first
/// failure closes the link. SIGPIPE is blocked meanwhile (signals.h). After a successful wait() and
/// after destruction no memory is touched any more. One thread.
class Exchange {
 public:
  /// `link` outlives it; null if there are no peers. `timeout`: instead of the link's.
  explicit Exchange(Link* link, std::optional<Nanos> timeout = std::nullopt);
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  ~Exchange();

  /// Both return at once. No bytes: nothing is done. Both sides name the same number of bytes.
  [[nodiscard]] Result<void> send(int peer, std::uint64_t slot, const std::byte* from,
                                  std::size_t bytes);
  [[nodiscard]] Result<void> receive(int peer, std::uint64_t slot, std::byte* to,
                                     std::size_t bytes);
  /// Until all is sent and received; more can be posted afterwards.
  [[nodiscard]] Result<void> wait();

 private:
  struct Transfer;
  [[nodiscard]] Result<void> post(bool is_send, int peer, std::uint64_t slot, std::byte* at,
                                  std::size_t bytes);
  [[nodiscard]] Result<void> post_piece(bool is_send, int peer, std::uint64_t slot, std::byte* at,
                                        std::size_t bytes);
  [[nodiscard]] Result<void> wait_for(Transfer& transfer);
  Link::Impl* const link_;
  const Nanos timeout_;
  std::vector<Transfer> transfers_;
};

}  // namespace kansoku::softcuda::nccl
