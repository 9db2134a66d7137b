#include "hybrid_trainer/nn/dropout.h"

#include "hybrid_trainer/kernels/elementwise.h"

namespace hybrid_trainer {

void apply_dropout(const Tensor& x, float share, const Pass& pass, std::uint64_t site,
                   const Stream& stream) {
  kernels::dropout(x, x, share, {pass.seed, pass.step, site}, pass.step_words, stream);
}

}  // namespace hybrid_trainer
