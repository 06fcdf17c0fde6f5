// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/causes/slow_link.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "diagnose/internal/steps/names.h"
#include "diagnose/internal/words.h"
#include "diagnose/thresholds.h"
#include "stats/summary.h"

namespace kansoku::diagnose {
namespace {

/// Figures of one end of a connection over the window.
struct Connection {
  std::int32_t rank{-1};
  std::string peer;
  std::vector<double> rtt_us, rate;
  double first_bytes{-1}, last_bytes{0};  // both ways
  double first_sent{-1}, last_sent{0};
  double first_retransmits{-1}, last_retransmits{0};
  double first_busy_us{-1}, last_busy_us{0};
};

/// Two ranks that talk to each other.
struct Link {
  std::vector<double> rtt_us;
  double bytes{0}, retransmits{0}, busy_us{0}, sent{0};
  std::vector<double> rate;  // bytes a second, of the directions that carry most
};
using Links = std::map<std::pair<std::int32_t, std::int32_t>, Link>;

class LinkReader {
 public:
  explicit LinkReader(const Context& context)
      : trace_(context.trace), ranks_(ranks_by_pid(context.job)) {}

  Links read() {
    const trace::StringId name = trace_.strings.find("tcp");
    const auto& instants = trace_.instants;
    for (std::size_t i = 0; i < instants.size() && name != trace::StringId{}; ++i) {
      if (instants.name[i] == name && instants.track[i].raw < trace_.tracks.size()) take(i);
    }
    return join();
  }

 private:
  void take(std::size_t i) {
    const auto rank = ranks_.find(trace_.tracks[trace_.instants.track[i].raw].pid);
    if (rank == ranks_.end()) return;
    std::string local, peer;
    std::map<std::string_view, double> numbers;
    for (const trace::ArgValue& arg :
         args_of(trace_, trace_.instants.arg_begin[i], trace_.instants.arg_count[i])) {
      const std::string_view key = text_of(trace_, arg.key);
      if (arg.kind == trace::ArgValue::Kind::kString) {
        if (key == "local") local = text_of(trace_, arg.text);
        if (key == "peer") peer = text_of(trace_, arg.text);
      } else if (arg.kind == trace::ArgValue::Kind::kUint) {
        numbers[key] = static_cast<double>(arg.u64);
      }
    }
    if (local.empty() || peer.empty()) return;
    owners_[local] = rank->second;
    Connection& connection = connections_[{rank->second, local + " " + peer}];
    connection.rank = rank->second;
    connection.peer = peer;
    connection.rtt_us.push_back(numbers["rtt_us"]);
    const auto widen = [](double& first, double& last, double value) {
      if (first < 0) first = value;
      last = value;
    };
    // The kernel keeps the last measurement: while nothing is sent there is no new one.
    if (connection.first_sent < 0 || numbers["sent_bytes"] - connection.last_sent >= kBusyBytesMin)
      connection.rate.push_back(numbers["rate"]);
    widen(connection.first_bytes, connection.last_bytes,
          numbers["sent_bytes"] + numbers["received_bytes"]);
    widen(connection.first_sent, connection.last_sent, numbers["sent_bytes"]);
    widen(connection.first_retransmits, connection.last_retransmits, numbers["retransmits"]);
    widen(connection.first_busy_us, connection.last_busy_us, numbers["busy_us"]);
  }

  [[nodiscard]] Links join() const {
    Links links;
    for (const auto& [key, connection] : connections_) {
      const auto owner = owners_.find(connection.peer);
      if (owner == owners_.end() || owner->second == connection.rank) continue;
      if (connection.rtt_us.size() < kFewSamplesMin ||
          connection.last_bytes - connection.first_bytes < kBusyBytesMin)
        continue;
      Link& link = links[{std::min(connection.rank, owner->second),
                          std::max(connection.rank, owner->second)}];
      link.rtt_us.insert(link.rtt_us.end(), connection.rtt_us.begin(), connection.rtt_us.end());
      link.bytes += connection.last_bytes - connection.first_bytes;
      link.sent += connection.last_sent - connection.first_sent;
      const double sent = connection.last_sent - connection.first_sent;
      if (2 * sent >= connection.last_bytes - connection.first_bytes)
        link.rate.insert(link.rate.end(), connection.rate.begin(), connection.rate.end());
      link.retransmits += connection.last_retransmits - connection.first_retransmits;
      link.busy_us += connection.last_busy_us - connection.first_busy_us;
    }
    // Connections that carry little are waiting most of the time, and their times with them.
    double most = 0;
    for (const auto& [pair, link] : links)
      most = std::max(most, link.bytes);
    std::erase_if(links,
                  [&](const auto& entry) { return entry.second.bytes < kBusyLinkShareMin * most; });
    return links;
  }

