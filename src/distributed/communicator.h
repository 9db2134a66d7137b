#pragma once

#include <functional>
#include <string_view>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/tensor.h"
#include "src/distributed/lost_rank.h"

namespace hybrid_trainer {

/// A rank ended, or was ended, while others needed it. The message names it.
class RankLost : public Error {
 public:
  explicit RankLost(const std::string& message) : Error(kExitCode, message) {}
  static constexpr ExitCode kExitCode{68};
};

/// Ranks do not call the same operation with the same counts: a mistake in the program. The message
/// says what each rank called.
class CollectiveMismatch : public Error {
 public:
  explicit CollectiveMismatch(const std::string& message) : Error(ExitCode::kInternal, message) {}
};

/// Elements [first, last) of a tensor, in row-major order.
struct Shard {
  std::int64_t first = 0, last = 0;
  std::int64_t elements() const { return last - first; }
};

/// The part of `elements` elements that is a rank's own: each rank has ⌈elements/ranks⌉ of them,
/// the last ones fewer or none.
Shard shard_of(std::int64_t elements, int rank, int ranks);

/// Bytes of tensors that a rank has sent and received so far.
struct CommunicationUse {
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;  // on processors alone
  std::uint64_t calls = 0;
  /// In which its caller waited; counted by BackgroundCommunicator alone: elsewhere streams wait.
  std::optional<double> exposed_seconds{};
};

class Communicator;

/// Calls of a communicator that go on beside their caller.
using CollectiveJob = std::function<void(Communicator&, const Stream&)>;
/// Names one of them.
using CollectiveTicket = std::int64_t;

/// The ranks of a job, as one of them sees them. Collectives are called by all ranks in the same
/// order, with tensors of the same dtype and count; where they are not, CollectiveMismatch tells.
/// Tensors lie on the stream's device, and calls are ordered as other work of that stream: on a
/// processor each has completed when it returns, so it blocks until all ranks have come to it. On
/// CUDA they return before, so that calls that differ are not told: the streams wait. All calls throw RankLost where a rank has ended or aborted. Used
/// from one thread.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const char* name() const = 0;  // "single", "threads", "mpi", "sockets", "nccl"

  /// `values` becomes the shards (shard_of) of all ranks, one after the other. Any dtype. `shard`
  /// may be the rank's own part of `values`.
  virtual void all_gather(const Tensor& values, const Tensor& shard, const Stream& stream) = 0;
  /// Gathers parts of any length, in place: `values` becomes the parts of all ranks, one after the
  /// other, of counts[r] elements of rank r, whose own is there already. Any dtype. ShapeMismatch
  /// where `values` has fewer elements than the counts say.
  virtual void gather_parts(const Tensor& values, const std::vector<std::int64_t>& counts,
                            const Stream& stream) = 0;
  /// Sends each rank r the next send_counts[r] elements of `sent`; `received` gets
  /// receive_counts[r] elements of rank r, one rank after the other. Any dtype. ShapeMismatch where
  /// a tensor has fewer elements than its counts say.
  virtual void all_to_all(const Tensor& received, const std::vector<std::int64_t>& receive_counts,
                          const Tensor& sent, const std::vector<std::int64_t>& send_counts,
                          const Stream& stream) = 0;
  /// Blocks until all ranks have called it.
  virtual void barrier() = 0;
  /// The bytes that each rank gave, by rank; they may differ in length. Blocks.
  virtual std::vector<std::string> host_gather(std::string_view bytes) = 0;
  /// Ends the job for all ranks, because of `reason`, which they are told unless it is empty: other ranks as threads
  /// throw RankLost; with Open MPI all processes end with RankLost's code, by TCP this one, and this
  /// does not return. On CUDA what streams wait for ends first. Any thread may call it.
  virtual void abort(const std::string& reason) = 0;

  /// `job` runs beside what its caller does next, after what is enqueued on the stream so far; later
  /// calls, beside or not, come after it, so that all ranks begin the same in the same order. It
  /// owns what it works on, and allocates nothing. Here it is done when this returns.
  virtual CollectiveTicket begin(CollectiveJob job, const Stream& stream) {
    job(*this, stream);
    return 0;
  }
  /// Makes the stream wait for that job, and all before it; blocks on a processor. Throws what the
  /// job threw.
  virtual void wait_for(CollectiveTicket /*job*/, const Stream&) {}
  /// Ends the calls of a rank that met an error: pending ones in another thread, and later ones,
  /// throw RankLost. Does not tell other ranks. Any thread may call it.
  virtual void interrupt() {}

  /// Any thread may ask.
  virtual CommunicationUse use() const = 0;
  /// Collectives that were entered and left; any thread may ask.
  virtual RankProgress call_progress() const { return {}; }
};

/// Throws ShapeMismatch unless `shard` has the dtype of `values` and the count of the rank's shard.
void check_shard(const Tensor& shard, const Tensor& values, int rank, int ranks);

/// Throws ShapeMismatch unless there is a count for each rank, none negative, and the tensor has as
/// many elements as they say.
void check_counts(const Tensor& tensor, const std::vector<std::int64_t>& counts, int ranks);

/// What a rank says of itself before ranks start to work together on devices.
struct RankIntroduction {
  std::string host;
  std::string device;   // what no other device is called
  std::string version;  // of the library that sends between them
  std::string problem;  // why it cannot take part
};

/// Throws DeviceError, the same on all ranks, where one has a problem or another version, or two
/// have one device. A collective.
void check_introductions(const RankIntroduction& mine, Communicator& ranks);

}  // namespace hybrid_trainer
