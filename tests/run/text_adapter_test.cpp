#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/models/lora.h"
#include "hybrid_trainer/nn/text_head.h"
#include "src/files/safetensors.h"
#include "src/run/run_export.h"
#include "src/run/run_files.h"
#include "src/run/text_outputs.h"
#include "src/trainer/run_model.h"
#include "tests/support/model_folders.h"
#include "tests/support/parameters.h"
#include "tests/support/test_files.h"

// Compares adapters of text classifiers with PEFT's results (tests/golden/README.md).
namespace hybrid_trainer::testing {
namespace {

namespace fs = std::filesystem;

class ClassAdapter : public ::testing::TestWithParam<const char*> {
 protected:
  ClassAdapter() : folder_(golden(concat("class_adapter_", GetParam()))) {}

  TrainedRun opened(const fs::path& folder) {
    return load_adapter_folder(folder, "fp32", stream_, model_families(),
                               golden(read_adapter_config(folder).base));
  }
  std::vector<double> logits(const TrainedRun& run) {
    const Tensor tokens = expected_.load("tokens", MemoryKind::kData, stream_);
    TextRow row;
    row.tokens.assign(tokens.data<std::int32_t>(), tokens.data<std::int32_t>() + tokens.elements());
    row.ends = {tokens.elements()};
    const PackedTexts texts({row}, {.sequence_length = 32});
    return values_of(text_outputs(run.model("the test"), texts, 1, DType::kF32, stream_).values);
  }

  const Stream stream_ = test_stream();
  const fs::path folder_;
  const SafetensorsFile expected_{(folder_ / "expected.safetensors").string()};
  const std::vector<double> wanted_ =
      values_of(expected_.load("logits", MemoryKind::kData, stream_));
};

TEST_P(ClassAdapter, LogitsMatchBeforeAndAfterMerge) {
  const TrainedRun run = opened(folder_);
  EXPECT_EQ(run.config.objective, "classify");
  EXPECT_EQ(run.config.model.labels.size(), 3u);
  EXPECT_LT(relative_error(logits(run), wanted_), 1e-5);
  const TemporaryFolder scratch;
  export_merged_adapter(folder_, golden(read_adapter_config(folder_).base), scratch / "merged",
                        DType::kF32);
  const TrainedRun merged = load_hugging_face_folder(scratch / "merged", "fp32", stream_);
  EXPECT_EQ(merged.config.objective, "classify");
  EXPECT_LT(relative_error(logits(merged), wanted_), 1e-5);
}

TEST_P(ClassAdapter, GgufExportIsRefused) {
  const TemporaryFolder scratch;
  EXPECT_THROW(export_gguf_adapter_file(opened(folder_), scratch / "adapter.gguf", stream_),
               DataError);
}

TEST_P(ClassAdapter, TrainingTrainsHeadInFull) {
  HybridTrainerConfig config;
  config.model = opened(folder_).config.model;
  config.objective = "classify";
  config.lora.rank = 2;
  const auto network = make_run_model(
      config, ModelFolder(golden(read_adapter_config(folder_).base)), stream_, model_families());
  std::size_t trained = 0;
  network->visit_parameters([&](Parameter& parameter) {
    const bool is_of_head = network->text_head()->owns(parameter);
    EXPECT_EQ(parameter.trainable(), is_of_head || belongs_to_adapter(parameter))
        << parameter.name();
    trained += is_of_head;
  });
  EXPECT_GT(trained, 0u);
  network->visit_linears([&](Linear& linear) {
    EXPECT_EQ(linear.adapter() == nullptr, network->text_head()->owns(linear.weight()))
        << linear.weight().name();
  });
  const TemporaryFolder scratch;
  write_adapter(*network, config.model, config.lora, read_adapter_config(folder_).base,
                scratch / "out", stream_);
  const TrainedRun again = opened(scratch / "out");
  EXPECT_EQ(again.config.model.labels, config.model.labels);
  EXPECT_EQ(read_adapter_config(scratch / "out").task, "SEQ_CLS");
}

INSTANTIATE_TEST_SUITE_P(Folders, ClassAdapter, ::testing::Values("bert", "roberta", "llama"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace hybrid_trainer::testing
