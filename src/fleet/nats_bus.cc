// SPDX-License-Identifier: Apache-2.0
#include "fleet/nats_bus.h"

#include <fmt/format.h>
#include <nats/nats.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <limits>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "common/rng.h"
#include "fleet/internal/endpoint.h"
#include "sys/entropy.h"

namespace kansoku::fleet {
namespace {

constexpr std::int64_t kPingIntervalMs = 20'000;  // a silent server is noticed within a minute
constexpr std::int64_t kWriteDeadlineMs = 5'000;
constexpr std::int64_t kFlushMs = 1'000;  // at a time
constexpr std::size_t kBatch = 256;       // messages sent before orders are looked at again
constexpr std::size_t kErrorBytesMax = 200;
// A connection that held for this long was a good one: the pauses begin small again.
constexpr Nanos kGoodConnection = std::chrono::seconds{1};

std::int64_t milliseconds(Nanos time) {
  return std::max<std::int64_t>(time.count() / 1'000'000, 1);
}

/// The library's words on its last failure on this thread. Servers are given to it without secrets,
/// so there are none in it.
std::string describe(natsStatus status) {
  const char* detail = nats_GetLastError(nullptr);
  std::string text = natsStatus_GetText(status);
  if (detail != nullptr && *detail != '\0') text = fmt::format("{}: {}", text, detail);
  return text.substr(0, kErrorBytesMax);
}

struct OptionsDeleter {
  void operator()(natsOptions* options) const { natsOptions_Destroy(options); }
};
struct ConnectionDeleter {
  void operator()(natsConnection* connection) const { natsConnection_Destroy(connection); }
};
struct SubscriptionDeleter {
  void operator()(natsSubscription* subscription) const { natsSubscription_Destroy(subscription); }
};
using Options = std::unique_ptr<natsOptions, OptionsDeleter>;
using Connection = std::unique_ptr<natsConnection, ConnectionDeleter>;
using Subscription = std::unique_ptr<natsSubscription, SubscriptionDeleter>;

/// State that the owner's thread and the link's thread share.
struct Shared {
  explicit Shared(const BusLimits& its_limits) : limits(its_limits) {}

  const BusLimits limits;
  std::mutex mu;
  std::condition_variable work, done;
  // All of the following under `mu`.
  std::deque<BusMessage> outgoing;
  std::size_t outgoing_bytes{0};
  std::map<Bus::SubscriptionId, std::string> patterns;
  bool have_patterns_changed{false};
  bool is_stopping{false};
  std::uint64_t closed{0};  // number of the latest connection that the library gave up
  std::uint64_t flush_wanted{0}, flush_done{0};
  BusStatus status;

  /// Queues a message, dropping the oldest where there is no room. Under `mu`.
  void queue(BusMessage message, bool at_front) {
    outgoing_bytes += message.bytes.size();
    if (at_front) {
      outgoing.push_front(std::move(message));
    } else {
      outgoing.push_back(std::move(message));
    }
    while (outgoing.size() > limits.outgoing_messages ||
           (outgoing_bytes > limits.outgoing_bytes && !outgoing.empty())) {
      outgoing_bytes -= outgoing.front().bytes.size();
      outgoing.pop_front();
      ++status.dropped_outgoing;
    }
  }

