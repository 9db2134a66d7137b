#include "hybrid_trainer/kernels/product_library.h"

namespace hybrid_trainer::kernels::cpu {

void prepare_products(const ProductRun&, const Stream&) {}

}  // namespace hybrid_trainer::kernels::cpu
