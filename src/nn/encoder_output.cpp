#include "hybrid_trainer/nn/encoder_output.h"

#include "hybrid_trainer/kernels/elementwise.h"

namespace hybrid_trainer {

void EncoderOutput::add_gradient(const Tensor& part, const Stream& stream) {
  if (!gradient_) {
    gradient_ = part;
  } else {
    kernels::add(gradient_, gradient_, part, stream);
  }
}

void EncoderOutput::set_texts_per_source(std::int64_t texts) {
  require(texts >= 1, "encoder output: each source wants 1 text or more");
  texts_per_source_ = texts;
}

}  // namespace hybrid_trainer
