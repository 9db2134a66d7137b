#include "tests/emulation/stream_queue.h"

#include <chrono>
#include <stdexcept>
#include <utility>

namespace hybrid_trainer::emulation {

StreamQueue::StreamQueue() : thread_([this] { run(); }) {}

StreamQueue::~StreamQueue() {
  {
    std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void StreamQueue::enqueue(Work work) {
  {
    std::lock_guard lock(mutex_);
    if (captures_) {
      captured_.push_back(std::move(work));
      return;
    }
    queue_.push_back(std::move(work));
  }
  changed_.notify_all();
}

void StreamQueue::synchronize() {
  std::unique_lock lock(mutex_);
  if (captures_) throw std::logic_error("emulation: synchronize during a capture");
  changed_.wait(lock, [&] { return queue_.empty() && !busy_; });
}

void StreamQueue::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return queue_.empty() && !busy_; });
}

void StreamQueue::begin_capture() {
  std::lock_guard lock(mutex_);
  captures_ = true;
  capture_is_valid_ = true;
  captured_.clear();
}

bool StreamQueue::captures() const {
  std::lock_guard lock(mutex_);
  return captures_;
}

void StreamQueue::invalidate_capture() {
  std::lock_guard lock(mutex_);
  capture_is_valid_ = false;
}

std::vector<Work> StreamQueue::end_capture() {
  std::lock_guard lock(mutex_);
  captures_ = false;
  if (!capture_is_valid_) throw std::runtime_error("cudaErrorStreamCaptureInvalidated");
  return std::exchange(captured_, {});
}

void StreamQueue::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ends_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const Work work = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    work();
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

void EventRecord::reach(double spent_seconds) {
  {
    std::lock_guard lock(mutex_);
    is_reached_ = true;
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    seconds_ = std::chrono::duration<double>(now).count() + spent_seconds;
  }
  changed_.notify_all();
}

bool EventRecord::reached() const {
  std::lock_guard lock(mutex_);
  return is_reached_;
}

void EventRecord::wait() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return is_reached_; });
}

double EventRecord::reached_at_seconds() const {
  std::lock_guard lock(mutex_);
  return seconds_;
}

EventState::EventState() { newest_->reach(0); }

std::shared_ptr<EventRecord> EventState::record() {
  std::lock_guard lock(mutex_);
  newest_ = std::make_shared<EventRecord>();
  return newest_;
}

std::shared_ptr<const EventRecord> EventState::recorded() const {
  std::lock_guard lock(mutex_);
  return newest_;
}

}  // namespace hybrid_trainer::emulation
