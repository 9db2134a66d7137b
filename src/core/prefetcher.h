#pragma once

#include <map>
#include <utility>
#include <vector>

#include "hybrid_trainer/core/tensor.h"
#include "src/core/threads.h"

namespace hybrid_trainer {

enum class Copies {
  kInBackground,  // in background threads, between host memory and a file
  kInStream,      // in the caller, in stream order
};

/// Caches copies of tensors that are stored elsewhere, for example in a file, and learns the order
/// of their use. Tensors acquired together form a group. While a group is in use, one thread reads
/// the group that followed it last time, and another writes back the modified previous group.
/// Memory is allocated and freed in the caller's thread, so that its use does not depend on the
/// disk. After a disk error, all calls except `release` and `forget` rethrow the error.
class Prefetcher {
 public:
  explicit Prefetcher(Copies copies = Copies::kInBackground)
      : in_background_(copies == Copies::kInBackground), writer_(1, true), reader_(1, true) {}
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// Returns a copy of `home`, valid until `release`. Throws OutOfMemory, IoError.
  Tensor acquire(const Tensor& home, const Stream& stream);
  /// Releases a copy and writes it back if it was modified.
  void release(const Tensor& home, const Tensor& here, bool changed, const Stream& stream) noexcept;
  /// Waits until all modified copies are written back. The caller may access the original tensors
  /// until the next acquire. Throws IoError.
  void drain();
  /// Waits like drain, and ends the learned sequence: no successor of the last group is learned.
  void begin_pass();
  /// Forgets `home`. Must be called before its memory is freed.
  void forget(const Tensor& home) noexcept;

  // This function and the next ones replace acquire and release for callers that know the order of
  // use. Returns the prefetched copy of `home`. If `home` was not prefetched, reads it now.
  Tensor take(const Tensor& home, const Stream& stream);
  /// Starts to read `home`, unless memory is short.
  void expect(const Tensor& home, const Stream& stream);
  /// Starts to write `here` to `home` and keeps `here` alive until finish_writes. Returns a ticket
  /// for wait_for_write.
  std::int64_t write(const Tensor& home, const Tensor& here, const Stream& stream);
  /// Waits for a write. Thread-safe.
  void wait_for_write(std::int64_t write) { writer_.wait_until_done(write); }
  /// Waits for all writes and frees their memory.
  void finish_writes();

 private:
  using Place = const void*;
  struct Transfer {
    Tensor home, here;
    std::int64_t job = 0;    // index in the worker
    std::int64_t group = 0;  // group of a write
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
  void release_writes(std::int64_t before_group);

  const bool in_background_;
  /// Next tensor, keyed by the last two tensors.
  std::map<std::pair<Place, Place>, Next> successors_;
  std::pair<Place, Place> last_{};
  std::vector<Place> held_;
  /// A deque, because references must remain valid when it grows.
  std::deque<Transfer> ahead_, written_;
  std::int64_t group_ = 0;
  std::exception_ptr failure_;  // error of a release
  BackgroundWorker writer_;
  BackgroundWorker reader_;  // its jobs may wait for writer_; both are destroyed first
};

}  // namespace hybrid_trainer
