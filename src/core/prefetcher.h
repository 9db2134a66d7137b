#pragma once

#include <map>
#include <utility>
#include <vector>

#include "hybrid_trainer/core/tensor.h"
#include "src/core/threads.h"

namespace hybrid_trainer {

/// When a Prefetcher copies.
enum class Copies {
  kBeside,    // in threads, beside the computation: between host memory and a file
  kInStream,  // where it is called, in stream order
};

/// Copies in memory of tensors that lie elsewhere, as in a file. It learns the order in which they
/// are used. While some are held, one thread reads those that followed them last time, and another
/// writes back those that were changed before. Tensors that are held at the same time are a group:
/// the one before is still being written, the next one is being read.
///
/// What is live depends on the order of use alone, never on the disk's pace: memory is taken and
/// freed in the caller's thread. After a failure of the disk every call but `release` throws it.
class Prefetcher {
 public:
  explicit Prefetcher(Copies copies = Copies::kBeside)
      : is_beside_(copies == Copies::kBeside), writer_(1, true), reader_(1, true) {}
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// A copy of `home`, to be held until `release`. Throws OutOfMemory, IoError.
  Tensor acquire(const Tensor& home, const Stream& stream);
  /// Writes it back where it was changed.
  void release(const Tensor& home, const Tensor& here, bool changed, const Stream& stream) noexcept;
  /// What was changed is at its home, which others may read and write until the next acquire.
  /// Throws IoError.
  void settle();
  /// Settles; what comes next follows nothing, and nothing is read ahead of it at the end.
  void begin_pass();
  /// `home` is no place of a tensor any more.
  void forget(const Tensor& home) noexcept;

  // For an order that the caller knows, without acquire and release:
  /// A copy of `home`: the one that was expected, or one that is read now.
  Tensor take(const Tensor& home, const Stream& stream);
  /// `home` is taken next: it is read from now on, unless memory is too small for it.
  void expect(const Tensor& home, const Stream& stream);
  /// Writes `here`, and holds it until finish_writes. Returns what wait_for_write takes.
  std::int64_t write(const Tensor& home, const Tensor& here, const Stream& stream);
  /// In any thread.
  void wait_for_write(std::int64_t write) { writer_.wait_until_done(write); }
  /// Waits for what is being written, and frees its memory.
  void finish_writes();

 private:
  using Place = const void*;
  struct Transfer {
    Tensor home, here;
    std::int64_t job = 0;    // the worker's, which owns nothing
    std::int64_t group = 0;  // of what is written
  };
  struct Next {
    Tensor home;
    bool begins_group;
  };
  void begin_read(const Tensor& home, const Stream& stream);
  bool try_to_read(const Tensor& home, const Stream& stream);
  void read_ahead(const Stream& stream);
  bool is_ahead(Place home, std::size_t count) const;
  void drop_ahead();
  void let_go_of_writes(std::int64_t before_group);

  const bool is_beside_;
  std::map<std::pair<Place, Place>, Next> followed_;  // the last two, and what came then
  std::pair<Place, Place> last_{};
  std::vector<Place> held_;
  std::deque<Transfer> ahead_, written_;  // where a deque grows, what is in it stays
  std::int64_t group_ = 0;
  std::exception_ptr failure_;  // of a release
  BackgroundWorker writer_;
  BackgroundWorker reader_;  // may wait for the writer; both stop before the rest goes
};

}  // namespace hybrid_trainer
