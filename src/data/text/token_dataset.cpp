#include "hybrid_trainer/data/token_dataset.h"

#include <cstdio>

#include "hybrid_trainer/core/error.h"
#include "src/core/messages.h"
#include "src/core/narrow.h"
#include "src/data/text/json_place.h"
#include "src/files/output_file.h"

namespace hybrid_trainer {

struct ShardFormat {
  std::int32_t magic;
  std::int32_t version;
  int bytes_per_token;
};

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kHeaderWords = 256;
constexpr std::size_t kHeaderBytes = kHeaderWords * sizeof(std::int32_t);
using Header = std::array<std::int32_t, kHeaderWords>;

constexpr ShardFormat kNarrow{20240520, 1, 2};
constexpr ShardFormat kWide{20240801, 7, 4};
constexpr std::int64_t kLargestNarrowVocabulary = 65'535;
constexpr std::int64_t kMaxTokens = std::numeric_limits<std::int32_t>::max();

const ShardFormat& format_for(std::int64_t vocabulary_size) {
  return vocabulary_size <= kLargestNarrowVocabulary ? kNarrow : kWide;
}

template <class Id>
void write_as(OutputFile& file, std::span<const std::int32_t> tokens) {
  const std::vector<Id> ids(tokens.begin(), tokens.end());
  file.write(ids.data(), ids.size() * sizeof(Id));
}

/// Calls f(ids, first) for tokens [start, start + count) in pieces, until f returns false.
template <class Id, class F>
void read_pieces(const InputFile& file, std::int64_t start, std::int64_t count, const F& f) {
  constexpr std::int64_t kPiece = 1 << 14;
  std::array<Id, kPiece> ids;
  const std::int64_t end = start + count;
  for (std::int64_t first = start; first < end; first += kPiece) {
    const auto size = static_cast<std::size_t>(std::min(kPiece, end - first));
    file.read_at(ids.data(), size * sizeof(Id),
                 kHeaderBytes + static_cast<std::size_t>(first) * sizeof(Id));
    if (!f(std::span<const Id>(ids.data(), size), first)) return;
  }
}

template <class Id>
void read_as(const InputFile& file, std::int64_t start, std::span<std::int32_t> out) {
  auto to = out.begin();
  read_pieces<Id>(file, start, static_cast<std::int64_t>(out.size()),
                  [&](std::span<const Id> ids, std::int64_t) {
                    for (const Id id : ids) *to++ = narrow<std::int32_t>(id, "a token");
                    return true;
                  });
}

struct PlacedToken {
  std::int64_t place;
  std::int64_t id;
};

/// Finds the first of `count` tokens with an id ≥ `limit`. The branch-free inner loop vectorizes.
template <class Id>
std::optional<PlacedToken> first_at_least(const InputFile& file, std::int64_t count,
                                          std::int64_t limit) {
  std::optional<PlacedToken> found;
  read_pieces<Id>(file, 0, count, [&](std::span<const Id> ids, std::int64_t first) {
    Id largest = 0;
    for (const Id id : ids) largest = std::max(largest, id);
    if (std::int64_t{largest} < limit) return true;
    const auto place = std::ranges::find_if(ids, [&](Id id) { return std::int64_t{id} >= limit; });
    found = {first + (place - ids.begin()), *place};
    return false;
  });
  return found;
}

constexpr const char* kInfoFile = "data.json";
constexpr std::int64_t kInfoVersion = 1;

/// Returns whether a token file belongs to the split according to its name. Used if there is no
/// data.json.
bool names_split(const fs::path& path, Split split) {
  const std::string name = path.filename().string();
  const auto names = [&](Split part) { return name.find(name_of(part)) != std::string::npos; };
  if (names(Split::kTrain) && names(Split::kValidation)) {
    throw DataError(concat(path.string(),
                           R"(: its name contains "train" and "val", want one of the )",
                           "two; rename it to NAME_train_000000.bin or NAME_val_000000.bin"));
  }
  return names(split);
}

/// Returns a split's token files, sorted: "train_….bin" with data.json, otherwise "…train….bin".
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

class ShardWriter::File {
 public:
  File(const std::filesystem::path& path, const ShardFormat& format)
      : format_(format), output_(path) {
    write_header(&OutputFile::write);
  }
  std::int64_t tokens() const { return tokens_; }
  void append(std::span<const std::int32_t> tokens) {
    if (format_.bytes_per_token == 2) {
      write_as<std::uint16_t>(output_, tokens);
    } else {
      write_as<std::uint32_t>(output_, tokens);
    }
    tokens_ += static_cast<std::int64_t>(tokens.size());
  }
  void finish() {
    write_header(&OutputFile::write_at_start);
    output_.close();
  }

