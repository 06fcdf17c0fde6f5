// SPDX-License-Identifier: Apache-2.0
#include "diff/internal/match.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <string>
#include <tuple>

#include "diff/internal/names.h"
#include "diff/thresholds.h"

namespace kansoku::diff {
namespace {

/// Fingerprint of a kernel's launches, whatever its name.
struct Print {
  std::vector<std::pair<std::string, double>> launches;  // by shape: a step
  double calls{0}, call_ms{0}, place{0};
};

Print print_of(const Item& item, const Recording& recording) {
  std::map<std::string, double> by_shape;
  Print out;
  double ms = 0;
  for (const Cell& cell : item.cells) {
    by_shape[item.shapes[cell.shape].text] += cell.calls;
    out.calls += cell.calls;
    ms += cell.ms;
  }
  out.call_ms = out.calls > 0 ? ms / out.calls : 0;
  const double units = std::max<double>(1, static_cast<double>(recording.unit_count()));
  out.calls /= units;
  for (const auto& [shape, calls] : by_shape)
    out.launches.emplace_back(shape, std::round(10 * calls / units) / 10);
  out.place = item.place;
  return out;
}

bool is_kernel(const Item& item) {
  return item.kind == Kind::kKernel || item.kind == Kind::kCollective || item.kind == Kind::kGraph;
}

using Key = std::tuple<Lane, Kind, std::string>;

Key key_of(const Item& item) {
  return {item.lane, item.kind, item.name};
}

/// Without numbers, but with template arguments: a compiler's numbers are outside of them.
std::pair<std::string, std::string> bare_of(std::string_view name) {
  const std::size_t arguments = std::min(name.find('<'), name.size());
  return {unnumbered(name.substr(0, arguments)), std::string(name.substr(arguments))};
}

struct Pair {
  std::size_t known{0}, item{0};
  Match match{Match::kSame};
};

/// Pairs the items of one recording with those known so far.
class Pairer {
 public:
  Pairer(const std::vector<const Item*>& known, const std::vector<Print>& known_prints,
         const std::vector<const Item*>& items, const std::vector<Print>& prints)
      : known_(known),
        known_prints_(known_prints),
        items_(items),
        prints_(prints),
        known_used_(known.size()),
        used_(items.size()) {}

  std::vector<Pair> run() {
    pair_numbers();
    pair_names();
    pair_families();
    pair_places();
    return std::move(pairs_);
  }

 private:
  using Group = std::pair<std::vector<std::size_t>, std::vector<std::size_t>>;  // known, items

  void take(std::size_t known, std::size_t item, Match match) {
    known_used_[known] = used_[item] = true;
    pairs_.push_back({known, item, match});
  }

  /// Kernels that are free, by lane, kind and family.
  std::map<Key, Group> families() const {
    std::map<Key, Group> out;
    const auto add = [&](const std::vector<const Item*>& items, const std::vector<bool>& used,
                         auto member) {
      for (std::size_t i = 0; i < items.size(); ++i) {
        if (used[i] || !is_kernel(*items[i]) || items[i]->lane != Lane::kDevice) continue;
        const Key key{items[i]->lane, items[i]->kind, family_of(items[i]->name)};
        (out[key].*member).push_back(i);
      }
    };
    add(known_, known_used_, &Group::first);
    add(items_, used_, &Group::second);
    return out;
  }

  /// Names of a family that differ in numbers, of which some launches have moved to another name:
  /// if all launches of one side are there on the other, the launches tell who is who.
  void pair_numbers() {
    for (const auto& [key, group] : families()) {
      const auto& [known, items] = group;
      if (known.size() < 2 || known.size() != items.size()) continue;
      std::map<std::string, std::size_t> by_name;
      for (const std::size_t k : known)
        by_name.emplace(known_[k]->name, k);
      const bool all_keep = std::all_of(items.begin(), items.end(), [&](std::size_t i) {
        const auto same = by_name.find(items_[i]->name);
        return same != by_name.end() &&
               known_prints_[same->second].launches == prints_[i].launches &&
               is_near(same->second, i);
      });
      if (!all_keep) pair_by_launches(known, items);
    }
  }

  void pair_by_launches(const std::vector<std::size_t>& known,
                        const std::vector<std::size_t>& items) {
    const auto sorted = [](std::vector<std::size_t> list, const std::vector<Print>& prints,
                           const std::vector<const Item*>& all) {
      std::sort(list.begin(), list.end(), [&](std::size_t a, std::size_t b) {
        return std::tie(prints[a].launches, prints[a].place, all[a]->name) <
               std::tie(prints[b].launches, prints[b].place, all[b]->name);
      });
      return list;
    };
    const auto left = sorted(known, known_prints_, known_), right = sorted(items, prints_, items_);
    for (std::size_t i = 0; i < left.size(); ++i) {
      if (known_prints_[left[i]].launches != prints_[right[i]].launches) return;
    }
    for (std::size_t begin = 0, end = 0; begin < left.size(); begin = end) {
      while (end < left.size() &&
             known_prints_[left[end]].launches == known_prints_[left[begin]].launches)
        ++end;
      pair_equals(std::span(left).subspan(begin, end - begin),
                  std::span(right).subspan(begin, end - begin));
    }
  }

  [[nodiscard]] bool is_near(std::size_t known, std::size_t item) const {
    return std::abs(known_prints_[known].place - prints_[item].place) <= kPlaceEqual;
  }

