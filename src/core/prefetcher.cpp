#include "src/core/prefetcher.h"

namespace hybrid_trainer {

namespace {

bool is_simulated(const Tensor& a, const Tensor& b) {
  return a.device().simulated || b.device().simulated;
}

}  // namespace

Tensor Prefetcher::acquire(const Tensor& home, const Stream& stream) {
  if (failure_) std::rethrow_exception(failure_);
  if (!in_background_) return take(home, stream);
  const bool begins = held_.empty();
  if (begins) release_writes(group_++);
  const Tensor here = take(home, stream);
  successors_[last_] = {home, begins};
  last_ = {last_.second, home.raw()};
  held_.push_back(home.raw());
  read_ahead(stream);
  return here;
}

Tensor Prefetcher::take(const Tensor& home, const Stream& stream) {
  if (!in_background_) {
    const Tensor here = Tensor::empty_like(home, home.kind(), stream);
    copy_or_wait(here, home, stream);
    return here;
  }
  if (!ahead_.empty() && ahead_.front().home.raw() != home.raw()) drop_ahead();
  if (ahead_.empty()) {
    try {
      begin_read(home, stream);
    } catch (const OutOfMemory&) {
      if (written_.empty()) throw;
      finish_writes();
      begin_read(home, stream);
    }
  }
  reader_.wait_until_done(ahead_.front().job);
  const Tensor here = ahead_.front().here;
  ahead_.pop_front();
  return here;
}

/// Starts to read a tensor. The reader thread first waits for a pending write of the same tensor.
void Prefetcher::begin_read(const Tensor& home, const Stream& stream) {
  Transfer& read = ahead_.emplace_back(home, Tensor::empty_like(home, home.kind(), stream));
  if (is_simulated(home, read.here)) return;
  const auto written = std::find_if(written_.rbegin(), written_.rend(), [&](const Transfer& one) {
    return one.home.raw() == home.raw();
  });
  const std::int64_t write = written == written_.rend() ? 0 : written->job;
  reader_.submit([this, &read, write] {
    writer_.wait_until_done(write);
    copy_in_this_thread(read.here, read.home);
  });
  read.job = reader_.submitted();
}

/// Reads the rest of the current group and the next group ahead. Predicts each tensor from the last
/// two, because forward and backward read the tensors in different orders. Stops at a tensor that
/// is in use or already read ahead.
void Prefetcher::read_ahead(const Stream& stream) {
  int groups = 0;
  std::pair<Place, Place> at = last_;
  for (std::size_t i = 0;; ++i) {
    const auto found = successors_.find(at);
    if (found == successors_.end()) return;
    const auto& [home, begins] = found->second;
    if (begins && ++groups > 1) return;
    if (std::ranges::count(held_, home.raw()) > 0 || is_ahead(home.raw(), i)) return;
    if (i == ahead_.size() && !try_to_read(home, stream)) return;
    if (ahead_[i].home.raw() != home.raw()) return;
    at = {at.second, home.raw()};
  }
}

bool Prefetcher::is_ahead(Place home, std::size_t count) const {
  const auto end = ahead_.begin() + static_cast<std::ptrdiff_t>(std::min(count, ahead_.size()));
  return std::any_of(ahead_.begin(), end,
                     [&](const Transfer& one) { return one.home.raw() == home; });
}

bool Prefetcher::try_to_read(const Tensor& home, const Stream& stream) {
  try {
    begin_read(home, stream);
    return true;
  } catch (const OutOfMemory&) {
    return false;
  }
}

void Prefetcher::expect(const Tensor& home, const Stream& stream) {
  if (!in_background_ || is_ahead(home.raw(), 1)) return;
  drop_ahead();
  try_to_read(home, stream);
}

void Prefetcher::drop_ahead() {
  reader_.wait_until_idle();
  ahead_.clear();
}

void Prefetcher::release(const Tensor& home, const Tensor& here, bool changed,
                         const Stream& stream) noexcept {
  std::erase(held_, home.raw());
  if (!changed) return;
  try {
    write(home, here, stream);
  } catch (...) {
    failure_ = std::current_exception();
  }
}

std::int64_t Prefetcher::write(const Tensor& home, const Tensor& here, const Stream& stream) {
  if (!in_background_) {
    copy_or_wait(home, here, stream);
    return 0;
  }
  Transfer& written = written_.emplace_back(home, here, 0, group_);
  if (is_simulated(home, here)) return 0;
  writer_.submit([&written] { copy_in_this_thread(written.home, written.here); });
  return written.job = writer_.submitted();
}

void Prefetcher::release_writes(std::int64_t before_group) {
  for (; !written_.empty() && written_.front().group < before_group; written_.pop_front())
    writer_.wait_until_done(written_.front().job);
}

void Prefetcher::finish_writes() { release_writes(group_ + 1); }

void Prefetcher::drain() {
  if (failure_) std::rethrow_exception(failure_);
  drop_ahead();
  finish_writes();
}

void Prefetcher::begin_pass() {
  drain();
  last_ = {};
}

void Prefetcher::forget(const Tensor& home) noexcept {
  try {
    drain();
  } catch (...) {
    failure_ = std::current_exception();
  }
  std::erase(held_, home.raw());
  successors_.clear();
  last_ = {};
}

}  // namespace hybrid_trainer
