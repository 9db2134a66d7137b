#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "src/core/libraries.h"
#include "src/distributed/communicator.h"
#include "src/distributed/nccl_api.h"

namespace hybrid_trainer {

/// Time limits of NCCL.
struct NcclLimits {
  std::chrono::milliseconds start{120000};  // until all ranks have met
  std::chrono::milliseconds end{5000};      // until it has ended or aborted
  std::chrono::milliseconds look{100};      // between two looks for an error
};

/// Ranks on CUDA devices, one on each, by NCCL. `hosts` are the same ranks, which send what lies in
/// host memory, host_gather and barrier; NCCL sends between devices. Calls with a stream of the
/// device return when NCCL has taken them and are done in the stream's order; they block only while
/// two ranks connect for the first time. Reductions are in NCCL's order. Calls that differ between
/// ranks are not told: the streams wait, and RankWatch ends the job. call_progress() counts a
/// collective as entered and left when its stream comes to it.
///
/// A collective of `hosts`. Throws DeviceError on all ranks where one has no NCCL, or one of
/// another version, or where two have the same device.
std::unique_ptr<Communicator> start_nccl_communicator(std::unique_ptr<Communicator> hosts,
                                                      Device device,
                                                      const WantedLibrary& library = nccl_library(),
                                                      const NcclLimits& limits = {});

/// NCCL, opened. Move-only.
class NcclLibrary {
 public:
  /// Throws DeviceError where there is none, or one that is too old.
  static NcclLibrary open(const WantedLibrary& wanted);
  const nccl::Functions& functions() const { return functions_; }
  int version() const { return version_; }  // 22809 is 2.28.9

 private:
  SharedLibrary library_;
  nccl::Functions functions_;
  int version_ = 0;
};

/// "2.28.9" of 22809.
std::string nccl_version_text(int version);

/// A rank's communicator of NCCL, in its non-blocking mode: no call waits within NCCL for other
/// ranks, so that it can be aborted when one is lost. A thread of its own looks for errors that
/// NCCL meets between calls, and aborts.
class NcclRank {
 public:
  /// Meets the other ranks, which give the same id, on the calling thread's CUDA device. Throws
  /// DeviceError.
  NcclRank(NcclLibrary library, const nccl::UniqueId& id, int rank, int size,
           const NcclLimits& limits);
  /// Ends in order; while an exception is on its way it aborts instead.
  ~NcclRank();
  NcclRank(const NcclRank&) = delete;
  NcclRank& operator=(const NcclRank&) = delete;

  /// Makes calls(functions, communicator), which returns the last answer that is no success, as one
  /// group, and returns when their work is on its stream: at once but for the first between two
  /// ranks, which connects them. Throws RankLost.
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
  /// Ends what waits for other ranks, so that this rank's streams go on, with what is there; calls
  /// throw RankLost with `reason` from now on. Any thread may ask; false where NCCL has not ended
  /// it within the limit.
  bool abort(const std::string& reason);
  /// Waits for what was enqueued and gives NCCL's communicator back; calls throw RankLost from now
  /// on. False where NCCL has met an error, or has not ended within the limit.
  bool end();

 private:
  /// Its thread holds it too, which outlives the rank where NCCL does not come back from an abort.
  struct Shared {
    std::mutex mutex;  // held in each call of NCCL
    std::condition_variable changed;
    ncclComm* communicator = nullptr;  // none once it is being aborted
    bool is_lost = false, is_aborted = false, ends = false;
    std::string reason;  // of being lost
  };
  static void watch(const std::shared_ptr<Shared>& shared, const nccl::Functions& functions,
                    std::chrono::milliseconds pause);
  static void look_for_error(Shared& shared, const nccl::Functions& functions);
  static void lose(Shared& shared, const std::string& reason);
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
