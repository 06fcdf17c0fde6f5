// SPDX-License-Identifier: Apache-2.0
// The one place that sees gloo. Its exceptions end here.
#include "softcuda/nccl/internal/link.h"

#include <fmt/format.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

#include "softcuda/nccl/internal/signals.h"

namespace kansoku::softcuda::nccl {
namespace {

namespace transport = ::gloo::transport;

constexpr std::size_t kPieceBytes = std::size_t{16} << 20;  // of one message
// A pair waits five times its timeout for its connection.
constexpr int kConnectFactor = 5;
// Operations have even slots and those above.
constexpr std::uint64_t kGreetingSlot = 1;
constexpr std::uint64_t kCanarySlot = 3;  // and 5
// Between looks at the others once a peer has left.
constexpr std::chrono::milliseconds kPeerLook{50};

std::chrono::milliseconds to_ms(Nanos time) {
  return std::max(std::chrono::duration_cast<std::chrono::milliseconds>(time),
                  std::chrono::milliseconds{1});
}

/// gloo's texts begin with "[file:line] ".
std::string_view without_place(std::string_view text) {
  if (text.starts_with('[')) {
    if (const auto end = text.find("] "); end != std::string_view::npos)
      text.remove_prefix(end + 2);
  }
  return text;
}

/// The result of `call`; what it throws as an Error of `code`.
template <class Call>
Result<void> caught(Code code, std::string_view operation, const Call& call) {
  try {
    call();
    return {};
  } catch (const std::exception& thrown) {
    return Error{code, fmt::format("{}: {}", operation, without_place(thrown.what()))};
  } catch (...) {  // allowed: a third-party edge
    return Error{code, fmt::format("{}: unknown exception", operation)};
  }
}

}  // namespace

struct Link::Impl {
  Impl(const Options& with, const Clock& time) : options(with), clock(time) {}
  const Options options;
  const Clock& clock;
  std::shared_ptr<transport::Device> device;
  std::shared_ptr<transport::Context> context;
  std::size_t address_bytes{0};
  std::vector<std::byte> addresses;
  std::mutex mutex;
  bool is_closed{false};                                       // guarded by mutex
  std::unordered_map<transport::UnboundBuffer*, int> waiting;  // with their peers; guarded by mutex
  std::condition_variable closing;
  // Buffers that the monitor waits with: messages of any peer, and of each alone.
  char nothing{0};
  std::unique_ptr<transport::UnboundBuffer> canary;
  std::map<int, std::unique_ptr<transport::UnboundBuffer>> canaries;
  std::thread monitor;

