#include "hybrid_trainer/generation/batch_decoder.h"

#include <gtest/gtest.h>

#include <cmath>

#include "hybrid_trainer/models/model_family.h"
#include "support/gradient_check.h"
#include "tests/cuda/cuda_case.h"

namespace hybrid_trainer {
namespace {

using Logits = std::vector<std::vector<float>>;

ModelConfig small_model(const std::string& family) {
  ModelConfig config{.layers = 2, .heads = 4, .width = 32, .context = 12, .vocabulary = 61};
  config.family = family;
  if (family == "llama") config.key_heads = 2;
  return config;
}

/// Copies of another model's weights.
std::unique_ptr<LanguageModel> copy_of(LanguageModel& model, const Stream& stream) {
  auto copy = make_model(model.config(), 3, stream);
  std::vector<Tensor> weights;
  model.visit_parameters([&](Parameter& p) { weights.push_back(testing::master_of(p)); });
  std::size_t i = 0;
  copy->visit_parameters(
      [&](Parameter& p) { wait_for_copy(testing::master_of(p), weights[i++], stream); });
  return copy;
}

/// Of texts of 2, 5 and 9 tokens that grow by 6, of which one sits out each step and the last
/// outgrows the context.
Logits logits_of(LanguageModel& model, const Stream& stream) {
  BatchDecoder decoder(model, {.texts = 3, .tokens = 12}, DType::kF32, stream);
  Logits all;
  std::int64_t begun = 0;
  for (const std::int32_t size : {2, 5, 9}) {
    std::vector<std::int32_t> text;
    for (std::int32_t i = 0; i < size; ++i) text.push_back((7 * size + 5 * i) % 61);
    decoder.begin(begun++, text);
  }
  for (std::int32_t step = 0; step < 9; ++step) {
    std::vector<BatchDecoder::Next> next;
    for (std::int32_t row = 0; row < 3; ++row)
      if ((row + step) % 3 != 0) next.push_back({row, (11 * step + row) % 61});
    decoder.add(next);
    for (std::int64_t row = 0; row < 3; ++row)
      all.emplace_back(decoder.logits(row).begin(), decoder.logits(row).end());
  }
  return all;
}

TEST(CudaBatchDecoder, GivesTheLogitsOfTheProcessor) {
  for (const char* family : {"gpt2", "llama"}) {
    const Stream host = kernels::cpu_stream();
    const auto model = make_model(small_model(family), 3, host);
    testing::randomize([&](const ParameterVisitor& visit) { model->visit_parameters(visit); },
                       host);
    const Logits wanted = logits_of(*model, host);
    Logits first;
    in_several_orders([&] {
      const Stream stream = cuda_stream();
      const auto copy = copy_of(*model, stream);
      const Logits found = logits_of(*copy, stream);
      ASSERT_EQ(found.size(), wanted.size());
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        for (std::size_t word = 0; word < 61; ++word) {
          ASSERT_NEAR(found[i][word], wanted[i][word],
                      10 * loss_tolerance() * (1 + std::abs(wanted[i][word])))
              << family << ", row " << i % 3 << " at step " << i / 3;
        }
      }
      if (first.empty()) first = found;
      EXPECT_EQ(found, first) << family;
    });
  }
}

}  // namespace
}  // namespace hybrid_trainer
