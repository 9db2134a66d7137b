#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "hybrid_trainer/models/model_family.h"
#include "hybrid_trainer/nn/module_graph.h"
#include "src/files/config_fields.h"
#include "src/files/safetensors.h"
#include "src/model_files/hugging_face/folder_weights.h"
#include "tests/model_files/hugging_face/golden_step.h"
#include "tests/support/model_folders.h"
#include "tests/support/test_files.h"

// Compares with transformers' results for its ViT folders (tests/golden/make_vit_golden.py).
namespace hybrid_trainer::testing {
namespace {

std::string refusal_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const DataError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no DataError was thrown";
  return {};
}

void expect_words(const std::string& message, std::initializer_list<const char*> words) {
  for (const char* word : words)
    EXPECT_NE(message.find(word), std::string::npos) << "no \"" << word << "\" in: " << message;
}

class VitGolden : public ::testing::TestWithParam<const char*> {
 protected:
  VitGolden() { read_hugging_face_weights(folder_, *network_, config_, stream_); }
  Tensor load(const std::string& name) const {
    return expected_.load(name, MemoryKind::kData, stream_);
  }
  Batch batch() const { return Batch({{"pixels", load("pixels")}, {"label", load("label")}}); }
  std::vector<double> logits(Network& network) const {
    return values_of(static_cast<ModuleGraph&>(network).result_of(
        "classifier", batch(), Pass{.training = false}, stream_));
  }
  std::vector<double> gradient_of(const Parameter& parameter) const {
    const HuggingFaceLayout& layout = find_family("vit").hugging_face;
    const auto load_part = [&](const FileTensor& part) {
      return load("grad." + layout.full_name(part));
    };
    return gradient_of_parts(parameter, load_part, stream_);
  }

