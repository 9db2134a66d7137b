#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>
#include <thread>

#include "hybrid_trainer/core/shared_library.h"
#include "src/distributed/host_communicator.h"
#include "src/distributed/mpi/mpi_engine.h"

namespace hybrid_trainer {

/// The thread that makes all calls of MPI. Others give it messages and sleep until they are
/// through.
class MpiThread {
 public:
  /// Starts MPI. Throws DeviceError.
  MpiThread();
  /// Ends MPI if `finishes`, which waits for all ranks.
  ~MpiThread();
  MpiThread(const MpiThread&) = delete;
  MpiThread& operator=(const MpiThread&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& host() const { return host_; }
  void wait_for_transfer(std::span<const OutgoingBytes> sent,
                         std::span<const IncomingBytes> received);
  void leave_without_finish() { finishes_ = false; }
  /// Messages under way, and later ones, throw RankLost.
  void interrupt() { is_interrupted_ = true; }
  /// Ends all processes of the job.
  [[noreturn]] void abort_and_exit(int exit_code);

 private:
  struct Messages {
    std::span<const OutgoingBytes> sent;
    std::span<const IncomingBytes> received;
  };
  void run();
  void start();
  void transfer(const Messages& messages);
  void begin(const Messages& messages);
  void wait_until_done();
  void check(int error, const char* call) const;
  void abort_if_asked() const;

  SharedLibrary library_;
  const MpiEngine* engine_ = nullptr;
  int rank_ = 0, size_ = 1;
  std::string host_;
  std::vector<void*> requests_;  // of the thread alone

  std::mutex mutex_;
  std::condition_variable changed_;
  const Messages* messages_ = nullptr;  // to be sent and received
  bool started_ = false, ends_ = false;
  std::exception_ptr failure_;  // of the last messages, or of the start
  std::atomic<int> abort_code_ = 0;
  std::atomic<bool> finishes_ = true, is_interrupted_ = false;
  std::jthread thread_;
};

}  // namespace hybrid_trainer
