#include "src/files/checkpoint_files.h"

#include <algorithm>
#include <boost/json/value.hpp>
#include <cereal/archives/portable_binary.hpp>
#include <cereal/types/map.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "src/core/narrow.h"
#include "src/files/json.h"
#include "src/files/safetensors.h"

namespace hybrid_trainer {

namespace {

constexpr const char* kFormat = "hybrid_trainer checkpoint";
constexpr std::int64_t kFormatVersion = 1, kRanksFormatVersion = 2;
constexpr const char* kStepPrefix = "step-";
constexpr const char* kRankPrefix = "rank-";
constexpr const char* kRankSuffix = ".safetensors";
constexpr JsonLimits kManifestLimits{.max_bytes = kMaxManifestBytes};

json::object tensors_object(const std::map<std::string, StoredTensor>& tensors) {
  json::object all;
  for (const auto& [name, tensor] : tensors) {
    json::array shape;
    for (int i = 0; i < tensor.shape.rank(); ++i) shape.emplace_back(tensor.shape[i]);
    json::object ranges;
    for (const StoredRange& range : tensor.ranges) ranges[range.file] = {range.first, range.last};
    all[name] = {{"dtype", safetensors_name_of(tensor.dtype)},
                 {"shape", std::move(shape)},
                 {"ranges", std::move(ranges)}};
  }
  return all;
}

std::string text_with_digest(const CheckpointInfo& info, const std::string& digest) {
  json::object files;
  for (const auto& [name, file] : info.files)
    files[name] = {{"bytes", static_cast<std::int64_t>(file.bytes)}, {"checksum", file.checksum}};
  json::object root{{"format", kFormat},
                    {"format_version", has_rank_files(info) ? kRanksFormatVersion : kFormatVersion},
                    {"project_version", info.project_version},
                    {"step", info.step},
                    {"config_hash", info.config_hash},
                    {"files", std::move(files)}};
  if (has_rank_files(info)) root["tensors"] = tensors_object(info.tensors);
  root["digest"] = digest;
  return pretty_json(root);
}

/// Returns the shape with these sizes, or nullopt if a tensor cannot have it.
std::optional<Shape> shape_of(const json::array& sizes) {
  if (sizes.empty() || sizes.size() > static_cast<std::size_t>(Shape::kMaxRank)) return {};
  Shape shape;
  std::int64_t elements = 1;
  for (const json::value& size : sizes) {
    const std::int64_t count = size.as_int64();
    if (count < 0 || __builtin_mul_overflow(elements, count, &elements)) return {};
    shape.append(count);
  }
  return shape;
}

/// Reads a tensor's manifest entry. Throws DataError for gaps, overlaps and invalid file names.
StoredTensor tensor_of(const std::string& name, const json::object& object,
                       const std::map<std::string, FileDigest>& files) {
  const auto fail = [&](const auto&... what) {
    throw DataError(concat("tensor \"", name.substr(0, 200), "\": ", what...));
  };
  StoredTensor tensor;
  const std::string dtype(object.at("dtype").as_string());
  const auto known = stored_dtype_of(dtype);
  if (!known) fail("unsupported dtype \"", dtype, "\"");
  tensor.dtype = *known;
  const auto shape = shape_of(object.at("shape").as_array());
  if (!shape) fail("its shape is invalid");
  tensor.shape = *shape;
  std::int64_t end = 0;
  for (const auto& [file, range] : object.at("ranges").as_object()) {
    const json::array& ends = range.as_array();
    tensor.ranges.push_back({std::string(file), ends.at(0).as_int64(), ends.at(1).as_int64()});
    const StoredRange& added = tensor.ranges.back();
    if (!is_rank_file_name(added.file) || !files.contains(added.file))
      fail("the manifest does not list the file \"", added.file, "\"");
    if (added.first != end || added.last <= end)
      fail("elements ", added.first, " to ", added.last, " in ", added.file, " come after element ",
           end, ": gaps and overlaps are not allowed");
    end = added.last;
  }
  if (end != tensor.shape.elements())
    fail("its ranges end at element ", end, ", its shape ", tensor.shape.text(), " has ",
         tensor.shape.elements());
  return tensor;
}

CheckpointInfo info_of(const json::object& root) {
  CheckpointInfo info;
  info.project_version = std::string(root.at("project_version").as_string());
  info.step = root.at("step").as_int64();
  info.config_hash = std::string(root.at("config_hash").as_string());
  constexpr std::array kNames{kStateName, kModelName, kOptimizerName, kTrainerName};
  for (const auto& [key, file] : root.at("files").as_object()) {
    const std::string name(key);
    const bool is_known = std::find(kNames.begin(), kNames.end(), name) != kNames.end();
    if (!is_known && !is_rank_file_name(name))
      throw DataError("the manifest names an unexpected file");
    const std::int64_t bytes = file.as_object().at("bytes").as_int64();
    info.files[name] = {static_cast<std::size_t>(bytes),
                        std::string(file.as_object().at("checksum").as_string())};
  }
  if (has_rank_files(info)) {
    for (const auto& [name, tensor] : root.at("tensors").as_object())
      info.tensors[name] = tensor_of(name, tensor.as_object(), info.files);
  }
  return info;
}

/// Returns the number that follows the prefix of `name`, or -1.
std::int64_t number_after(std::string_view prefix, std::string_view name) {
  std::int64_t number = -1;
  if (name.starts_with(prefix))
    std::from_chars(name.data() + prefix.size(), name.data() + name.size(), number);
  return number;
}

static_assert(std::endian::native == std::endian::little, "numbers are read as they are");

/// First byte of cereal's portable archives: 1 means little-endian.
constexpr char kLittleEndian = 1;

/// Reads a portable archive of cereal from the front of the bytes. Unlike cereal, checks every
/// length against the remaining bytes.
class StateReader {
 public:
  explicit StateReader(std::string_view bytes) : rest_(bytes) {
    if (take(1)[0] != kLittleEndian) refuse("numbers in another byte order");
  }
  void get(std::int64_t& value) { value = number<std::int64_t>(); }
  void get(double& value) { value = number<double>(); }
  void get(std::string& text) { text = take(count(1)); }
  void get(std::vector<double>& numbers) {
    numbers.resize(count(sizeof(double)));
    for (double& value : numbers) get(value);
  }
  template <class T>
  void get(std::map<std::string, T>& values) {
    for (std::uint64_t left = count(2 * sizeof(std::uint64_t)); left > 0; --left) {
      std::string name;
      get(name);
      get(values[name]);
    }
  }
  void expect_end() const {
    if (!rest_.empty()) refuse("bytes after its end");
  }

