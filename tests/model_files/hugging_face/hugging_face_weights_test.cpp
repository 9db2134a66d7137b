#include "src/model_files/hugging_face/folder_weights.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"
#include "src/tools/models/inspection.h"
#include "tests/support/model_folders.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

const ModelConfig kNarrow{.layers = 2, .heads = 2, .width = 24, .context = 10, .vocabulary = 61};
constexpr int kShards = 3;

std::string shard_name(std::size_t shard) {
  return concat("model-0000", shard + 1, ".safetensors");
}

/// A folder as transformers writes it for a model larger than max_shard_size.
class HuggingFaceShards : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto model_owner = make_model(kNarrow, 7, stream_);
    LanguageModel& model = *model_owner;
    export_hugging_face(model, nullptr, whole_, stream_);
    export_hugging_face(model, nullptr, sharded_, stream_);
    fs::remove(sharded_ / "model.safetensors");
    shard();
  }

  /// Distributes the tensors of whole_ round robin over the shards and writes the index. Strips the
  /// first `left_out` characters of the names.
  void shard(std::size_t left_out = 0) {
    const SafetensorsFile file((whole_ / "model.safetensors").string());
    std::vector<std::vector<NamedTensor>> shards(kShards);
    map_ = {};
    for (std::size_t i = 0; i < file.entries().size(); ++i) {
      const std::string& name = file.entries()[i].name;
      shards[i % kShards].push_back(
          {name.substr(left_out), file.load(name, MemoryKind::kData, stream_)});
      map_[name.substr(left_out)] = shard_name(i % kShards);
    }
    for (std::size_t i = 0; i < kShards; ++i)
      write_safetensors((sharded_ / shard_name(i)).string(), shards[i]);
    write_index(map_);
  }
  void write_index(const json::object& map) const {
    const json::object index{{"metadata", {{"total_size", 12345}}}, {"weight_map", map}};
    write_text(sharded_ / "model.safetensors.index.json", json::serialize(index));
  }

  /// Exports a model of the sharded folder and returns model.safetensors, equal for equal weights.
  std::string exported_again() {
    const auto model_owner = make_model(kNarrow, 8, stream_);
    LanguageModel& model = *model_owner;
    read_hugging_face_weights(sharded_, model, stream_);
    const fs::path again = folder_ / concat("again", folders_++);
    export_hugging_face(model, nullptr, again, stream_);
    return read_text(again / "model.safetensors");
  }
  template <class Problem>
  void expect_refused(std::initializer_list<std::string> words) {
    const auto model_owner = make_model(kNarrow, 8, stream_);
    LanguageModel& model = *model_owner;
    try {
      read_hugging_face_weights(sharded_, model, stream_);
      FAIL() << "the folder was accepted";
    } catch (const Problem& problem) {
      for (const std::string& word : words)
        EXPECT_NE(std::string(problem.what()).find(word), std::string::npos)
            << word << " in: " << problem.what();
    }
  }

  TemporaryFolder folder_;
  fs::path whole_ = folder_ / "whole", sharded_ = folder_ / "sharded";
  json::object map_;
  int folders_ = 0;
  Stream stream_{MemoryPool::create("test")};
};

TEST_F(HuggingFaceShards, ShardsMatchSingleFile) {
  const std::string expected = read_text(whole_ / "model.safetensors");
  EXPECT_TRUE(exported_again() == expected);
  shard(std::string("transformer.").size());
  EXPECT_TRUE(exported_again() == expected);
}

TEST_F(HuggingFaceShards, SingleFileIsPreferredToShards) {
  fs::copy(whole_ / "model.safetensors", sharded_);
  write_text(sharded_ / "model.safetensors.index.json", "{");
  EXPECT_TRUE(exported_again() == read_text(whole_ / "model.safetensors"));
}

TEST_F(HuggingFaceShards, ComparesHeadWithTableInOtherShard) {
  const SafetensorsFile file((whole_ / "model.safetensors").string());
  const std::string head = "lm_head.weight", path = (sharded_ / "head.safetensors").string();
  const Tensor table = file.load("transformer.wte.weight", MemoryKind::kData, stream_);
  map_[head] = "head.safetensors";
  write_index(map_);
  write_safetensors(path, {{head, table}});
  EXPECT_TRUE(exported_again() == read_text(whole_ / "model.safetensors"));
  table.data<float>()[5] += 1;
  write_safetensors(path, {{head, table}});
  expect_refused<DataError>({path, head, "tied"});
}

