#pragma once

#include "hybrid_trainer/core/memory_pool.h"

struct CUstream_st;
struct CUevent_st;

namespace hybrid_trainer {

class Event;
class Profile;

/// An ordered queue of work on one device, together with the pool its tensors come from. Move-only.
/// On a processor, each call has completed when it returns. On CUDA, a call returns once its work
/// is enqueued; work of one stream runs in order, work of two streams in any order that events
/// allow. Memory returned to the pool may be reused at once, so tensors of a stream's pool may be
/// freed while work of that stream still uses them, but not while another stream does.
class Stream {
 public:
  /// On the device of the pool's memory. Throws DeviceError.
  explicit Stream(std::shared_ptr<MemoryPool> pool);
  ~Stream();
  /// Uses the queue of another stream with a pool of its own on the same device; `queue` must
  /// outlive it.
  Stream(const Stream& queue, std::shared_ptr<MemoryPool> pool);
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&& other) noexcept;

  Device device() const { return pool_->device(); }
  const std::shared_ptr<MemoryPool>& pool() const { return pool_; }
  /// Blocks until all work enqueued so far is done. Throws DeviceError where some of it failed.
  void synchronize() const;
  /// Makes work enqueued from now on wait for the event. Does not block.
  void order_after(const Event& event) const;
  /// The CUDA stream; nullptr on a processor.
  CUstream_st* native() const { return native_; }
  /// 4 KiB of pinned memory for small copies to and from the host; nullptr except on CUDA.
  void* mailbox() const { return mailbox_; }
  static constexpr std::size_t kMailboxBytes = 4096;
  /// Times what runs on the stream from now on, see src/core/profile.h; nullptr stops that. The profile
  /// must outlive what it times.
  void set_profile(Profile* profile) { profile_ = profile; }
  Profile* profile() const { return profile_; }

 private:
  std::shared_ptr<MemoryPool> pool_;
  CUstream_st* native_ = nullptr;
  void* mailbox_ = nullptr;
  bool owns_native_ = false;  // and the mailbox
  Profile* profile_ = nullptr;
};

/// A point in a stream's work. Move-only. Before the first record it counts as reached.
class Event {
 public:
  Event() = default;
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;

  /// Marks the end of all work enqueued on the stream so far.
  void record(const Stream& stream);
  bool reached() const;
  /// Blocks until it is reached. Throws DeviceError where the work failed.
  void synchronize() const;
  /// Seconds on the device between two recorded events that are reached; 0 on a processor.
  static double seconds_between(const Event& begin, const Event& end);
  CUevent_st* native() const { return native_; }

 private:
  CUevent_st* native_ = nullptr;
};

}  // namespace hybrid_trainer
