#include "hybrid_trainer/kernels/product_library.h"

#include "kernels/dispatch.h"

namespace hybrid_trainer::kernels {

namespace cpu {
decltype(kernels::prepare_products) prepare_products;
}  // namespace cpu
namespace cuda {
decltype(kernels::prepare_products) prepare_products;
}  // namespace cuda

void prepare_products(const ProductRun& run, const Stream& stream) {
  const KernelCall call{"prepare_products", stream};
  dispatch<cpu::prepare_products, cuda::prepare_products>(call, Work::kProduct, run);
}

}  // namespace hybrid_trainer::kernels