 private:
  void write_header(void (OutputFile::*write)(const void*, std::size_t)) {
    Header header{};
    header[0] = format_.magic;
    header[1] = format_.version;
    header[2] = narrow<std::int32_t>(tokens_, "the number of a shard's tokens");
    (output_.*write)(header.data(), kHeaderBytes);
  }
  ShardFormat format_;
  OutputFile output_;
  std::int64_t tokens_ = 0;
};

ShardWriter::ShardWriter(Settings settings) : settings_(std::move(settings)) {
  require(settings_.shard_tokens >= 1 && settings_.shard_tokens <= kMaxTokens,
          "a shard must have 1 to 2^31 - 1 tokens");
}

ShardWriter::~ShardWriter() = default;

void ShardWriter::append(std::span<const std::int32_t> tokens) {
  for (const std::int32_t id : tokens) {
    if (id >= 0 && id < settings_.vocabulary_size) continue;
    throw DataError(concat("token ", id, " cannot be written to ", settings_.folder.string(),
                           ": the vocabulary has ", settings_.vocabulary_size, " tokens"));
  }
  while (!tokens.empty()) {
    if (!file_) {
      char name[32];
      std::snprintf(name, sizeof(name), "_%06d.bin", narrow<int>(files_++));
      file_ = std::make_unique<File>(settings_.folder / (settings_.split + name),
                                     format_for(settings_.vocabulary_size));
    }
    const std::int64_t room = settings_.shard_tokens - file_->tokens();
    const auto taken = std::min(tokens.size(), static_cast<std::size_t>(room));
    file_->append(tokens.first(taken));
    tokens_ += static_cast<std::int64_t>(taken);
    tokens = tokens.subspan(taken);
    if (file_->tokens() == settings_.shard_tokens) finish();
  }
}

void ShardWriter::finish() {
  if (const auto file = std::exchange(file_, nullptr)) file->finish();
}

TokenShard::TokenShard(const std::filesystem::path& path) : file_(path) {
  const std::size_t bytes = file_.bytes();
  if (bytes < kHeaderBytes) {
    throw DataError(concat(path.string(), " has ", bytes,
                           " bytes; a token file begins with a header of ", kHeaderBytes));
  }
  Header header;
  file_.read_at(header.data(), kHeaderBytes, 0);
  const bool wide = header[0] == kWide.magic;
  const ShardFormat& format = wide ? kWide : kNarrow;
  if (header[0] != format.magic || header[1] != format.version) {
    throw DataError(concat(path.string(), " is not a token file: magic ", header[0], " version ",
                           header[1], "; want ", kNarrow.magic, " version ", kNarrow.version,
                           " or ", kWide.magic, " version ", kWide.version));
  }
  tokens_ = header[2];
  bytes_per_token_ = format.bytes_per_token;
  const std::int64_t wanted = static_cast<std::int64_t>(kHeaderBytes) + tokens_ * bytes_per_token_;
  if (tokens_ < 0 || static_cast<std::int64_t>(bytes) != wanted) {
    throw DataError(concat(path.string(), " has ", bytes, " bytes; its header declares ", tokens_,
                           " tokens, which need ", wanted,
                           " bytes: the file is damaged, prepare it again"));
  }
}

void TokenShard::read(std::int64_t start, std::span<std::int32_t> out) const {
  require(start >= 0 && start + static_cast<std::int64_t>(out.size()) <= tokens_,
          "read beyond the end of a token shard");
  if (bytes_per_token_ == 2) {
    read_as<std::uint16_t>(file_, start, out);
  } else {
    read_as<std::uint32_t>(file_, start, out);
  }
}

void TokenShard::check_tokens(std::int64_t vocabulary_size) const {
  const auto found = bytes_per_token_ == 2
                         ? first_at_least<std::uint16_t>(file_, tokens_, vocabulary_size)
                         : first_at_least<std::uint32_t>(file_, tokens_, vocabulary_size);
  if (!found) return;
  throw DataError(concat(path().string(), ": token ", found->id, " at position ", found->place,
                         " is outside the vocabulary of ", vocabulary_size,
                         "; the file is damaged or was made with another tokenizer"));
}

const char* name_of(Split split) { return split == Split::kTrain ? "train" : "val"; }

void write_data_info(const DataInfo& info, const fs::path& folder) {
  boost::json::object object{{"version", kInfoVersion}};
  visit_members(info, [&](const char* key, const auto& value) { object[key] = value; });
  write_json(object, folder / kInfoFile);
}

std::optional<DataInfo> read_data_info(const fs::path& folder) {
  if (!fs::is_directory(folder)) {
    throw MissingInput(concat(
        folder.string(), ": does not exist; make a data folder with: hybrid prepare TEXT --output ",
        shell_path(folder)));
  }
  const fs::path file = folder / kInfoFile;
  if (!fs::exists(file)) return {};
  const boost::json::value root = read_json_object(folder, kInfoFile);
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
    throw MissingInput(concat("folder ", folder.string(), " has no token files of the split ",
                              name_of(split), "; make them with: hybrid prepare"));
  }
  vocabulary_size_ = info_ ? info_->vocabulary_size : vocabulary_size;
  if (!info_) return;
  const std::int64_t wanted =
      split == Split::kTrain ? info_->train_tokens : info_->validation_tokens;
  if (tokens() != wanted) {
    throw DataError(concat("the token files ", name_of(split), "_….bin of ", folder.string(),
                           " have ", tokens(), " tokens, but ", kInfoFile, " declares ", wanted,
                           ": a file is missing or does not belong here; prepare the data again"));
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
