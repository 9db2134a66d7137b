#include "optimizer_state.h"

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

UpdatedWeight::UpdatedWeight(const Parameter& parameter, const Stream& stream)
    : master(parameter.acquire_master(stream, Use::kChange)),
      compute_copy(parameter.compute_dtype() == DType::kBF16
                       ? parameter.acquire(DType::kBF16, stream, Use::kWrite)
                       : Weight{}) {}

Tensor make_state(const Parameter& parameter, const Stream& home, DType dtype) {
  return Tensor::zeros(parameter.shape(), dtype, MemoryKind::kOptimizerState, home);
}

void require_state(const Parameter& parameter, const Tensor& state) {
  if (state.defined()) return;
  throw Error(ExitCode::kInternal, concat("the optimizer state of ", parameter.name(),
                                          " is moved away; wait until it is restored"));
}

void require_directions(const std::vector<Tensor>& directions,
                        const std::vector<Parameter*>& parameters) {
  if (directions.size() != parameters.size()) {
    throw ShapeMismatch(concat("got ", directions.size(), " directions for ", parameters.size(),
                               " parameters; want one for each"));
  }
  for (std::size_t i = 0; i < directions.size(); ++i) {
    const Shape& want = parameters[i]->shape();
    if (directions[i].shape() != want || directions[i].dtype() != DType::kF32) {
      throw ShapeMismatch(concat("the direction of ", parameters[i]->name(), " is ",
                                 name_of(directions[i].dtype()), " ", directions[i].shape().text(),
                                 "; want f32 ", want.text()));
    }
  }
}

}  // namespace hybrid_trainer
