// SPDX-License-Identifier: Apache-2.0
#include "simulate/des/engine.h"

namespace kansoku::simulate::des {

FramePool::Header* FramePool::carve(std::size_t cell) {
  const std::size_t bytes = cell * kStep;
  if (cell >= kClasses) {
    system_bytes_ += bytes;
    return static_cast<Header*>(::operator new (bytes, std::align_val_t{alignof(Header)}));
  }
  if (chunk_left_ < bytes) {
    chunks_.push_back(std::make_unique<std::byte[]>(kChunkBytes));
    chunk_left_ = kChunkBytes;
    system_bytes_ += kChunkBytes;
  }
  std::byte* const begin = chunks_.back().get() + (kChunkBytes - chunk_left_);
  chunk_left_ -= bytes;
  return reinterpret_cast<Header*>(begin);
}

void FramePool::release_large(Header* header) {
  system_bytes_ -= header->cell * kStep;
  ::operator delete (header, std::align_val_t{alignof(Header)});
}

class Environment::Beginning final : public Wait {
 public:
  Beginning(Environment& env, Process::promise_type& who) : Wait(env) {
    owner_ = &who;
    group_ = this;  // so that it hears of its own end
  }

 private:
  void cancel() override {}
  void child_done(Wait&) override {
    Environment& env = *env_;
    Process::promise_type& who = *owner_;
    env.processes_[who.id().index].beginning.reset();  // this
    env.resume(who);
  }
};

Environment::Row::Row() = default;
Environment::Row::Row(Row&&) noexcept = default;
Environment::Row::~Row() = default;

Environment::Environment() : heap_(Positions{this}) {}

Environment::~Environment() {
  closing_ = true;
  for (std::size_t i = 0; i < processes_.size(); ++i)
    if (processes_[i].promise != nullptr)
      Process::Handle::from_promise(*processes_[i].promise).destroy();
}

void Environment::enroll(Process::promise_type& promise) {
  std::uint32_t index = free_process_;
  if (index != UINT32_MAX) {
    free_process_ = processes_[index].next_free;
  } else {
    index = static_cast<std::uint32_t>(processes_.size());
    processes_.emplace_back();
  }
  processes_[index].promise = &promise;
  promise.id_ = {index, processes_[index].generation};
  ++process_count_;
}

void Environment::ended(Process::promise_type& promise) {
  Row& row = processes_[promise.id_.index];
  row.promise = nullptr;
  ++row.generation;
  --process_count_;
  row.next_free = free_process_;
  free_process_ = promise.id_.index;
  if (closing_) return;
  Joined* waiting = std::exchange(row.joined, nullptr);
  row.joined_last = nullptr;
  while (waiting != nullptr) {
    Joined* const next = waiting->next_;
    post(*waiting);
    waiting = next;
  }
}

ProcessId Environment::start(Process process) {
  Process::promise_type& promise = std::exchange(process.handle_, {}).promise();
  CHECK(&promise.env_ == this && !closing_);
  enroll(promise);
  const ProcessId id = promise.id_;
  if (start_depth_ >= kStartDepthMax) {
    processes_[id.index].beginning = std::make_unique<Beginning>(*this, promise);
    post(*processes_[id.index].beginning);
    return id;
  }
  ++start_depth_;
  resume(promise);
  --start_depth_;
  return id;
}

bool Wait::interrupted_at_once() {
  owner_->interrupt_next_ = false;
  owner_->interrupting_ = true;
  wake_ = Wake::kInterrupted;
  env_->post(*this);
  return false;
}

void Environment::preempt(ProcessId id) {
  if (closing_ || !alive(id) || interrupt(id)) return;
  Process::promise_type& promise = *processes_[id.index].promise;
  if (!promise.interrupting_) promise.interrupt_next_ = true;
}

bool Environment::interrupt(ProcessId id) {
  if (closing_ || !alive(id)) return false;
  Process::promise_type& promise = *processes_[id.index].promise;
  Wait* const wait = promise.pending_;
  if (wait == nullptr || promise.interrupting_) return false;
  wait->cancel();
  wait->wake_ = Wake::kInterrupted;
  promise.interrupting_ = true;
  post(*wait);
  return true;
}

void Environment::withdraw(Wait& wait) {
  if (wait.slot_ == Wait::kNoSlot) return;
  Slot& slot = slots_[wait.slot_];
  if (slot.position == kInRing) {
    slot.what = nullptr;  // the ring frees the slot when it comes to it
  } else {
    const std::uint32_t position = slot.position;
    heap_.erase(position);
    slot.what = nullptr;
    slot.position = free_slot_;
    free_slot_ = wait.slot_;
  }
  wait.slot_ = Wait::kNoSlot;
}

void Environment::grow_ring() {
  std::vector<Entry> larger(ring_.size() * 2);
  for (std::size_t i = 0; i < ring_count_; ++i)
    larger[i] = ring_[(ring_head_ + i) & (ring_.size() - 1)];
  ring_ = std::move(larger);
  ring_head_ = 0;
}

bool Environment::take_next(Nanos until, Entry& entry) {
  const bool in_heap = !heap_.empty();
  if (ring_count_ > 0) {
    const Entry& posted = ring_[ring_head_];
    if (!in_heap || posted < heap_.top()) {
      if (Nanos{posted.at} >= until) return false;
      entry = posted;
      ring_head_ = (ring_head_ + 1) & (ring_.size() - 1);
      --ring_count_;
      return true;
    }
  }
  if (!in_heap || Nanos{heap_.top().at} >= until) return false;
  entry = heap_.pop();
  return true;
}

void Environment::run_until(Nanos until) {
  CHECK(until >= now_);
  stopping_ = false;
  Entry entry;
  while (!stopping_ && take_next(until, entry)) {
    Slot& slot = slots_[entry.slot()];
    Wait* const wait = std::exchange(slot.what, nullptr);
    slot.position = free_slot_;
    free_slot_ = entry.slot();
    if (wait == nullptr) continue;  // withdrawn
    now_ = Nanos{entry.at};
    ++events_;
    wait->slot_ = Wait::kNoSlot;
    if (wait->wake_ == Wake::kInterrupted) {
      wait->owner_->interrupting_ = false;
      resume(*wait->owner_);
    } else {
      wait->fire();
    }
  }
  if (!stopping_ && until != Nanos::max()) now_ = until;
}

bool Joined::begin_now() const {
  return !env_->alive(id_);
}

void Joined::enqueue() {
  auto& row = env_->processes_[id_.index];
  next_ = nullptr;
  (row.joined == nullptr ? row.joined : row.joined_last->next_) = this;
  row.joined_last = this;
}

void Joined::cancel() {
  if (slot_ != kNoSlot) return env_->withdraw(*this);
  if (!env_->alive(id_)) return;
  auto& row = env_->processes_[id_.index];
  Joined* before = nullptr;
  for (Joined* at = row.joined; at != nullptr; before = at, at = at->next_) {
    if (at != this) continue;
    (before == nullptr ? row.joined : before->next_) = next_;
    if (row.joined_last == this) row.joined_last = before;
    return;
  }
}

}  // namespace kansoku::simulate::des
