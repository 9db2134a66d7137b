#pragma once

#include <functional>
#include <vector>

#include "hybrid_trainer/nn/parameter.h"
#include "tests/support/test_tensors.h"

namespace hybrid_trainer::testing {

/// The masters of a weight that stays where it is.
inline Tensor master_of(const Parameter& parameter) {
  static const Stream stream = test_stream();
  return parameter.acquire_master(stream).tensor();
}

/// Memory for the gradients of a module's or model's parameters, and the steps in which they are
/// written.
class StepGradients {
 public:
  StepGradients(const std::function<void(const ParameterVisitor&)>& visit_all,
                const Stream& stream) {
    visit_all([this](Parameter& parameter) { parameters_.push_back(&parameter); });
    sink_.allocate(parameters_, stream);
    begin();
  }
  void begin(std::int64_t micro_batches = 1) { begin_gradients(parameters_, sink_, micro_batches); }

 private:
  std::vector<Parameter*> parameters_;
  ResidentGradients sink_;
};

}  // namespace hybrid_trainer::testing
