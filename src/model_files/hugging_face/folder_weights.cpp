#include "src/model_files/hugging_face/folder_weights.h"

#include <cmath>

#include "src/core/messages.h"
#include "src/files/json.h"
#include "src/model_files/adapters/adapter_config.h"
#include "src/model_files/hugging_face/file_layout.h"
#include "src/model_files/hugging_face/quantized_tensors.h"

namespace hybrid_trainer {

namespace {

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr JsonLimits kIndexLimits{.max_bytes = std::size_t{64} << 20, .max_depth = 8};

using TensorsOfShards = std::map<std::string, std::set<std::string>>;

/// Returns whether the name is a plain file name. An untrusted index must not refer to other
/// folders.
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
        ": has no weight_map; want {\"weight_map\": {\"TENSOR\": \"SHARD.safetensors\", …}}"));
  }
  TensorsOfShards shards;
  for (const auto& [tensor, value] : map->get_object()) {
    const std::string shard = value.is_string() ? std::string(value.get_string()) : "";
    if (!is_file_name(shard)) {
      throw DataError(concat(path, ": the tensor ", std::string(tensor).substr(0, 200),
                             " has the file ", json::serialize(value).substr(0, 200),
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
                            " names, these do not exist: ", missing.substr(0, 1000),
                            "; copy them into the folder"));
}

void check_shard(const SafetensorsFile& shard, const std::set<std::string>& tensors) {
  const auto fail = [&](const char* what, const std::string& tensor, const char* but) {
    throw DataError(
        concat(shard.path(), what, tensor.substr(0, 200), but, kIndex,
               "; index and shards belong to different models: copy all of them again"));
  };
  for (const std::string& tensor : tensors) {
    if (!shard.contains(tensor))
      fail(": does not contain the tensor ", tensor, ", which is listed in ");
  }
  for (const SafetensorsEntry& entry : shard.entries()) {
    if (!tensors.count(entry.name))
      fail(": contains the tensor ", entry.name, ", which is not listed in ");
  }
}

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

/// A module of an expert: its name, whether it is the last map, and otherwise its index.
struct ExpertModule {
  std::string_view name;
  bool is_last;
  std::int64_t place;
};

constexpr ExpertModule kModules[] = {{"gate_proj.weight", false, 0}, {"up_proj.weight", false, 1},
                                     {"down_proj.weight", true, 0},  {"w1.weight", false, 0},
                                     {"w3.weight", false, 1},        {"w2.weight", true, 0}};

/// Tensors that have other names in transformers 5, or in BERT folders converted from TensorFlow.
constexpr std::pair<std::string_view, std::string_view> kRenamed[] = {
    {".LayerNorm.weight", ".LayerNorm.gamma"},
    {".LayerNorm.bias", ".LayerNorm.beta"},
    {".block_sparse_moe.gate.weight", ".mlp.gate.weight"},
    {".block_sparse_moe.router.layer.weight", ".block_sparse_moe.router.weight"},
    {".block_sparse_moe.input_linear.weight", ".block_sparse_moe.experts.gate_up_proj"},
    {".block_sparse_moe.output_linear.weight", ".block_sparse_moe.experts.down_proj"}};

/// Returns the name with its suffix `end` replaced by `other`, or nullopt without the suffix.
std::optional<std::string> with_end(const std::string& name, std::string_view end,
                                    std::string_view other) {
  if (!name.ends_with(end)) return {};
  return name.substr(0, name.size() - end.size()) + std::string(other);
}

/// Returns the stacked tensor that contains "….mlp.experts.3.gate_proj.weight".
std::optional<FileTensor> among_stacked(const FileTensor& tensor, std::int64_t experts) {
  constexpr std::string_view kExperts = ".experts.";
  const std::size_t at = tensor.name.find(kExperts);
  if (at == std::string::npos || tensor.parts > 1) return {};
  const std::size_t number = at + kExperts.size(), dot = tensor.name.find('.', number);
  if (dot == std::string::npos) return {};
  const std::int64_t expert = leading_number(std::string_view(tensor.name).substr(number));
  for (const ExpertModule& module : kModules) {
    if (tensor.name.substr(dot + 1) != module.name) continue;
    FileTensor all = tensor;
    std::string before = tensor.name.substr(0, at);
    if (const auto mixtral = with_end(before, ".block_sparse_moe", ".mlp")) before = *mixtral;
    all.name = concat(before, kExperts, module.is_last ? "down_proj" : "gate_up_proj");
    all.part = module.is_last ? expert : 2 * expert + module.place;
    all.parts = module.is_last ? experts : 2 * experts;
    return all;
  }
  return {};
}

/// Returns the separate tensors of an expert, given its part of a stacked tensor, or none.
std::vector<FileTensor> of_one_expert(const FileTensor& tensor) {
  constexpr std::string_view kFirst = ".experts.gate_up_proj", kLast = ".experts.down_proj";
  const bool is_first = tensor.name.ends_with(kFirst);
  if (tensor.parts == 1 || tensor.transposed || !(is_first || tensor.name.ends_with(kLast)))
    return {};
  const std::string stem = tensor.name.substr(0, tensor.name.rfind('.') + 1);
  std::vector<FileTensor> parts;
  for (const char* module : {"gate_proj", "up_proj", "down_proj"}) {
    if (is_first == (std::string_view(module) == "down_proj")) continue;
    FileTensor part = tensor;
    part.name = concat(stem, tensor.part, ".", module, ".weight");
    part.part = 0, part.parts = 1;
    if (is_first) part.shape = {tensor.shape[0] / 2, tensor.shape[1]};
    parts.push_back(std::move(part));
  }
  return parts;
}

/// Rejects NaN and infinity, which would spread through the model or be rounded to valid numbers.
void check_finite(const Tensor& values, const std::string& file, const std::string& name) {
  const float* const begin = values.data<float>();
  const auto bad = values.elements() - std::count_if(begin, begin + values.elements(),
                                                     [](float x) { return std::isfinite(x); });
  if (bad == 0) return;
  throw DataError(
      concat(file, ": ", bad, " of the ", values.elements(), " numbers of ", name,
             bad == 1 ? " is" : " are",
             " NaN or infinite; copy the folder again, or train again from an earlier checkpoint"));
}

std::int64_t columns(const FileTensor& part) { return part.shape[part.transposed ? 0 : 1]; }

}  // namespace

