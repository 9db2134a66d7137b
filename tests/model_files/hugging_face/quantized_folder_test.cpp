#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/input_file.h"
#include "src/files/output_file.h"
#include "src/files/safetensors.h"
#include "src/run/run_files.h"
#include "tests/support/model_folders.h"
#include "tests/support/test_files.h"
#include "tests/support/test_tensors.h"

// Folders that transformers wrote with bitsandbytes (tests/golden/README.md).
namespace hybrid_trainer::testing {
namespace {

namespace fs = std::filesystem;

fs::path quantized_golden(const std::string& form) {
  return concat(HT_TEST_DATA_DIR, "/llama_", form);
}

class QuantizedFolder : public ::testing::TestWithParam<const char*> {
 protected:
  /// Copies the folder with a different value of a key in quantization_config.
  fs::path changed(const char* key, const boost::json::value& value) {
    const fs::path folder = scratch_ / "changed";
    fs::remove_all(folder);
    fs::copy(folder_, folder);
    auto config = boost::json::parse(read_file(folder / "config.json", 1 << 16));
    config.as_object()["quantization_config"].as_object()[key] = value;
    replace_file(folder / "config.json", boost::json::serialize(config));
    return folder;
  }
  /// Copies the folder without a tensor, or with a replacement.
  fs::path with_tensor(const std::string& name, const std::optional<Tensor>& tensor) {
    const fs::path folder = scratch_ / "tensor";
    fs::remove_all(folder);
    fs::copy(folder_, folder);
    std::vector<NamedTensor> tensors;
    for (const SafetensorsEntry& entry : file_.entries()) {
      if (entry.name != name)
        tensors.push_back({entry.name, file_.load(entry.name, MemoryKind::kData, stream_)});
    }
    if (tensor) tensors.push_back({name, *tensor});
    write_safetensors(folder / "model.safetensors", tensors);
    return folder;
  }
  std::string problem_of(const fs::path& folder) {
    try {
      load_hugging_face_folder(folder, "fp32", stream_);
    } catch (const DataError& error) {
      return error.what();
    }
    return "";
  }
  const std::string form_ = GetParam();
  const fs::path folder_ = quantized_golden(form_);
  const SafetensorsFile file_{folder_ / "model.safetensors"};
  const Stream stream_ = test_stream();
  const TemporaryFolder scratch_;
};

TEST_P(QuantizedFolder, LogitsMatchDequantizedWeights) {
  const SafetensorsFile expected(folder_ / "expected.safetensors");
  const auto model = make_model(read_hugging_face_model_config(folder_, 0), 1, stream_);
  read_hugging_face_weights(folder_, *model, stream_);
  const Tensor tokens = expected.load("tokens", MemoryKind::kData, stream_);
  const Tensor logits = model->logits(tokens, Pass{.training = false}, stream_);
  const std::int64_t padded = logits.elements() / tokens.elements(), wanted_width = 61;
  std::vector<double> ours;
  for (std::int64_t i = 0; i < logits.elements(); ++i) {
    if (i % padded < wanted_width) ours.push_back(values_of(logits)[static_cast<std::size_t>(i)]);
  }
  EXPECT_LT(relative_error(ours, values_of(expected.load("logits", MemoryKind::kData, stream_))),
            1e-4);
}

TEST_P(QuantizedFolder, RoundTripKeepsCodes) {
  EXPECT_EQ(quantization_of_hugging_face(folder_), form_);
  const TrainedRun opened = load_hugging_face_folder(folder_, "fp32", stream_);
  export_hugging_face(opened.model(), nullptr, scratch_ / "again", stream_);
  EXPECT_EQ(quantization_of_hugging_face(scratch_ / "again"), form_);
  const SafetensorsFile again(scratch_ / "again/model.safetensors");
  ASSERT_EQ(again.entries().size(), file_.entries().size());
  int codes = 0;
  for (const SafetensorsEntry& entry : file_.entries()) {
    if (entry.name.find("quant_state") != std::string::npos) continue;  // its JSON differs
    EXPECT_EQ(again.entry(entry.name).dtype, entry.dtype) << "vectors keep their dtype";
    if (entry.name.ends_with("embed_tokens.weight") || entry.name == "lm_head.weight")
      continue;  // rounded to bf16 above
    codes += entry.dtype == "U8" || entry.dtype == "I8";
    EXPECT_TRUE(same_bits(
        again.load(entry.name, MemoryKind::kData, stream_)
            .view({again.entry(entry.name).tensor_shape().elements()}),
        file_.load(entry.name, MemoryKind::kData, stream_).view({entry.tensor_shape().elements()})))
        << entry.name;
  }
  EXPECT_GE(codes, 14) << "seven products in each of two layers";
  const TrainedRun read_again = load_hugging_face_folder(scratch_ / "again", "bf16", stream_);
  const Tensor tokens = random_tokens({1, 9}, 61, 3, stream_);
  const auto logits = [&](const TrainedRun& run) {
    return values_of(run.model().logits(tokens, Pass{.training = false}, stream_));
  };
  EXPECT_EQ(logits(read_again), logits(opened));
}

TEST_P(QuantizedFolder, RejectsInvalidQuantizationByName) {
  const std::string other = form_ == "int8" ? "nf4" : "int8";
  EXPECT_THROW(load_hugging_face_folder(folder_, other, stream_), DataError);
  const auto expect_word = [&](const fs::path& folder, const std::string& word) {
    EXPECT_NE(problem_of(folder).find(word), std::string::npos)
        << word << ": " << problem_of(folder);
  };
  EXPECT_EQ(problem_of(changed("llm_int8_threshold", 5.0)), "");
  expect_word(changed("quant_method", "awq"), "quant_method: got \"awq\"");
  expect_word(changed("bnb_4bit_quant_storage", "bfloat16"), "bnb_4bit_quant_storage");
  expect_word(changed("zero_point", true), "zero_point");
  expect_word(changed(form_ == "int8" ? "load_in_8bit" : "load_in_4bit", false), "load_in_4bit");
  const std::string product = "model.layers.1.mlp.up_proj.";
  const Tensor three = normal_tensor({3}, 1, stream_), table = normal_tensor({16}, 1, stream_);
  if (form_ == "int8") {
    expect_word(with_tensor(product + "SCB", three), "up_proj.SCB: is (3), want 44");
    expect_word(with_tensor(product + "SCB", {}), "weight_format");
    return;
  }
  expect_word(with_tensor(product + "weight.absmax", three), "up_proj.weight.absmax: is (3)");
  expect_word(with_tensor(product + "weight.quant_map", table),
              "differs from bitsandbytes' own table");
  expect_word(with_tensor(product + "weight.quant_map", {}), "quant_map");
  expect_word(
      with_tensor(
          product + "weight.quant_state.bitsandbytes__" + form_,
          file_.load("model.layers.1.mlp.down_proj.weight.quant_state.bitsandbytes__" + form_,
                     MemoryKind::kData, stream_)),
      "shape: got [32,44], want [44,32]");
}

INSTANTIATE_TEST_SUITE_P(Forms, QuantizedFolder, ::testing::Values("nf4", "fp4", "int8"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace hybrid_trainer::testing
