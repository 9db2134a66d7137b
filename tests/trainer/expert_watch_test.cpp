#include "src/trainer/expert_routing.h"

#include <gtest/gtest.h>

#include <cmath>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/models/model_family.h"
#include "hybrid_trainer/nn/expert_mixture.h"
#include "tests/support/parameters.h"
#include "tests/support/test_tensors.h"

namespace hybrid_trainer::testing {
namespace {

ModelConfig mixture() {
  ModelConfig config{
      .family = "mixtral", .layers = 2, .heads = 2, .width = 16, .context = 32, .vocabulary = 40};
  config.experts = {.count = 4, .chosen = 1, .balance_loss = 0.5, .z_loss = 0.25};
  return config;
}

class ExpertWatchTest : public ::testing::Test {
 protected:
  void train(LossModel& model, int passes) {
    StepGradients gradients([&](const ParameterVisitor& visit) { model.visit_parameters(visit); },
                            stream_);
    for (int pass = 0; pass < passes; ++pass) {
      gradients.begin();
      PlainTape tape{Pass{.counts = true}};
      const Batch batch = token_batch(random_tokens({2, 16}, 40, 1, stream_),
                                      random_tokens({2, 16}, 40, 2, stream_));
      model.forward(batch, 1, tape, stream_);
      model.backward(batch, tape, stream_);
    }
  }
  const Stream stream_ = test_stream();
  std::vector<std::string> warnings_;
  ExpertWatch watch_{[this](const std::string& text) { warnings_.push_back(text); }};
};

TEST_F(ExpertWatchTest, CountsBackwardPassesSinceLastRead) {
  const auto model = make_model(mixture(), 1, stream_);
  EXPECT_TRUE(watch_.read(*model, stream_).empty()) << "nothing has been computed";
  train(*model, 1);
  const ExpertLoads one = watch_.read(*model, stream_);
  ASSERT_EQ(one.most.size(), 2u);
  EXPECT_GE(one.most[0], 1);
  EXPECT_LE(one.least[0], 1);
  EXPECT_LE(one.entropy[0], std::log(4) + 1e-6);
  EXPECT_GE(one.balance_loss, 0.5 * 0.9) << "even loads give about its factor";
  EXPECT_GT(one.z_loss, 0);
  EXPECT_TRUE(watch_.read(*model, stream_).empty());
  train(*model, 2);
  const ExpertLoads two = watch_.read(*model, stream_);
  EXPECT_DOUBLE_EQ(two.most[0], one.most[0]) << "the same tokens twice";
  EXPECT_NEAR(two.balance_loss, one.balance_loss, 1e-9);
}

TEST_F(ExpertWatchTest, WarnsOnceAboutUnusedExperts) {
  const auto model = make_model(mixture(), 1, stream_);
  model->visit_parameters([](Parameter& parameter) {
    if (parameter.role() != Role::kRouter) return;
    const Tensor values = parameter.master_in_place();
    std::fill_n(values.data<float>(), values.elements(), 0.0f);  // chooses the first expert
  });
  for (std::int64_t step = 1; step <= ExpertLoads::kDeadAfter + 1; ++step) {
    model->visit_routings([&](RoutedExperts& experts) {
      RoutingCount& count = experts.count();
      count.sums = Tensor::zeros({kernels::routing_numbers(4)}, DType::kF64, MemoryKind::kWorkspace,
                                 stream_);
      count.sums.data<double>()[0] = 8;  // all tokens go to expert 0
      count.sums.data<double>()[8] = 8;
    });
    const ExpertLoads loads = watch_.read(*model, stream_);
    EXPECT_EQ(loads.dead[0], step >= ExpertLoads::kDeadAfter ? 3 : 0) << step;
    EXPECT_EQ(warnings_.size(), step >= ExpertLoads::kDeadAfter ? 1u : 0u) << step;
  }
  EXPECT_NE(warnings_.front().find("6 experts have received no token for 100 steps"),
            std::string::npos)
      << warnings_.front();
}

}  // namespace
}  // namespace hybrid_trainer::testing
