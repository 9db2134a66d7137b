#include <cmath>

#include "src/core/messages.h"
#include "src/files/foreign_files.h"
#include "src/model_files/adapters/adapter_contents.h"
#include "src/model_files/adapters/adapter_files.h"
#include "src/model_files/hugging_face/config_files.h"
#include "src/model_files/hugging_face/file_layout.h"
#include "src/model_files/hugging_face/module_weights.h"

namespace hybrid_trainer {

namespace {

std::set<std::string> modules_of_experts(const AdapterContents& contents) {
  std::set<std::string> names;
  for (const auto& [module, rank] : contents.ranks())
    if (expert_of(module) >= 0) names.insert(module.substr(module.rfind('.') + 1));
  return names;
}

/// Returns whether a module is a router. In this program, all-linear excludes routers.
bool is_router(const std::string& module) {
  return module.ends_with(".gate") || module.ends_with("_gate") || module.ends_with(".router") ||
         module.ends_with(".router.layer");
}

/// Returns the family's target for a router's module name from any version of transformers.
std::string router_target(const std::string& module) {
  if (module.ends_with(".router.layer") || module.ends_with(".block_sparse_moe.router"))
    return "router.layer";
  return module.substr(module.rfind('.') + 1);
}

/// Returns the name under which the folder stores a tensor or a router's weight. Returns `name` if
/// no known name is in the folder.
template <class Contains>
std::string name_there(const std::string& name, const Contains& contains) {
  if (contains(name)) return name;
  constexpr std::pair<std::string_view, const char*> kOthers[] = {
      {".block_sparse_moe.gate.", ".mlp.gate."}, {".router.layer.", ".router."}};
  for (const auto& [here, there] : kOthers) {
    const std::size_t at = name.find(here);
    if (at == std::string::npos) continue;
    const std::string other = name.substr(0, at) + there + name.substr(at + here.size());
    if (contains(other)) return other;
  }
  return name;
}

std::string name_there(const AdapterTensor& tensor, const AdapterContents& contents) {
  return name_there(tensor.name,
                    [&](const std::string& name) { return contents.file().contains(name); });
}

std::string targets_of(const AdapterContents& contents) {
  const AdapterConfig& config = contents.config();
  const bool has_router =
      std::ranges::any_of(contents.ranks(), [](const auto& one) { return is_router(one.first); });
  if (config.all_linear && config.excluded.are_none() && !has_router) return kAllLinear;
  const bool are_names = !config.all_linear && !config.targets.pattern &&
                         !config.uses_outer_names && !config.uses_vit_5_names &&
                         config.excluded.are_none() && config.layers.empty();
  const bool has_experts = !modules_of_experts(contents).empty();
  std::set<std::string> names;
  for (const auto& [module, rank] : contents.ranks()) {
    if (expert_of(module) >= 0) continue;
    const std::string name =
        are_names && !has_experts && !is_router(module) ? config.targets.name_of(module) : "";
    names.insert(is_router(module) ? router_target(module) : name.empty() ? module : name);
  }
  if (has_experts || !contents.fused().empty()) names.insert(kExpertTargets);
  return join({names.begin(), names.end()}, ",");
}

/// Combines all adapters into one config: the largest ranks, and the folder's common scale.
LoraConfig config_of(const AdapterContents& contents) {
  const AdapterConfig& said = contents.config();
  if (contents.ranks().empty() && contents.fused().empty())
    return {.rank = 0};  // only head and embeddings
  LoraConfig config{.rank = said.rank,
                    .alpha = said.alpha,
                    .dropout = said.dropout,
                    .targets = targets_of(contents),
                    .variant = said.variant};
  for (const auto& [module, rank] : contents.ranks()) {
    std::int64_t& most = expert_of(module) >= 0 ? config.expert_rank : config.rank;
    most = std::max(most, rank);
  }
  for (const auto& [module, rank] : contents.fused())
    config.expert_rank = std::max(config.expert_rank, rank);
  const double share = static_cast<double>(config.rank) / static_cast<double>(said.rank);
  config.alpha *= has_root_scale(said.variant) ? std::sqrt(share) : share;
  std::vector<std::string> problems;
  collect_range_problems(config, "", problems);
  if (!problems.empty())
    throw DataError(concat(contents.file().path(), ": ", join(problems, "; ")));
  return config;
}

/// A or B in the folder, and the scale of its B·A.
struct FolderMatrix {
  Tensor values;
  double scale;
};

FolderMatrix matrix_of(const AdapterTensor& tensor, const AdapterContents& contents) {
  if (const std::string fused = fused_module_of(tensor, contents); !fused.empty())
    return {read_expert(tensor, fused, contents), contents.scale_of_fused(fused)};
  const std::int64_t rank = contents.config().rank_of(tensor.module);
  const bool is_b = tensor.matrix == AdapterTensor::Matrix::kB;
  const Shape there = is_b ? Shape{tensor.rows, rank} : Shape{rank, tensor.parameter->shape()[1]};
  return {contents.load(name_there(tensor, contents), there),
          contents.config().scale_of(tensor.module)};
}

/// Returns whether the folder has no adapter for the expert's map or router of this tensor.
bool is_absent(const AdapterTensor& tensor, const AdapterContents& contents) {
  if (tensor.experts == 1 && !is_router(tensor.module)) return false;
  const bool is_present =
      !tensor.is_fused && contents.file().contains(name_there(tensor, contents));
  return !is_present && fused_module_of(tensor, contents).empty();
}

/// Returns the folder's tensor, padded with zeros to the model's rank; zeros if it is_absent.
Tensor values_of(const AdapterTensor& tensor, const AdapterContents& contents) {
  using Matrix = AdapterTensor::Matrix;
  if (tensor.matrix == Matrix::kMagnitudes)
    return reordered(contents.load(tensor.name, {tensor.rows}), tensor.order, TargetOrder::kHere);
  const std::int64_t columns = tensor.parameter->shape()[1];
  const Tensor values =
      Tensor::zeros({tensor.rows, columns}, DType::kF32, MemoryKind::kWorkspace, host_stream());
  if (is_absent(tensor, contents)) return values;
  const FolderMatrix read = matrix_of(tensor, contents);
  const double scale = tensor.matrix == Matrix::kB ? read.scale / tensor.scale : 1;
  const std::int64_t width = read.values.size(1);
  for (std::int64_t row = 0; row < read.values.size(0); ++row) {
    const float* const from = read.values.data<float>() + row * width;
    std::transform(from, from + width, values.data<float>() + row * columns,
                   [&](float value) { return value * static_cast<float>(scale); });
  }
  return reordered(values, tensor.order, TargetOrder::kHere);
}

/// Throws DataError if the adapter belongs to a model with a different number of experts.
void check_experts(Network& network, const ModelConfig& model, const AdapterContents& contents) {
  std::int64_t there = 0;
  bool are_all = !contents.config().all_linear;
  for (const auto& [module, rank] : contents.ranks())
    there = std::max(there, expert_of(module) + 1);
  const std::int64_t here = model.experts.count;
  if (there == 0 || there == here) return;
  network.visit_linears([&](Linear& linear) {
    if (linear.adapter() == nullptr) return;
    for (const AdapterPart& part : linear.adapter()->parts())
      are_all = are_all && (expert_of(part.name) < there || contents.config().is_target(part.name));
  });
  if (there < here && !are_all) return;  // experts without an adapter were not targeted
  throw DataError(concat(contents.file().path(), ": has adapters of ", there,
                         " experts, but the model has ", here,
                         " in each layer; the adapter belongs to another base"));
}

/// Removes the adapters of linear maps that the folder replaces (modules_to_save) and of modules
/// after pooling, because PEFT does not add adapters to them.
void drop_replaced(Network& model, const AdapterContents& contents) {
  const std::set<std::string> replaced = contents.extra_weights();
  model.visit_linears([&](Linear& linear) {
    if (linear.adapter() == nullptr) return;
    const bool has_none = std::ranges::all_of(linear.adapter()->parts(), [&](const auto& part) {
      return replaced.contains(part.name + ".weight") && !contents.ranks().contains(part.name);
    });
    if (has_none || is_of_module(linear.weight())) linear.drop_adapter();
  });
}

void require_all_tensors(Network& model, const AdapterContents& contents,
                         const HuggingFaceLayout& layout) {
  const std::set<std::string> of_experts = modules_of_experts(contents),
                              replaced = contents.extra_weights();
  model.visit_linears([&](Linear& linear) {
    const Role role = linear.weight().role();
    // all-linear includes such maps only in some versions of PEFT and transformers.
    const bool may_lack = contents.config().all_linear && role != Role::kMatrix;
    const bool is_expert = role == Role::kExpert;
    if (may_lack || is_of_module(linear.weight())) return;
    if (is_expert && !contents.fused().empty()) return;
    for (const AdapterPart& part : modules_of(linear, layout)) {
      if (is_expert && part.experts > 1) continue;  // PEFT does not support such modules
      const bool is_dense_counterpart =             // PEFT loses adapters of dense layers
          !is_expert && of_experts.contains(part.name.substr(part.name.rfind('.') + 1));
      if (contents.config().is_target(part.name) && !contents.ranks().contains(part.name) &&
          !is_dense_counterpart && !replaced.contains(part.name + ".weight"))
        contents.file().entry(concat(kAdapterPrefix, part.name, ".lora_A.weight"));  // throws
    }
  });
}

/// Calls take(parameter, values) for the weights that the folder changes without an adapter.
void read_extra_weights(const AdapterContents& contents, Network& network, const ModelConfig& model,
                        const HuggingFaceLayout& layout, const Stream& stream,
                        const ValuesCallback& take) {
  std::set<std::string> left = contents.extra_weights();
  network.visit_parameters([&](Parameter& parameter) {
    if (belongs_to_adapter(parameter)) return;
    Tensor values;
    std::int64_t row = 0;
    for (const FileTensor& part : parameter.in_files()) {
      const std::string name = layout.full_name(part);
      const std::int64_t begin = std::exchange(row, row + part.rows());
      const std::string in_folder =
          name_there(name, [&](const std::string& one) { return left.contains(one); });
      if (left.erase(in_folder) == 0) continue;
      if (!values) {
        values = host_tensor(parameter.shape());
        wait_for_copy(values, parameter.acquire_master(stream), stream);
      }
      const Tensor in_file = in_file_layout(values.rows(begin, row), part);
      contents.change(in_folder, in_file);
      if (in_file.raw() != values.rows(begin, row).raw())
        take_from_file(values.rows(begin, row), in_file, part);
    }
    if (values) take(parameter, values);
  });
  left.erase(layout.tied_head.empty() || !model.tied_head ? "" : "lm_head.weight");
  if (left.empty()) return;
  throw DataError(concat(contents.file().path(), ": the weight ", left.begin()->substr(0, 200),
                         " does not belong to the adapter's base"));
}

}  // namespace

/// Reads kAdapterLabels, if it exists. Throws DataError unless it names all classes from 0 on.
static void read_labels_of(const fs::path& file, AdapterFolder& adapter) {
  if (!fs::exists(file)) return;
  json::object names = python_object_in(file.parent_path(), file.filename().string());
  if (const json::value* type = names.if_contains(kProblemType);
      type != nullptr && type->is_string()) {
    adapter.problem_type = type->get_string();
    names.erase(kProblemType);
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    const json::value* const name = names.if_contains(std::to_string(i));
    if (name == nullptr || !name->is_string())
      throw DataError(concat(file.string(), ": want a name for each of 0 to ", names.size() - 1));
    adapter.labels.push_back({std::string(name->get_string())});
  }
}

AdapterFolder read_adapter_config(const fs::path& folder) {
  const std::string others = adapters_hint(folder);
  if (!others.empty() && !holds_adapter(folder))
    throw MissingInput(concat(folder.string(), ": does not contain an adapter", others));
  const AdapterContents contents(folder);
  if (!others.empty()) warn(folder.string(), "only the folder's own adapter is read" + others);
  const std::set<std::string> beside = contents.extra_weights();
  warn_of_unknown_keys((folder / kAdapterConfig).string(), contents.config().unknown);
  AdapterFolder adapter{.config = config_of(contents),
                        .base = contents.config().base,
                        .task = contents.config().task,
                        .extra_weights = {beside.begin(), beside.end()},
                        .unties_head = contents.unties_head(),
                        .vocabulary = contents.vocabulary(),
                        .extra_weight_rows = contents.extra_weight_rows()};
  read_labels_of(folder / kAdapterLabels, adapter);
  return adapter;
}

std::int64_t AdapterFolder::classes_of(const std::string& classifier) const {
  const auto rows = extra_weight_rows.find(classifier + "weight");
  return classifier.empty() || rows == extra_weight_rows.end() ? 0 : rows->second;
}

/// Reads the linear layers after pooling that the folder has.
static void read_modules(const fs::path& folder, Network& network, const Stream& stream,
                         const ValuesCallback& take) {
  network.visit_parameters([&](Parameter& parameter) {
    if (!is_of_module(parameter) || !holds_module(folder, parameter)) return;
    read_module_weight(folder, parameter, [&](const FolderWeight& weight) {
      if (take) return take(parameter, weight.values());
      wait_for_copy(parameter.master_in_place(), weight.values(), stream);
    });
  });
}

void read_adapter_weights(const fs::path& folder, Network& network, const ModelConfig& given,
                          const Stream& stream, const ModelRegistry& registry,
                          const ValuesCallback& take) {
  const ModelConfig model = resolved_model_config(given, registry);
  const AdapterContents contents(folder);
  const HuggingFaceLayout layout = layout_of(model, registry);
  drop_replaced(network, contents);
  check_experts(network, model, contents);
  require_all_tensors(network, contents, layout);
  const auto beside = contents.extra_weights();
  if (!take && !beside.empty()) {
    throw DataError(
        concat(folder.string(), ": the adapter also changes ", *beside.begin(),
               ", a weight trained without an adapter, which --adapter does not support; merge the "
               "adapter into its base and train the result: hybrid export ",
               shell_path(folder), " --merge --output MERGED"));
  }
  if (!beside.empty()) read_extra_weights(contents, network, model, layout, stream, take);
  read_modules(folder, network, stream, take);
  std::set<std::string> wanted;
  for (const AdapterTensor& tensor : tensors_of_adapters(network, model.experts.count)) {
    wanted.insert(name_there(tensor, contents));
    if (const std::string fused = fused_module_of(tensor, contents); !fused.empty())
      for (const char* matrix : {"A", "B"})
        wanted.insert(concat(kAdapterPrefix, fused, ".lora_", matrix, ".weight"));
    wait_for_copy(
        tensor.parameter->master_in_place().rows(tensor.first_row, tensor.first_row + tensor.rows),
        values_of(tensor, contents), stream);
  }
  for (const SafetensorsEntry& entry : contents.file().entries()) {
    if (wanted.contains(entry.name) || contents.is_extra_weight(entry.name)) continue;
    throw DataError(concat(contents.file().path(), ": the tensor ", entry.name.substr(0, 200),
                           " does not belong to an adapter that ", kAdapterConfig, " describes"));
  }
}

}  // namespace hybrid_trainer