  const Stream stream_ = test_stream();
  const std::string folder_ = concat(HT_TEST_DATA_DIR, "/", GetParam());
  const SafetensorsFile expected_{folder_ + "/expected.safetensors"};
  const ModelConfig config_ = read_hugging_face_model_config(folder_, 0);
  const std::unique_ptr<Network> network_ = make_network(config_, 1, stream_);
};

TEST_P(VitGolden, ReadsClassNamesOfConfig) {
  ASSERT_EQ(config_.labels.size(), 5u);
  EXPECT_EQ(config_.labels[0].name, "cat");
  EXPECT_EQ(config_.labels[4].name, "tench, Tinca tinca");
}

TEST_P(VitGolden, LogitsMatch) {
  EXPECT_LT(relative_error(logits(*network_), values_of(load("logits"))), kOfTransformers);
}

TEST_P(VitGolden, LossAndGradientsMatchAtAnyRecompute) {
  const GoldenStep wanted{*load("loss").data<float>(),
                          [this](const Parameter& parameter) { return gradient_of(parameter); }};
  expect_step(*network_, batch(), wanted, {0, 0.5, 1}, stream_);
}

TEST_P(VitGolden, ExportRoundTripKeepsLogitsAndNames) {
  const TemporaryFolder scratch;
  export_hugging_face(*network_, config_, nullptr, scratch / "out", stream_, model_families(),
                      DType::kF32, "", folder_);
  const ModelConfig config = read_hugging_face_model_config(scratch / "out", 0);
  EXPECT_EQ(config_json(config), config_json(config_));
  const auto again = make_network(config, 2, stream_);
  read_hugging_face_weights(scratch / "out", *again, config, stream_);
  EXPECT_EQ(logits(*again), logits(*network_));
  EXPECT_FALSE(std::filesystem::exists(scratch / "out/generation_config.json"));
  EXPECT_EQ(read_text(scratch / "out/preprocessor_config.json"),
            read_text(folder_ + "/preprocessor_config.json"));
  const SafetensorsFile before(folder_ + "/model.safetensors"),
      after((scratch / "out/model.safetensors").string());
  for (const SafetensorsEntry& entry : before.entries())
    EXPECT_EQ(after.entry(entry.name).shape, entry.shape) << entry.name;
  EXPECT_EQ(after.entries().size(), before.entries().size());
}

INSTANTIATE_TEST_SUITE_P(Folders, VitGolden, ::testing::Values("vit_a", "vit_b"),
                         [](const auto& info) { return std::string(info.param); });

class VitFolder : public ::testing::Test {
 protected:
  std::filesystem::path with_config(const std::function<void(boost::json::object&)>& change) {
    boost::json::object config = boost::json::parse(read_text(from_ / "config.json")).as_object();
    change(config);
    write_text(scratch_ / "config.json", boost::json::serialize(config));
    std::filesystem::copy_file(from_ / "model.safetensors", scratch_ / "model.safetensors",
                               std::filesystem::copy_options::overwrite_existing);
    return scratch_.path();
  }
  std::string refusal(const std::function<void(boost::json::object&)>& change) {
    return refusal_of([&] { read_hugging_face_model_config(with_config(change), 0); });
  }
  const std::filesystem::path from_ = concat(HT_TEST_DATA_DIR, "/vit_a");
  const TemporaryFolder scratch_;
};

TEST_F(VitFolder, OtherClassesGetNewZeroHead) {
  const Stream stream = test_stream();
  ModelConfig config = read_hugging_face_model_config(from_, 0);
  config.labels = {{"rose"}, {"tulip"}, {"daisy"}};
  const auto network = make_network(config, 1, stream);
  read_hugging_face_weights(from_, *network, config, stream);
  network->visit_parameters([&](Parameter& parameter) {
    const auto values = values_of(parameter.master_in_place());
    const bool is_zero = std::ranges::all_of(values, [](double x) { return x == 0; });
    EXPECT_EQ(is_zero, parameter.name().starts_with("classifier.")) << parameter.name();
  });
}

TEST_F(VitFolder, ReadsAlternativeKeyForms) {
  const ModelConfig config = read_hugging_face_model_config(with_config([](auto& keys) {
                                                              keys["image_size"] = {16, 16};
                                                              keys.erase("id2label");
                                                              keys["num_labels"] = 7;
                                                            }),
                                                            0);
  EXPECT_EQ(config.vision.image_size, 16);
  ASSERT_EQ(config.labels.size(), 7u);
  EXPECT_EQ(config.labels[6].name, "LABEL_6");
}

TEST_F(VitFolder, RejectsUnsupportedKeysByName) {
  expect_words(refusal([](auto& keys) { keys["image_size"] = {16, 20}; }), {"image_size", "both"});
  expect_words(refusal([](auto& keys) { keys["patch_size"] = 5; }), {"patch_size", "divide"});
  expect_words(refusal([](auto& keys) { keys["hidden_act"] = "relu"; }), {"hidden_act", "gelu"});
  expect_words(refusal([](auto& keys) { keys["num_channels"] = 1; }), {"num_channels", "3"});
  expect_words(refusal([](auto& keys) { keys["qkv_bias"] = false; }), {"qkv_bias"});
  expect_words(refusal([](auto& keys) { keys["problem_type"] = "regression"; }), {"problem_type"});
  EXPECT_NO_THROW(read_hugging_face_model_config(
      with_config([](auto& keys) { keys["problem_type"] = "single_label_classification"; }), 0));
  expect_words(refusal([](auto& keys) {
                 keys["id2label"] = {{"0", "a"}, {"7", "b"}};
               }),
               {"id2label", "each index from 0 to 1"});
  expect_words(refusal([](auto& keys) { keys["num_attention_heads"] = 3; }), {"heads", "divide"});
}

TEST_F(VitFolder, RejectsSizesThatDifferFromWeights) {
  const std::filesystem::path folder = with_config([](auto& keys) { keys["image_size"] = 32; });
  const Stream stream = test_stream();
  const ModelConfig config = read_hugging_face_model_config(folder, 0);
  const auto network = make_network(config, 1, stream);
  expect_words(refusal_of([&] { read_hugging_face_weights(folder, *network, config, stream); }),
               {"position_embeddings"});
}

}  // namespace
}  // namespace hybrid_trainer::testing
