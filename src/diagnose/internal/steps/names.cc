// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/steps/names.h"

#include <algorithm>
#include <array>

namespace kansoku::diagnose {
namespace {

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::string_view last_part(std::string_view name) {
  name = name.substr(0, name.find_first_of("(<"));
  const auto colons = name.rfind("::");
  return colons == std::string_view::npos ? name : name.substr(colons + 2);
}

// The last component of a qualified Python name.
std::string_view method_of(std::string_view function) {
  const auto dot = function.rfind('.');
  return dot == std::string_view::npos ? function : function.substr(dot + 1);
}

template <std::size_t N>
bool is_one_of(std::string_view text, const std::array<std::string_view, N>& list) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

struct ExactName {
  std::string_view name;
  EventKind kind;
};
constexpr std::array<ExactName, 4> kExactNames{{
    {"torch::autograd::Engine::execute", EventKind::kBackward},
    {"c10d::Reducer::prepare_for_forward", EventKind::kPrepareForward},
    {"DistributedDataParallel.forward", EventKind::kPrepareForward},
    {"c10d::Reducer::finalize_backward", EventKind::kFinalize},
}};

constexpr std::string_view kCollective = "collective";
constexpr std::array<std::string_view, 3> kStepCategories{"backward", kCollective, "step"};
constexpr std::array<std::string_view, 5> kInputMethods{"__next__", "__getitem__", "__getitems__",
                                                        "collate", "collate_fn"};
constexpr std::array<std::string_view, 4> kWorkerWaits{"_try_get_data", "_get_data",
                                                       "_next_data_multi", "_poll_workers"};

}  // namespace

std::string_view text_of(const trace::Trace& trace, trace::StringId id) {
  return id.raw < trace.strings.size() ? trace.strings.view(id) : std::string_view();
}

std::span<const trace::ArgValue> args_of(const trace::Trace& trace, std::uint32_t begin,
                                         std::uint32_t count) {
  const std::span<const trace::ArgValue> all = trace.args;
  if (begin > all.size() || count > all.size() - begin) return {};
  return all.subspan(begin, count);
}

EventKind classify_name(std::string_view name) {
  for (const ExactName& exact : kExactNames) {
    if (name == exact.name) return exact.kind;
  }
  if (name.starts_with("Optimizer.step#")) return EventKind::kOptimizer;
  if (name.starts_with("Optimizer.zero_grad#")) return EventKind::kZeroGrad;
  if (name.starts_with("enumerate(DataLoader)") || name.ends_with(".__next__"))
    return EventKind::kInput;
  if (name.starts_with("c10d::ProcessGroup")) return EventKind::kIssue;
  if (name.starts_with("gloo::") || name.starts_with("nccl")) return EventKind::kExecute;
  return EventKind::kNone;
}

std::optional<MessageEvent::Kind> classify_message(std::string_view name) {
  const std::string op = op_name(name);
  if (op == "wait") return MessageEvent::Kind::kWait;
  if (op == "send" || op == "isend") return MessageEvent::Kind::kSend;
  if (op == "recv" || op == "irecv" || op == "recvanysource") return MessageEvent::Kind::kReceive;
  return std::nullopt;
}

std::string op_name(std::string_view name) {
  std::string_view part = last_part(name);
  if (part.starts_with("nccl")) part.remove_prefix(4);
  while (part.starts_with("_"))
    part.remove_prefix(1);
  std::string op(part);
  for (char& c : op) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return op;
}

FrameRole classify_frame(std::string_view function, std::string_view file) {
  const std::string_view method = method_of(function);
  if (has(file, "torch/utils/data/") || is_one_of(method, kInputMethods)) return FrameRole::kInput;
  if (has(file, "torch/optim/")) return FrameRole::kOptimizer;
  if (has(file, "torch/autograd/") || has(file, "torch/_tensor.py")) return FrameRole::kBackward;
  if (has(file, "torch/nn/") || method == "forward") return FrameRole::kForward;
  return FrameRole::kNone;
}

bool is_worker_wait(std::string_view function, std::string_view file) {
  return has(file, "torch/utils/data/dataloader.py") &&
         is_one_of(method_of(function), kWorkerWaits);
}

bool is_worker_idle(std::string_view function, std::string_view file) {
  return has(file, "multiprocessing/queues.py") && method_of(function) == "get";
}

bool is_communication(std::string_view file) {
  return file.ends_with("/torch/distributed/distributed_c10d.py") ||
         file.find("/torch/distributed/pipelining/") != std::string_view::npos;
}

bool is_distributed(std::string_view file) {
  if (has(file, "/torch/nn/parallel/distributed.py")) return true;
  return has(file, "/torch/distributed/") && !has(file, "/torch/distributed/checkpoint/") &&
         !has(file, "/torch/distributed/elastic/") && !has(file, "/torch/distributed/launcher/");
}

NameTable::NameTable(const trace::Trace& trace)
    : kinds_(trace.strings.size()), op_(trace.strings.size()), known_(trace.strings.size()) {
  ops_.emplace_back();
  message_ = trace.strings.find("message");
  for (std::uint32_t id = 0; id < trace.strings.size(); ++id) {
    const std::string_view text = trace.strings.view({id});
    known_[id] = is_one_of(text, kStepCategories) ? 1 : 0;
    kinds_[id] = classify_name(text);
    if (kinds_[id] == EventKind::kIssue || kinds_[id] == EventKind::kExecute) add_op(id, text);
  }
  // A pack of the user's knows functions that are not known here.
  const trace::StringId collective = trace.strings.find(kCollective);
  for (std::size_t i = 0; i < trace.slices.size(); ++i) {
    const std::uint32_t id = trace.slices.name[i].raw;
    if (trace.slices.category[i] != collective || kind_of({id}) != EventKind::kNone) continue;
    if (id >= kinds_.size() || text_of(trace, {id}).empty()) continue;
    kinds_[id] = EventKind::kExecute;
    add_op(id, text_of(trace, {id}));
  }
}

void NameTable::add_op(std::uint32_t id, std::string_view name) {
  const std::string op = op_name(name);
  const auto found = std::find(ops_.begin(), ops_.end(), op);
  op_[id] = static_cast<std::uint32_t>(found - ops_.begin());
  if (found == ops_.end()) ops_.push_back(op);
}

bool NameTable::is_known_category(trace::StringId category) const {
  return category.raw < known_.size() && known_[category.raw] != 0;
}

EventKind NameTable::kind_of(trace::StringId name) const {
  return name.raw < kinds_.size() ? kinds_[name.raw] : EventKind::kNone;
}

std::uint32_t NameTable::op_of(trace::StringId name) const {
  return name.raw < op_.size() ? op_[name.raw] : 0;
}

}  // namespace kansoku::diagnose
