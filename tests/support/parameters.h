#pragma once

#include <functional>
#include <vector>

#include "hybrid_trainer/nn/parameter.h"
#include "tests/support/test_tensors.h"

namespace hybrid_trainer::testing {

/// Returns the FP32 master weight of a parameter that is not offloaded.
inline Tensor master_of(const Parameter& parameter) {
  static const Stream stream = test_stream();
  return parameter.acquire_master(stream).tensor();
}

/// Allocates the gradients of a module or model and drives the steps that write them.
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