  /// The next messages to send. Under `mu`.
  std::deque<BusMessage> take_batch() {
    std::deque<BusMessage> batch;
    for (; !outgoing.empty() && batch.size() < kBatch; outgoing.pop_front()) {
      outgoing_bytes -= outgoing.front().bytes.size();
      batch.push_back(std::move(outgoing.front()));
    }
    return batch;
  }
};

/// Handed to the library as `void*` and owned by it until its last callback.
struct ClosedClosure {
  std::shared_ptr<Shared> shared;
  std::uint64_t number{0};  // of the connection
};
struct MessageClosure {
  std::shared_ptr<internal::Inbox> inbox;
  Bus::SubscriptionId id;
};

void on_closed(natsConnection* /*connection*/, void* closure) {
  const std::unique_ptr<ClosedClosure> own(static_cast<ClosedClosure*>(closure));
  const std::lock_guard lock(own->shared->mu);
  own->shared->closed = std::max(own->shared->closed, own->number);
  own->shared->work.notify_all();
}

void on_message(natsConnection* /*connection*/, natsSubscription* /*subscription*/, natsMsg* msg,
                void* closure) {
  const auto& own = *static_cast<const MessageClosure*>(closure);
  internal::Arrival arrival{own.id, {}, natsMsg_IsNoResponders(msg)};
  arrival.message.subject = natsMsg_GetSubject(msg);
  if (const char* reply = natsMsg_GetReply(msg); reply != nullptr) arrival.message.reply = reply;
  arrival.message.bytes.assign(natsMsg_GetData(msg),
                               static_cast<std::size_t>(natsMsg_GetDataLength(msg)));
  natsMsg_Destroy(msg);
  own.inbox->push(std::move(arrival));
}

void on_complete(void* closure) {
  const std::unique_ptr<MessageClosure> own(static_cast<MessageClosure*>(closure));
}

/// The thread that alone talks to the library: connects, sends, subscribes.
class Link {
 public:
  Link(std::shared_ptr<Shared> shared, std::shared_ptr<internal::Inbox> inbox, Options nats,
       const NatsOptions& options, const Clock& clock)
      : shared_(std::move(shared)),
        inbox_(std::move(inbox)),
        nats_(std::move(nats)),
        first_(options.backoff_first),
        most_(options.backoff_max),
        clock_(clock),
        jitter_(options.seed, "nats reconnect") {}

  void run() {
    while (!is_stopping()) {
      if (!connection_ && !connect()) {
        pause();
      } else {
        work();
      }
    }
    subscriptions_.clear();
    connection_.reset();
  }

 private:
  [[nodiscard]] bool is_stopping() const {
    const std::lock_guard lock(shared_->mu);
    return shared_->is_stopping;
  }
  bool connect();
  void pause();
  void work();
  void give_up_connection();
  void subscribe();
  void send(std::deque<BusMessage> batch);
  void give_back(std::deque<BusMessage> batch);
  void note_error(const std::string& text) {
    const std::lock_guard lock(shared_->mu);
    shared_->status.last_error = text;
  }

