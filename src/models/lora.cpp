#include "hybrid_trainer/models/lora.h"

#include <map>
#include <set>

#include "src/core/messages.h"

namespace hybrid_trainer {

namespace {

/// Suffix of a module's matrix. A matrix of all experts may not have it.
constexpr std::string_view kWeight = ".weight";

/// Returns whether a target selects a module, as in PEFT: by its name, or its end after a dot.
bool names(const std::string& target, const std::string& module) {
  return target == module || module.ends_with("." + target);
}

/// Returns the layer index in a module's name; empty if there is none.
std::string layer_of(const std::string& module) {
  for (std::size_t dot = module.find('.'); dot != std::string::npos;
       dot = module.find('.', dot + 1)) {
    const std::size_t end = module.find_first_not_of("0123456789", dot + 1);
    if (end != std::string::npos && end > dot + 1 && module[end] == '.')
      return module.substr(dot + 1, end - dot - 1);
  }
  return "";
}

class TargetModules {
 public:
  explicit TargetModules(const LoraConfig& config)
      : all_(config.targets == kAllLinear), targets_(config.target_names()) {}

  bool include(const std::string& module, Role role) {
    known_.insert(module.substr(module.rfind('.') + 1));
    if (role == Role::kExpert) known_.insert(kExpertTargets);
    bool included = all_ && role != Role::kRouter;
    for (const std::string& target : targets_) {
      const bool are_experts = target == kExpertTargets && role == Role::kExpert;
      if (!are_experts && !names(target, module)) continue;
      layers_[target].insert(layer_of(module));
      included = true;
    }
    return included;
  }

  /// Reports each target that matches only in some of the layers.
  void warn_of_parts(std::int64_t layers) const {
    for (const auto& [target, found] : layers_) {
      if (found.contains("") || std::ssize(found) >= layers || found.size() == 1) continue;
      warn("lora.targets", concat(target, " names modules in ", found.size(), " of ", layers,
                                  " layers; other layers have no adapter of this name"));
    }
  }

  void require_all_used() const {
    const std::vector<std::string> known(known_.begin(), known_.end());
    if (!all_ && targets_.empty())
      throw ConfigError(
          {concat("lora.targets: got none, want ", kAllLinear, " or some of ", join(known))});
    std::vector<std::string> problems;
    for (const std::string& target : targets_) {
      if (all_ || layers_.contains(target)) continue;
      problems.push_back(concat("lora.targets: got ", target,
                                ", which is not the name of a linear layer of the model; want ",
                                kAllLinear, " or names of its layers", name_hint(target, known)));
    }
    if (!problems.empty()) throw ConfigError(std::move(problems));
  }

 private:
  bool all_;
  std::vector<std::string> targets_;
  std::set<std::string> known_;
  std::map<std::string, std::set<std::string>> layers_;  // by target, layers with a matching module
};

[[noreturn]] void refuse_decomposed_experts(const LoraConfig& config) {
  throw ConfigError({concat("lora.variant: got ", config.variant,
                            ", but adapters of experts have no row magnitudes; want lora or "
                            "rslora, or lora.targets without experts, such as q_proj,v_proj")});
}

}  // namespace

KeyNeed adapters_required() {
  return KeyNeed::of({"lora.rank", "parts[].lora"}, {"0"},
                     "lora.rank is 0, which trains the weights themselves",
                     KeyTest::Kind::kIsNoneOf);
}

KeyNeed frozen_weights_required() {
  KeyNeed need = adapters_required();
  need.any_of.push_back({"parts[].base", KeyTest::Kind::kIsNoneOf, {""}});
  return need;
}

const std::vector<std::string>& frozen_base_names() {
  static const std::vector<std::string> all{"fp32", "bf16",  "int8",   "fp4",
                                            "nf4",  "mxfp4", kFileBase};
  return all;
}

bool is_quantized_base(const std::string& name) { return name != "fp32" && name != "bf16"; }

bool has_root_scale(const std::string& variant) {
  return variant == "rslora" || variant == "rsdora";
}

bool is_decomposed(const std::string& variant) { return variant == "dora" || variant == "rsdora"; }

std::int64_t LoraConfig::rank_of_experts(std::int64_t chosen, std::int64_t count) const {
  return expert_rank > 0 ? expert_rank : (rank * chosen + count - 1) / count;
}

double LoraConfig::scale_of(std::int64_t of_rank) const {
  const auto r = static_cast<double>(of_rank);
  return has_root_scale(variant) ? alpha / std::sqrt(r) : alpha / r;
}

std::vector<std::string> LoraConfig::target_names() const {
  std::vector<std::string> names;
  std::istringstream in(targets);
  for (std::string name; std::getline(in, name, ',');) names.push_back(name);
  return names;
}

std::vector<AdapterPart> modules_of(Linear& linear, const HuggingFaceLayout& layout) {
  std::vector<AdapterPart> modules;
  std::int64_t row = 0;
  for (const FileTensor& tensor : linear.weight().in_files()) {
    std::string name = layout.full_name(tensor);
    if (name.ends_with(kWeight)) name.resize(name.size() - kWeight.size());
    modules.push_back(
        {name, row, tensor.rows(), tensor.transposed, tensor.order, tensor.part, tensor.parts});
    row += tensor.rows();
  }
  return modules;
}

void add_adapters(Network& network, const ModelConfig& given, const LoraConfig& config,
                  std::uint64_t seed, const Stream& stream, const ModelRegistry& registry,
                  const RankOfWeight& rank_of) {
  const ModelConfig model = resolved_model_config(given, registry);
  const HuggingFaceLayout layout = layout_of(model, registry);
  TargetModules targets(config);
  const ExpertConfig& experts = model.experts;
  AdapterSpec spec{.dropout = config.dropout,
                   .decomposed = is_decomposed(config.variant),
                   .site = std::uint64_t{1} << 32};
  network.visit_linears([&](Linear& linear) {
    const Role role = linear.weight().role();
    const auto own = rank_of ? rank_of(linear.weight()) : std::nullopt;
    const std::int64_t rank = own.value_or(config.rank);
    if (rank == 0) return;
    std::vector<AdapterPart> parts;
    for (AdapterPart& module : modules_of(linear, layout)) {
      if (targets.include(module.name, role)) parts.push_back(std::move(module));
    }
    if (parts.empty()) return;
    if (role == Role::kExpert && spec.decomposed) refuse_decomposed_experts(config);
    spec.rank = role == Role::kExpert && !own
                    ? config.rank_of_experts(experts.chosen, experts.count)
                    : rank;
    spec.scale = config.scale_of(spec.rank);
    ++spec.site;
    linear.set_adapter(std::move(parts), spec, stream);
    Parameter& a = linear.adapter()->a();
    if (spec.decomposed) linear.adapter()->start_magnitudes(linear.weight(), stream);
    initialize_uniform(a, 1 / std::sqrt(static_cast<double>(a.shape()[1])), seed, stream);
  });
  targets.require_all_used();
  targets.warn_of_parts(model.layers);
}

void merge_adapters(Network& network, const Stream& stream) {
  network.visit_linears([&](Linear& linear) {
    if (linear.adapter() == nullptr) return;
    const Tensor values =
        Tensor::empty(linear.weight().shape(), DType::kF32, MemoryKind::kParameters, stream);
    copy(values, linear.weight().acquire_master(stream), stream);
    linear.adapter()->merge_into(values, stream);
    linear.weight().set_storage(std::make_unique<ResidentWeight>(values));
    linear.drop_adapter();
  });
}

}  // namespace hybrid_trainer