  ~Impl();
  void make_device();
  void make_pairs();
  void close();
  void start_watching();
  void watch();
  void wake_those_who_wait_for(int peer);
};

Link::Impl::~Impl() {
  {
    const std::scoped_lock lock(mutex);
    is_closed = true;
  }
  closing.notify_all();
  if (canary != nullptr) canary->abortWaitRecv();
  if (monitor.joinable()) monitor.join();
}

/// On a thread of its own, from which gloo's thread takes its name, signal mask and scheduling.
void Link::Impl::make_device() {
  std::exception_ptr thrown;
  const AllSignalsBlocked quiet;
  std::thread([&] {
    pthread_setname_np(pthread_self(), "nccl-network");
    // gloo's thread spins while another one of us holds the lock of a pair: waking up it must not
    // push that one off its processor. (2 ranks, 4 bytes, a busy 2-core machine: 130 -> 50 us)
    const sched_param none{};
    pthread_setschedparam(pthread_self(), SCHED_BATCH, &none);
    try {
      device = transport::tcp::CreateDevice(transport::tcp::attr(options.host.c_str()));
    } catch (...) {  // allowed: a third-party edge
      thrown = std::current_exception();
    }
  }).join();
  if (thrown) std::rethrow_exception(thrown);
}

void Link::Impl::make_pairs() {
  context = device->createContext(options.rank, options.ranks);
  context->setTimeout(to_ms(options.connect_timeout / kConnectFactor));
  for (int peer = 0; peer < options.ranks; ++peer) {
    if (peer == options.rank) continue;
    const std::vector<char> address = context->createPair(peer)->address().bytes();
    address_bytes = address.size();
    addresses.resize(static_cast<std::size_t>(options.ranks) * address_bytes);
    std::memcpy(addresses.data() + static_cast<std::size_t>(peer) * address_bytes, address.data(),
                address_bytes);
  }
}

void Link::Impl::close() {
  {
    const std::scoped_lock lock(mutex);
    if (std::exchange(is_closed, true)) return;
  }
  // Connections first: a buffer that goes away while its pair is open keeps gloo's thread busy.
  for (int peer = 0; peer < options.ranks; ++peer) {
    if (peer == options.rank) continue;
    const auto& pair = context->getPair(peer);
    if (pair != nullptr)
      static_cast<void>(caught(Code::kInternal, "close", [&] { pair->close(); }));
  }
  const std::scoped_lock lock(mutex);
  for (const auto& [buffer, peer] : waiting) {
    buffer->abortWaitRecv();
    buffer->abortWaitSend();
  }
  if (canary != nullptr) canary->abortWaitRecv();
  closing.notify_all();
}

// When a connection breaks, gloo wakes whoever waits for a message that has not begun, but neither
// the one whose message is just being received nor one whose message still waits to be written. So
// the monitor waits for messages that no peer ever sends, and wakes the others. It sends nothing
// later than here: bytes that meet a peer who has left would destroy what is still on its way.

void Link::Impl::start_watching() {
  canary = context->createUnboundBuffer(&nothing, 1);
  for (int peer = 0; peer < options.ranks; ++peer) {
    if (peer == options.rank) continue;
    auto& own = canaries[peer] = context->createUnboundBuffer(&nothing, 1);
    own->recv(peer, kCanarySlot, 0, 1);
    canary->recv(peer, kCanarySlot + 2, 0, 1);
  }
  const AllSignalsBlocked quiet;
  monitor = std::thread(
      [this] { static_cast<void>(caught(Code::kInternal, "watch", [this] { watch(); })); });
  pthread_setname_np(monitor.native_handle(), "nccl-monitor");
}

void Link::Impl::watch() {
  // Until the first one leaves, or the link is closed.
  const auto first = caught(Code::kUnavailable, "watch",
                            [this] { canary->waitRecv(nullptr, std::chrono::hours{24 * 3650}); });
  if (first) return;
  std::unique_lock lock(mutex);
  while (!is_closed && !canaries.empty()) {
    std::erase_if(canaries, [this](const auto& entry) {
      // Aborted beforehand, the wait does not wait: it throws if the connection is broken.
      entry.second->abortWaitRecv();
      const auto is_whole = caught(Code::kUnavailable, "watch",
                                   [&entry] { entry.second->waitRecv(nullptr, kPeerLook); });
      if (!is_whole) wake_those_who_wait_for(entry.first);
      return !is_whole.has_value();
    });
    closing.wait_for(lock, kPeerLook, [this] { return is_closed; });
  }
}

/// The mutex is held.
void Link::Impl::wake_those_who_wait_for(int peer) {
  for (const auto& [buffer, of_peer] : waiting) {
    if (of_peer != peer) continue;
    buffer->abortWaitRecv();
    buffer->abortWaitSend();
  }
}

Result<std::unique_ptr<Link>> Link::open(const Options& options, const Clock& clock) {
  auto impl = std::make_unique<Impl>(options, clock);
  TRY_VOID(caught(Code::kPermission, fmt::format("open the network at {}", options.host), [&] {
    impl->make_device();
    impl->make_pairs();
  }));
  return std::unique_ptr<Link>(new Link(std::move(impl)));
}

Link::Link(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Link::~Link() = default;

std::size_t Link::address_bytes() const {
  return impl_->address_bytes;
}

ByteSpan Link::addresses() const {
  return impl_->addresses;
}

void Link::close() {
  impl_->close();
}

/// Whoever has greeted is connected with everyone: after it a rank may do, and go, as it likes.
Result<void> Link::greet(std::uint64_t greeting) {
  const auto ranks = static_cast<std::size_t>(impl_->options.ranks);
  std::vector<std::uint64_t> greetings(ranks, greeting);
  Exchange exchange(this, impl_->options.connect_timeout);
  for (int peer = 0; peer < impl_->options.ranks; ++peer) {
    if (peer == impl_->options.rank) continue;
    std::uint64_t& theirs = greetings[static_cast<std::size_t>(peer)];
    theirs = ~greeting;
    TRY_VOID(exchange.receive(peer, kGreetingSlot, reinterpret_cast<std::byte*>(&theirs),
                              sizeof(theirs)));
    TRY_VOID(exchange.send(peer, kGreetingSlot, reinterpret_cast<const std::byte*>(&greeting),
                           sizeof(greeting)));
  }
  TRY_VOID(exchange.wait());
  for (std::size_t peer = 0; peer < ranks; ++peer) {
    if (greetings[peer] != greeting) {
      close();
      return Error{Code::kCorrupt, fmt::format("another process connected as rank {}", peer)};
    }
  }
  return {};
}

Result<void> Link::connect(ByteSpan table, std::uint64_t greeting) {
  const SigpipeBlocked quiet;
  const std::size_t bytes = impl_->address_bytes;
  if (table.size() != impl_->addresses.size())
    return Error{Code::kCorrupt, "connect to the other ranks: their addresses are damaged"};
  for (int peer = 0; peer < impl_->options.ranks; ++peer) {
    if (peer == impl_->options.rank) continue;
    const ByteSpan address = table.subspan(static_cast<std::size_t>(peer) * bytes, bytes);
    const auto* const text = reinterpret_cast<const char*>(address.data());
    TRY_VOID(caught(Code::kUnavailable, fmt::format("connect to rank {}", peer), [&] {
      impl_->context->getPair(peer)->connect(std::vector<char>(text, text + bytes));
    }));
  }
  TRY_VOID(caught(Code::kUnavailable, "connect to the other ranks",
                  [this] { impl_->start_watching(); }));
  if (auto greeted = greet(greeting); !greeted) {
    return Error{greeted.error().code,
                 fmt::format("connect to the other ranks: {}", greeted.error().what)};
  }
  return {};
}

struct Exchange::Transfer {
  std::unique_ptr<transport::UnboundBuffer> buffer;
  bool is_send;
  int peer;
};

Exchange::Exchange(Link* link, std::optional<Nanos> timeout)
    : link_(link == nullptr ? nullptr : link->impl_.get()),
      timeout_(timeout.value_or(link_ == nullptr ? Nanos{} : link_->options.timeout)) {}

Exchange::~Exchange() {
  if (link_ == nullptr) return;
  const std::scoped_lock lock(link_->mutex);
  for (const auto& transfer : transfers_)
    link_->waiting.erase(transfer.buffer.get());
}

Result<void> Exchange::send(int peer, std::uint64_t slot, const std::byte* from,
                            std::size_t bytes) {
  // Nothing is written to it: gloo's buffers go both ways.
  return post(true, peer, slot, const_cast<std::byte*>(from), bytes);  // NOLINT
}

Result<void> Exchange::receive(int peer, std::uint64_t slot, std::byte* to, std::size_t bytes) {
  return post(false, peer, slot, to, bytes);
}

Result<void> Exchange::post(bool is_send, int peer, std::uint64_t slot, std::byte* at,
                            std::size_t bytes) {
  for (std::size_t done = 0; done < bytes; done += kPieceBytes)
    TRY_VOID(post_piece(is_send, peer, slot, at + done, std::min(kPieceBytes, bytes - done)));
  return {};
}

Result<void> Exchange::post_piece(bool is_send, int peer, std::uint64_t slot, std::byte* at,
                                  std::size_t bytes) {
  auto posted = caught(Code::kUnavailable,
                       fmt::format("{} rank {}", is_send ? "send to" : "receive from", peer), [&] {
                         auto buffer = link_->context->createUnboundBuffer(at, bytes);
                         auto* const raw = buffer.get();
                         transfers_.push_back({std::move(buffer), is_send, peer});
                         {
                           const std::scoped_lock lock(link_->mutex);
                           if (link_->is_closed)
                             throw std::runtime_error("the connection was closed");
                           link_->waiting.emplace(raw, peer);
                         }
                         if (is_send) {
                           raw->send(peer, slot, 0, bytes);
                         } else {
                           raw->recv(peer, slot, 0, bytes);
                         }
                       });
  if (!posted) link_->close();
  return posted;
}

Result<void> Exchange::wait_for(Transfer& transfer) {
  const BootTime start = link_->clock.now();
  const auto timeout = to_ms(timeout_);
  bool is_done = false;
  const auto wait_until = [&](std::chrono::milliseconds time) {
    return caught(
        Code::kUnavailable,
        fmt::format("{} rank {}", transfer.is_send ? "send to" : "receive from", transfer.peer),
        [&] {
          is_done = transfer.is_send ? transfer.buffer->waitSend(nullptr, time)
                                     : transfer.buffer->waitRecv(nullptr, time);
        });
  };
  auto waited = wait_until(timeout);
  if (!waited && link_->clock.now() - start >= timeout) {
    return Error{Code::kTimeout, fmt::format("rank {} did not take part within {} s", transfer.peer,
                                             std::chrono::duration<double>(timeout_).count())};
  }
  if (!waited || is_done) return waited;
  // Woken. An operation that was complete when its peer left is complete; nothing else comes any
  // more.
  static_cast<void>(wait_until(std::chrono::milliseconds{1}));
  if (is_done) return {};
  const std::scoped_lock lock(link_->mutex);
  if (link_->is_closed) return Error{Code::kUnavailable, "the communicator was closed"};
  return Error{Code::kUnavailable, fmt::format("rank {} is gone", transfer.peer)};
}

Result<void> Exchange::wait() {
  for (Transfer& transfer : transfers_) {
    if (auto waited = wait_for(transfer); !waited) {
      link_->close();
      return waited;
    }
  }
  if (link_ != nullptr) {
    const std::scoped_lock lock(link_->mutex);
    for (const auto& transfer : transfers_)
      link_->waiting.erase(transfer.buffer.get());
  }
  transfers_.clear();
  return {};
}

}  // namespace kansoku::softcuda::nccl
