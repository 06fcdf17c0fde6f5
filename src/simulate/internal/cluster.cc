// SPDX-License-Identifier: Apache-2.0
#include "simulate/internal/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "stats/distribution.h"

namespace kansoku::simulate {
namespace {

constexpr std::size_t kHopelessMax = 64;

std::unique_ptr<schedule::Policy> new_queue(const std::string& scheduler) {
  auto made = schedule::make_policy(scheduler);
  CHECK(made.has_value());  // checked when the cluster was made
  return std::move(made).value();
}

}  // namespace

void Breaches::add(std::string entity, std::string what) {
  if (first_.empty())
    first_ =
        fmt::format("at {} s: {}: {}", static_cast<double>(env_.now().count()) / 1e9, entity, what);
  env_.stop();
}

/// The cluster as a policy sees it.
class Cluster::Eyes final : public schedule::View {
 public:
  explicit Eyes(Cluster& cluster) : cluster_(cluster) {}
  [[nodiscard]] Nanos now() const override { return cluster_.env_.now(); }
  [[nodiscard]] bool fits(const schedule::Waiting& waiting) override {
    return cluster_.fits(*static_cast<const Claim*>(waiting.owner));
  }
  [[nodiscard]] std::int64_t units_free() const override {
    return cluster_.capacity_ - cluster_.down_.now() - cluster_.busy_.now();
  }
  [[nodiscard]] double usage(std::uint32_t group) const override {
    return cluster_.group_usage(group);
  }
  void visit_ends(EndVisitor& visitor) const override {
    for (const auto& [key, claim] : cluster_.running_)
      if (!visitor.ends(key.first, claim->demand_.waiting.units)) return;
  }

