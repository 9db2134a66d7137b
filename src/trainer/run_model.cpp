#include "src/trainer/run_model.h"

#include "hybrid_trainer/nn/text_head.h"
#include "memory/quantized_weight.h"
#include "src/core/messages.h"
#include "src/model_files/gguf/gguf_model.h"
#include "src/model_files/hugging_face/hugging_face.h"

namespace hybrid_trainer {

namespace {

std::unique_ptr<QuantizedWeight> quantized(const Tensor& values, const std::string& form,
                                           const std::vector<FileTensor>& parts,
                                           const Stream& home) {
  std::vector<QuantizedRows> quantized;
  std::int64_t row = 0;
  for (const FileTensor& part : parts) {
    quantized.push_back(quantize_rows(values.rows(row, row + part.rows()), form, home));
    row += part.rows();
  }
  return std::make_unique<QuantizedWeight>(values.shape(), std::move(quantized));
}

/// Stores the weight in the blocks of a GGUF file, or in f32 if the file has none.
void store_as_in_file(Parameter& parameter, const FolderWeight& weight, const Stream& home) {
  if (!weight.is_quantized())
    return store_frozen(parameter,
                        home.device().simulated ? parameter.master_in_place() : weight.values(),
                        "fp32", home);
  const MemoryLabel label(parameter.name());
  parameter.freeze();
  parameter.set_storage(
      std::make_unique<QuantizedWeight>(parameter.shape(), weight.quantized(home)));
}

/// Formats and adapters of a model's weights. They are set by `lora`, and `parts` takes precedence.
class PartWeights {
 public:
  /// With lora.rank, training for a text-level task trains the class head in full, unless `parts`
  /// has settings for it. Folders opened without training have the default objective, so their head
  /// stays frozen.
  PartWeights(const HybridTrainerConfig& config, Network& network)
      : lora_(config.lora),
        parts_(config.parts),
        full_head_(config.objective == "next_token" ? nullptr : network.text_head()) {}

  /// Returns the frozen format of a weight, named as in lora.base, or nullopt if it is trained.
  std::optional<std::string> form_of(const Parameter& weight) const;
  std::optional<std::int64_t> rank_of(const Parameter& weight) const;
  std::vector<std::string> forms() const;

  /// Throws ConfigError, with all problems, if a pattern matches no weight (for lora, no linear
  /// map), or if two patterns match the same weight.
  void check(Network& network) const;

 private:
  const PartConfig* part_of(const std::string& weight) const;
  bool is_of_full_head(const Parameter& weight) const {
    return full_head_ != nullptr && full_head_->owns(weight);
  }
  LoraConfig lora_;
  std::vector<PartConfig> parts_;
  const TextHead* full_head_;  // or null
};

std::string some_of(const std::vector<std::string>& names) {
  if (names.empty()) return "it has none";
  return concat("their names are, for example, ", names.front(), " and ", names[names.size() / 2]);
}

bool concerns_weights(const PartConfig& part) {
  return part.lora || part.base || part.place || part.has_optimizer();
}

std::vector<std::string> names_of_weights(Network& network) {
  std::vector<std::string> names;
  network.visit_parameters([&](Parameter& parameter) { names.push_back(parameter.name()); });
  return names;
}

std::vector<std::string> names_of_linears(Network& network) {
  std::vector<std::string> names;
  network.visit_linears([&](Linear& linear) { names.push_back(linear.weight().name()); });
  return names;
}

bool matches_any(const std::vector<std::string>& names, const std::string& pattern) {
  return std::ranges::any_of(names, [&](auto& name) { return matches_pattern(name, pattern); });
}

/// Collects one weight for each pair of patterns that match the same weight.
void collect_double_matches(const std::vector<PartConfig>& parts,
                            const std::vector<std::string>& names,
                            std::vector<std::string>& problems) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (std::size_t k = i + 1; k < parts.size(); ++k) {
      const auto both = std::ranges::find_if(names, [&](const std::string& name) {
        return matches_pattern(name, parts[i].pattern) && matches_pattern(name, parts[k].pattern);
      });
      if (both != names.end())
        problems.push_back(concat("parts: ", parts[i].pattern, " and ", parts[k].pattern,
                                  " both match ", *both, "; want one pattern for each weight"));
    }
  }
}