  const trace::Trace& trace_;
  std::map<std::int32_t, std::int32_t> ranks_;
  std::map<std::string, std::int32_t> owners_;  // local address -> rank
  std::map<std::pair<std::int32_t, std::string>, Connection> connections_;
};

/// A figure of the suspected links and of the others: least of those, greatest of these.
struct Contrast {
  double least_in{std::numeric_limits<double>::max()}, most_out{0};
  [[nodiscard]] double ratio() const { return most_out > 0 ? least_in / most_out : 0; }
};

template <class Suspected, class Figure>
Contrast contrast(const Links& links, Suspected is_suspected, Figure figure) {
  Contrast out;
  for (const auto& [pair, link] : links) {
    const double value = figure(link);
    if (is_suspected(pair)) {
      out.least_in = std::min(out.least_in, value);
    } else {
      out.most_out = std::max(out.most_out, value);
    }
  }
  return out;
}

struct SlowLink {
  std::vector<std::int32_t> ranks;  // one: all its links; two: the link between them
  double strength{0};               // ratio that told
  std::vector<std::string> evidence;
};

/// A single link counts only if the middle halves of its round-trip times and all others' lie well
/// apart: small messages wait for their acknowledgement until the receiver gets a processor, so
/// that on a busy host the median of the one link that carries them is several times that of all
/// others. A delay adds to every time.
template <class Suspected>
bool times_lie_apart(const Links& links, Suspected is_suspected) {
  double least_in = std::numeric_limits<double>::max(), most_out = 0;
  std::size_t count_in = 0;
  for (const auto& [pair, link] : links) {
    if (is_suspected(pair)) {
      ++count_in;
      least_in = std::min(least_in, stats::quantile(link.rtt_us, 0.25));
    } else {
      most_out = std::max(most_out, stats::quantile(link.rtt_us, 0.75));
    }
  }
  return count_in > 1 || least_in >= kRttApartMin * most_out;
}

/// How many times faster all other links deliver; 0 if not clearly: medians must differ, the middle
/// halves must lie apart. A single link tells nothing: on busy hosts one of four has been slower
/// than the others by that much for seconds, without cause.
template <class Suspected>
double rate_ratio(const Links& links, Suspected is_suspected) {
  const auto at = [&](double share_in, double share_out) {
    double most_in = 0, least_out = std::numeric_limits<double>::max();
    std::size_t count_in = 0;
    for (const auto& [pair, link] : links) {
      if (link.rate.size() < kSamplesMin) return 0.0;
      if (is_suspected(pair)) {
        ++count_in;
        most_in = std::max(most_in, stats::quantile(link.rate, share_in));
      } else {
        least_out = std::min(least_out, stats::quantile(link.rate, share_out));
      }
    }
    return most_in > 0 && count_in > 1 ? least_out / most_in : 0.0;
  };
  const double ratio = at(0.5, 0.5);
  return ratio >= kLinkRatioMin && at(0.75, 0.25) > 1 ? ratio : 0.0;
}

template <class Suspected>
std::optional<SlowLink> judge(const Links& links, Suspected is_suspected) {
  const auto rtt_of = [](const Link& link) { return stats::median(link.rtt_us); };
  const Contrast rtt = contrast(links, is_suspected, rtt_of);
  SlowLink out;
  if (rtt.ratio() >= kRttRatioMin && rtt.least_in - rtt.most_out >= kRttExcessMinUs &&
      times_lie_apart(links, is_suspected)) {
    out.strength = rtt.ratio();
    out.evidence.push_back(
        fmt::format(words::kRoundTrip, rtt.least_in / 1000, rtt.most_out / 1000));
    return out;
  }
  const Contrast again =
      contrast(links, is_suspected, [](const Link& link) { return link.retransmits; });
  const Contrast occupied = contrast(links, is_suspected, [](const Link& link) {
    return link.sent > 0 ? link.busy_us / link.sent : 0;
  });
  if (const double ratio = rate_ratio(links, is_suspected); ratio > 0) {
    // Seconds a byte at the rate that the receivers acknowledge.
    const Contrast delivery = contrast(
        links, is_suspected, [](const Link& link) { return 1 / stats::median(link.rate); });
    out.strength = ratio;
    out.evidence.push_back(
        fmt::format(words::kDelivery, 1e-6 / delivery.least_in, 1e-6 / delivery.most_out));
    return out;
  }
  const bool is_lossy = again.least_in >= kRetransmitsMin &&
                        again.least_in >= kLinkRatioMin * again.most_out &&
                        occupied.ratio() >= kOccupiedRatioMin;
  if (!is_lossy) return std::nullopt;
  out.strength = occupied.ratio();
  out.evidence.push_back(fmt::format(words::kRetransmits, again.least_in, again.most_out));
  out.evidence.push_back(fmt::format(words::kByteOccupies, occupied.ratio()));
  return out;
}

/// The rank, else the pair, whose links stand out most.
std::optional<SlowLink> find_link(const Links& links) {
  std::map<std::int32_t, std::size_t> degrees;
  for (const auto& [pair, link] : links) {
    ++degrees[pair.first];
    ++degrees[pair.second];
  }
  std::optional<SlowLink> best;
  for (const auto& [rank, degree] : degrees) {
    if (degree < 2 || degree + 1 > links.size()) continue;  // others must be there to compare with
    const std::int32_t suspect = rank;
    auto found = judge(links, [suspect](const auto& pair) {
      return pair.first == suspect || pair.second == suspect;
    });
    if (!found || (best && best->strength >= found->strength)) continue;
    found->ranks = {rank};
    best = std::move(found);
  }
  if (best || links.size() < 3) return best;
  for (const auto& [pair, link] : links) {
    const auto suspect = pair;
    auto found = judge(links, [suspect](const auto& other) { return other == suspect; });
    if (!found || (best && best->strength >= found->strength)) continue;
    found->ranks = {pair.first, pair.second};
    best = std::move(found);
  }
  return best;
}

double mean_transfer_ms(const Context& context) {
  double sum = 0;
  for (const StepTimes& times : context.times)
    sum += stats::mean(times.phase_ms[static_cast<std::size_t>(Phase::kTransfer)]);
  return sum / static_cast<double>(context.times.size());
}

}  // namespace

std::optional<Finding> find_slow_link(const Context& context, const Options&) {
  const double transfer_ms = mean_transfer_ms(context);
  if (transfer_ms < kTransferShareMin * context.mean_step_ms) return std::nullopt;
  const Links links = LinkReader(context).read();
  if (links.size() < 3) return std::nullopt;
  auto slow = find_link(links);
  if (!slow) return std::nullopt;
  Finding finding;
  finding.kind = "slow_link";
  finding.phase = "transfer";
  finding.ranks = slow->ranks;
  finding.evidence.push_back(slow->ranks.size() == 1 ? std::string(words::kRankLinksSlow)
                                                     : std::string(words::kPairLinkSlow));
  // Saving by a link as fast as the others', as far as transfers are bound by it.
  finding.cost_ms_per_step = transfer_ms * (1 - 1 / slow->strength);
  finding.share = finding.cost_ms_per_step / context.mean_step_ms;
  finding.basis = Basis::kObservation;
  finding.evidence.insert(finding.evidence.end(), slow->evidence.begin(), slow->evidence.end());
  finding.evidence.push_back(fmt::format(words::kTransfersTake, transfer_ms, context.mean_step_ms));
  finding.evidence.push_back(words::kAdviceNetwork);
  return finding;
}

}  // namespace kansoku::diagnose
