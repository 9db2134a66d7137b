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

  /// Returns `bucket_bytes` or, if it is 0, 1/32 of the weights' bytes, between 1 and 4 MiB.
  /// Smaller buckets shorten the transfer of the last one, which overlaps with no computation, but
  /// each message has a fixed cost.
  std::int64_t bucket_bytes_for(std::int64_t weight_bytes) const {
    constexpr std::int64_t kMin = 1 << 20, kMax = 4 << 20;
    return bucket_bytes > 0 ? bucket_bytes : std::clamp(weight_bytes / 32, kMin, kMax);
  }
  /// Returns whether ranks compare their copies of the weights after this step. False with zero=3,
  /// which keeps no copies.
  bool compares_weights(std::int64_t step, bool saves) const {
    return zero < 3 && (saves || (check_weights_every > 0 && step % check_weights_every == 0));
  }

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"zero", self.zero,
                "ZeRO stage: tensors that are sharded among the ranks instead of replicated. 0: "
                "none; 1: the optimizer state; 2: also the gradients; 3: also the weights. It does "
                "not change results, except with phases.method asynchronous_gradients, which "
                "accepts 0 and 1, or local_sgd, which accepts 0.",
                Range::between(0, 3)});
    visit(Field{"bucket_bytes", self.bucket_bytes,
                "Bytes of gradients per message, at least 4096. With zero 1 and 2, also the size "
                "of messages with updated weights, and of the groups in which weights are sharded. "
                "With zero 3, minimum bytes of weights to gather in advance. 0 uses 1/32 of the "
                "weights, from 1 to 4 MiB.",
                Range::between(0, std::int64_t{1} << 32)});
    visit(Field{"check_weights_every", self.check_weights_every,
                "Steps between two comparisons of checksums of the ranks' weights; a difference "
                "ends the job. 0 compares only before each checkpoint. Not available with zero 3.",
                Range::at_least(0)});
    visit(
        Field{"collective_timeout_seconds", self.collective_timeout_seconds,
              "Seconds after which a rank that makes no progress, while others wait for it, counts "
              "as lost and ends the job. Values below 10 also limit the time without a heartbeat.",
              Range::between(1, 86400)});
    visit(Field{
        "overlap", self.overlap,
        "Overlap communication with computation: messages of gradients, with zero 1 and 2 also of "
        "updated weights, and with zero 3 the gathering of weights. It does not change results."});
    visit(Field{"simulated_link", self.simulated_link,
                "Bandwidth of a simulated link between ranks, in bytes per second in each "
                "direction, such as 125MB. For measurements: each message also waits for the "
                "simulated time. 0B simulates no link."});
    visit(Field{"simulated_latency_microseconds", self.simulated_latency_microseconds,
                "Minimum time of each call over the simulated link, in microseconds.",
                Range::between(0, 10'000'000)});
    visit(Field{"backend",
                self.backend,
                "Transport between ranks. nccl: between CUDA devices; mpi: between CPUs under "
                "mpirun or srun; sockets: between the processes of --ranks; auto: the transport "
                "that supports the job.",
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
