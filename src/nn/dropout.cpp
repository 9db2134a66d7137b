#include "hybrid_trainer/nn/dropout.h"

#include "hybrid_trainer/kernels/elementwise.h"

namespace hybrid_trainer {

void apply_dropout(const Tensor& x, float share, const Pass& pass, std::uint64_t site,
                   const Stream& stream) {
  const std::int64_t width = x.size(x.shape().rank() - 1);
  kernels::dropout(x, x, share,
                   {.key = {pass.seed, pass.step, site},
                    .first = static_cast<std::uint64_t>(pass.first_token * width),
                    .step_words = pass.step_words},
                   stream);
}

}  // namespace hybrid_trainer