 private:
  Cluster& cluster_;
};

Cluster::Cluster(des::Environment& env, const ClusterSpec& spec, const Context& context)
    : env_(env),
      spec_(spec),
      breaches_(*context.breaches),
      seed_(context.seed),
      random_(context.seed, "placement of " + spec.name),
      eyes_(std::make_unique<Eyes>(*this)),
      busy_(context.warmup, context.horizon, context.series_points),
      queued_(context.warmup, context.horizon, context.series_points),
      down_(context.warmup, context.horizon, context.series_points) {}

Cluster::~Cluster() = default;

Result<std::unique_ptr<Cluster>> Cluster::make(des::Environment& env, const ClusterSpec& spec,
                                               const Context& context) {
  TRY(auto first_queue, schedule::make_policy(spec.scheduler));
  TRY(auto placement, placement::make_policy(spec.placement, context.typical));
  std::unique_ptr<Cluster> cluster(new Cluster(env, spec, context));  // NOLINT: private constructor
  cluster->queues_.push_back(std::move(first_queue));
  cluster->placement_ = std::move(placement);
  cluster->capacity_ = spec.slots;
  const bool gpus = spec.counts_gpus();
  for (std::size_t i = 0; i < spec.nodes.size(); ++i) {
    const NodeSpec& node = spec.nodes[i];
    placement::Node added;
    added.name = node.name;
    added.gpus = node.gpus;
    added.cpu_milli = node.cpu_milli;
    added.memory_mib = node.memory_mib;
    const auto model = std::find(spec.gpu_models.begin(), spec.gpu_models.end(), node.gpu_model);
    added.gpu_model = static_cast<std::uint32_t>(model - spec.gpu_models.begin());
    cluster->pool_.add(std::move(added));
    cluster->capacity_ += gpus ? std::int64_t{node.gpus} * placement::kWholeGpu : node.cpu_milli;
  }
  cluster->tracks_running_ =
      spec.scheduler == "backfill" || spec.preemptive || (spec.mtbf_s > 0 && !spec.nodes.empty());
  static_cast<void>(cluster->group(""));
  for (const auto& [name, units] : spec.quotas) {
    Group& group = cluster->groups_[cluster->group(name)];
    group.quota = units;
    group.queue = cluster->queues_.size();
    cluster->queues_.push_back(new_queue(spec.scheduler));
  }
  return cluster;
}

std::uint32_t Cluster::group(const std::string& name) {
  const auto [found, added] =
      group_numbers_.emplace(name, static_cast<std::uint32_t>(groups_.size()));
  if (added) {
    groups_.emplace_back();
    group_names_.push_back(name);
  }
  return found->second;
}

double Cluster::group_usage(std::uint32_t group) const {
  return static_cast<double>(groups_[group].held.at(env_.now())) / 1e9;
}

std::int64_t Cluster::units_of(const Demand& demand) const {
  if (spec_.slots > 0) return demand.waiting.units;
  if (spec_.counts_gpus())
    return std::int64_t{demand.pods} * demand.pod.gpus * demand.pod.gpu_milli;
  return demand.pods * demand.pod.cpu_milli;
}

bool Cluster::could_ever_take(const Demand& demand) const {
  const Group& group = groups_[demand.waiting.group];
  if (demand.waiting.units > std::min(capacity_, group.quota)) return false;
  if (spec_.slots > 0) return true;
  // Pods that empty nodes could take, node by node.
  std::int64_t room = 0;
  for (const placement::Node& node : pool_.nodes()) {
    const placement::Request& pod = demand.pod;
    if (pod.gpu_types != 0 && ((pod.gpu_types >> node.gpu_model) & 1U) == 0) continue;
    std::int64_t here = INT32_MAX;
    if (pod.cpu_milli > 0) here = std::min(here, node.cpu_milli / pod.cpu_milli);
    if (pod.memory_mib > 0) here = std::min(here, node.memory_mib / pod.memory_mib);
    if (pod.gpus > 0)
      here = std::min<std::int64_t>(
          here, pod.gpu_milli < placement::kWholeGpu
                    ? std::int64_t{node.gpus} * (placement::kWholeGpu / std::max(pod.gpu_milli, 1))
                    : node.gpus / pod.gpus);
    room += here;
    if (room >= demand.pods) return true;
  }
  return false;
}

bool Cluster::place(const Claim& claim, std::vector<placement::Placed>& places) {
  const placement::Request& pod = claim.demand_.pod;
  places.clear();
  for (std::int32_t i = 0; i < claim.demand_.pods; ++i) {
    const auto where = placement_->choose(pod, pool_, random_);
    if (!where) break;
    pool_.take(pod, *where);
    places.push_back(*where);
  }
  for (const placement::Placed& where : places)
    pool_.give_back(pod, where);
  return places.size() == static_cast<std::size_t>(claim.demand_.pods);
}

bool Cluster::fits(const Claim& claim) {
  const schedule::Waiting& waiting = claim.demand_.waiting;
  const Group& group = groups_[waiting.group];
  if (waiting.units > group.quota - group.held.level()) return false;
  if (waiting.units > capacity_ - down_.now() - busy_.now()) return false;
  if (spec_.slots > 0) return true;
  const std::pair shape(claim.demand_.pod, claim.demand_.pods);
  if (std::find(hopeless_.begin(), hopeless_.end(), shape) != hopeless_.end()) return false;
  placed_for_ = place(claim, places_) ? &claim : nullptr;
  if (placed_for_ == nullptr && hopeless_.size() < kHopelessMax) hopeless_.push_back(shape);
  return placed_for_ != nullptr;
}

void Cluster::hold(Claim& claim) {
  const std::int64_t units = claim.demand_.waiting.units;
  busy_.change(env_.now(), units);
  groups_[claim.demand_.waiting.group].held.change(env_.now(), units);
  if (busy_.now() > capacity_)
    breaches_.add("cluster " + spec_.name,
                  fmt::format("{} of {} units in use", busy_.now(), capacity_));
  claim.state_ = Claim::State::kHeld;
  claim.speed_ = 1;
  ++running_count_;
  if (spec_.slots == 0) {
    CHECK(placed_for_ == &claim);
    placed_for_ = nullptr;
    claim.places_ = places_;
    for (const placement::Placed& where : claim.places_) {
      pool_.take(claim.demand_.pod, where);
      const double speed = spec_.speeds.empty() ? 1 : spec_.speeds[where.node];
      claim.speed_ = &where == &claim.places_.front() ? speed : std::min(claim.speed_, speed);
    }
  }
  if (tracks_running_) {
    claim.expected_end_ = Nanos::max();
    running_.emplace(std::pair(claim.expected_end_, claim.demand_.waiting.ticket), &claim);
  }
}

void Cluster::unhold(Claim& claim) {
  const std::int64_t units = claim.demand_.waiting.units;
  busy_.change(env_.now(), -units);
  groups_[claim.demand_.waiting.group].held.change(env_.now(), -units);
  if (busy_.now() < 0) breaches_.add("cluster " + spec_.name, "more released than was taken");
  for (const placement::Placed& where : claim.places_)
    pool_.give_back(claim.demand_.pod, where);
  claim.places_.clear();
  claim.state_ = Claim::State::kGone;
  --running_count_;
  hopeless_.clear();
  if (tracks_running_) running_.erase(std::pair(claim.expected_end_, claim.demand_.waiting.ticket));
}

void Cluster::enqueue(Claim& claim) {
  claim.state_ = Claim::State::kQueued;
  queues_[groups_[claim.demand_.waiting.group].queue]->add(claim.demand_.waiting);
  queued_.change(env_.now(), 1);
  ++waiting_count_;
  // Another order than arrival, a quota of its own or a preemption may let it start at once.
  dispatch();
}

void Cluster::dequeue(Claim& claim) {
  queues_[groups_[claim.demand_.waiting.group].queue]->remove(claim.demand_.waiting);
  queued_.change(env_.now(), -1);
  --waiting_count_;
}

void Cluster::release(Claim& claim) {
  unhold(claim);
  if (waiting_count_ > 0) dispatch();
}

Claim* Cluster::next_to_start() {
  std::optional<schedule::Waiting> best;
  for (const auto& queue : queues_) {
    if (queue->empty()) continue;
    const auto candidate = queue->pick(*eyes_);
    if (candidate && (!best || candidate->ticket < best->ticket)) best = candidate;
  }
  return best ? static_cast<Claim*>(best->owner) : nullptr;
}

void Cluster::dispatch() {
  do {
    while (Claim* const claim = next_to_start()) {
      // With several queues another one may have been asked after this one.
      if (spec_.slots == 0 && placed_for_ != claim && !fits(*claim)) break;
      dequeue(*claim);
      hold(*claim);
      env_.post(*claim);
      if (waiting_count_ == 0) return;
    }
  } while (spec_.preemptive && make_room());
}

bool Cluster::make_room() {
  for (const auto& queue : queues_) {
    if (queue->empty()) continue;
    const auto head = queue->head(*eyes_);
    if (!head) continue;
    const Claim& claim = *static_cast<const Claim*>(head->owner);
    // Worst priority first, then the one that started last.
    std::vector<Claim*> victims;
    for (const auto& [key, running] : running_)
      if (running->demand_.waiting.priority > head->priority) victims.push_back(running);
    std::sort(victims.begin(), victims.end(), [](const Claim* a, const Claim* b) {
      const auto& left = a->demand_.waiting;
      const auto& right = b->demand_.waiting;
      return left.priority != right.priority ? left.priority > right.priority
                                             : left.ticket > right.ticket;
    });
    // Taken out of the books one by one until the head fits; put back if it never does.
    std::size_t taken = 0;
    std::vector<std::pair<std::vector<placement::Placed>, Nanos>> before;
    bool enough = false;
    while (!enough && taken < victims.size()) {
      before.emplace_back(victims[taken]->places_, victims[taken]->expected_end_);
      unhold(*victims[taken++]);
      enough = fits(claim);
    }
    if (!enough) {
      while (taken-- > 0) {
        placed_for_ = victims[taken];
        places_ = before[taken].first;
        hold(*victims[taken]);
        victims[taken]->expect_end(before[taken].second);
      }
      continue;
    }
    preemptions_ += taken;
    for (std::size_t i = 0; i < taken; ++i)
      env_.interrupt(victims[i]->process_);
    return true;
  }
  return false;
}

void Cluster::evict(Claim& claim, bool node_failed) {
  unhold(claim);
  claim.node_failed_ = node_failed;
  env_.interrupt(claim.process_);
}

void Cluster::start_failures() {
  if (spec_.mtbf_s <= 0) return;
  for (std::uint32_t node = 0; node < pool_.nodes().size(); ++node)
    env_.start(fail_and_repair(
        env_, node, RandomStream(seed_, fmt::format("failures of {} {}", spec_.name, node))));
}

des::Process Cluster::fail_and_repair(des::Environment& env, std::uint32_t node,
                                      RandomStream random) {
  const auto up = stats::Distribution::exponential(spec_.mtbf_s * 1e9);
  const auto repair = stats::Distribution::exponential(std::max(spec_.mttr_s, 1e-9) * 1e9);
  const placement::Node& it = pool_.node(node);
  const std::int64_t units =
      spec_.counts_gpus() ? std::int64_t{it.gpus} * placement::kWholeGpu : it.cpu_milli;
  for (;;) {
    co_await env.timeout(Nanos{std::llround(up.draw(random.uniform()))});
    fail_node(node);
    down_.change(env.now(), units);
    co_await env.timeout(Nanos{std::llround(repair.draw(random.uniform()))});
    down_.change(env.now(), -units);
    pool_.set_up(node, true);
    hopeless_.clear();
    if (waiting_count_ > 0) dispatch();
  }
}

void Cluster::fail_node(std::uint32_t node) {
  ++node_failures_;
  std::vector<Claim*> hit;
  for (const auto& [key, claim] : running_)
    if (std::any_of(claim->places_.begin(), claim->places_.end(),
                    [&](const placement::Placed& where) { return where.node == node; }))
      hit.push_back(claim);
  pool_.set_up(node, false);
  for (Claim* const claim : hit)
    evict(*claim, true);
  // Gangs leave capacity behind on their other nodes.
  if (!hit.empty() && waiting_count_ > 0) dispatch();
}

Claim::Claim(Cluster& cluster, const Demand& demand)
    : Awaitable(cluster.env_), cluster_(cluster), demand_(demand), process_(cluster.env_.active()) {
  demand_.waiting.ticket = cluster.tickets_++;
  demand_.waiting.since = cluster.env_.now();
  demand_.waiting.owner = this;
  demand_.waiting.units = cluster.units_of(demand_);
}

Claim::~Claim() {
  if (state_ == State::kHeld && !env_->closing()) release();
}

bool Claim::begin_now() {
  if (cluster_.waiting_count_ > 0 || !cluster_.fits(*this)) return false;
  cluster_.hold(*this);
  return true;
}

void Claim::enqueue() {
  cluster_.enqueue(*this);
}

void Claim::cancel() {
  env_->withdraw(*this);
  if (state_ == State::kQueued) {
    cluster_.dequeue(*this);
    state_ = State::kGone;
  } else if (state_ == State::kHeld) {
    cluster_.release(*this);
  }
}

void Claim::expect_end(Nanos at) {
  if (!cluster_.tracks_running_ || state_ != State::kHeld) return;
  const std::uint64_t ticket = demand_.waiting.ticket;
  const auto moved = cluster_.running_.extract(std::pair(expected_end_, ticket));
  expected_end_ = at;
  cluster_.running_.emplace(std::pair(at, ticket), this);
}

void Claim::release() {
  if (state_ == State::kHeld) cluster_.release(*this);
}

}  // namespace kansoku::simulate
