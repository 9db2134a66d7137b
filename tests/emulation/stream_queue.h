#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace hybrid_trainer::emulation {

using Work = std::function<void()>;

/// A stream: a thread that runs its queue in order. Work must not throw.
class StreamQueue {
 public:
  StreamQueue();
  ~StreamQueue();
  StreamQueue(const StreamQueue&) = delete;
  StreamQueue& operator=(const StreamQueue&) = delete;

  void enqueue(Work work);
  void synchronize();
  /// Waits like synchronize, but also works during a capture.
  void drain();
  void begin_capture();
  bool captures() const;
  /// Marks the capture as failed: end_capture will reject it, as in CUDA.
  void invalidate_capture();
  /// Throws std::runtime_error if the capture is invalid.
  std::vector<Work> end_capture();

 private:
  void run();
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> queue_;
  bool busy_ = false;
  bool ends_ = false;
  bool captures_ = false;
  bool capture_is_valid_ = true;
  std::vector<Work> captured_;
  std::thread thread_;
};

/// One record of an event, reached once the work before it is done.
class EventRecord {
 public:
  void reach(double spent_seconds);  // by the stream's thread, with its added time
  bool reached() const;
  void wait() const;
  double reached_at_seconds() const;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool is_reached_ = false;
  double seconds_ = 0;
};

/// An event. As in CUDA, a wait refers to the latest record at the time of the call. Thread-safe.
class EventState {
 public:
  EventState();
  std::shared_ptr<EventRecord> record();
  /// The latest record, or a record that is already reached if there is none.
  std::shared_ptr<const EventRecord> recorded() const;

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<EventRecord> newest_ = std::make_shared<EventRecord>();
};

}  // namespace hybrid_trainer::emulation