TEST_F(HuggingFaceShards, MissingFilesAreNamed) {
  fs::remove(sharded_ / shard_name(0));
  fs::remove(sharded_ / shard_name(2));
  expect_refused<MissingInput>({sharded_.string(), shard_name(0) + ", " + shard_name(2)});
  fs::remove(sharded_ / "model.safetensors.index.json");
  expect_refused<MissingInput>(
      {sharded_.string(), "model.safetensors", "model.safetensors.index.json"});
  write_text(sharded_ / "training_args.bin", "x");
  write_text(sharded_ / "pytorch_model-00001-of-00002.bin", "x");
  expect_refused<MissingInput>({"pytorch_model-00001-of-00002.bin, which is not supported"});
}

TEST_F(HuggingFaceShards, RejectsIndexThatDisagreesWithShards) {
  json::object map = map_;
  map["transformer.h.0.extra"] = shard_name(1);
  write_index(map);
  expect_refused<DataError>({(sharded_ / shard_name(1)).string(), ": does not contain",
                             "transformer.h.0.extra", "model.safetensors.index.json"});
  const std::string name = "transformer.wte.weight", holder(map_.at(name).as_string());
  for (const bool elsewhere : {false, true}) {
    map = map_;
    map.erase(name);
    if (elsewhere) map[name] = holder == shard_name(2) ? shard_name(1) : shard_name(2);
    write_index(map);
    expect_refused<DataError>({name, "model.safetensors.index.json", "copy all of them again"});
  }
}

TEST_F(HuggingFaceShards, RejectsUnknownWeightNamingItsFile) {
  const Tensor tensor = Tensor::zeros({3}, DType::kF32, MemoryKind::kData, stream_);
  write_safetensors((sharded_ / "more.safetensors").string(), {{"h.9.ln_1.bias", tensor}});
  json::object map = map_;
  map["h.9.ln_1.bias"] = "more.safetensors";
  write_index(map);
  expect_refused<DataError>({"more.safetensors", "h.9.ln_1.bias"});
}

TEST_F(HuggingFaceShards, RejectsShardsOutsideFolder) {
  fs::create_directories(sharded_ / "below");
  fs::rename(sharded_ / shard_name(1), folder_ / shard_name(1));
  const std::string outside = (folder_ / shard_name(1)).string();
  for (const json::value& bad :
       {json::value("../" + shard_name(1)), json::value(outside), json::value("below/../x"),
        json::value(".."), json::value("."), json::value(""), json::value("..\\x"), json::value(7),
        json::value(std::string("a\0b", 3)), json::value()}) {
    json::object map = map_;
    for (auto& [name, shard] : map) {
      if (shard == json::value(shard_name(1))) shard = bad;
    }
    write_index(map);
    SCOPED_TRACE(json::serialize(bad));
    expect_refused<DataError>(
        {"model.safetensors.index.json", "transformer.", json::serialize(bad), "same folder"});
  }
}

TEST_F(HuggingFaceShards, RejectsDamagedIndex) {
  for (const char* text :
       {"", "{\"weight_map\": {\"a\": ", "[]", "{}", "{\"weight_map\": []}", "{\"weight_map\": {}}",
        "{\"weight_map\": {\"a\": \"x\", \"a\": \"y\"}}"}) {
    write_text(sharded_ / "model.safetensors.index.json", text);
    SCOPED_TRACE(text);
    expect_refused<DataError>({(sharded_ / "model.safetensors.index.json").string()});
  }
}

TEST_F(HuggingFaceShards, InspectShowsTensorsOfAllShards) {
  const auto seen = [](const fs::path& path) {
    return json::parse(inspect(path).json).as_object();
  };
  const json::object sharded = seen(sharded_), whole = seen(whole_);
  EXPECT_EQ(sharded.at("kind"), whole.at("kind"));
  EXPECT_EQ(sharded.at("tensors").as_array().size(), whole.at("tensors").as_array().size());
  EXPECT_GT(sharded.at("bytes").to_number<int>(), whole.at("bytes").to_number<int>());
}

}  // namespace
}  // namespace hybrid_trainer
