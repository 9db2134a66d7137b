#include "hybrid_trainer/nn/master_weights_scope.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/nn/initialization.h"
#include "support/test_tensors.h"

namespace hybrid_trainer::testing {
namespace {

class TwoParameters final : public LossModel {
 public:
  explicit TwoParameters(const Stream& stream)
      : first_(make_parameter("first", {2}, stream)),
        second_(make_parameter("second", {2}, stream)) {
    first_.working = Tensor::zeros({2}, DType::kBF16, MemoryKind::kParameters, stream);
  }
  Tensor forward(const Batch&, float, ActivationTape&, const Stream&) override { return {}; }
  void backward(const Batch&, ActivationTape&, const Stream&) override {}
  void visit_parameters(const ParameterVisitor& visit) override {
    visit(first_);
    visit(second_);
  }
  const Parameter& first() const { return first_; }
  const Parameter& second() const { return second_; }

 private:
  Parameter first_, second_;
};

TEST(MasterWeightsScope, SetsWorkingCopiesAsideAndBringsThemBack) {
  const Stream stream = test_stream();
  TwoParameters model(stream);
  void* const working = model.first().working.raw();
  {
    const MasterWeightsScope scope(model);
    EXPECT_FALSE(model.first().working.defined());
    EXPECT_EQ(model.first().for_compute().dtype(), DType::kF32);
  }
  EXPECT_EQ(model.first().working.raw(), working);
  EXPECT_EQ(model.first().for_compute().dtype(), DType::kBF16);
  EXPECT_FALSE(model.second().working.defined());
}

}  // namespace
}  // namespace hybrid_trainer::testing
