#include "src/config/config_checks.h"

#include <bit>
#include <cstdlib>
#include <set>

#include "phases/refusal.h"
#include "src/config/stages.h"
#include "src/core/messages.h"
#include "src/files/config_fields.h"

namespace hybrid_trainer {

namespace {

using Kind = KeyTest::Kind;

struct KeyValue {
  std::string path, text;
};

class KeyValues {
 public:
  KeyValues(const HybridTrainerConfig& config, const std::map<std::string, std::string>& known)
      : tree_(field_tree(config)), known_(known) {}

  /// Returns the values of a key; for "list[].field", one for each element that sets the field.
  std::vector<KeyValue> at(const std::string& key) const {
    if (const auto found = known_.find(key); found != known_.end()) return {{key, found->second}};
    const std::size_t index = key.find("[].");
    const FieldNode* const field = field_at(tree_, key.substr(0, index));
    if (field == nullptr) return {};
    if (index == std::string::npos) return {{key, field_text(*field)}};
    std::vector<KeyValue> values;
    const std::string name = key.substr(index + 3);
    for (std::size_t i = 0; i < field->elements.size(); ++i) {
      const FieldNode& element = *field_at(field->elements[i], name);
      if (!element.left_out)
        values.push_back({concat(key.substr(0, index), "[", i, "].", name), field_text(element)});
    }
    return values;
  }

  /// Parses a number, or returns the value of the key named by `value`.
  double number(const std::string& value) const {
    const std::vector<KeyValue> of_key = at(value);
    return std::strtod((of_key.empty() ? value : of_key.front().text).c_str(), nullptr);
  }

  bool passes(const std::string& text, Kind kind, const std::vector<std::string>& values) const {
    if (kind == Kind::kHasOneOf) {
      const auto is_in = [&](const std::string& part) { return text.find(part) != text.npos; };
      return text.empty() || std::ranges::any_of(values, is_in);
    }
    const bool is_listed = std::ranges::count(values, text) > 0;
    if (kind == Kind::kIsOneOf) return is_listed;
    if (kind == Kind::kIsNoneOf) return !is_listed;
    const double got = number(text), other = number(values.front());
    return kind == Kind::kIsMoreThan   ? got > other
           : kind == Kind::kIsLessThan ? got < other
                                       : got <= other;
  }

  bool holds(const KeyTest& test) const {
    return std::ranges::any_of(at(test.key), [&](const KeyValue& value) {
      return passes(value.text, test.kind, test.values);
    });
  }

  /// Returns the need's reason, or else the values of its keys: "schedule.name is cosine".
  std::string unmet_need(const KeyNeed& need) const {
    if (!need.why.empty()) return need.why;
    std::vector<std::string> texts;
    for (const KeyTest& test : need.any_of)
      for (const KeyValue& value : at(test.key))
        texts.push_back(concat(value.path, " is ", value.text));
    return join(texts);
  }
  const FieldNode& tree() const { return tree_; }

  std::string wanted(const Refusal& row) const {
    if (!row.wanted.empty()) return row.wanted;
    if (row.kind == Kind::kIsOneOf) {
      std::string text = row.values.front().empty() ? "none" : row.values.front();
      for (std::size_t i = 1; i < row.values.size(); ++i)
        text += (i + 1 < row.values.size() ? ", " : " or ") + row.values[i];
      return text;
    }
    const char* const words = row.kind == Kind::kIsMoreThan   ? "more than "
                              : row.kind == Kind::kIsLessThan ? "less than "
                                                              : "at most ";
    return concat(words, row.values.front(), " ", number(row.values.front()));
  }

