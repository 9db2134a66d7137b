#include <algorithm>
#include <array>
#include <boost/json/value.hpp>
#include <cstdio>

#include "hybrid_trainer/files/pretty_json.h"
#include "hybrid_trainer/files/strict_json.h"
#include "src/io/checkpoint_files.h"

namespace hybrid_trainer {
namespace json = boost::json;
namespace {

constexpr const char* kFormat = "hybrid_trainer checkpoint";
constexpr std::int64_t kFormatVersion = 1;

std::string text_with_digest(const CheckpointInfo& info, const std::string& digest) {
  json::object files;
  for (const auto& [name, file] : info.files) {
    files[name] = {{"bytes", static_cast<std::int64_t>(file.bytes)}, {"checksum", file.checksum}};
  }
  return pretty_json({{"format", kFormat},
                      {"format_version", kFormatVersion},
                      {"project_version", info.project_version},
                      {"step", info.step},
                      {"config_hash", info.config_hash},
                      {"files", std::move(files)},
                      {"digest", digest}});
}

CheckpointInfo info_of(const json::object& root) {
  CheckpointInfo info;
  info.project_version = std::string(root.at("project_version").as_string());
  info.step = root.at("step").as_int64();
  info.config_hash = std::string(root.at("config_hash").as_string());
  constexpr std::array kNames{kStateName, kModelName, kOptimizerName, kTrainerName};
  for (const auto& [key, file] : root.at("files").as_object()) {
    const std::string name(key);
    if (std::find(kNames.begin(), kNames.end(), name) == kNames.end()) {
      throw DataError("the manifest names a file that no checkpoint has");
    }
    const std::int64_t bytes = file.as_object().at("bytes").as_int64();
    info.files[name] = {static_cast<std::size_t>(bytes),
                        std::string(file.as_object().at("checksum").as_string())};
  }
  return info;
}

}  // namespace

std::string checkpoint_name(std::int64_t step) {
  char name[40];
  std::snprintf(name, sizeof name, "step-%010lld", static_cast<long long>(step));
  return name;
}

std::int64_t step_of_checkpoint_name(const std::string& name) {
  constexpr std::size_t kPrefix = 5, kMaxDigits = 18;
  if (name.rfind("step-", 0) != 0 || name.size() > kPrefix + kMaxDigits) return -1;
  std::int64_t step = 0;
  for (char digit : name.substr(kPrefix)) {
    if (digit < '0' || digit > '9') return -1;
    step = step * 10 + (digit - '0');
  }
  return name == checkpoint_name(step) ? step : -1;
}

std::string manifest_text(const CheckpointInfo& info) {
  return text_with_digest(info, checksum_of(text_with_digest(info, "")));
}

CheckpointInfo parse_manifest(const std::string& text, const std::string& path) {
  const json::value root = parse_json_text(text, path);
  try {
    const json::object& object = root.as_object();
    if (object.at("format").as_string() != kFormat)
      throw DataError("it is no checkpoint of this project");
    if (const auto version = object.at("format_version").as_int64(); version != kFormatVersion) {
      throw DataError(
          concat("its format version is ", version, ", this program reads ", kFormatVersion));
    }
    CheckpointInfo info = info_of(object);
    if (manifest_text(info) != text)
      throw DataError("the checksum of manifest.json does not match");
    return info;
  } catch (const DataError& problem) {
    throw DataError(path + ": " + problem.what());
  } catch (const std::exception&) {
    throw DataError(path + ": has not the keys of a manifest");
  }
}

}  // namespace hybrid_trainer
