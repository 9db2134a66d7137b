#include "hybrid_trainer/distributed/distributed_config.h"

namespace hybrid_trainer {

std::string simulated_link_text(const DistributedConfig& config) {
  std::vector<std::string> parts;
  if (config.simulated_link.bytes > 0) parts.push_back(config.simulated_link.text() + " a second");
  if (config.simulated_latency_microseconds > 0)
    parts.push_back(concat(config.simulated_latency_microseconds, " us a call"));
  return join(parts);
}

void check_backend(const DistributedConfig& config, Device device) {
  const bool on_cuda = device.type == DeviceType::kCuda;
  if (config.backend == "auto" || (config.backend == "nccl") == on_cuda) return;
  throw ConfigError({concat("distributed.backend: got ", config.backend, ", but ranks on ",
                            name_of(device), " use ", on_cuda ? "nccl" : "mpi or sockets",
                            "; want auto, or device ", on_cuda ? "cpu" : "cuda")});
}

}  // namespace hybrid_trainer
