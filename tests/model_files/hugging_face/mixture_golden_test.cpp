#include <gtest/gtest.h>

#include <cmath>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/nn/expert_mixture.h"
#include "src/files/safetensors.h"
#include "tests/support/model_folders.h"
#include "tests/support/parameters.h"
#include "tests/support/test_files.h"
#include "tests/support/test_tensors.h"

// Routing and auxiliary losses of transformers' folders of mixtures (tests/golden/README.md).
namespace hybrid_trainer::testing {
namespace {

class MixtureGolden : public ::testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<LanguageModel> model(double balance_loss) const {
    ModelConfig config = read_hugging_face_model_config(folder_, 0);
    config.experts.balance_loss = balance_loss;
    auto model = make_model(config, 1, stream_);
    read_hugging_face_weights(folder_, *model, stream_);
    return model;
  }
  Tensor load(const std::string& name) const {
    return expected_.load(name, MemoryKind::kData, stream_);
  }
  /// Runs forward and backward over the folder's tokens.
  void compute(LanguageModel& model) const {
    PlainTape tape{Pass{.counts = true}};
    const Batch batch = token_batch(load("tokens"), load("targets"));
    model.forward(batch, 1, tape, stream_);
    model.backward(batch, tape, stream_);
  }
  const Stream stream_ = test_stream();
  const std::string folder_ = concat(HT_TEST_DATA_DIR, "/", GetParam());
  const SafetensorsFile expected_{folder_ + "/expected.safetensors"};
};

TEST_P(MixtureGolden, ExpertTokenCountsMatchTransformers) {
  const auto model = this->model(0);
  StepGradients gradients([&](const ParameterVisitor& visit) { model->visit_parameters(visit); },
                          stream_);
  gradients.begin();
  compute(*model);
  std::size_t compared = 0;
  model->visit_routings([&](RoutedExperts& routed) {
    const RoutingCount& count = routed.count();
    const std::string layer = count.layer.substr(2, count.layer.find('.', 2) - 2);  // "h.0.mlp"
    const Tensor experts = load("experts." + layer);
    std::vector<double> wanted(static_cast<std::size_t>(count.experts));
    for (std::int64_t i = 0; i < experts.elements(); ++i)
      ++wanted[static_cast<std::size_t>(experts.data<std::int32_t>()[i])];
    const double* const counted = count.sums.data<double>();
    EXPECT_EQ(std::vector<double>(counted, counted + count.experts), wanted) << count.layer;
    ++compared;
  });
  EXPECT_GT(compared, 0u);
}

INSTANTIATE_TEST_SUITE_P(Folders, MixtureGolden,
                         ::testing::Values("mixtral_a", "mixtral_window", "qwen2_moe_a",
                                           "qwen2_moe_norm", "qwen3_moe_a", "qwen3_moe_plain",
                                           "olmoe_a", "olmoe_clip", "granitemoe_a",
                                           "granitemoe_plain", "granite_moe_hybrid",
                                           "qwen3_next_moe", "qwen3_5_moe_text", "lfm2_moe_a",
                                           "lfm2_moe_plain", "gpt_oss_a", "gpt_oss_yarn",
                                           "gpt_oss_mxfp4"),
                         [](const auto& info) { return std::string(info.param); });

/// Folders with one layer of experts, for which a mean over layers equals transformers'.
using BalanceGolden = MixtureGolden;

TEST_P(BalanceGolden, LossAndGradientsMatchTransformers) {
  constexpr double kFactor = 0.05;
  const auto model = this->model(kFactor);
  StepGradients gradients([&](const ParameterVisitor& visit) { model->visit_parameters(visit); },
                          stream_);
  gradients.begin();
  compute(*model);
  double balance = 0, layers = 0;
  model->visit_routings([&](RoutedExperts& routed) {
    const RoutingCount& count = routed.count();
    balance += count.sums.data<double>()[2 * count.experts + 3] /
               count.sums.data<double>()[2 * count.experts];
    ++layers;
  });
  if (layers > 1) GTEST_SKIP() << "transformers first sums the loads of all layers";
  EXPECT_NEAR(balance, *load("aux_loss").data<float>(), 1e-5);
  const HuggingFaceLayout& layout = find_family(model->config().family).hugging_face;
  std::size_t compared = 0;
  model->visit_parameters([&](Parameter& parameter) {
    const std::string name = "aux.grad." + layout.full_name(parameter.in_files().front());
    if (parameter.in_files().size() > 1 || !expected_.contains(name)) return;
    EXPECT_LT(relative_error(values_of(parameter.gradient()), values_of(load(name))), 1e-4) << name;
    ++compared;
  });
  EXPECT_GT(compared, 0u);
}

INSTANTIATE_TEST_SUITE_P(OneLayer, BalanceGolden,
                         ::testing::Values("mixtral_window", "qwen3_moe_a"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace hybrid_trainer::testing
