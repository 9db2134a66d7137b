#include "hybrid_trainer/hugging_face/hugging_face_weights.h"

#include <algorithm>
#include <boost/json.hpp>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/nearest_name.h"
#include "hybrid_trainer/files/strict_json.h"
#include "hybrid_trainer/gguf/gguf_file.h"

namespace hybrid_trainer {
namespace fs = std::filesystem;
namespace json = boost::json;
namespace {

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr JsonLimits kIndexLimits{.max_bytes = std::size_t{64} << 20, .max_depth = 8};

/// The tensors of each shard, by the shard's file name.
using TensorsOfShards = std::map<std::string, std::set<std::string>>;

/// A plain file name, so that an untrusted index cannot make us read outside the folder.
bool is_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

TensorsOfShards read_index(const std::string& path) {
  const json::value root = read_json(path, kIndexLimits);
  const json::value* map = root.is_object() ? root.get_object().if_contains("weight_map") : nullptr;
  if (map == nullptr || !map->is_object() || map->get_object().empty()) {
    throw DataError(concat(
        path,
        ": holds no weight_map; want {\"weight_map\": {\"TENSOR\": \"SHARD.safetensors\", …}}"));
  }
  TensorsOfShards shards;
  for (const auto& [tensor, value] : map->get_object()) {
    const std::string shard = value.is_string() ? std::string(value.get_string()) : "";
    if (!is_file_name(shard)) {
      throw DataError(concat(path, ": the tensor ", std::string(tensor).substr(0, 200),
                             " is said to be in ", json::serialize(value).substr(0, 200),
                             "; want the name of a file in the same folder"));
    }
    shards[shard].insert(tensor);
  }
  return shards;
}

void check_present(const fs::path& folder, const TensorsOfShards& shards) {
  std::string missing;
  std::error_code error;
  for (const auto& [shard, tensors] : shards) {
    if (!fs::exists(folder / shard, error)) missing += (missing.empty() ? "" : ", ") + shard;
  }
  if (missing.empty()) return;
  throw MissingInput(concat(folder.string(), ": of the ", shards.size(), " shards that ", kIndex,
                            " names, these are missing: ", missing.substr(0, 1000),
                            "; copy them into the folder"));
}

/// Checks that the shard holds exactly the tensors that the index says.
void check_shard(const SafetensorsFile& shard, const std::set<std::string>& tensors) {
  const auto fail = [&](const char* what, const std::string& tensor, const char* but) {
    throw DataError(concat(shard.path(), what, tensor.substr(0, 200), but, kIndex,
                           "; index and shards are of different models: copy all of them anew"));
  };
  for (const std::string& tensor : tensors) {
    if (!shard.contains(tensor)) fail(": lacks the tensor ", tensor, " that is there by ");
  }
  for (const SafetensorsEntry& entry : shard.entries()) {
    if (!tensors.count(entry.name))
      fail(": holds the tensor ", entry.name, " that is not there by ");
  }
}

/// The first file that holds weights in another format; empty where there is none.
std::string other_weights(const fs::path& folder) {
  constexpr std::string_view kEndings[] = {".bin", ".gguf",    ".pt",  ".pth",
                                           ".h5",  ".msgpack", ".ckpt"};
  std::set<std::string> found;
  std::error_code unreadable;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, unreadable)) {
    const std::string name = entry.path().filename().string();
    const bool is_one = std::ranges::any_of(
        kEndings, [&](std::string_view ending) { return name.ends_with(ending); });
    if (is_one && name != "training_args.bin") found.insert(name);
  }
  return found.empty() ? "" : *found.begin();
}

}  // namespace

HuggingFaceWeights::HuggingFaceWeights(const fs::path& folder) {
  if (!are_in(folder)) {
    const std::string other = other_weights(folder);
    throw MissingInput(concat(folder.string(), " holds neither ", kSingleFile, " nor ", kIndex,
                              other.empty() ? "; weights in another format"
                                            : ", but " + other + ", which is not read; its weights",
                              " are written anew by transformers' save_pretrained"));
  }
  if (fs::exists(folder / kSingleFile)) {
    path_ = (folder / kSingleFile).string();
    add_file(path_);
  } else {
    path_ = (folder / kIndex).string();
    add_shards(folder);
  }
}

bool HuggingFaceWeights::are_in(const fs::path& folder) {
  std::error_code error;
  return GgufFile::is_one(folder) || fs::exists(folder / kSingleFile, error) ||
         fs::exists(folder / kIndex, error);
}

bool HuggingFaceWeights::are_meant(const fs::path& folder) {
  std::error_code error;
  return are_in(folder) || fs::exists(folder / "config.json", error);
}

void HuggingFaceWeights::add_file(const std::string& path) {
  files_.emplace_back(path);
  for (const SafetensorsEntry& entry : files_.back().entries())
    file_of_[entry.name] = files_.size() - 1;
}

void HuggingFaceWeights::add_shards(const fs::path& folder) {
  const TensorsOfShards shards = read_index(path_);
  check_present(folder, shards);
  for (const auto& [shard, tensors] : shards) {
    add_file((folder / shard).string());
    check_shard(files_.back(), tensors);
  }
}

const SafetensorsFile& HuggingFaceWeights::file_of(const std::string& name) const {
  const auto found = file_of_.find(name);
  if (found != file_of_.end()) return files_[found->second];
  std::vector<std::string> names;
  for (const auto& [known, file] : file_of_) names.push_back(known);
  const std::string nearest = nearest_name(name, names);
  throw DataError(concat(
      path_, ": holds no tensor \"", name, "\"",
      nearest.empty() ? concat(" among its ", names.size()) : "; did you mean " + nearest + "?"));
}

}  // namespace hybrid_trainer
