#include "hybrid_trainer/kernels/product_library.h"

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/matmul.h"
#include "kernels/backend.h"
#include "kernels/cuda/product.h"

namespace hybrid_trainer::kernels::cuda {

decltype(kernels::matmul) matmul;

void prepare_products(const ProductRun& run, const Stream& stream) {
  if (simulated(stream)) return;
  begin_products(run, stream.device().index);
  // Out of the stream's pool, whose first slab is still to be taken.
  const Stream apart(stream, MemoryPool::create("trial", {}, cuda_memory(stream.device())));
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Tensor x = Tensor::zeros({64, 64}, dtype, MemoryKind::kWorkspace, apart);
    const Tensor y = Tensor::empty_like(x, MemoryKind::kWorkspace, apart);
    cuda::matmul(y, x, Transpose::kNo, x, Transpose::kYes, GradientMode::kOverwrite, apart);
  }
  apart.synchronize();
}

}  // namespace hybrid_trainer::kernels::cuda
