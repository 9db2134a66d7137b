#include "hybrid_trainer/data/token_dataset.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "json_file.h"

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

}  // namespace

const char* name_of(Split split) { return split == Split::kTrain ? "train" : "val"; }

void write_data_info(const DataInfo& info, const fs::path& folder) {
  write_json({{"version", kInfoVersion},
              {"tokenizer", info.tokenizer},
              {"vocabulary_size", info.vocabulary_size},
              {"train_tokens", info.train_tokens},
              {"validation_tokens", info.validation_tokens},
              {"train_bytes", info.train_bytes},
              {"validation_bytes", info.validation_bytes},
              {"documents", info.documents},
              {"validation_fraction", info.validation_fraction}},
             folder / kInfoFile);
}

std::optional<DataInfo> read_data_info(const fs::path& folder) {
  if (!fs::is_directory(folder)) {
    throw MissingInput(concat("data folder ", folder.string(),
                              " does not exist; make one with: hybrid prepare TEXT --output ",
                              folder.string()));
  }
  const fs::path file = folder / kInfoFile;
  if (!fs::exists(file)) return {};
  const boost::json::object object = read_json_object(file);
  if (const std::int64_t version = count_member(object, "version", file); version != kInfoVersion) {
    throw DataError(concat(file.string(), ": version ", version, "; want ", kInfoVersion));
  }
  DataInfo info;
  info.tokenizer = string_member(object, "tokenizer", file);
  info.vocabulary_size = count_member(object, "vocabulary_size", file);
  info.train_tokens = count_member(object, "train_tokens", file);
  info.validation_tokens = count_member(object, "validation_tokens", file);
  info.train_bytes = count_member(object, "train_bytes", file);
  info.validation_bytes = count_member(object, "validation_bytes", file);
  info.documents = count_member(object, "documents", file);
  info.validation_fraction = number_member(object, "validation_fraction", file);
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