 private:
  [[noreturn]] static void refuse(const char* what) {
    throw DataError(concat("state.bin: not supported by this version: it has ", what));
  }
  std::string_view take(std::uint64_t bytes) {
    if (bytes > rest_.size()) refuse("fewer bytes than it declares");
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }
  template <class Number>
  Number number() {
    Number value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  /// Reads a number of elements, each of which has at least `least` bytes.
  std::uint64_t count(std::size_t least) {
    const auto value = number<std::uint64_t>();
    if (value > rest_.size() / least) refuse("fewer elements than it declares");
    return value;
  }
  std::string_view rest_;
};

}  // namespace

std::string rank_file_name(int rank) {
  char name[40];
  std::snprintf(name, sizeof name, "%s%05d%s", kRankPrefix, rank, kRankSuffix);
  return name;
}

bool is_rank_file_name(const std::string& name) {
  constexpr std::int64_t kMaxRank = 99'999;
  const std::int64_t rank = number_after(kRankPrefix, name);
  return rank >= 0 && rank <= kMaxRank && name == rank_file_name(narrow<int>(rank));
}

bool has_rank_files(const CheckpointInfo& checkpoint) {
  return checkpoint.files.contains(rank_file_name(0));
}

std::string checkpoint_name(std::int64_t step) {
  char name[40];
  std::snprintf(name, sizeof name, "%s%010lld", kStepPrefix, static_cast<long long>(step));
  return name;
}

std::int64_t step_of_checkpoint_name(const std::string& name) {
  constexpr std::int64_t kMaxStep = 999'999'999'999'999'999;
  const std::int64_t step = number_after(kStepPrefix, name);
  return step >= 0 && step <= kMaxStep && name == checkpoint_name(step) ? step : -1;
}

std::string manifest_text(const CheckpointInfo& info) {
  return text_with_digest(info, checksum_of(text_with_digest(info, "")));
}

CheckpointInfo parse_manifest(const std::string& text, const std::string& path) {
  const json::value root = parse_json_text(text, path, kManifestLimits);
  try {
    const json::object& object = root.as_object();
    if (object.at("format").as_string() != kFormat)
      throw DataError("it is not a checkpoint of HybridTrainer");
    if (const auto version = object.at("format_version").as_int64();
        version < kFormatVersion || version > kRanksFormatVersion) {
      throw DataError(concat("its format version is ", version, ", want ", kFormatVersion, " or ",
                             kRanksFormatVersion));
    }
    CheckpointInfo info = info_of(object);
    if (manifest_text(info) != text)
      throw DataError("the checksum of manifest.json does not match");
    return info;
  } catch (const DataError& problem) {
    throw DataError(path + ": " + problem.what());
  } catch (const std::exception&) {
    throw DataError(path + ": does not have the keys of a manifest");
  }
}

std::string state_bytes(const State& state) {
  std::ostringstream bytes;
  cereal::PortableBinaryOutputArchive archive(
      bytes, cereal::PortableBinaryOutputArchive::Options::LittleEndian());
  archive(state.integers, state.reals, state.series, state.texts);
  return bytes.str();
}

void read_state_bytes(const std::string& bytes, State& state) {
  StateReader reader(bytes);
  reader.get(state.integers);
  reader.get(state.reals);
  reader.get(state.series);
  reader.get(state.texts);
  reader.expect_end();
}

}  // namespace hybrid_trainer
