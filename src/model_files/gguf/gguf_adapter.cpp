#include <boost/json.hpp>
#include <cmath>

#include "hybrid_trainer/models/model_family.h"
#include "src/files/json.h"
#include "src/files/safetensors.h"
#include "src/gguf/gguf_writer.h"
#include "src/model_files/adapters/adapter_files.h"
#include "src/model_files/gguf/gguf_export.h"
#include "src/model_files/gguf/gguf_values.h"
#include "src/model_files/hugging_face/file_layout.h"

namespace hybrid_trainer {

namespace {

constexpr std::string_view kPrefix = "base_model.model.";

bool is_given(const json::object& config, const char* key) {
  const json::value* value = config.if_contains(key);
  if (value == nullptr || value->is_null() || *value == json::value(false)) return false;
  if (value->is_object()) return !value->get_object().empty();
  return !value->is_array() || !value->get_array().empty();
}

/// Throws DataError naming the first key or weight that needs more than one rank and one scale.
void check_plain(const json::object& config, const AdapterFolder& adapter,
                 const std::string& called) {
  std::string key;
  for (const char* one : {"use_dora", "rank_pattern", "alpha_pattern", "target_parameters"})
    if (key.empty() && is_given(config, one)) key = one;
  if (key.empty() && !adapter.extra_weights.empty()) key = adapter.extra_weights.front();
  if (key.empty()) return;
  throw DataError(concat(called, ": ", key, " cannot be stored in a GGUF adapter file; ",
                         "merge the adapter instead (--merge)"));
}

/// One matrix of a linear map's adapter: lora_a, (rank, inputs), or lora_b, (outputs, rank).
struct Matrix {
  std::string in_folder;
  GgufName name;  // for lora_b, whose rows are reordered like the base's
  bool is_b = false;
};

Matrix matrix_of(const std::string& tensor, const ModelConfig& model, const std::string& called) {
  for (const bool is_b : {false, true}) {
    const std::string_view end = is_b ? ".lora_B.weight" : ".lora_A.weight";
    if (!tensor.starts_with(kPrefix) || !tensor.ends_with(end)) continue;
    std::string module = tensor.substr(kPrefix.size(), tensor.size() - kPrefix.size() - end.size());
    const std::string& prefix = find_family(model.family).hugging_face.prefix;
    if (module.starts_with(prefix)) module.erase(0, prefix.size());
    constexpr std::int64_t kManyRows = 1 << 30;  // the module's outputs are not known here
    const std::vector<GgufPart> parts =
        gguf_parts(model, {.name = module + ".weight", .shape = {kManyRows, 1}});
    if (parts.size() > 1 || parts.front().in_file.parts > 1) break;
    Matrix matrix{tensor, parts.front().name, is_b};
    matrix.name.name += is_b ? ".lora_b" : ".lora_a";
    if (!is_b) matrix.name.change = GgufChange::kNone;
    if (matrix.name.tiles && matrix.name.tiles->are_columns == is_b) matrix.name.tiles.reset();
    return matrix;
  }
  throw DataError(
      concat(called, ": the tensor ", tensor.substr(0, 200),
             " cannot be stored in a GGUF adapter file; merge the adapter instead (--merge)"));
}

}  // namespace

void export_gguf_adapter(const fs::path& folder, const ModelConfig& model, const fs::path& path) {
  const AdapterFolder adapter = read_adapter_config(folder);
  const json::value value = read_json(folder / kAdapterConfig);
  check_plain(value.get_object(), adapter, path.string());
  const LoraConfig& lora = adapter.config;
  // llama.cpp scales by alpha divided by the rank.
  const double root = has_root_scale(lora.variant) ? std::sqrt(static_cast<double>(lora.rank)) : 1;
  const std::vector<GgufPair> values{
      gguf_text("general.architecture", gguf_architecture(model)),
      gguf_text("general.type", "adapter"), gguf_text("general.name", path.stem().string()),
      gguf_text("adapter.type", "lora"), gguf_number("adapter.lora.alpha", lora.alpha * root)};
  const SafetensorsFile file((folder / kAdapterTensors).string());
  std::vector<Matrix> matrices;
  GgufPlan plan;
  for (const SafetensorsEntry& entry : file.entries()) {
    matrices.push_back(matrix_of(entry.name, model, path.string()));
    plan.push_back({.name = matrices.back().name.name, .shape = entry.tensor_shape()});
  }
  write_gguf(path, values, plan, [&](std::size_t i) {
    const Tensor there = host_tensor(plan[i].shape);
    file.read(matrices[i].in_folder, there);
    return to_gguf(there, matrices[i].name);
  });
}

}  // namespace hybrid_trainer
