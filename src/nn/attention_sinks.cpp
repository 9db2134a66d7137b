#include "hybrid_trainer/nn/attention_sinks.h"

#include "hybrid_trainer/kernels/attention.h"
#include "hybrid_trainer/nn/gradient_sink.h"

namespace hybrid_trainer {

void AttentionSinks::backward(const Tensor& dy, const Tensor& y, const Tensor& log_sum_exp,
                              const Stream& stream) {
  GradientContribution dsinks(sinks_, stream);
  if (!dsinks.wanted()) return;
  kernels::attention_sinks_backward(dsinks.gradient(), dsinks.next_mode(), dy, y, log_sum_exp,
                                    acquire(stream), stream);
}

}  // namespace hybrid_trainer
