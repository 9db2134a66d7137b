#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/files/safetensors.h"
#include "tests/support/model_folders.h"
#include "tests/support/parameters.h"
#include "tests/support/test_files.h"

// Encoder folders in other forms than transformers 5 writes.
namespace hybrid_trainer::testing {
namespace {

class EncoderFolder : public ::testing::Test {
 protected:
  using Rename = std::function<std::string(const std::string& name)>;
  /// Copies a golden folder with one key of config.json changed, and tensors renamed or, with an
  /// empty name, left out.
  void copy(const std::string& from, const std::string& key, const std::string& value,
            const Rename& rename = {}, const std::vector<NamedTensor>& more = {}) {
    boost::json::value config = boost::json::parse(read_text(golden(from) + "/config.json"));
    if (!key.empty()) config.as_object()[key] = boost::json::parse(value);
    write_text(folder_ / "config.json", boost::json::serialize(config));
    const SafetensorsFile file(golden(from) + "/model.safetensors");
    std::vector<NamedTensor> tensors(more);
    for (const SafetensorsEntry& entry : file.entries()) {
      const std::string name = rename ? rename(entry.name) : entry.name;
      if (!name.empty())
        tensors.push_back({name, file.load(entry.name, MemoryKind::kData, stream_)});
    }
    write_safetensors((folder_ / "model.safetensors").string(), std::move(tensors));
  }
  std::unique_ptr<LanguageModel> read(const std::filesystem::path& folder) const {
    auto model = make_model(read_hugging_face_model_config(folder, 0), 1, stream_);
    read_hugging_face_weights(folder, *model, stream_);
    return model;
  }
  std::string error() const {
    return message_of<Error>([this] { read(folder_.path()); });
  }
  static std::vector<double> weights_of(LanguageModel& model) {
    std::vector<double> all;
    model.visit_parameters([&](Parameter& parameter) {
      const auto values = values_of(parameter.master_in_place());
      all.insert(all.end(), values.begin(), values.end());
    });
    return all;
  }
  static Rename without(const std::string& part) {
    return [part](const std::string& name) {
      return name.find(part) == name.npos ? name : std::string();
    };
  }

  const Stream stream_ = test_stream();
  const TemporaryFolder folder_;
};

TEST_F(EncoderFolder, RefusesKeysThatChangeTheComputation) {
  for (const auto& [key, value] : std::vector<std::pair<std::string, std::string>>{
           {"is_decoder", "true"},
           {"position_embedding_type", "\"relative_key\""},
           {"hidden_act", "\"relu\""},
           {"add_cross_attention", "true"},
           {"tie_word_embeddings", "false"}}) {
    copy("bert_a", key, value);
    EXPECT_TRUE(contains(error(), key)) << key;
  }
  copy("roberta_a", "pad_token_id", "0");
  EXPECT_TRUE(contains(error(), "pad_token_id"));
  copy("modernbert_a", "norm_bias", "true");
  EXPECT_TRUE(contains(error(), "norm_bias"));
}

TEST_F(EncoderFolder, RefusesPartOfAHeadAndClassifiers) {
  copy("bert_a", "", "", without("transform.dense.weight"));
  EXPECT_TRUE(contains(error(), "cls.predictions.transform.dense.weight"));
  EXPECT_TRUE(contains(error(), "model.safetensors"));
  const Tensor zeros = Tensor::zeros({2, 12}, DType::kF32, MemoryKind::kData, stream_);
  for (const char* name : {"classifier.weight", "score.weight"}) {
    copy("bert_a", "", "", without("cls."), {{name, zeros}});
    EXPECT_TRUE(contains(error(), name));
    EXPECT_TRUE(contains(error(), "classifier"));
  }
}

TEST_F(EncoderFolder, ReadsNamesOfTensorFlowAndCopiesOfTheHead) {
  const SafetensorsFile file(golden("bert_a") + "/model.safetensors");
  const auto load = [&](const char* name) { return file.load(name, MemoryKind::kData, stream_); };
  copy("bert_a", "", "",
       [](std::string name) {
         for (const auto& [here, there] : {std::pair{"LayerNorm.weight", "LayerNorm.gamma"},
                                           {"LayerNorm.bias", "LayerNorm.beta"}})
           if (const std::size_t at = name.find(here); at != name.npos)
             name = name.substr(0, at) + there;
         return name;
       },
       {{"cls.predictions.decoder.weight", load("bert.embeddings.word_embeddings.weight")},
        {"cls.predictions.decoder.bias", load("cls.predictions.bias")}});
  EXPECT_EQ(weights_of(*read(folder_.path())), weights_of(*read(golden("bert_a"))));
  copy("bert_a", "", "", {},
       {{"cls.predictions.decoder.bias",
         Tensor::zeros({37}, DType::kF32, MemoryKind::kData, stream_)}});
  EXPECT_TRUE(contains(error(), "cls.predictions.decoder.bias"));
}

TEST_F(EncoderFolder, ReadsKeysOfVersion4) {
  copy("modernbert_a", "rope_parameters", "null");
  std::string config = read_text(folder_ / "config.json");
  config.insert(1, "\"global_rope_theta\": 1000.0, \"local_rope_theta\": 300.0,");
  write_text(folder_ / "config.json", config);
  const ModelConfig model = read_hugging_face_model_config(folder_.path(), 0);
  EXPECT_EQ(model.rope_theta, 1000);
  EXPECT_EQ(model.window_rope_theta, 300);
  EXPECT_EQ(model.window, 3);
}

}  // namespace
}  // namespace hybrid_trainer::testing