HuggingFaceWeights::HuggingFaceWeights(const fs::path& folder) {
  if (!are_in(folder)) {
    const std::string other = other_weights(folder);
    throw MissingInput(concat(folder.string(), " contains neither ", kSingleFile, " nor ", kIndex,
                              other.empty()
                                  ? "; convert weights in another format"
                                  : ", but " + other + ", which is not supported; convert it",
                              " with transformers' save_pretrained"));
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
  return fs::exists(folder / kSingleFile, error) || fs::exists(folder / kIndex, error);
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
      path_, ": has no tensor \"", name, "\"",
      nearest.empty() ? concat(" among its ", names.size()) : "; did you mean " + nearest + "?"));
}

std::vector<FileTensor> as_stored(const FileTensor& tensor, std::int64_t experts,
                                  const std::function<bool(const std::string& name)>& contains) {
  if (contains(tensor.name)) return {tensor};
  if (const auto all = among_stacked(tensor, experts); all && contains(all->name)) return {*all};
  const std::vector<FileTensor> parts = of_one_expert(tensor);
  if (!parts.empty() && contains(parts.front().name)) return parts;
  for (const auto& [here, there] : kRenamed) {
    const auto name = with_end(tensor.name, here, there);
    if (!name || !contains(*name)) continue;
    FileTensor renamed = tensor;
    renamed.name = *name;
    return {renamed};
  }
  return {tensor};
}

