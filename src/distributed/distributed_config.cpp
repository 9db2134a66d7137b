#include "hybrid_trainer/distributed/distributed_config.h"

namespace hybrid_trainer {

std::string backend_of(const DistributedConfig& config, Device device) {
  const bool on_cuda = device.type == DeviceType::kCuda;
  const std::string fits = on_cuda ? "nccl" : "mpi";
  if (config.backend == "auto" || config.backend == fits) return fits;
  throw ConfigError({concat("distributed.backend: got ", config.backend, ", and ranks on ",
                            name_of(device), " send by ", fits, "; want auto or ", fits,
                            ", or device ", on_cuda ? "cpu" : "cuda")});
}

}  // namespace hybrid_trainer
