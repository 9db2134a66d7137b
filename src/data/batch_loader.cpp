#include <stop_token>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/data/dataset.h"
#include "src/core/threads.h"

namespace hybrid_trainer {

/// A ring of batches and the thread that fills it. Batch i uses slot i modulo the number of slots,
/// so the batch in use occupies the slot that is needed last.
class BatchLoader::Prefetch {
 public:
  Prefetch(const ShuffledBatches& source, std::int64_t depth, const Stream& stream)
      : source_(source), slots_(static_cast<std::size_t>(depth + 1)) {
    for (Slot& slot : slots_) slot.memory = source.empty_batch(stream);
    thread_ =
        start_thread([this] { return std::jthread([this](std::stop_token stop) { run(stop); }); });
  }

  Batch take(std::int64_t index) {
    std::unique_lock lock(mutex_);
    // Refills the slot of batch index - 1 only now: until this call, the caller may read that
    // batch.
    const auto count = static_cast<std::int64_t>(slots_.size());
    for (std::int64_t i = index; i < index + count; ++i) slot_of(i).wanted = i;
    changed_.notify_all();
    Slot& slot = slot_of(index);
    changed_.wait(lock, [&] { return slot.filled == index; });
    if (slot.failure) {
      slot.filled = kNone;
      std::rethrow_exception(std::exchange(slot.failure, nullptr));
    }
    return slot.batch;
  }

 private:
  static constexpr std::int64_t kNone = -1;
  struct Slot {
    Batch memory;
    Batch batch;                  // the used part of `memory`
    std::int64_t wanted = kNone;  // index of the requested batch
    std::int64_t filled = kNone;  // index of the completed batch
    std::exception_ptr failure;   // error while filling the batch
  };

  Slot& slot_of(std::int64_t index) {
    return slots_[static_cast<std::size_t>(index) % slots_.size()];
  }

  /// Returns the slot with the earliest batch that is requested but not filled, or null.
  Slot* next_free_slot() {
    Slot* next = nullptr;
    for (Slot& slot : slots_) {
      if (slot.wanted != slot.filled && (next == nullptr || slot.wanted < next->wanted))
        next = &slot;
    }
    return next;
  }

  void run(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (changed_.wait(lock, stop, [&] { return next_free_slot() != nullptr; })) {
      Slot& slot = *next_free_slot();
      const std::int64_t index = slot.wanted;
      slot.filled = kNone;
      lock.unlock();
      std::exception_ptr failure;
      try {
        slot.batch = source_.read(index, slot.memory);
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      slot.failure = failure;
      slot.filled = index;
      changed_.notify_all();
    }
  }

  const ShuffledBatches& source_;
  std::vector<Slot> slots_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::jthread thread_;
};

BatchLoader::BatchLoader(ShuffledBatches source, std::int64_t prefetch_depth, const Stream& stream)
    : source_(std::move(source)),
      prefetch_(std::make_unique<Prefetch>(source_, prefetch_depth, stream)) {}

BatchLoader::~BatchLoader() = default;

Batch BatchLoader::next() {
  Batch batch = prefetch_->take(taken_);
  ++taken_;
  return batch;
}

void BatchLoader::seek(std::int64_t batch_index) {
  require(batch_index >= 0, "the batch index must not be negative");
  taken_ = batch_index;
}

}  // namespace hybrid_trainer
