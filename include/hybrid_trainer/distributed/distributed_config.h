#pragma once

#include <algorithm>

#include "hybrid_trainer/core/device.h"
#include "hybrid_trainer/core/fields.h"

namespace hybrid_trainer {

/// Distribution of a step over ranks. JSON group `distributed`.
struct DistributedConfig {
  std::int64_t zero = 0;
  std::int64_t bucket_bytes = 0;
  std::int64_t check_weights_every = 0;
  std::int64_t collective_timeout_seconds = 30;
  bool overlap = true;
  MemorySize simulated_link{};
  std::int64_t simulated_latency_microseconds = 0;
  std::string backend = "auto";

  /// Returns `bucket_bytes` or, if it is 0, 1/32 of the weights' bytes, between 1 MiB and 4 MiB:
  /// the last bucket overlaps nothing, so it should be small, but each has a fixed cost.
  std::int64_t bucket_bytes_for(std::int64_t weight_bytes) const {
    constexpr std::int64_t kMin = 1 << 20, kMax = 4 << 20;
    return bucket_bytes > 0 ? bucket_bytes : std::clamp(weight_bytes / 32, kMin, kMax);
  }
  /// Returns whether ranks compare weights after this step; with zero 3, no weight is on two ranks.
  bool compares_weights(std::int64_t step, bool saves) const {
    return zero < 3 && (saves || (check_weights_every > 0 && step % check_weights_every == 0));
  }

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"zero", self.zero,
                "ZeRO stage, which sets the state that is divided among the ranks instead of "
                "copied on each: 0 nothing, 1 the optimizer state, 2 also the gradients, 3 also "
                "the weights. It changes no bit of training, except with phases.method "
                "asynchronous_gradients, which accepts 0 and 1, or local_sgd, which accepts 0.",
                Range::between(0, 3)});
    visit(Field{"bucket_bytes", self.bucket_bytes,
                "Bytes of gradients to send in one message, at least 4096. zero 1 and 2 also send "
                "updated weights in this size, and divide weights among the ranks in groups of "
                "this size; 3 gathers at least this number of bytes of weights ahead. 0 uses 1/32 "
                "of the weights, from 1 to 4 MiB.",
                Range::between(0, std::int64_t{1} << 32)});
    visit(Field{"check_weights_every", self.check_weights_every,
                "Steps between checksum comparisons of the ranks' weights; a difference ends the "
                "job. 0 compares only before each checkpoint. Not available with zero 3.",
                Range::at_least(0)});
    visit(Field{
        "collective_timeout_seconds", self.collective_timeout_seconds,
        "Seconds without progress, while others wait for it, after which a rank counts as lost and "
        "the job ends. Values below 10 also limit the seconds without a sign of life.",
        Range::between(1, 86400)});
    visit(Field{"overlap", self.overlap,
                "Send gradients in parallel with the computation; with zero 1 and 2 also updated "
                "weights, and with 3 gather weights. It changes no bit."});
    visit(Field{"simulated_link", self.simulated_link,
                "Bandwidth of a simulated link between ranks, in bytes per second each way, such "
                "as 125MB, for measurements. Each message takes the simulated time in addition; 0B "
                "simulates none. Without ranks there is no link."});
    visit(Field{"simulated_latency_microseconds", self.simulated_latency_microseconds,
                "Minimum time of each call over the simulated link, in microseconds.",
                Range::between(0, 10'000'000)});
    visit(Field{"backend",
                self.backend,
                "Transport between ranks: nccl between CUDA devices, mpi between CPUs under mpirun "
                "or srun, sockets between the processes of --ranks; auto uses the one that fits.",
                Range{},
                {"auto", "nccl", "mpi", "sockets"}});
  }
  bool operator==(const DistributedConfig&) const = default;
};

/// Describes the simulated link: "125MB a second, 50 us a call"; empty if there is none.
std::string simulated_link_text(const DistributedConfig& config);
/// Throws ConfigError if the config's backend does not support the device.
void check_backend(const DistributedConfig& config, Device device);

}  // namespace hybrid_trainer
