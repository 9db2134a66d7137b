#include "hybrid_trainer/models/model_family.h"

#include <algorithm>
#include <sstream>

#include "src/core/masked_batch.h"
#include "src/models/families/families.h"

namespace hybrid_trainer {

Batch LanguageModel::empty_batch(const BatchForm& form, const Stream& stream) const {
  const Shape places{form.examples, form.sequence_length};
  if (form.texts && config().pooling.empty())
    return empty_masked_batch(places, form.texts->numbers, stream);
  if (form.texts)
    return empty_text_batch({.sequences = form.examples,
                             .sequence_length = form.sequence_length,
                             .has_types = config().token_types > 1,
                             .has_classes = form.texts->are_classes,
                             .labels = form.texts->numbers},
                            stream);
  return with_sources(form.is_rows ? empty_row_batch(places, form.has_pairs, stream)
                                   : empty_token_batch(places, false, stream),
                      stream);
}

Tensor LanguageModel::text_outputs(const Batch&, const Pass&, const Stream&) {
  throw UsageError(concat("models of family ", config().family,
                          " have no outputs for whole texts (model.pooling)"));
}

namespace {

/// Copies context and rope_scaling if they are in `keys`. The default of the original context is
/// the context of `model`.
void take_positions(ModelConfig& model, const ModelConfig& requested,
                    const std::vector<std::string>& keys) {
  const auto is_set = [&](const std::string& key) {
    return std::ranges::any_of(
        keys, [&](const std::string& set) { return set == key || set.starts_with(key + "."); });
  };
  constexpr const char *kContext = "model.context", *kScaling = "model.rope_scaling";
  if (!is_set(kContext) && !is_set(kScaling)) return;
  if (!find_family(model.family).has("rope_scaling"))
    throw ConfigError(
        {concat(is_set(kContext) ? kContext : kScaling, ": the positions of a ", model.family,
                " model are not rotary, so its context stays ", model.context, "; leave it out")});
  if (is_set(kScaling)) {
    const double query_growth = model.rope_scaling.query_growth;  // config.json has no key for it
    model.rope_scaling = requested.rope_scaling;
    model.rope_scaling.query_growth = query_growth;
  }
  if (model.rope_scaling.original_context == 0 && model.rope_scaling.type != "default" &&
      model.rope_scaling.type != "linear")
    model.rope_scaling.original_context = model.context;
  if (is_set(kContext)) model.context = requested.context;
}

template <FieldStruct T>
void add_texts(const T& config, const std::string& group,
               std::vector<std::pair<std::string, std::string>>& texts) {
  T::visit_fields(config, [&]<class Value>(const Field<Value>& field) {
    if constexpr (FieldStruct<std::remove_const_t<Value>>) {
      add_texts(field.value, field.name + std::string("."), texts);
    } else if constexpr (kIsFieldStructList<std::remove_const_t<Value>>) {
      std::vector<std::pair<std::string, std::string>> of_elements;
      for (const auto& element : field.value) add_texts(element, "", of_elements);
      std::vector<std::string> values;
      for (const auto& [key, value] : of_elements) values.push_back(value);
      texts.emplace_back(group + field.name, join(values));
    } else if constexpr (kIsOptional<std::remove_const_t<Value>>) {
      texts.emplace_back(group + field.name, concat(field.value.value_or(0)));
    } else if constexpr (std::is_same_v<std::remove_const_t<Value>, bool>) {
      texts.emplace_back(group + field.name, field.value ? "true" : "false");
    } else if constexpr (std::is_same_v<std::remove_const_t<Value>, std::vector<double>>) {
      std::vector<std::string> numbers;
      for (const double number : field.value) numbers.push_back(concat(number));
      texts.emplace_back(group + field.name, join(numbers));
    } else {
      texts.emplace_back(group + field.name, concat(field.value));
    }
  });
}

}  // namespace

const std::vector<LetterWord>& mixer_letters() {
  static const std::vector<LetterWord> letters{{'a', "attention"},
                                               {'c', "convolved_attention"},
                                               {'m', "mamba2"},
                                               {'d', "gated_deltanet"},
                                               {'s', "short_convolution"},
                                               {'t', "semiseparable"},
                                               {'p', "semiseparable_by_position"},
                                               {'h', "hydra"},
                                               {'b', "bk_core"}};
  return letters;
}

std::vector<LetterWord> window_letters(std::string_view letters) {
  static const std::vector<LetterWord> all{{'w', "sliding_attention"},
                                           {'a', "full_attention"},
                                           {'v', "sliding_attention_without_rotation"},
                                           {'n', "full_attention_without_rotation"}};
  std::vector<LetterWord> found;
  std::ranges::copy_if(all, std::back_inserter(found), [&](const LetterWord& one) {
    return letters.find(one.letter) != letters.npos;
  });
  return found;
}

const std::vector<LetterWord>& expert_letters() {
  static const std::vector<LetterWord> letters{{'e', "experts"}, {'f', "feed_forward"}};
  return letters;
}

ModelConfig with_layers(ModelConfig config, std::int64_t layers) {
  config.layers = layers;
  return config;
}

bool ModelFamily::has(std::string_view key) const {
  constexpr std::string_view kOfAll[] = {"family", "layers", "width", "context", "vocabulary"};
  constexpr std::string_view kOfTexts[] = {"pooling", "dense", "labels", "problem_type",
                                           "language_head"};
  return std::ranges::count(kOfAll, key) > 0 || std::ranges::count(keys, key) > 0 ||
         (is_language_model && std::ranges::count(kOfTexts, key) > 0);
}

KeyOwner ModelConfig::owner_of(std::string_view key) const {
  const ModelRegistry& families = model_families();
  const auto own = std::ranges::find(families, family, &ModelFamily::name);
  if (own == families.end() || own->has(key)) return KeyOwner::kOwn;
  const bool is_related_family =
      own->is_language_model && std::ranges::any_of(families, [&](const ModelFamily& other) {
        return other.is_language_model && other.has(key);
      });
  return is_related_family ? KeyOwner::kRelated : KeyOwner::kOther;
}

std::vector<DenseLayer> ModelConfig::dense_layers() const {
  std::vector<DenseLayer> layers;
  std::istringstream text(dense);
  for (std::string part; std::getline(text, part, ',');) {
    std::istringstream words(part);
    DenseLayer& layer = layers.emplace_back();
    if (!(words >> layer.outputs)) layer.outputs = 0;
    for (std::string word; words >> word;) {
      if (word == "bias") {
        layer.has_bias = true;
      } else if (word == "tanh" || word == "gelu") {
        layer.activation = word;
      } else {
        layer.outputs = 0;
      }
    }
  }
  return layers;
}

std::string text_of(const std::vector<DenseLayer>& layers) {
  std::string text;
  for (const DenseLayer& layer : layers) {
    text += concat(text.empty() ? "" : ",", layer.outputs, layer.has_bias ? " bias" : "");
    if (layer.activation != "identity") text += " " + layer.activation;
  }
  return text;
}

std::int64_t ModelConfig::embedding_width() const {
  return dense.empty() ? width : dense_layers().back().outputs;
}

ModelConfig with_training_of(ModelConfig model, const ModelConfig& requested,
                             const std::vector<std::string>& keys) {
  // A value of 0 in the config of another family may mean a different default.
  const bool is_same_family = requested.family == model.family;
  const auto take = [&](double& here, double there) {
    if (is_same_family || there > 0) here = there;
  };
  model.dropout = requested.dropout;
  model.encoder.source_length = requested.encoder.source_length;
  model.pooling = requested.pooling;
  model.dense = requested.dense;
  model.labels = requested.labels;
  model.problem_type = requested.problem_type;
  model.language_head = model.language_head && requested.language_head;
  take(model.experts.balance_loss, requested.experts.balance_loss);
  take(model.experts.z_loss, requested.experts.z_loss);
  take(model.experts.bias_rate, requested.experts.bias_rate);
  if (is_same_family || requested.attention_pattern.is_on())
    model.attention_pattern = requested.attention_pattern;
  take_positions(model, requested, keys);
  return model;
}

std::vector<std::pair<std::string, std::string>> texts_of_keys(const ModelConfig& config) {
  std::vector<std::pair<std::string, std::string>> texts;
  add_texts(config, "", texts);
  return texts;
}

const ModelRegistry& model_families() {
  static const ModelRegistry families{
      gpt2_family(),           llama_family(),       mistral_family(),    qwen2_family(),
      qwen3_family(),          gemma2_family(),      gemma3_family(),     mamba2_family(),
      granite_hybrid_family(), bamba_family(),       qwen3_next_family(), qwen3_5_family(),
      semiseparable_family(),  mixtral_family(),     qwen2_moe_family(),  qwen3_moe_family(),
      olmoe_family(),          granite_moe_family(), gpt_oss_family(),    granite_family(),
      olmo2_family(),          olmo3_family(),       glm4_family(),       smollm3_family(),
      phi3_family(),           exaone4_family(),     whisper_family(),    vit_family(),
      bart_family(),           bert_family(),        distilbert_family(), roberta_family(),
      xlm_roberta_family(),    modernbert_family(),  trident_family(),    series_family(),
      qwen3_5_moe_family(),    lfm2_family(),        lfm2_moe_family(),   ministral3_family(),
      gemma4_family(),
  };
  return families;
}

const ModelFamily& find_family(const std::string& name, const ModelRegistry& registry) {
  return named_row(registry, "model.family", name);
}

std::string HuggingFaceLayout::carried_name(const std::string& name) const {
  for (const std::string& begin : carried)
    for (const std::size_t at : {std::size_t{0}, name.find('.') + 1})
      if (name.substr(at).starts_with(begin)) return name.substr(at);
  return "";
}

HuggingFaceLayout HuggingFaceLayout::with_prefix(const std::string& found) const {
  HuggingFaceLayout layout = *this;
  if (!outer.older.empty() && found == outer.older + prefix) layout.head_prefix = outer.older;
  layout.prefix = found;
  return layout;
}

HuggingFaceLayout HuggingFaceLayout::with_unused(const ModelConfig& config) const {
  HuggingFaceLayout layout = *this;
  if (unused != nullptr)
    for (std::string& name : unused(config)) layout.carried.push_back(std::move(name));
  return layout;
}

HuggingFaceLayout layout_of(const ModelConfig& model, const ModelRegistry& registry) {
  HuggingFaceLayout layout = find_family(model.family, registry).hugging_face.with_unused(model);
  if (model.language_head || layout.architecture.empty()) return layout;
  std::string& name = layout.architecture;  // "BertForMaskedLM", "GPT2LMHeadModel"
  name = name.substr(0, std::min(name.find("For"), name.find("LMHead")));
  if (layout.model_type.ends_with("_text")) name += "Text";  // without "Text": with images
  if (!model.pooling.empty() && !model.labels.empty()) {
    name += "ForSequenceClassification";
    std::erase(layout.carried, "pooler.");  // a part of the class head
    return layout;
  }
  name += "Model";
  layout.prefix.clear();
  return layout;
}

ModelConfig resolved_model_config(const ModelConfig& config, const ModelRegistry& registry) {
  const ModelFamily& family = find_family(config.family, registry);
  return !family.resolved ? config : family.resolved(config);
}

std::unique_ptr<Network> make_network(const ModelConfig& config, std::uint64_t seed,
                                      const Stream& stream, const ModelRegistry& registry) {
  std::vector<std::string> problems;
  collect_range_problems(config, "model", problems);
  collect_model_problems(config, problems, registry);
  const auto family = std::ranges::find(registry, config.family, &ModelFamily::name);
  if (config.vocabulary == 0 && family != registry.end() && family->is_language_model)
    problems.emplace_back("model.vocabulary: got 0, want at least 1");
  if (!problems.empty()) throw ConfigError(problems);
  return find_family(config.family, registry)
      .make(resolved_model_config(config, registry), seed, stream);
}

std::unique_ptr<LanguageModel> make_model(const ModelConfig& config, std::uint64_t seed,
                                          const Stream& stream, const ModelRegistry& registry) {
  std::unique_ptr<Network> network = make_network(config, seed, stream, registry);
  auto* const model = dynamic_cast<LanguageModel*>(network.get());
  if (model == nullptr)
    throw ConfigError({concat("model.family: got ", config.family,
                              ", which is not a language model; want a model that reads text")});
  network.release();
  return std::unique_ptr<LanguageModel>(model);
}

LanguageModel& as_language_model(Network& network, const std::string& family,
                                 const std::string& what) {
  if (auto* const model = dynamic_cast<LanguageModel*>(&network)) return *model;
  throw UsageError(
      concat(family, " is not a language model: ", what,
             " requires a model that reads and writes text; `hybrid eval` measures this model"));
}

void collect_model_problems(const ModelConfig& config, std::vector<std::string>& problems,
                            const ModelRegistry& registry) {
  if (registry.empty()) return;
  const auto family = std::ranges::find(registry, config.family, &ModelFamily::name);
  if (family == registry.end()) {
    problems.push_back(choice_problem("model.family", config.family, names_of(registry)));
    return;
  }
  const auto given = texts_of_keys(config), defaults = texts_of_keys(ModelConfig{});
  for (std::size_t i = 0; i < given.size(); ++i) {
    const auto& [key, value] = given[i];
    if (value == defaults[i].second || family->has(key.substr(0, key.find('.')))) continue;
    if (key.starts_with("rope_scaling.") && config.rope_scaling.type == "default")
      continue;  // inert
    problems.push_back(concat("model.", key, ": got ", value, ", but the family ", family->name,
                              " has no such key; leave it out"));
  }
  family->collect_problems(config, problems);
}

}  // namespace hybrid_trainer