const PartConfig* PartWeights::part_of(const std::string& weight) const {
  const auto part = std::ranges::find_if(
      parts_, [&](const PartConfig& one) { return matches_pattern(weight, one.pattern); });
  return part == parts_.end() ? nullptr : &*part;
}

std::optional<std::string> PartWeights::form_of(const Parameter& weight) const {
  const PartConfig* const part = part_of(weight.name());
  if (part != nullptr && part->base) return part->base;
  const bool is_trained = !lora_.is_on() || is_of_full_head(weight);
  const bool is_frozen =
      part != nullptr && part->lora ? lora_.is_on() || part->is_adapted() : !is_trained;
  return is_frozen ? std::optional(lora_.base) : std::nullopt;
}

std::optional<std::int64_t> PartWeights::rank_of(const Parameter& weight) const {
  const PartConfig* const part = part_of(weight.name());
  if (part != nullptr && part->lora) return part->lora;
  return lora_.is_on() && !is_of_full_head(weight) ? std::nullopt : std::optional<std::int64_t>(0);
}

std::vector<std::string> PartWeights::forms() const {
  std::vector<std::string> forms{lora_.base};
  for (const PartConfig& part : parts_)
    if (part.base) forms.push_back(*part.base);
  return forms;
}

void PartWeights::check(Network& network) const {
  if (parts_.empty()) return;
  const std::vector<std::string> names = names_of_weights(network),
                                 linears = names_of_linears(network);
  std::vector<std::string> problems;
  for (const PartConfig& part : parts_) {
    if (concerns_weights(part) && !matches_any(names, part.pattern))
      problems.push_back(concat("parts: ", part.pattern,
                                " does not match any of the model's weights; ", some_of(names)));
    else if (part.is_adapted() && !matches_any(linears, part.pattern))
      problems.push_back(
          concat("parts.", part.pattern, ".lora: got ", *part.lora,
                 ", but it does not match any linear layer, and only these support adapters; ",
                 some_of(linears)));
  }
  collect_double_matches(parts_, names, problems);
  if (!problems.empty()) throw ConfigError(std::move(problems));
}

/// Applies `parts` to the computation of the network's parts. Throws ConfigError.
void set_parts(Network& network, const std::vector<PartConfig>& parts) {
  std::vector<PartSettings> settings;
  for (const PartConfig& part : parts) {
    if (!part.computes()) continue;
    PartSettings& own = settings.emplace_back(PartSettings{.pattern = part.pattern});
    own.recompute = part.recompute;
    if (part.precision) own.dtype = *part.precision == "bf16" ? DType::kBF16 : DType::kF32;
  }
  if (!settings.empty()) network.set_parts(settings);
}

using HomeOf = std::function<const Stream&(const Parameter& parameter)>;

/// Stores a trained weight of a partly frozen model, from `values` (f32 on the host, or simulated).
void store_trained(Parameter& parameter, const Tensor& values, const Stream& home) {
  const MemoryLabel label(parameter.name());
  const Tensor master =
      Tensor::empty(parameter.shape(), DType::kF32, MemoryKind::kParameters, home);
  if (!home.device().simulated) wait_for_copy(master, values, home);
  parameter.set_storage(std::make_unique<ResidentWeight>(master));
}

void check_forms(const ModelFolder& folder, const PartWeights& weights) {
  for (const std::string& form : weights.forms())
    if (is_quantized_base(form)) frozen_format(folder, form);  // may throw
}

/// Makes the network with weights in the formats of lora.base and parts, trained ones at `home`.
std::unique_ptr<Network> make_frozen(const HybridTrainerConfig& config,
                                     const std::optional<ModelFolder>& folder, const Stream& home,
                                     const HomeOf& home_of, const ModelRegistry& registry) {
  const auto seed = static_cast<std::uint64_t>(config.training.seed);
  const bool has_values = !folder && !home.device().simulated;
  const Stream first(has_values ? MemoryPool::create("host")
                                : MemoryPool::create("nowhere", {}, simulated_memory({})));
  auto model = make_network(config.model, seed, first, registry);
  if (!folder && config.lora.base == kFileBase) {
    require(!has_values && !config.lora.file.empty(), "lora.base: file requires a GGUF file");
    return make_frozen(config, ModelFolder(config.lora.file), home, home_of, registry);
  }
  const PartWeights weights(config, *model);
  weights.check(*model);
  if (folder) {
    check_forms(*folder, weights);
    const std::string in_folder = quantization_of_hugging_face(*folder);
    const auto take = [&](Parameter& parameter, const FolderWeight& weight) {
      const auto form = weights.form_of(parameter);
      if (!form) return store_trained(parameter, weight.values(), home);
      store_frozen(parameter, weight, *form, in_folder, home_of(parameter));
    };
    const bool replaces = config.lora.replaces_tables;
    read_hugging_face_weights(*folder, *model, config.model, take, registry,
                              replaces ? TokenTables::kReplaced : TokenTables::kRead);
  } else {
    model->visit_parameters([&](Parameter& parameter) {
      const auto form = weights.form_of(parameter);
      if (!form) return store_trained(parameter, parameter.master_in_place(), home);
      store_frozen(parameter, parameter.master_in_place(), *form, home_of(parameter));
    });
  }
  return model;
}