  const std::shared_ptr<Shared> shared_;
  const std::shared_ptr<internal::Inbox> inbox_;
  const Options nats_;
  const Nanos first_, most_;
  const Clock& clock_;
  RandomStream jitter_;
  Connection connection_;
  std::map<Bus::SubscriptionId, Subscription> subscriptions_;
  BootTime connected_at_{};
  std::uint64_t number_{0};  // of the connection, from 1
  int failures_{0};          // in a row
};

bool Link::connect() {
  auto closure = std::make_unique<ClosedClosure>(ClosedClosure{shared_, ++number_});
  natsOptions_SetClosedCB(nats_.get(), on_closed, closure.get());
  natsConnection* raw = nullptr;
  const natsStatus status = natsConnection_Connect(&raw, nats_.get());
  const std::lock_guard lock(shared_->mu);
  if (status != NATS_OK) {  // the library calls nothing back for what it never made
    ++failures_;
    ++shared_->status.failed_connects;
    shared_->status.last_error = describe(status);
    return false;
  }
  static_cast<void>(closure.release());  // on_closed has it
  connection_.reset(raw);
  connected_at_ = clock_.now();
  ++shared_->status.connects;
  shared_->status.is_connected = true;
  shared_->status.last_error.clear();
  shared_->have_patterns_changed = true;
  return true;
}

/// Between half and all of a pause that doubles with each failure.
void Link::pause() {
  Nanos pause = first_;
  for (int i = 1; i < failures_ && pause < most_; ++i)
    pause *= 2;
  pause = std::min(pause, most_);
  pause =
      pause / 2 +
      Nanos{static_cast<std::int64_t>(jitter_.uniform() * static_cast<double>(pause.count()) / 2)};
  std::unique_lock lock(shared_->mu);
  shared_->work.wait_for(lock, pause, [this] { return shared_->is_stopping; });
}

void Link::give_up_connection() {
  if (clock_.now() - connected_at_ >= kGoodConnection) {
    failures_ = 0;
  } else {
    ++failures_;
  }
  subscriptions_.clear();
  connection_.reset();
  bool must_pause = false;
  {
    const std::lock_guard lock(shared_->mu);
    shared_->status.is_connected = false;
    if (shared_->status.last_error.empty()) shared_->status.last_error = "connection lost";
    must_pause = failures_ > 0;
  }
  if (must_pause) pause();
}

void Link::subscribe() {
  std::map<Bus::SubscriptionId, std::string> patterns;
  {
    const std::lock_guard lock(shared_->mu);
    patterns = shared_->patterns;
    shared_->have_patterns_changed = false;
  }
  std::erase_if(subscriptions_, [&](const auto& entry) { return !patterns.contains(entry.first); });
  for (const auto& [id, pattern] : patterns) {
    if (subscriptions_.contains(id)) continue;
    auto closure = std::make_unique<MessageClosure>(MessageClosure{inbox_, id});
    natsSubscription* raw = nullptr;
    const natsStatus status = natsConnection_Subscribe(&raw, connection_.get(), pattern.c_str(),
                                                       on_message, closure.get());
    if (status != NATS_OK) {
      note_error(describe(status));
      continue;  // a connection that just closed: all is subscribed anew on the next one
    }
    subscriptions_[id].reset(raw);
    // If the library cannot say when it is done with the closure, it keeps it for good.
    MessageClosure* const kept = closure.release();
    natsSubscription_SetOnCompleteCB(raw, on_complete, kept);
  }
}

void Link::send(std::deque<BusMessage> batch) {
  std::uint64_t sent = 0, refused = 0;
  while (!batch.empty()) {
    const BusMessage& message = batch.front();
    const char* const subject = message.subject.c_str();
    const char* const bytes = message.bytes.data();
    const int size = static_cast<int>(message.bytes.size());
    const natsStatus status =
        message.reply.empty() ? natsConnection_Publish(connection_.get(), subject, bytes, size)
                              : natsConnection_PublishRequest(connection_.get(), subject,
                                                              message.reply.c_str(), bytes, size);
    if (status != NATS_OK && natsConnection_IsClosed(connection_.get())) break;
    if (status != NATS_OK) {
      note_error(describe(status));
      ++refused;
    } else {
      ++sent;
    }
    batch.pop_front();
  }
  {
    const std::lock_guard lock(shared_->mu);
    shared_->status.sent += sent;
    shared_->status.dropped_outgoing += refused;
  }
  give_back(std::move(batch));
}

/// Puts what was not sent before what waits.
void Link::give_back(std::deque<BusMessage> batch) {
  const std::lock_guard lock(shared_->mu);
  for (; !batch.empty(); batch.pop_back())
    shared_->queue(std::move(batch.back()), true);
}

void Link::work() {
  std::deque<BusMessage> batch;
  bool is_closed = false, must_subscribe = false, must_flush = false;
  std::uint64_t flush = 0;
  {
    std::unique_lock lock(shared_->mu);
    Shared& shared = *shared_;
    shared.work.wait(lock, [&] {
      return shared.is_stopping || shared.closed >= number_ || shared.have_patterns_changed ||
             !shared.outgoing.empty() || shared.flush_wanted != shared.flush_done;
    });
    if (shared.is_stopping) return;
    is_closed = shared.closed >= number_;
    must_subscribe = shared.have_patterns_changed;
    if (!is_closed) batch = shared.take_batch();
    must_flush = shared.outgoing.empty() && shared.flush_wanted != shared.flush_done;
    flush = shared.flush_wanted;
  }
  if (is_closed || natsConnection_IsClosed(connection_.get())) {
    give_back(std::move(batch));
    return give_up_connection();
  }
  if (must_subscribe) subscribe();  // before sending: answers to requests are awaited
  send(std::move(batch));
  if (!must_flush || natsConnection_FlushTimeout(connection_.get(), kFlushMs) != NATS_OK) return;
  const std::lock_guard lock(shared_->mu);
  shared_->flush_done = flush;
  shared_->done.notify_all();
}

/// Sets up what does not change from one connection to the next.
Result<Options> make_options(const NatsOptions& options, const NatsServers& servers) {
  natsOptions* raw = nullptr;
  if (natsOptions_Create(&raw) != NATS_OK)
    return Error{Code::kInternal, "set up NATS client: out of memory"};
  Options nats(raw);
  std::vector<const char*> urls;
  for (const std::string& server : servers.servers)
    urls.push_back(server.c_str());
  const std::string& user = options.user.empty() ? servers.user : options.user;
  const std::string& password = options.user.empty() ? servers.password : options.password;
  const std::string& token = options.token.empty() ? servers.token : options.token;
  const bool uses_tls = servers.uses_tls || !options.ca_file.empty();
  const auto no = [](bool is_wanted, auto set) { return is_wanted ? set() : NATS_OK; };
  const std::array steps{
      natsOptions_SetServers(raw, urls.data(), static_cast<int>(urls.size())),
      natsOptions_SetName(raw, options.client_name.c_str()),
      natsOptions_SetTimeout(raw, milliseconds(options.connect_timeout)),
      natsOptions_SetAllowReconnect(raw, false),  // the link does it
      natsOptions_SetPingInterval(raw, kPingIntervalMs),
      natsOptions_SetWriteDeadline(raw, kWriteDeadlineMs),
      no(!user.empty(),
         [&] { return natsOptions_SetUserInfo(raw, user.c_str(), password.c_str()); }),
      no(!token.empty(), [&] { return natsOptions_SetToken(raw, token.c_str()); }),
      no(uses_tls, [&] { return natsOptions_SetSecure(raw, true); }),
      no(!options.ca_file.empty(),
         [&] { return natsOptions_LoadCATrustedCertificates(raw, options.ca_file.c_str()); }),
      no(!options.certificate_file.empty(), [&] {
        return natsOptions_LoadCertificatesChain(raw, options.certificate_file.c_str(),
                                                 options.key_file.c_str());
      })};
  for (const natsStatus status : steps) {
    if (status != NATS_OK)
      return Error{Code::kUnsupported, fmt::format("set up NATS client: {}", describe(status)),
                   uses_tls ? "check that the certificate files are readable PEM files" : ""};
  }
  return nats;
}

class NatsBus final : public internal::Endpoint {
 public:
  NatsBus(const NatsOptions& options, Options nats, const Clock& clock, std::string own_name)
      : Endpoint(clock, options.limits, std::move(own_name)),
        shared_(std::make_shared<Shared>(options.limits)),
        link_(shared_, inbox(), std::move(nats), options, clock),
        thread_([this] { link_.run(); }) {}

