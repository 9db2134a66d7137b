#pragma once

#include <functional>
#include <span>

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer {

/// Thrown if a rank ends or is terminated while other ranks need it. The message names the rank.
class RankLost : public Error {
 public:
  explicit RankLost(const std::string& message) : Error(kExitCode, message) {}
  static constexpr ExitCode kExitCode{68};
};

/// Thrown if ranks call different operations or counts, a bug. The message lists all ranks' calls.
class CollectiveMismatch : public Error {
 public:
  explicit CollectiveMismatch(const std::string& message) : Error(ExitCode::kInternal, message) {}
};

struct Shard {
  std::int64_t first = 0, last = 0;
  std::int64_t elements() const { return last - first; }
};

/// Returns a rank's shard of ⌈elements/ranks⌉ elements; the last shards are smaller or empty.
Shard shard_of(std::int64_t elements, int rank, int ranks);

/// Tensor bytes that a rank has sent and received so far.
struct CommunicationUse {
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;  // counted only on CPUs
  std::uint64_t calls = 0;
  /// Time that the caller waited, only in BackgroundCommunicator; otherwise streams wait.
  std::optional<double> exposed_seconds{};
};

/// Progress of a rank: work done, and collectives entered and left.
struct RankProgress {
  std::uint64_t work = 0, entered = 0, left = 0;
  bool operator==(const RankProgress&) const = default;
};

class Communicator;

/// Collectives that overlap with their caller's work.
using CollectiveJob = std::function<void(Communicator&, const Stream&)>;
using CollectiveTicket = std::int64_t;

/// The ranks of a job, from the view of one rank. All ranks must call the same collectives in the
/// same order, with the same dtype and count; otherwise they throw CollectiveMismatch. Tensors are
/// on the stream's device, and calls are ordered like other work of the stream. On a CPU, a
/// collective is complete when it returns. On CUDA, it returns earlier, and mismatched calls make
/// the streams hang. All calls throw RankLost if a rank has ended or aborted. Not thread-safe.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const char* name() const = 0;  // "single", "threads", "mpi", "sockets", "nccl"

  /// Concatenates all ranks' shards (shard_of) in `values`. `shard` may be a part of `values`. Any
  /// dtype.
  virtual void all_gather(const Tensor& values, const Tensor& shard, const Stream& stream) = 0;
  /// Gathers in place: `values` becomes the concatenation of counts[r] elements of each rank r;
  /// this rank's part is already there. Any dtype. Throws ShapeMismatch if `values` is too small.
  virtual void gather_parts(const Tensor& values, const std::vector<std::int64_t>& counts,
                            const Stream& stream) = 0;
  /// Sends the next send_counts[r] elements of `sent` to each rank r. `received` becomes the
  /// concatenation of receive_counts[r] elements of each rank r. Any dtype. Throws ShapeMismatch.
  virtual void all_to_all(const Tensor& received, const std::vector<std::int64_t>& receive_counts,
                          const Tensor& sent, const std::vector<std::int64_t>& send_counts,
                          const Stream& stream) = 0;
  /// Blocks until all ranks have called this function.
  virtual void barrier() = 0;
  /// Returns the bytes of all ranks, in the order of ranks. Their lengths may differ. Blocks.
  virtual std::vector<std::string> host_gather(std::string_view bytes) = 0;
  /// Ends the job for all ranks, and sends `reason` to them unless it is empty. If the ranks are
  /// threads, they throw RankLost. With Open MPI, all processes exit with the exit code of
  /// RankLost. Over TCP, only this process exits. In the last two cases, this function does not
  /// return. On CUDA, first ends the work that streams wait for. Thread-safe.
  virtual void abort(const std::string& reason) = 0;

  /// Starts `job` after the work enqueued on the stream, and overlaps it with later work. Later
  /// calls run after `job`, in the same order on all ranks. The job must own its data and must not
  /// allocate memory. The base class runs it immediately.
  virtual CollectiveTicket begin(CollectiveJob job, const Stream& stream) {
    job(*this, stream);
    return 0;
  }
  /// Makes the stream wait for `job` and all earlier jobs. Blocks on a CPU. Rethrows the errors of
  /// these jobs.
  virtual void wait_for(CollectiveTicket /*job*/, const Stream&) {}
  /// Makes pending calls in other threads and all later calls throw RankLost. Call it after an
  /// error of this rank; it does not notify other ranks. Thread-safe.
  virtual void interrupt() {}

  /// Returns the bytes transferred so far. Thread-safe.
  virtual CommunicationUse use() const = 0;
  /// Returns the number of collectives entered and left. Thread-safe.
  virtual RankProgress call_progress() const { return {}; }
};

/// Returns the numbers of all ranks, in the order of ranks. Their counts may differ. Collective;
/// blocks.
template <class Number>
std::vector<std::vector<Number>> gather_numbers(std::span<const Number> mine, Communicator& ranks) {
  std::vector<std::vector<Number>> all;
  for (const std::string& bytes :
       ranks.host_gather({reinterpret_cast<const char*>(mine.data()), mine.size_bytes()})) {
    std::vector<Number>& theirs = all.emplace_back(bytes.size() / sizeof(Number));
    bytes.copy(reinterpret_cast<char*>(theirs.data()), bytes.size());
  }
  return all;
}

void check_shard(const Tensor& shard, const Tensor& values, int rank, int ranks);

/// Throws ShapeMismatch unless there is one nonnegative count per rank and the tensor is large
/// enough.
void check_counts(const Tensor& tensor, const std::vector<std::int64_t>& counts, int ranks);

struct RankIntroduction {
  std::string host;
  std::string device;   // unique device name
  std::string version;  // version of the communication library
  std::string problem;  // reason why the rank cannot take part; empty if it can
};

/// Throws DeviceError if a rank has a problem or a different version, or if two ranks share a
/// device. All ranks throw the same error. Collective.
void check_introductions(const RankIntroduction& mine, Communicator& ranks);

}  // namespace hybrid_trainer
