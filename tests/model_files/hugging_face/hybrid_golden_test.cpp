#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <iostream>
#include <sstream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/input_file.h"
#include "src/core/messages.h"
#include "src/files/config_fields.h"
#include "src/files/json.h"
#include "src/files/safetensors.h"
#include "src/model_files/hugging_face/generation_config.h"
#include "src/run/run_files.h"
#include "tests/support/model_folders.h"
#include "tests/support/test_files.h"
#include "tests/support/test_tensors.h"

// Folders of models with state-space layers (tests/golden/README.md): tests beyond FamilyGolden.
namespace hybrid_trainer::testing {
namespace {

namespace fs = std::filesystem;

class HybridGolden : public ::testing::TestWithParam<const char*> {
 protected:
  HybridGolden() { read_hugging_face_weights(folder_, *model_, stream_); }
  Tensor load(const std::string& name) const {
    return expected_.load(name, MemoryKind::kData, stream_);
  }
  const Stream stream_ = test_stream();
  const std::string folder_ = concat(HT_TEST_DATA_DIR, "/", GetParam());
  const SafetensorsFile expected_{folder_ + "/expected.safetensors"};
  const std::unique_ptr<LanguageModel> model_ =
      make_model(read_hugging_face_model_config(folder_, 0), 1, stream_);
};

TEST_P(HybridGolden, GreedyContinuationMatches) {
  const Tensor prompt = load("prompt"), wanted = load("greedy");
  const std::int64_t length = prompt.size(1), more = wanted.size(1);
  const auto state =
      model_->make_decode_state({.texts = 1, .tokens = length + more}, DType::kF32, stream_);
  const std::vector<std::int64_t> texts{0};
  Tensor next = prompt;
  std::vector<double> tokens;
  for (std::int64_t i = 0; i < more; ++i) {
    std::vector<double> logits =
        values_of(model_->next_logits(next, texts, *state, 1, {.training = false}, stream_));
    logits.resize(static_cast<std::size_t>(model_->config().vocabulary));
    const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
    tokens.push_back(static_cast<double>(best));
    next = Tensor::empty({1, 1}, DType::kI32, MemoryKind::kData, stream_);
    next.data<std::int32_t>()[0] = static_cast<std::int32_t>(best);
  }
  std::vector<double> same;
  for (std::int64_t i = 0; i < more; ++i)
    same.push_back(static_cast<double>(wanted.data<std::int32_t>()[i]));
  EXPECT_EQ(tokens, same);
}

TEST_P(HybridGolden, PackedDocumentsDoNotSeeEachOther) {
  if (!expected_.contains("document_tokens"))
    GTEST_SKIP() << "this folder has no row with documents";
  const Tensor lengths = load("document_tokens"), row = load("tokens").rows(0, 1);
  Pass pass{.training = false};
  pass.positions = Tensor::empty(row.shape(), DType::kI32, MemoryKind::kData, stream_);
  std::int32_t* position = pass.positions.data<std::int32_t>();
  for (int document = 0; document < 2; ++document)
    for (std::int32_t t = 0; t < lengths.data<std::int32_t>()[document]; ++t) *position++ = t;
  const std::vector<double> padded = values_of(model_->logits(row, pass, stream_));
  const std::int64_t vocabulary = model_->config().vocabulary,
                     width = std::ssize(padded) / row.elements();
  std::vector<double> logits;
  for (std::int64_t i = 0; i < std::ssize(padded); ++i)
    if (i % width < vocabulary) logits.push_back(padded[static_cast<std::size_t>(i)]);
  EXPECT_LT(relative_error(logits, values_of(load("document_logits"))), 1e-4);
}

TEST_P(HybridGolden, ExportMatchesFolderBitForBit) {
  const TemporaryFolder scratch;
  export_hugging_face(*model_, nullptr, scratch / "out", stream_, model_families(), DType::kF32,
                      token_ids_in(folder_), folder_);
  const SafetensorsFile before(folder_ + "/model.safetensors"),
      after(scratch / "out/model.safetensors");
  ASSERT_EQ(after.entries().size(), before.entries().size());
  const auto bytes_of = [](const SafetensorsFile& file, const std::string& name) {
    std::string bytes(file.entry(name).bytes, '\0');
    file.read_bytes(name, 0, bytes.data(), bytes.size());
    return bytes;
  };
  for (const auto& [name, dtype, shape, offset, bytes] : before.entries()) {
    EXPECT_EQ(after.entry(name).shape, shape) << name;
    EXPECT_EQ(after.entry(name).dtype, dtype) << name;
    EXPECT_TRUE(bytes_of(after, name) == bytes_of(before, name)) << name;
  }
  EXPECT_EQ(config_json(read_hugging_face_model_config(scratch / "out", 0)),
            config_json(read_hugging_face_model_config(folder_, 0)));
}

INSTANTIATE_TEST_SUITE_P(
    Folders, HybridGolden,
    ::testing::Values("mamba2_a", "mamba2_tied", "granite_hybrid_a", "granite_hybrid_rope",
                      "granite_attention", "bamba_a", "qwen3_5_text", "qwen3_5_images",
                      "qwen3_next_a", "mixtral_a", "mixtral_window", "qwen2_moe_a",
                      "qwen2_moe_norm", "qwen3_moe_a", "qwen3_moe_plain", "olmoe_a", "olmoe_clip",
                      "granitemoe_a", "granitemoe_plain", "granite_moe_hybrid", "granite_a",
                      "granite_plain", "olmo2_a", "olmo2_tied", "glm4_a", "glm4_tied", "smollm3_a",
                      "smollm3_windows", "phi3_a", "phi3_longrope", "olmo3_a", "olmo3_types",
                      "exaone4_a", "exaone4_full", "qwen3_next_moe", "qwen3_5_moe_text", "lfm2_a",
                      "lfm2_b", "lfm2_moe_a", "lfm2_moe_plain", "gemma4_a", "gemma4_alike",
                      "gemma4_images", "ministral3_a", "ministral3_window", "ministral3_images",
                      "mistral3_images"),
    [](const auto& info) { return std::string(info.param); });

TEST(HybridFolder, WarnsAboutOverflowingDecay) {
  const Stream stream = test_stream();
  const TemporaryFolder scratch;
  const std::string folder = concat(HT_TEST_DATA_DIR, "/mamba2_a");
  const auto model = make_model(read_hugging_face_model_config(folder, 0), 1, stream);
  const auto said_of = [&](const fs::path& path) {
    std::ostringstream said;
    send_warnings_to(&said);
    read_hugging_face_weights(path, *model, stream);
    send_warnings_to(&std::cerr);
    return said.str();
  };
  EXPECT_EQ(said_of(folder), "");
  model->visit_parameters([](Parameter& parameter) {
    if (parameter.name().ends_with("A_log")) parameter.master_in_place().data<float>()[0] = 100;
  });
  export_hugging_face(*model, nullptr, scratch / "out", stream);
  EXPECT_NE(said_of(scratch / "out").find("A_log is above 88.7 in 1 of "), std::string::npos);
}

TEST(HybridFolder, AcceptsEquivalentLayerPattern) {
  const Stream stream = test_stream();
  const std::string folder = concat(HT_TEST_DATA_DIR, "/granite_hybrid_a");
  ModelConfig config = read_hugging_face_model_config(folder, 0);
  EXPECT_EQ(config.mixers, "mam") << "the shortest pattern without repetition";
  config.mixers = "ma";
  EXPECT_NO_THROW(read_hugging_face_weights(folder, *make_model(config, 1, stream), stream));
  config.mixers = "mma";
  EXPECT_THROW(read_hugging_face_weights(folder, *make_model(config, 1, stream), stream),
               DataError);
}

/// The folder of a model for texts and images.
class VisionLanguageFolder : public ::testing::Test {
 protected:
  VisionLanguageFolder() {
    read_hugging_face_weights(folder_, *model_, stream_);
    send_warnings_to(&said_);
  }
  ~VisionLanguageFolder() override { send_warnings_to(&std::cerr); }
  boost::json::object config_in(const fs::path& folder) const {
    return boost::json::parse(with_named_floats(read_file(folder / "config.json", 1 << 20)))
        .as_object();
  }
  /// Exports the model, which began with `origin`.
  fs::path exported(const fs::path& origin, DType dtype = DType::kF32,
                    const std::string& token_ids = "") {
    const fs::path out = scratch_ / concat("out", count_++);
    export_hugging_face(*model_, nullptr, out, stream_, model_families(), dtype, token_ids, origin);
    return out;
  }
  const Stream stream_ = test_stream();
  const fs::path folder_ = concat(HT_TEST_DATA_DIR, "/qwen3_5_images");
  const std::unique_ptr<LanguageModel> model_ =
      make_model(read_hugging_face_model_config(folder_, 0), 1, stream_);
  const TemporaryFolder scratch_;
  int count_ = 0;
  std::ostringstream said_;
};

TEST_F(VisionLanguageFolder, ExportKeepsVisionAndTextConfig) {
  const boost::json::object before = config_in(folder_), after = config_in(exported(folder_));
  EXPECT_EQ(after.at("vision_config"), before.at("vision_config"));
  EXPECT_EQ(after.at("model_type"), "qwen3_5");
  EXPECT_EQ(after.at("architectures"), before.at("architectures"));
  EXPECT_EQ(after.at("text_config"), before.at("text_config"));
  EXPECT_EQ(said_.str(), "");
}

TEST_F(VisionLanguageFolder, ExportTakesDtypeAndEndTokensOfText) {
  const fs::path out = exported(folder_, DType::kBF16, R"({"eos_token_id": [3, 5]})");
  EXPECT_EQ(config_in(out).at("dtype"), "bfloat16");
  EXPECT_EQ(end_token_ids_in(out), (std::vector<std::int32_t>{3, 5}));
  const SafetensorsFile before(folder_ / "model.safetensors"), after(out / "model.safetensors");
  EXPECT_EQ(after.entry("model.visual.pos_embed.weight").dtype, "F32") << "untouched";
  EXPECT_EQ(after.entry("lm_head.weight").dtype, "BF16");
  EXPECT_EQ(after.entry("model.language_model.layers.1.linear_attn.A_log").dtype, "F32")
      << "this vector has the folder's dtype";
  EXPECT_EQ(after.entry("model.language_model.norm.weight").dtype, "BF16");
  EXPECT_EQ(dtype_of_hugging_face_weights(folder_), DType::kF32);
}

/// Qwen's folders contain heads for multi-token prediction.
TEST_F(VisionLanguageFolder, ExportCopiesMultiTokenPredictionHeads) {
  const fs::path folder = scratch_ / "more";
  fs::copy(folder_, folder);
  const SafetensorsFile before(folder_ / "model.safetensors");
  std::vector<CopiedTensor> all;
  for (const SafetensorsEntry& entry : before.entries()) all.push_back({&before, entry.name});
  const Tensor more = normal_tensor({2, 3}, 1, stream_);
  write_safetensors(folder / "model.safetensors", {{"mtp.fc.weight", more}}, {}, all);
  EXPECT_NO_THROW(read_hugging_face_weights(folder, *model_, stream_));
  const SafetensorsFile after(exported(folder) / "model.safetensors");
  EXPECT_TRUE(same_bits(after.load("mtp.fc.weight", MemoryKind::kData, stream_), more));
}

TEST_F(VisionLanguageFolder, QuantizedExportSkipsCopiedModules) {
  const TrainedRun opened = load_hugging_face_folder(folder_, "int8", stream_);
  export_hugging_face(opened.model(), nullptr, scratch_ / "codes", stream_, model_families(),
                      DType::kF32, "", folder_);
  const auto config = config_in(scratch_ / "codes").at("quantization_config");
  EXPECT_EQ(config.at("llm_int8_skip_modules"),
            (boost::json::array{"lm_head", "mtp", "model.visual"}));
  EXPECT_EQ(quantization_of_hugging_face(scratch_ / "codes"), "int8");
}

TEST_F(VisionLanguageFolder, ExportKeepsPreprocessorConfig) {
  const fs::path folder = scratch_ / "origin";
  fs::copy(folder_, folder);
  write_text(folder / "preprocessor_config.json", R"({"size": 1})");
  EXPECT_EQ(read_file(exported(folder) / "preprocessor_config.json", 99), R"({"size": 1})");
}

TEST_F(VisionLanguageFolder, MissingBaseExportsTextModel) {
  const fs::path out = exported(scratch_ / "nowhere");
  EXPECT_NE(said_.str().find("no longer exists"), std::string::npos) << said_.str();
  EXPECT_EQ(config_in(out).at("model_type"), "qwen3_5_text");
  EXPECT_TRUE(SafetensorsFile(out / "model.safetensors").contains("model.embed_tokens.weight"));
  EXPECT_EQ(config_json(read_hugging_face_model_config(out, 0)), config_json(model_->config()));
}

}  // namespace
}  // namespace hybrid_trainer::testing
