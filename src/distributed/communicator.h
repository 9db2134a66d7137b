#pragma once

#include <functional>
#include <string_view>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/tensor.h"
#include "src/distributed/lost_rank.h"

namespace hybrid_trainer {

/// Error: a rank ended, or was terminated, while other ranks needed it. The message names the rank.
class RankLost : public Error {
 public:
  explicit RankLost(const std::string& message) : Error(kExitCode, message) {}
  static constexpr ExitCode kExitCode{68};
};

/// Error: ranks called different operations or counts, a bug. The message lists all calls.
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
  std::uint64_t bytes_received = 0;  // counted on CPUs only
  std::uint64_t calls = 0;
  /// Time that the caller waited; only of BackgroundCommunicator, because elsewhere streams wait.
  std::optional<double> exposed_seconds{};
};

class Communicator;

/// Collectives that overlap with their caller's work.
using CollectiveJob = std::function<void(Communicator&, const Stream&)>;
using CollectiveTicket = std::int64_t;

/// The ranks of a job, from the view of one rank. All ranks must call the same collectives in the
/// same order, with tensors of the same dtype and count; otherwise they throw CollectiveMismatch.
/// Tensors are on the stream's device, and calls are ordered like other work of the stream. On a
/// CPU, a collective blocks until all ranks have called it and has completed when it returns. On
/// CUDA it returns earlier, and mismatches are not detected but make the streams hang. All calls
/// throw RankLost if a rank has ended or aborted. Not thread-safe.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const char* name() const = 0;  // "single", "threads", "mpi", "sockets", "nccl"

  /// Concatenates all ranks' shards (shard_of) in `values`, which may contain `shard`. Any dtype.
  virtual void all_gather(const Tensor& values, const Tensor& shard, const Stream& stream) = 0;
  /// Gathers parts of different lengths in place. `values` becomes the concatenation of counts[r]
  /// elements of each rank r; this rank's part must already be in its place. Any dtype. Throws
  /// ShapeMismatch if `values` is smaller than the sum of counts.
  virtual void gather_parts(const Tensor& values, const std::vector<std::int64_t>& counts,
                            const Stream& stream) = 0;
  /// Sends the next send_counts[r] elements of `sent` to each rank r. `received` becomes the
  /// concatenation of receive_counts[r] elements of each rank r. Any dtype. Throws ShapeMismatch if
  /// a tensor is smaller than the sum of its counts.
  virtual void all_to_all(const Tensor& received, const std::vector<std::int64_t>& receive_counts,
                          const Tensor& sent, const std::vector<std::int64_t>& send_counts,
                          const Stream& stream) = 0;
  /// Blocks until all ranks have called it.
  virtual void barrier() = 0;
  /// Returns each rank's bytes, by rank; lengths may differ. Blocks.
  virtual std::vector<std::string> host_gather(std::string_view bytes) = 0;
  /// Ends the job for all ranks. Sends a nonempty `reason` to them. Thread ranks throw RankLost.
  /// With Open MPI, all processes exit with RankLost's code; over TCP, only this process exits.
  /// Neither returns. On CUDA, first ends work that streams wait for. Thread-safe.
  virtual void abort(const std::string& reason) = 0;

  /// Starts `job` after the work enqueued on the stream so far, and overlaps it with the caller's
  /// next work. Later calls come after it, so that all ranks run calls in the same order. The job
  /// must own its data and must not allocate memory. The base class runs it immediately.
  virtual CollectiveTicket begin(CollectiveJob job, const Stream& stream) {
    job(*this, stream);
    return 0;
  }
  /// Makes the stream wait for `job` and all earlier ones; blocks on a CPU. Rethrows job errors.
  virtual void wait_for(CollectiveTicket /*job*/, const Stream&) {}
  /// Makes pending calls in another thread, and all later calls, throw RankLost. Used after an
  /// error of this rank. Does not notify other ranks. Thread-safe.
  virtual void interrupt() {}

  /// Returns the bytes transferred so far. Thread-safe.
  virtual CommunicationUse use() const = 0;
  /// Returns the number of collectives entered and left. Thread-safe.
  virtual RankProgress call_progress() const { return {}; }
};

/// Throws ShapeMismatch unless `shard` has the dtype of `values` and the size of the rank's shard.
void check_shard(const Tensor& shard, const Tensor& values, int rank, int ranks);

/// Throws ShapeMismatch without one nonnegative count per rank, or if the tensor is too small.
void check_counts(const Tensor& tensor, const std::vector<std::int64_t>& counts, int ranks);

/// A rank's description of itself before ranks use devices together.
struct RankIntroduction {
  std::string host;
  std::string device;   // unique device name
  std::string version;  // of the communication library
  std::string problem;  // reason why it cannot take part
};

/// Throws DeviceError, the same on all ranks, if a rank has a problem or another version, or if two
/// ranks share a device. Collective.
void check_introductions(const RankIntroduction& mine, Communicator& ranks);

}  // namespace hybrid_trainer