/// Warns about settings that match no weight of the model.
void warn_of_unused(const HybridTrainerConfig& config, const DeviceMap& map, Network& model) {
  const std::vector<std::string> names = names_of_weights(model);
  for (const std::string& pattern : map.unmatched(names))
    warn("memory.device_map",
         concat(pattern, " does not match any weight; their names are, for example, ",
                names[names.size() / 2]));
  if (!config.has_adapters() || config.lora.expert_rank == 0) return;
  bool has_experts = false;
  model.visit_linears([&](Linear& linear) {
    const bool is_expert = linear.weight().role() == Role::kExpert;
    has_experts = has_experts || (is_expert && linear.adapter() != nullptr);
  });
  if (!has_experts)
    warn("lora.expert_rank",
         "has no effect: lora.targets does not select linear layers of experts");
}

void set_preference(const HybridTrainerConfig& config, Network& model) {
  if (!config.prefers()) return;
  if (model.preference() == nullptr)
    throw ConfigError(
        {concat("objective: got ", config.objective, ", but models of family ", config.model.family,
                " do not support a loss over pairs of answers")});
  using Kind = kernels::PreferenceForm::Kind;
  model.preference()->set_form({config.objective == "dpo" ? Kind::kDpo : Kind::kOrpo,
                                static_cast<float>(config.preference_beta)});
}

TextLoss text_loss_of(const HybridTrainerConfig& config) {
  using Kind = TextLoss::Kind;
  const TextTaskConfig& texts = config.texts;
  TextLoss loss{.scale = static_cast<float>(texts.scale), .symmetric = texts.symmetric};
  if (config.objective == "embed") {
    loss.kind = texts.loss == "contrastive" ? Kind::kContrastive
                : texts.loss == "cosent"    ? Kind::kCosent
                                            : Kind::kCosine;
    loss.dimensions = texts.dimension_list();
  } else if (config.objective == "reward") {
    loss.kind = Kind::kReward;
  } else {
    loss.kind = texts.labels == "single"    ? Kind::kClass
                : texts.labels == "several" ? Kind::kLabels
                                            : Kind::kRegression;
  }
  return loss;
}

std::unique_ptr<Network> make_with_homes(const HybridTrainerConfig& config,
                                         const std::optional<ModelFolder>& folder,
                                         const Stream& home, const HomeOf& home_of,
                                         const ModelRegistry& registry) {
  const auto seed = static_cast<std::uint64_t>(config.training.seed);
  std::unique_ptr<Network> model;
  if (config.freezes()) {
    model = make_frozen(config, folder, home, home_of, registry);
  } else {
    model = make_network(config.model, seed, home, registry);
    if (folder) read_hugging_face_weights(*folder, *model, config.model, home, registry);
    PartWeights(config, *model).check(*model);
  }
  if (config.has_adapters()) {
    const PartWeights weights(config, *model);
    add_adapters(*model, config.model, config.lora, seed, home, registry,
                 [&](const Parameter& weight) { return weights.rank_of(weight); });
  }
  set_parts(*model, config.parts);
  set_preference(config, *model);
  set_text_loss(config, *model);
  return model;
}

}  // namespace

void store_frozen(Parameter& parameter, const Tensor& values, const std::string& form,
                  const Stream& home) {
  const MemoryLabel label(parameter.name());
  parameter.freeze();
  if (is_quantized_base(form) && is_matrix(parameter.role()))
    return parameter.set_storage(quantized(values, form, parameter.in_files(), home));
  const bool is_short = form != "fp32" && parameter.role() != Role::kVector;
  parameter.set_storage(
      std::make_unique<FrozenRealWeight>(values, is_short ? DType::kBF16 : DType::kF32, home));
}