 private:
  const FieldNode tree_;
  const std::map<std::string, std::string>& known_;
};

using Problems = std::vector<std::string>;

void collect_number_problems(const HybridTrainerConfig& config, Problems& found) {
  const bool limits_sequence = !config.pools();  // else the context limits each packed text
  if (limits_sequence && config.data.sequence_length > config.model.context) {
    const bool scales = std::ranges::any_of(model_families(), [&](const auto& family) {
      return family.name == config.model.family && family.has("rope_scaling");
    });
    found.push_back(concat(
        "data.sequence_length: got ", config.data.sequence_length, ", want at most model.context ",
        config.model.context, "; ",
        scales ? "a model with rotary angles supports a longer one, for example with"
               : "a new model sets it with",
        " --set ", "model.context=", config.data.sequence_length,
        scales ? concat(" --set model.rope_scaling.type=yarn --set model.rope_scaling.factor=",
                        (config.data.sequence_length + config.model.context - 1) /
                            config.model.context)
               : ""));
  }
  if (const auto bits = config.memory.gradient_bits; bits != 32 && bits != 16)
    found.push_back(concat("memory.gradient_bits: got ", bits, ", want 32 or 16"));
  if (const auto bits = config.memory.activation_bits; bits != 32 && bits != 16 && bits != 8)
    found.push_back(concat("memory.activation_bits: got ", bits, ", want 32, 16 or 8"));
  if (const std::int64_t bytes = config.distributed.bucket_bytes; bytes > 0 && bytes < 4096)
    found.push_back(concat("distributed.bucket_bytes: got ", bytes,
                           ", want at least 4096, or 0 for an automatic size"));
}

void collect_loss_scale_problems(const HybridTrainerConfig& config, Problems& found) {
  const std::int64_t scale = config.mixed_precision.loss_scale;
  if (scale < 1 || std::has_single_bit(static_cast<std::uint64_t>(scale))) return;
  found.push_back(concat("mixed_precision.loss_scale: got ", scale,
                         ", want a power of two, because other scales round gradients"));
}

void collect_recording_problems(const HybridTrainerConfig& config, Problems& found) {
  const auto refuse_recording = [&](const char* key, const std::string& got, const char* want) {
    if (!config.training.cuda_graphs || got == want) return;
    found.push_back(concat("memory.", key, ": got \"", got,
                           "\", which training.cuda_graphs does not support; want ", want));
  };
  refuse_recording("activations", config.memory.activations, "device");
  refuse_recording("weights", config.memory.weights, "device");
  refuse_recording("device_map", config.memory.device_map, "");
  refuse_recording("gradients", config.memory.gradients, "keep");
}

void collect_text_loss_problems(const HybridTrainerConfig& config, Problems& found) {
  const std::string &loss = config.texts.loss, &labels = config.texts.labels;
  const bool is_balanced = loss == "balanced", classifies = config.objective == "classify";
  if (config.objective == "embed" && is_balanced)
    found.emplace_back(
        "texts.loss: got balanced, which weights classes (objective classify); want auto, "
        "contrastive, cosent or cosine");
  if (classifies && !is_balanced && loss != "auto")
    found.push_back(concat("texts.loss: got ", loss,
                           ", which compares embeddings (objective embed); want auto or balanced"));
  if (classifies && is_balanced && labels != "auto" && labels != "single")
    found.push_back(concat("texts.loss: got balanced, but texts.labels is ", labels,
                           ", and class weights need exactly one class per example; want auto"));
  const std::vector<DenseLayer> dense = config.model.dense_layers();
  if (std::ranges::any_of(dense, [](const DenseLayer& layer) { return layer.outputs < 1; }))
    found.push_back(concat("model.dense: got ", config.model.dense,
                           ", want layers such as 3072 or 256 bias tanh, separated by commas"));
  if (!dense.empty() && config.objective != "embed" && config.pools())
    found.push_back(concat("model.dense: got ", config.model.dense,
                           ", but only embeddings pass these layers; want objective embed"));
}

void collect_objective_problems(const HybridTrainerConfig& config, Problems& found) {
  if (config.masks() && config.data.is_rows()) {
    found.push_back(concat("objective: got ", config.objective, ", but data.layout is ",
                           config.data.layout,
                           ", and rows of examples are trained only on their answers; want "
                           "next_token, or a data folder (data.layout=windows)"));
  }
  if (config.prefers() && !config.data.is_rows()) {
    found.push_back(
        concat("objective: got ", config.objective, ", but data.layout is ", config.data.layout,
               "; pairs of answers need a file of examples: use `hybrid finetune --objective ",
               config.objective, " --data FILE`"));
  }
  if (config.prefers() && config.memory.segment_length > 0) {
    found.push_back(concat("memory.segment_length: got ", config.memory.segment_length,
                           ", but objective ", config.objective,
                           " does not support segments; want 0"));
  }
  if ((config.prefers() || config.pools()) && config.training.label_smoothing > 0) {
    found.push_back(concat("training.label_smoothing: got ", config.training.label_smoothing,
                           ", but objective ", config.objective,
                           " does not support smoothing; want 0"));
  }
  const std::set<std::string> of_texts{"classify", "embed", "rank", "reward"};
  if (of_texts.contains(config.objective) != config.pools()) {
    found.push_back(concat("objective: got ", config.objective, ", but model.pooling is \"",
                           config.model.pooling, "\"; ",
                           config.pools() ? "want classify, embed, rank or reward for such a model"
                                          : "use `hybrid finetune --task`, which sets it"));
  }
  if (config.pools() && !config.data.is_rows())
    found.push_back(concat("objective: got ", config.objective, ", but data.layout is ",
                           config.data.layout, "; want packed"));
  for (const std::int64_t channels : config.texts.dimension_list())
    if (channels < 1 || channels > config.model.embedding_width())
      found.push_back(concat("texts.dimensions: got ", config.texts.dimensions,
                             ", want numbers in 1 … ", config.model.embedding_width(),
                             ", the width of the embeddings, separated by commas"));
  collect_text_loss_problems(config, found);
  if (!config.model.language_head && !config.pools())
    found.push_back(concat("model.language_head: got false, but objective ", config.objective,
                           " predicts tokens; want a model with a language head"));
  if (config.mask_token >= config.model.vocabulary && config.model.vocabulary > 0)
    found.push_back(concat("mask_token: got ", config.mask_token, ", want an id below ",
                           config.model.vocabulary, ", model.vocabulary"));
  if (config.pools() || config.masks() == config.model.bidirectional) return;
  found.push_back(
      config.masks()
          ? "objective: got " + config.objective +
                ", but the model attends only to earlier tokens (model.bidirectional is false); "
                "want next_token, or an encoder, such as --preset bk-tiny"
          : "objective: got " + config.objective +
                ", but the model is an encoder (model.bidirectional), which would attend to the "
                "tokens that it predicts; want masked, or model.bidirectional=false");
}

void collect_carry_problems(const HybridTrainerConfig& config, Problems& found) {
  if (!config.data.carry_state) return;
  const auto refuse = [&](bool is_on, const char* why) {
    if (is_on) found.push_back(concat("data.carry_state: got true, but ", why));
  };
  refuse(config.data.is_rows(), "each example is a separate document; want data.layout windows");
  refuse(!config.stages.empty(), "stages change the rows of a batch; want none");
  refuse(config.training.cuda_graphs, "training.cuda_graphs cannot record states; want it off");
}

void collect_patience_problems(const HybridTrainerConfig& config, Problems& found) {
  if (config.training.patience == 0 || config.training.evaluate_every_steps > 0) return;
  found.push_back(
      concat("training.patience: got ", config.training.patience,
             ", but training.evaluate_every_steps is 0, so the run is evaluated only at "
             "its end; want evaluations, such as training.evaluate_every_steps=50"));
}

void collect_finder_problems(const HybridTrainerConfig& config, Problems& found) {
  if (!config.learning_rate_finder.is_on()) return;
  const std::int64_t interval = config.learning_rate_finder.interval,
                     least = config.schedule.warmup_steps + interval + 1;
  if (config.phases.warmup_steps >= least) return;
  found.push_back(concat("phases.warmup_steps: got ", config.phases.warmup_steps,
                         ", which is too short to find a learning rate: probes begin ", interval,
                         " updates after schedule.warmup_steps ", config.schedule.warmup_steps,
                         "; want at least ", least));
}

void collect_device_problems(const HybridTrainerConfig& config, Problems& found) {
  if (is_device_name(config.device)) return;
  found.push_back(concat("device: got \"", config.device, "\", want cpu, cuda, cuda:N or auto",
                         name_hint(config.device, {"cpu", "cuda", "cuda:0", "auto"})));
}

/// Adds a problem if model.experts.bias_rate is set with adapters, which do not change routers.
void collect_bias_problems(const HybridTrainerConfig& config, Problems& found) {
  if (config.model.experts.bias_rate == 0 || !config.has_adapters()) return;
  found.push_back(
      concat("model.experts.bias_rate: got ", config.model.experts.bias_rate,
             ", but adapters do not change routers; want 0 and model.experts.balance_loss"));
}

/// Returns a hint: settings with the same examples per step and at least `ranks` micro-batches.
std::string micro_batch_hint(const HybridTrainerConfig& config, int ranks) {
  const std::int64_t examples = config.data.batch_size * config.gradient_accumulation.micro_batches;
  for (std::int64_t count = ranks; count <= examples; ++count) {
    if (examples % count != 0) continue;
    return concat("data.batch_size=", examples / count,
                  " and gradient_accumulation.micro_batches=", count,
                  " give the same number of examples");
  }
  return concat("a step of ", examples, " examples supports at most ", examples, " ranks");
}

/// Returns values that no method supports with several ranks.
const std::vector<Refusal>& refusals_over_ranks() {
  const KeyTest cuts_weights{"distributed.zero", Kind::kIsOneOf, {"3"}};
  const KeyTest are_several{"ranks", Kind::kIsMoreThan, {"1"}};
  const char* const cut = "distributed.zero 3 divides each weight among the ranks";
  static const std::vector<Refusal> rows{
      {.keys = {"data.carry_state"},
       .values = {"false"},
       .why = "checkpoints do not store the states of ranks",
       .when = {are_several}},
      {{"memory.gradients"}, {"keep"}, "gradients must be summed over the ranks first"},
      {.keys = {"stages"},
       .values = {"[]"},
       .why = "each rank's share of a step must stay the same",
       .wanted = "none"},
      {{"training.cuda_graphs"}, {"false"}, "CUDA graphs do not support several ranks"},
      {.keys = {"memory.weights"}, .values = {"device"}, .why = cut, .when = {cuts_weights}},
      {.keys = {"distributed.check_weights_every"},
       .values = {"0"},
       .why = cut,
       .when = {cuts_weights},
       .wanted = "0: no rank has a copy to compare"},
      {.keys = {"memory.device_map"}, .values = {""}, .why = cut, .when = {cuts_weights}},
      {.keys = {"memory.plan"},
       .values = {"auto"},
       .why = "each rank would choose its own options",
       .kind = Kind::kIsNoneOf,
       .when = {are_several},
       .wanted = "off, with the options that hybrid plan prints"},
      {.keys = {"memory.device_map"},
       .values = {"auto"},
       .why = "each rank would choose its own options",
       .kind = Kind::kIsNoneOf,
       .when = {are_several},
       .wanted = "explicit places"},
  };
  return rows;
}

}  // namespace

void collect_refusals(const std::vector<Refusal>& rows, const HybridTrainerConfig& config,
                      const std::string& context, std::vector<std::string>& found,
                      const std::map<std::string, std::string>& known) {
  const KeyValues values(config, known);
  for (const Refusal& row : rows) {
    if (!std::ranges::all_of(row.when, [&](const KeyTest& test) { return values.holds(test); }))
      continue;
    for (const std::string& key : row.keys) {
      for (const KeyValue& value : values.at(key)) {
        if (values.passes(value.text, row.kind, row.values)) continue;
        found.push_back(concat(value.path, ": got ", value.text, ", but ", row.why, " (with ",
                               context, "); want ", values.wanted(row)));
      }
    }
  }
}

std::string why_inert(const std::string& key, const HybridTrainerConfig& config,
                      const std::map<std::string, std::string>& known) {
  const KeyValues values(config, known);
  const FieldNode* node = &values.tree();
  for (std::size_t begin = 0; begin <= key.size() && !node->is_list;) {
    const std::size_t end = std::min(key.find('.', begin), key.size());
    const std::string name = key.substr(begin, end - begin);
    const auto field = std::ranges::find(node->fields, name, &FieldNode::name);
    if (field == node->fields.end()) return "";
    for (const KeyNeed& need : field->needs) {
      const auto holds = [&](const KeyTest& test) { return values.holds(test); };
      if (std::ranges::none_of(need.any_of, holds)) return values.unmet_need(need);
    }
    node = &*field;
    begin = end + 1;
  }
  return "";
}

void collect_cross_problems(const HybridTrainerConfig& config, std::vector<std::string>& found) {
  collect_number_problems(config, found);
  collect_loss_scale_problems(config, found);
  collect_recording_problems(config, found);
  collect_objective_problems(config, found);
  collect_stage_problems(config, found);
  collect_carry_problems(config, found);
  collect_patience_problems(config, found);
  collect_finder_problems(config, found);
  collect_device_problems(config, found);
  collect_bias_problems(config, found);
}

void check_micro_batches(const HybridTrainerConfig& config, int ranks) {
  const std::int64_t micro_batches = config.gradient_accumulation.micro_batches;
  if (micro_batches >= ranks) return;
  throw ConfigError(
      {concat("gradient_accumulation.micro_batches: got ", micro_batches, " for ", ranks,
              " ranks; want at least one per rank: ", micro_batch_hint(config, ranks))});
}

void check_ranks(const HybridTrainerConfig& config, int ranks) {
  std::vector<std::string> found;
  try {
    check_micro_batches(config, ranks);
  } catch (const ConfigError& error) {
    found = error.problems();
  }
  const std::map<std::string, std::string> known{{"ranks", std::to_string(ranks)}};
  const std::string &method = config.phases.method, over_ranks = concat(ranks, " ranks");
  collect_refusals(refusals_over_ranks(), config, over_ranks, found, known);
  for (const Refusal& row : refusals_of(method)) {
    if (std::ranges::count(row.when, "ranks", &KeyTest::key) > 0)
      collect_refusals({row}, config, "phases.method " + method, found, known);
  }
  const std::string link = simulated_link_text(config.distributed);
  if (ranks > 1 && !link.empty() && find_device(config.device).type != DeviceType::kCpu)
    found.push_back("distributed.simulated_link: got " + link + ", want none on CUDA devices");
  try {
    check_backend(config.distributed, find_device(config.device));
  } catch (const ConfigError& error) {
    found.push_back(error.what());
  }
  if (!found.empty()) throw ConfigError(found);
}

}  // namespace hybrid_trainer
