// Linked if the build has no CUDA toolkit.

#include "src/core/cuda_runtime.h"

namespace hybrid_trainer {

const CudaLookup& find_cuda() {
  static const CudaLookup none{nullptr,
                               "CUDA: this build does not support it; install the CUDA toolkit "
                               "13.0 and build again with -DHT_CUDA=ON, or use --device cpu"};
  return none;
}

}  // namespace hybrid_trainer