  ~NatsBus() override {
    {
      const std::lock_guard lock(shared_->mu);
      shared_->is_stopping = true;
      shared_->work.notify_all();
    }
    thread_.join();
  }

  [[nodiscard]] Result<void> flush(Nanos deadline) override {
    std::unique_lock lock(shared_->mu);
    const std::uint64_t wanted = ++shared_->flush_wanted;
    shared_->work.notify_all();
    if (shared_->done.wait_for(lock, deadline, [&] { return shared_->flush_done >= wanted; }))
      return {};
    return Error{
        Code::kTimeout,
        fmt::format("send to NATS server: {} messages are waiting ({})", shared_->outgoing.size(),
                    shared_->status.last_error.empty() ? "no answer" : shared_->status.last_error)};
  }

  [[nodiscard]] BusStatus status() const override {
    BusStatus status;
    {
      const std::lock_guard lock(shared_->mu);
      status = shared_->status;
      status.queued_messages = shared_->outgoing.size();
    }
    status.received = inbox()->received();
    status.dropped_incoming = inbox()->dropped();
    return status;
  }

 protected:
  void send(BusMessage message) override {
    const std::lock_guard lock(shared_->mu);
    shared_->queue(std::move(message), false);
    shared_->work.notify_all();
  }
  void listen(SubscriptionId id, const std::string& pattern) override {
    const std::lock_guard lock(shared_->mu);
    shared_->patterns[id] = pattern;
    shared_->have_patterns_changed = true;
    shared_->work.notify_all();
  }
  void forget(SubscriptionId id) override {
    const std::lock_guard lock(shared_->mu);
    shared_->patterns.erase(id);
    shared_->have_patterns_changed = true;
    shared_->work.notify_all();
  }

 private:
  const std::shared_ptr<Shared> shared_;
  Link link_;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<Bus>> connect_nats(const NatsOptions& options, const Clock& clock) {
  TRY(const auto servers, parse_nats_url(options.url));
  if (options.certificate_file.empty() != options.key_file.empty())
    return Error{Code::kUnsupported,
                 "set up NATS client: a certificate needs its key, and a key "
                 "its certificate"};
  TRY(auto nats, make_options(options, servers));
  TRY(const auto name, sys::random_u64());
  return std::unique_ptr<Bus>(
      std::make_unique<NatsBus>(options, std::move(nats), clock, fmt::format("{:016x}", name)));
}

}  // namespace kansoku::fleet
