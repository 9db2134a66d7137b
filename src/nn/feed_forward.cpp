#include "hybrid_trainer/nn/feed_forward.h"

#include "hybrid_trainer/kernels/elementwise.h"

namespace hybrid_trainer {

FeedForward::FeedForward(const std::string& name, std::int64_t width, const Stream& stream)
    : expansion_(name + ".c_fc", width, 4 * width, stream),
      projection_(name + ".c_proj", 4 * width, width, stream) {}

Tensor FeedForward::forward(const Tensor& x, const Tensor& residual, ActivationTape& tape,
                            const Stream& stream) {
  const Tensor wide = expansion_.forward(x, tape, stream);
  const Tensor active =
      tape.keeps() ? Tensor::empty_like(wide, MemoryKind::kActivations, stream) : wide;
  kernels::gelu_forward(active, wide, stream);
  tape.push(wide, stream);
  return projection_.forward(active, residual, tape, stream);
}

Tensor FeedForward::backward(const Tensor& dy, ActivationTape& tape, const Stream& stream) {
  const Tensor dwide = projection_.backward(dy, tape, stream);
  const Tensor wide = tape.pop(stream);
  kernels::gelu_backward(dwide, dwide, wide, stream);
  return expansion_.backward(dwide, tape, stream);
}

void FeedForward::visit_parameters(const ParameterVisitor& visit) {
  expansion_.visit_parameters(visit);
  projection_.visit_parameters(visit);
}

}  // namespace hybrid_trainer