  /// Kernels of equal launches, by place: the places tell who is who, unless they have moved; then
  /// the names do.
  void pair_equals(std::span<const std::size_t> known, std::span<const std::size_t> items) {
    bool is_in_place = true;
    for (std::size_t i = 0; i < known.size(); ++i)
      is_in_place = is_in_place && is_near(known[i], items[i]);
    std::vector<std::size_t> free(items.begin(), items.end()), rest;
    for (const std::size_t k : known) {
      const auto same = std::find_if(free.begin(), free.end(), [&](std::size_t i) {
        return items_[i]->name == known_[k]->name;
      });
      if (is_in_place || same == free.end()) {
        rest.push_back(k);
        continue;
      }
      take(k, *same, Match::kSame);
      free.erase(same);
    }
    for (std::size_t i = 0; i < rest.size(); ++i) {
      const std::string &was = known_[rest[i]]->name, &now = items_[free[i]]->name;
      const bool is_number = bare_of(was) == bare_of(now);
      take(rest[i], free[i],
           was == now  ? Match::kSame
           : is_number ? Match::kNumbers
                       : Match::kTemplate);
    }
  }

  void pair_names() {
    std::map<Key, std::size_t> by_key;
    for (std::size_t k = 0; k < known_.size(); ++k) {
      if (!known_used_[k]) by_key.emplace(key_of(*known_[k]), k);
    }
    for (std::size_t i = 0; i < items_.size(); ++i) {
      const auto found = by_key.find(key_of(*items_[i]));
      if (used_[i] || found == by_key.end() || known_used_[found->second]) continue;
      take(found->second, i, Match::kSame);
    }
  }

  /// How badly two kernels fit: launches a step, place and, unless their names say that they
  /// compute the same, time, which is what may have changed; nothing below 0 fits better.
  [[nodiscard]] double misfit(std::size_t known, std::size_t item, bool asks_time) const {
    const Print &a = known_prints_[known], &b = prints_[item];
    if (a.calls <= 0 || b.calls <= 0 || a.call_ms <= 0 || b.call_ms <= 0) return 1e9;
    return std::abs(std::log(a.calls / b.calls)) + 4 * std::abs(a.place - b.place) +
           (asks_time ? 0.5 * std::abs(std::log(a.call_ms / b.call_ms)) : 0) +
           (a.launches == b.launches ? 0 : 0.2);
  }

  void pair_best(const Group& group, Match match, double misfit_max, bool asks_time) {
    std::vector<std::tuple<double, std::size_t, std::size_t>> order;
    for (const std::size_t k : group.first) {
      for (const std::size_t i : group.second) {
        const double cost = misfit(k, i, asks_time);
        if (cost <= misfit_max) order.emplace_back(cost, k, i);
      }
    }
    std::sort(order.begin(), order.end());
    for (const auto& [cost, k, i] : order) {
      if (!known_used_[k] && !used_[i]) take(k, i, match);
    }
  }

  /// Kernels of one family that compute the same by their functors, or say nothing of it.
  void pair_families() {
    for (const auto& [key, group] : families()) {
      std::map<std::string, Group> by_functors;
      for (const std::size_t k : group.first)
        by_functors[functors_of(known_[k]->name)].first.push_back(k);
      for (const std::size_t i : group.second)
        by_functors[functors_of(items_[i]->name)].second.push_back(i);
      for (const auto& [functors, of] : by_functors) {
        if (of.first.size() * of.second.size() <= kPairsMax)
          pair_best(of, Match::kTemplate, kFamilyMisfitMax, functors.empty());
      }
    }
  }

  /// Any names: only items that sit at the same place, as often, and takes about as long.
  void pair_places() {
    std::map<Kind, Group> kinds;
    for (const auto& [key, group] : families()) {
      Group& all = kinds[std::get<1>(key)];
      all.first.insert(all.first.end(), group.first.begin(), group.first.end());
      all.second.insert(all.second.end(), group.second.begin(), group.second.end());
    }
    for (const auto& [kind, group] : kinds) {
      if (group.first.size() * group.second.size() <= kPairsMax)
        pair_best(group, Match::kPlace, kPlaceMisfitMax, true);
    }
  }

  static constexpr std::size_t kPairsMax = 1'000'000;

  const std::vector<const Item*>& known_;
  const std::vector<Print>& known_prints_;
  const std::vector<const Item*>& items_;
  const std::vector<Print>& prints_;
  std::vector<bool> known_used_, used_;
  std::vector<Pair> pairs_;
};

}  // namespace

std::vector<Matched> match_items(const std::vector<const Recording*>& recordings) {
  std::vector<Matched> out;
  std::vector<const Item*> known;
  std::vector<Print> known_prints;
  for (std::size_t r = 0; r < recordings.size(); ++r) {
    std::vector<const Item*> items;
    std::vector<Print> prints;
    for (const Item& item : recordings[r]->items) {
      items.push_back(&item);
      prints.push_back(print_of(item, *recordings[r]));
    }
    std::vector<bool> has_entry(items.size());
    for (const Pair& pair : Pairer(known, known_prints, items, prints).run()) {
      Matched& entry = out[pair.known];
      entry.items[r] = items[pair.item];
      entry.match = std::max(entry.match, pair.match);
      has_entry[pair.item] = true;
    }
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (has_entry[i]) continue;
      Matched entry;
      entry.items.assign(recordings.size(), nullptr);
      entry.items[r] = items[i];
      out.push_back(std::move(entry));
      known.push_back(items[i]);
      known_prints.push_back(prints[i]);
    }
  }
  return out;
}

}  // namespace kansoku::diff
