#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <iostream>
#include <sstream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/input_file.h"
#include "src/core/messages.h"
#include "src/files/json.h"
#include "src/files/safetensors.h"
#include "tests/support/model_folders.h"
#include "tests/support/test_files.h"
#include "tests/support/test_tensors.h"

// Keys and tensors of Gemma 4, Ministral 3 and Mistral 3 beyond FamilyGolden and HybridGolden.
namespace hybrid_trainer::testing {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

class SharedKeyFolders : public ::testing::Test {
 protected:
  SharedKeyFolders() { send_warnings_to(&said_); }
  ~SharedKeyFolders() override { send_warnings_to(&std::cerr); }
  static fs::path golden(const char* name) { return concat(HT_TEST_DATA_DIR, "/", name); }
  static json::object config_in(const fs::path& folder) {
    return json::parse(with_named_floats(read_file(folder / "config.json", 1 << 20))).as_object();
  }
  /// Copies a folder whose config.json has the value under the key, in text_config if there is one.
  fs::path changed(const char* name, const std::string& key, const json::value& value) {
    const fs::path folder = scratch_ / concat("changed", count_++);
    fs::copy(golden(name), folder);
    json::object config = config_in(folder);
    json::object& text =
        config.contains("text_config") ? config.at("text_config").as_object() : config;
    if (value.is_null()) {
      text.erase(key);
    } else {
      text[key] = value;
    }
    write_text(folder / "config.json", json::serialize(config));
    return folder;
  }
  std::string refusal(const fs::path& folder) {
    return message_of<DataError>([&] { read_hugging_face_model_config(folder, 0); });
  }
  /// Replaces the folder's weights with those whose names `keeps` accepts, and adds more.
  void keep_tensors(const fs::path& folder, const std::function<bool(const std::string&)>& keeps,
                    const std::vector<NamedTensor>& more) {
    const SafetensorsFile before(folder / "model.safetensors");
    std::vector<CopiedTensor> kept;
    for (const SafetensorsEntry& entry : before.entries())
      if (keeps(entry.name)) kept.push_back({&before, entry.name});
    write_safetensors(folder / "new.safetensors", more, {}, kept);
    fs::rename(folder / "new.safetensors", folder / "model.safetensors");
  }
  const Stream stream_ = test_stream();
  const TemporaryFolder scratch_;
  std::ostringstream said_;
  int count_ = 0;
};

TEST_F(SharedKeyFolders, RefuseKeysThatChangeResults) {
  const auto expect = [&](const char* folder, const char* key, const char* value,
                          const std::string& words) {
    const std::string said = refusal(changed(folder, key, json::parse(value)));
    EXPECT_NE(said.find(words), std::string::npos) << said;
  };
  expect("gemma4_a", "enable_moe_block", "true", "enable_moe_block: got true, want false");
  expect("gemma4_a", "use_bidirectional_attention", R"("all")", "use_bidirectional_attention");
  expect("gemma4_a", "hidden_activation", R"("relu")", "hidden_activation");
  expect("gemma4_a", "rope_parameters", R"({"full_attention": {"rope_type": "yarn", "factor": 2}})",
         "rope_parameters.full_attention.rope_type");
  expect("gemma4_a", "rope_parameters",
         R"({"full_attention": {"rope_type": "proportional", "factor": 2}})",
         "rope_parameters.full_attention.factor");
  expect("gemma4_a", "rope_parameters", R"({"sliding_attention": {"rope_type": "linear"}})",
         "rope_parameters.sliding_attention.rope_type");
  expect("gemma4_a", "per_layer_config", R"({"1": {"head_dim": 8}, "03": {"head_dim": 6}})",
         "per_layer_config: layer 1 has 2 heads of 8");
  expect("gemma4_a", "per_layer_config", R"({"6": {"head_dim": 8}})", "layers from 0 to 5");
  expect("gemma4_a", "per_layer_config", R"({"0": {"sliding_window": 8}})", "sliding_window");
  expect("gemma4_a", "num_kv_shared_layers", "6", "num_kv_shared_layers: got 6, want less than");
  expect("gemma4_a", "num_kv_shared_layers", "5",
         "no layer before layer 1 has the type of layer 1");
  expect("gemma4_a", "vocab_size_per_layer_input", "30", "input_rows: got 30");
  expect("ministral3_a", "rope_parameters", "null", "rope_scaling: is missing");
  EXPECT_EQ(said_.str(), "");
}

/// transformers 5.24 writes per_layer_config; published folders have the two other keys.
TEST_F(SharedKeyFolders, ReadOlderSizesOfLayers) {
  const fs::path folder = changed("gemma4_alike", "per_layer_config", nullptr);
  json::object config = config_in(folder);
  config["global_head_dim"] = 8;
  config["num_global_key_value_heads"] = 1;
  write_text(folder / "config.json", json::serialize(config));
  const ModelConfig older = read_hugging_face_model_config(folder, 0),
                    newer = read_hugging_face_model_config(golden("gemma4_alike"), 0);
  EXPECT_EQ(texts_of_keys(older), texts_of_keys(newer));
  EXPECT_EQ(older.gemma4.head_size, 8);
  EXPECT_EQ(older.gemma4.kv_heads, 1);
  EXPECT_EQ(older.kv_heads, 2);
  EXPECT_EQ(said_.str(), "");
}

TEST_F(SharedKeyFolders, MissingTableIsNamed) {
  const fs::path folder = changed("gemma4_a", "bos_token_id", 1);
  keep_tensors(folder, [](const std::string& name) { return name.find("per_layer.") == name.npos; },
               {});
  const auto model = make_model(read_hugging_face_model_config(folder, 0), 1, stream_);
  const std::string said =
      message_of<DataError>([&] { read_hugging_face_weights(folder, *model, stream_); });
  EXPECT_NE(said.find("no tensor \"model.embed_tokens_per_layer.weight\""), std::string::npos)
      << said;
}

TEST_F(SharedKeyFolders, FolderWithoutTextModelIsRefused) {
  const fs::path folder = changed("gemma4_images", "bos_token_id", 1);
  keep_tensors(folder, [](const std::string& name) { return name.find("vision") != name.npos; },
               {});
  const auto model = make_model(read_hugging_face_model_config(folder, 0), 1, stream_);
  const std::string said =
      message_of<DataError>([&] { read_hugging_face_weights(folder, *model, stream_); });
  EXPECT_NE(said.find("has no tensor \"embed_tokens"), std::string::npos) << said;
}

/// Published folders have maps of keys and values that no layer uses.
TEST_F(SharedKeyFolders, ExportCopiesUnusedMaps) {
  const fs::path folder = changed("gemma4_a", "bos_token_id", 1);
  const std::string name = "model.layers.4.self_attn.k_proj.weight";
  const Tensor unused = normal_tensor({8, 12}, 1, stream_);
  keep_tensors(folder, [](const std::string&) { return true; }, {{name, unused}});
  const auto model = make_model(read_hugging_face_model_config(folder, 0), 1, stream_);
  read_hugging_face_weights(folder, *model, stream_);
  export_hugging_face(*model, nullptr, scratch_ / "out", stream_, model_families(), DType::kF32, "",
                      folder);
  const SafetensorsFile after(scratch_ / "out/model.safetensors");
  EXPECT_TRUE(same_bits(after.load(name, MemoryKind::kData, stream_), unused));
}

/// transformers 5 keeps the text model of Mistral 3 in "model.language_model."; files have both.
TEST_F(SharedKeyFolders, ReadBothPlacesOfTextModel) {
  const fs::path folder = changed("ministral3_images", "bos_token_id", 1);
  const SafetensorsFile before(golden("ministral3_images") / "model.safetensors");
  std::vector<CopiedTensor> renamed;
  for (const SafetensorsEntry& entry : before.entries()) {
    std::string name = entry.name;
    const std::string inner = "language_model.model.", head = "language_model.lm_head.";
    if (name.starts_with(inner)) {
      name = "model.language_model." + name.substr(inner.size());
    } else {
      name = name.starts_with(head) ? name.substr(head.find("lm_head")) : "model." + name;
    }
    renamed.push_back({&before, entry.name, name});
  }
  write_safetensors(folder / "model.safetensors", {}, {}, renamed);
  const ModelConfig config = read_hugging_face_model_config(folder, 0);
  const auto model = make_model(config, 1, stream_), wanted = make_model(config, 2, stream_);
  read_hugging_face_weights(folder, *model, stream_);
  read_hugging_face_weights(golden("ministral3_images"), *wanted, stream_);
  std::map<std::string, Tensor> weights;
  wanted->visit_parameters(
      [&](Parameter& parameter) { weights[parameter.name()] = parameter.master_in_place(); });
  model->visit_parameters([&](Parameter& parameter) {
    EXPECT_TRUE(same_bits(parameter.master_in_place(), weights.at(parameter.name())))
        << parameter.name();
  });
  export_hugging_face(*model, nullptr, scratch_ / "out", stream_, model_families(), DType::kF32, "",
                      folder);
  const SafetensorsFile origin(folder / "model.safetensors"),
      after(scratch_ / "out/model.safetensors");
  for (const SafetensorsEntry& entry : origin.entries())
    EXPECT_TRUE(after.contains(entry.name)) << entry.name;
}

TEST_F(SharedKeyFolders, ExportKeepsOuterConfig) {
  for (const char* name : {"gemma4_images", "ministral3_images", "mistral3_images"}) {
    const fs::path out = scratch_ / name;
    const auto model = make_model(read_hugging_face_model_config(golden(name), 0), 1, stream_);
    read_hugging_face_weights(golden(name), *model, stream_);
    export_hugging_face(*model, nullptr, out, stream_, model_families(), DType::kF32, "",
                        golden(name));
    const json::object before = config_in(golden(name)), after = config_in(out);
    for (const auto& [key, value] : before)
      EXPECT_EQ(after.at(key), value) << name << " " << std::string_view(key);
  }
  EXPECT_EQ(said_.str(), "");
}

}  // namespace
}  // namespace hybrid_trainer::testing
