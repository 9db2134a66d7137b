#pragma once

#include "hybrid_trainer/core/memory_pool.h"

struct CUstream_st;
struct CUevent_st;

namespace hybrid_trainer {

class Event;
class Profile;

/// An ordered queue of work on one device and the pool for its tensors. Move-only. On the CPU,
/// calls complete before they return. On CUDA, calls enqueue work; one stream runs in order, and
/// events order work between streams. The pool reuses freed memory immediately: a tensor may be
/// freed while work of the pool's stream still uses it, but not while another stream does.
class Stream {
 public:
  /// Makes a stream on the device of the pool. Throws DeviceError.
  explicit Stream(std::shared_ptr<MemoryPool> pool);
  ~Stream();
  /// Shares the queue of the stream `queue`, which must outlive this stream. `pool` must be on the
  /// same device.
  Stream(const Stream& queue, std::shared_ptr<MemoryPool> pool);
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&& other) noexcept;

  Device device() const { return pool_->device(); }
  const std::shared_ptr<MemoryPool>& pool() const { return pool_; }
  /// Blocks until all enqueued work is done. Throws DeviceError if any of it failed.
  void synchronize() const;
  /// Makes later work wait for the event. Does not block.
  void order_after(const Event& event) const;
  /// Returns the CUDA stream; nullptr on the CPU.
  CUstream_st* native() const { return native_; }
  /// Returns 4 KiB of pinned memory for small copies to and from the host. Returns nullptr on the
  /// CPU.
  void* mailbox() const { return mailbox_; }
  static constexpr std::size_t kMailboxBytes = 4096;
  /// Profiles later work, which `profile` must outlive; nullptr stops it (src/core/profile.h).
  void set_profile(Profile* profile) { profile_ = profile; }
  Profile* profile() const { return profile_; }

 private:
  std::shared_ptr<MemoryPool> pool_;
  CUstream_st* native_ = nullptr;
  void* mailbox_ = nullptr;
  bool owns_native_ = false;  // whether the destructor frees native_ and mailbox_
  Profile* profile_ = nullptr;
};

/// A point in a stream's work. Move-only. An event that was never recorded counts as reached.
class Event {
 public:
  Event() = default;
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;

  /// Marks the end of all work enqueued on the stream so far.
  void record(const Stream& stream);
  bool reached() const;
  /// Blocks until the event is reached. Throws DeviceError if the work failed.
  void synchronize() const;
  /// Returns the device seconds between two reached events; 0 on the CPU.
  static double seconds_between(const Event& begin, const Event& end);
  CUevent_st* native() const { return native_; }

 private:
  CUevent_st* native_ = nullptr;
};

}  // namespace hybrid_trainer
