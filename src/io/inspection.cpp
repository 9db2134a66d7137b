#include "hybrid_trainer/io/inspection.h"

#include <filesystem>

#include "hybrid_trainer/io/checkpoint.h"
#include "hybrid_trainer/io/safetensors.h"
#include "src/io/checkpoint_files.h"
#include "src/io/strict_json.h"

namespace hybrid_trainer {
namespace json = boost::json;
namespace {

std::int64_t elements_of(const SafetensorsEntry& entry) {
  std::int64_t count = 1;
  for (std::int64_t dimension : entry.shape) count *= dimension;
  return count;
}

std::string shape_text(const SafetensorsEntry& entry) {
  std::string text = "(";
  for (std::int64_t dimension : entry.shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(dimension);
  }
  return text + ")";
}

json::object describe(const SafetensorsFile& file, std::string& text) {
  json::object tensors, metadata;
  std::int64_t elements = 0;
  for (const SafetensorsEntry& entry : file.entries()) {
    tensors[entry.name] = {{"dtype", entry.dtype},
                           {"shape", json::array(entry.shape.begin(), entry.shape.end())},
                           {"bytes", entry.bytes}};
    elements += elements_of(entry);
  }
  for (const auto& [key, value] : file.metadata()) metadata[key] = value;
  text += concat(file.path(), ": ", file.entries().size(), " tensors, ", elements, " elements\n");
  for (const SafetensorsEntry& entry : file.entries()) {
    text += concat("  ", entry.name, "  ", entry.dtype, " ", shape_text(entry), "\n");
  }
  return {{"kind", "safetensors"},
          {"path", file.path()},
          {"elements", elements},
          {"metadata", std::move(metadata)},
          {"tensors", std::move(tensors)}};
}

}  // namespace

Inspection inspect_safetensors(const std::string& path) {
  Inspection result;
  result.json = pretty_json(describe(SafetensorsFile(path), result.text));
  return result;
}

Inspection inspect_checkpoint(const std::string& path) {
  if (!std::filesystem::is_directory(path))
    throw MissingInput(path + ": is no folder of a checkpoint");
  const CheckpointInfo info = read_checkpoint_info(path);
  const std::string damage = checkpoint_damage(info);
  Inspection result;
  result.text = concat(path, ": checkpoint of step ", info.step, ", written by version ",
                       info.project_version, ", ", info.bytes(), " bytes, ",
                       damage.empty() ? "every checksum matches" : "damaged: " + damage, "\n");
  json::object files;
  for (const auto& [name, digest] : info.files) {
    files[name] = {{"bytes", digest.bytes}, {"checksum", digest.checksum}};
    if (name == kStateName || !damage.empty()) continue;
    json::object content = describe(SafetensorsFile(path + "/" + name), result.text);
    files[name].get_object()["tensors"] = std::move(content["tensors"]);
  }
  result.json = pretty_json({{"kind", "checkpoint"},
                             {"path", path},
                             {"step", info.step},
                             {"project_version", info.project_version},
                             {"config_hash", info.config_hash},
                             {"bytes", info.bytes()},
                             {"damage", damage},
                             {"files", std::move(files)}});
  return result;
}

}  // namespace hybrid_trainer