void store_frozen(Parameter& parameter, const FolderWeight& weight, const std::string& form,
                  const std::string& form_of_folder, const Stream& home) {
  if (form == kFileBase) return store_as_in_file(parameter, weight, home);
  const bool is_same_format = is_quantized_base(form) && form == form_of_folder;
  if (!is_same_format || !is_matrix(parameter.role()))
    return store_frozen(parameter, weight.values(), form, home);
  if (!weight.is_quantized()) return store_frozen(parameter, weight.values(), "bf16", home);
  const MemoryLabel label(parameter.name());
  parameter.freeze();
  parameter.set_storage(
      std::make_unique<QuantizedWeight>(parameter.shape(), weight.quantized(home)));
}

std::string frozen_format(const ModelFolder& folder, const std::string& asked) {
  if (asked == kFileBase) {
    if (folder.is_gguf()) return asked;
    throw UsageError(concat(folder.string(),
                            " is not a GGUF file, which the format \"file\" requires; want another "
                            "format, such as nf4 or bf16"));
  }
  const std::string held = quantization_of_hugging_face(folder);
  if (held.empty() || held == asked) return asked;
  if (!is_quantized_base(asked)) return held;
  throw DataError(concat(folder.string(), ": its weights are already quantized (", held,
                         "), so they cannot be converted to ", asked, "; want ", held,
                         ", or give the original folder, which is not quantized"));
}

void store_all_frozen(Network& model, const std::string& form, const Stream& stream) {
  model.visit_parameters([&](Parameter& parameter) {
    const Tensor values = wait_for_host(parameter.master_in_place(), stream);
    store_frozen(parameter, values, form, stream);
  });
}

BatchForm batch_form(const HybridTrainerConfig& config, std::int64_t examples) {
  BatchForm form{.examples = examples,
                 .sequence_length = config.data.sequence_length,
                 .is_rows = config.data.is_rows() || config.prefers(),
                 .has_pairs = config.prefers()};
  if (config.pools())
    form.texts = {.are_classes = config.texts.has_class(config.objective),
                  .numbers = config.texts.numbers(config.objective, config.model)};
  if (config.masks())
    form.texts = {.numbers = masked_tokens(config.mask_share, config.data.sequence_length)};
  return form;
}

void set_text_loss(const HybridTrainerConfig& config, Network& model) {
  if (!config.pools()) return;
  if (model.text_head() == nullptr)
    throw ConfigError(
        {concat("model.pooling: got ", config.model.pooling, ", but models of family ",
                config.model.family, " do not support text-level tasks")});
  model.text_head()->set_loss(text_loss_of(config));
}

std::unique_ptr<Network> make_frozen_model(const ModelConfig& model, const ModelFolder& folder,
                                           const LoraConfig& lora, const Stream& stream,
                                           const Stream& home, const ModelRegistry& registry) {
  HybridTrainerConfig config;
  config.model = model;
  config.lora = lora;
  config.lora.rank = 1;  // freezes all weights
  const auto by_role = [&](const Parameter& parameter) -> const Stream& {
    return parameter.role() == Role::kVector ? stream : home;
  };
  return make_frozen(config, folder, stream, by_role, registry);
}

std::unique_ptr<Network> make_run_model(const HybridTrainerConfig& config,
                                        const std::optional<ModelFolder>& folder,
                                        const Stream& home, const ModelRegistry& registry) {
  const auto same = [&](const Parameter&) -> const Stream& { return home; };
  return make_with_homes(config, folder, home, same, registry);
}

std::unique_ptr<Network> make_run_model(const HybridTrainerConfig& config,
                                        const std::optional<ModelFolder>& folder,
                                        MemoryPlaces& places, const ModelRegistry& registry) {
  const DeviceMap map(config.memory);
  const auto by_map = [&](const Parameter& parameter) -> const Stream& {
    return parameter.role() == Role::kVector ? places.device()
                                             : places.at(map.place_of(parameter.name()));
  };
  auto model = make_with_homes(config, folder, places.at(map.farthest()), by_map, registry);
  warn_of_unused(config, map, *model);
  return model;
}

}  // namespace hybrid_trainer