std::vector<std::string> OpenFolder::keys_of(const FileTensor& part) const {
  const bool is_packed = quantization == kMicroScalingForm;
  if (part.shape.rank() != 2 || (part.parts > 1 && !is_packed)) return {};
  return quantization_keys(weights, name_of(part), quantization);
}

std::vector<std::string> OpenFolder::names_of(const FileTensor& part) const {
  std::vector<std::string> names = keys_of(part);
  if (names.empty() || quantization != kMicroScalingForm) names.push_back(name_of(part));
  return names;
}

QuantizedRows WeightInFiles::quantized_part(const FileTensor& part, const Stream& home) const {
  const std::string name = folder_.name_of(part);
  const QuantizedRows read =
      folder_.quantization == kMicroScalingForm
          ? QuantizedRows{part.rows(),
                          read_micro_scaling(folder_.weights, name, part, columns(part), home)}
          : read_quantized(folder_.weights, name, folder_.quantization, part.rows(), columns(part),
                           home);
  return reordered(read, columns(part), part.order, TargetOrder::kHere,
                   concat(folder_.weights.path(), ": ", name), home);
}

void WeightInFiles::read_part(const Tensor& values, const FileTensor& part) const {
  if (folder_.lacks(part)) return fill_zero(values, host_stream());
  read_unchecked(values, part);
  check_finite(values, folder_.weights.path(), folder_.name_of(part));
}

void WeightInFiles::read_unchecked(const Tensor& values, const FileTensor& part) const {
  const Stream host = host_stream();
  if (!folder_.keys_of(part).empty())
    return dequantize_rows(values, quantized_part(part, host), host);
  const std::string name = folder_.name_of(part);
  const SafetensorsFile& file = folder_.weights.file_of(name);
  const Shape found = file.entry(name).tensor_shape(), wanted = part.whole_shape();
  // Stacked gates and ups may have the shape (experts, both, width).
  const bool are_pairs = found.rank() == 3 && wanted.rank() == 3 && found[0] * 2 == wanted[0] &&
                         found[1] == 2 * wanted[1] && found[2] == wanted[2];
  if (found != wanted && !are_pairs) {
    throw DataError(
        concat(file.path(), ": ", name, " is ", found.text(), ", want ", wanted.text()));
  }
  const std::string& dtype = file.entry(name).dtype;
  if (dtype != "F32" && dtype != "BF16" && dtype != "F16" && dtype != "F64")
    throw DataError(
        concat(file.path(), ": ", name, " has dtype ", dtype, ", want F32, BF16 or F16"));
  if (has_same_order(part)) return file.read_part(name, part.part, values.view(part.shape));
  const Tensor in_file = host_tensor(part.shape);
  file.read_part(name, part.part, in_file);
  take_from_file(values, in_file, part);
}

void WeightInFiles::read(const Tensor& values) const {
  std::int64_t row = 0;
  for (const FileTensor& part : parts_) {
    read_part(values.rows(row, row + part.rows()), part);
    row += part.rows();
  }
  fill_zero(values.rows(row, values.size(0)), host_stream());
}

Tensor FolderWeight::values() const {
  Tensor values = host_tensor(shape_);
  read(values);
  return values;
}

bool WeightInFiles::is_quantized() const {
  return std::ranges::any_of(
      parts_, [&](const FileTensor& part) { return !folder_.keys_of(part).empty(); });
}

std::vector<QuantizedRows> WeightInFiles::quantized(const Stream& home) const {
  std::vector<QuantizedRows> quantized;
  for (const FileTensor& part : parts_) {
    if (!folder_.keys_of(part).empty()) {
      quantized.push_back(quantized_part(part, home));
      continue;
    }
    const Tensor values = host_tensor({part.rows(), columns(part)});
    read_part(values, part);
    quantized.push_back(quantize_rows(values, folder_.quantization, home));
  }
  return quantized;
}

}  // namespace hybrid_trainer
