#pragma once

#include "hybrid_trainer/core/device.h"
#include "hybrid_trainer/core/fields.h"

namespace hybrid_trainer {

/// How ranks share a step. JSON group `distributed`.
struct DistributedConfig {
  std::int64_t zero = 0;
  std::int64_t bucket_bytes = 4 << 20;
  std::int64_t collective_timeout_seconds = 30;
  std::string backend = "auto";

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(Field{"zero", self.zero,
                "What each rank has a part of, instead of all: 0 nothing, 1 the optimizer state, 2 "
                "the gradients too, 3 the weights too. No bit of training depends on it.",
                Range::between(0, 3)});
    visit(Field{"bucket_bytes", self.bucket_bytes,
                "With zero 2 and 3 gradients are sent when there are this many bytes of them; with "
                "1 and 2 updated weights by as many.",
                Range::between(4096, std::int64_t{1} << 32)});
    visit(Field{"collective_timeout_seconds", self.collective_timeout_seconds,
                "After this long without progress, while others wait for it, a rank counts as lost "
                "and the job ends.",
                Range::between(1, 86400)});
    visit(Field{"backend",
                self.backend,
                "What ranks send by: nccl between CUDA devices, mpi between processors; auto takes "
                "the one for the device.",
                Range{},
                {"auto", "nccl", "mpi"}});
  }
  bool operator==(const DistributedConfig&) const = default;
};

/// "nccl" or "mpi". Throws ConfigError where the config names the one that does not go with the
/// device.
std::string backend_of(const DistributedConfig& config, Device device);

}  // namespace hybrid_trainer
