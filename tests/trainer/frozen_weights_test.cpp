#include "src/trainer/run_model.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "memory/quantized_weight.h"
#include "src/run/run_files.h"
#include "tests/support/model_folders.h"
#include "tests/support/parameters.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

class FrozenWeightsTest : public ::testing::Test {
 protected:
  FrozenWeightsTest() {
    ModelConfig config{.family = "llama", .layers = 2, .heads = 2, .width = 32, .context = 16};
    config.intermediate_size = 96;
    config.vocabulary = 61;
    export_hugging_face(*make_model(config, 5, stream_), nullptr, folder_, stream_);
  }
  std::unique_ptr<LanguageModel> plain_model() {
    auto model = make_model(read_hugging_face_model_config(folder_, 0), 1, stream_);
    read_hugging_face_weights(folder_, *model, stream_);
    return model;
  }
  /// A model whose weights are rounded to the values that products use with `form`.
  std::unique_ptr<LanguageModel> rounded_model(const std::string& form) {
    auto model = plain_model();
    model->visit_parameters([&](Parameter& parameter) {
      const Tensor values = parameter.master_in_place();
      if (is_matrix(parameter.role())) {
        std::int64_t row = 0;
        for (const FileTensor& part : parameter.in_files()) {
          round(values.rows(row, row + part.rows()), form);
          row += part.rows();
        }
      } else if (parameter.role() != Role::kVector) {
        float* const value = values.data<float>();
        std::transform(value, value + values.elements(), value,
                       [](float x) { return to_float(to_bfloat16(x)); });
      }
    });
    return model;
  }
  void round(const Tensor& values, const std::string& form) {
    dequantize_rows(values, quantize_rows(values, form, stream_), stream_);
  }
  std::vector<double> logits(LanguageModel& model, DType dtype) {
    const Tensor tokens = testing::random_tokens({2, 16}, 61, 3, stream_);
    model.visit_parameters([&](Parameter& parameter) {
      parameter.compute_in(dtype, stream_);
      parameter.refresh_compute_copy(stream_);
    });
    return testing::values_of(
        model.logits(tokens, Pass{.training = false, .dtype = dtype}, stream_));
  }
  const Stream stream_ = Stream(MemoryPool::create("test"));
  const TemporaryFolder scratch_;
  const std::filesystem::path folder_ = scratch_ / "model";
};

TEST_F(FrozenWeightsTest, QuantizedModelMatchesDequantizedWeights) {
  for (const std::string& form : frozen_base_names()) {
    if (!is_quantized_base(form) || form == kFileBase) continue;
    const TrainedRun opened = load_hugging_face_folder(folder_, form, stream_);
    const auto held = plain_model();
    store_all_frozen(*held, form, stream_);
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const std::vector<double> wanted = logits(*rounded_model(form), dtype);
      EXPECT_EQ(logits(opened.model(), dtype), wanted) << form << ' ' << name_of(dtype);
      EXPECT_EQ(logits(*held, dtype), wanted) << form << ' ' << name_of(dtype);
      EXPECT_NE(logits(*plain_model(), dtype), wanted) << form << ' ' << name_of(dtype);
    }
  }
}

}  // namespace
}  // namespace hybrid_trainer
