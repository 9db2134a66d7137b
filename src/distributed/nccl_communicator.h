#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "src/core/libraries.h"
#include "src/distributed/communicator.h"
#include "src/distributed/nccl_api.h"

namespace hybrid_trainer {

struct NcclLimits {
  std::chrono::milliseconds start{120000};       // limit until all ranks have connected
  std::chrono::milliseconds end{5000};           // limit until NCCL has ended or aborted
  std::chrono::milliseconds poll_interval{100};  // time between checks for an error
};

/// Starts ranks on CUDA devices, one per device, with NCCL for device memory. `hosts` connects the
/// same ranks for host memory, host_gather and barrier. Calls on a device stream return once NCCL
/// has accepted them and complete in stream order. They block only while two ranks connect for the
/// first time. Reductions are in NCCL's order. Mismatched calls make the streams hang, and
/// RankWatch ends the job. call_progress() counts a collective when its stream enters and leaves
/// it. Collective of `hosts`. Throws DeviceError on all ranks if one has no NCCL or another
/// version, or if two share a device.
std::unique_ptr<Communicator> start_nccl_communicator(std::unique_ptr<Communicator> hosts,
                                                      Device device,
                                                      const WantedLibrary& library = nccl_library(),
                                                      const NcclLimits& limits = {});

class NcclLibrary {
 public:
  /// Throws DeviceError if NCCL is missing or too old.
  static NcclLibrary open(const WantedLibrary& wanted);
  const nccl::Functions& functions() const { return functions_; }
  int version() const { return version_; }  // 22809 is 2.28.9

 private:
  SharedLibrary library_;
  nccl::Functions functions_;
  int version_ = 0;
};

/// A rank's NCCL communicator in non-blocking mode: no call waits inside NCCL for other ranks, so
/// the communicator can be aborted when a rank is lost. A thread aborts after asynchronous errors
/// of NCCL.
class NcclRank {
 public:
  /// Connects to ranks that pass the same id, on this thread's CUDA device. Throws DeviceError.
  NcclRank(NcclLibrary library, const nccl::UniqueId& id, int rank, int size,
           const NcclLimits& limits);
  /// Ends the communicator normally. During an exception, aborts it instead.
  ~NcclRank();
  NcclRank(const NcclRank&) = delete;
  NcclRank& operator=(const NcclRank&) = delete;

  /// Runs calls(functions, communicator) as one group. `calls` returns its last result that is not
  /// success. Blocks until the work is enqueued, and while two ranks connect. Throws RankLost.
  template <class Calls>
  void enqueue(const Calls& calls) {
    std::unique_lock lock = enter();
    const nccl::Functions& functions = library_.functions();
    check(functions.ncclGroupStart());
    const nccl::Result made = calls(functions, shared_->communicator),
                       ended = functions.ncclGroupEnd();
    check(made);
    check(ended);
    wait_until_taken(lock);
  }
  /// Ends work that waits for other ranks, so that streams continue with their current data. Later
  /// calls throw RankLost with `reason`. Returns false if NCCL exceeds the limit. Thread-safe.
  bool abort(const std::string& reason);
  /// Waits for enqueued work and destroys NCCL's communicator. Later calls throw RankLost. Returns
  /// false if NCCL reports an error or does not end within the limit.
  bool end();

 private:
  /// State shared with the thread, which outlives the rank if NCCL does not return from an abort.
  struct Shared {
    std::mutex mutex;  // held during each NCCL call
    std::condition_variable changed;
    ncclComm* communicator = nullptr;  // null after an abort has begun
    bool is_lost = false, is_aborted = false, ends = false;
    std::string reason;  // why the rank is lost
  };
  static void watch(const std::shared_ptr<Shared>& shared, const nccl::Functions& functions,
                    std::chrono::milliseconds pause);
  static void check_for_error(Shared& shared, const nccl::Functions& functions);
  static void mark_lost(Shared& shared, const std::string& reason);
  void start(const nccl::UniqueId& id, int rank, int size);
  void end_thread();
  std::unique_lock<std::mutex> enter() const;
  nccl::Result state() const;
  void check(nccl::Result answer) const;
  void wait_until_taken(std::unique_lock<std::mutex>& lock) const;

  NcclLibrary library_;
  const NcclLimits limits_;
  const int exceptions_ = std::uncaught_exceptions();
  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::thread thread_;
};

}  // namespace hybrid_trainer
