#include "hybrid_trainer/data/token_dataset.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/shell_word.h"
#include "src/data/json_file.h"
#include "src/data/json_place.h"

namespace hybrid_trainer {

namespace {

namespace fs = std::filesystem;
constexpr const char* kInfoFile = "data.json";
constexpr std::int64_t kInfoVersion = 1;

/// Whether a token file belongs to the split by its name, if there is no data.json.
bool names_split(const fs::path& path, Split split) {
  const std::string name = path.filename().string();
  const auto names = [&](Split part) { return name.find(name_of(part)) != std::string::npos; };
  if (names(Split::kTrain) && names(Split::kValidation)) {
    throw DataError(concat(path.string(), R"(: its name holds "train" and "val", want one of the )",
                           "two; rename it, as NAME_train_000000.bin or NAME_val_000000.bin"));
  }
  return names(split);
}

/// Token files of a split, sorted: with data.json "train_….bin", else every .bin with "train" in
/// its name.
std::vector<fs::path> shard_paths(const fs::path& folder, Split split, bool has_info) {
  const std::string prefix = std::string(name_of(split)) + "_";
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".bin") continue;
    const bool belongs = has_info ? entry.path().filename().string().starts_with(prefix)
                                  : names_split(entry.path(), split);
    if (belongs) paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  return paths;
}

/// The members of data.json.
template <class Info, class Visit>
void visit_members(Info& info, const Visit& visit) {
  visit("tokenizer", info.tokenizer);
  visit("vocabulary_size", info.vocabulary_size);
  visit("train_tokens", info.train_tokens);
  visit("validation_tokens", info.validation_tokens);
  visit("train_bytes", info.train_bytes);
  visit("validation_bytes", info.validation_bytes);
  visit("documents", info.documents);
  visit("validation_fraction", info.validation_fraction);
}

}  // namespace

const char* name_of(Split split) { return split == Split::kTrain ? "train" : "val"; }

void write_data_info(const DataInfo& info, const fs::path& folder) {
  boost::json::object object{{"version", kInfoVersion}};
  visit_members(info, [&](const char* key, const auto& value) { object[key] = value; });
  write_json(object, folder / kInfoFile);
}

std::optional<DataInfo> read_data_info(const fs::path& folder) {
  if (!fs::is_directory(folder)) {
    throw MissingInput(concat("data folder ", folder.string(),
                              " does not exist; make one with: hybrid prepare TEXT --output ",
                              shell_path(folder)));
  }
  const fs::path file = folder / kInfoFile;
  if (!fs::exists(file)) return {};
  const boost::json::value root = read_json_object(file);
  const JsonPlace place(root, file.string());
  if (const std::int64_t version = place.at("version").count(); version != kInfoVersion)
    throw DataError(concat(file.string(), ": version ", version, "; want ", kInfoVersion));
  DataInfo info;
  visit_members(info, [&]<class Value>(const char* key, Value& value) {
    const JsonPlace member = place.at(key);
    if constexpr (std::is_same_v<Value, std::string>) {
      value = member.text();
    } else if constexpr (std::is_same_v<Value, double>) {
      value = member.number();
    } else {
      value = member.count(std::int64_t{1} << 53);
    }
  });
  return info;
}

TokenDataset::TokenDataset(const fs::path& folder, Split split,
                           std::optional<std::int64_t> vocabulary_size)
    : folder_(folder), split_(split), info_(read_data_info(folder)), starts_{0} {
  for (const fs::path& path : shard_paths(folder, split, info_.has_value())) {
    shards_.emplace_back(path);
    if (info_) shards_.back().check_tokens(info_->vocabulary_size);
    if (vocabulary_size) shards_.back().check_tokens(*vocabulary_size);
    starts_.push_back(starts_.back() + shards_.back().tokens());
  }
  if (shards_.empty()) {
    throw MissingInput(concat("folder ", folder.string(), " holds no token files of the split ",
                              name_of(split), "; make them with: hybrid prepare"));
  }
  vocabulary_size_ = info_ ? info_->vocabulary_size : vocabulary_size;
  if (!info_) return;
  const std::int64_t wanted =
      split == Split::kTrain ? info_->train_tokens : info_->validation_tokens;
  if (tokens() != wanted) {
    throw DataError(concat("the token files ", name_of(split), "_….bin of ", folder.string(),
                           " hold ", tokens(), " tokens; ", kInfoFile, " says ", wanted,
                           ": a file is missing or too much, prepare the data again"));
  }
}

void TokenDataset::read(std::int64_t start, std::span<std::int32_t> out) const {
  const std::int64_t end = start + static_cast<std::int64_t>(out.size());
  require(start >= 0 && end <= tokens(), "read beyond the end of a dataset");
  auto shard =
      static_cast<std::size_t>(std::ranges::upper_bound(starts_, start) - starts_.begin()) - 1;
  while (!out.empty()) {
    const auto room = static_cast<std::size_t>(starts_[shard + 1] - start);
    const auto part = out.first(std::min(out.size(), room));
    shards_[shard].read(start - starts_[shard], part);
    start += static_cast<std::int64_t>(part.size());
    out = out.subspan(part.size());
    ++shard;
  }
}

}  // namespace hybrid_trainer
