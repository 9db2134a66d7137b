#include "src/model_files/gguf/gguf_values.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cctype>
#include <unordered_map>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/models/decoder.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/core/messages.h"
#include "src/data/text/tokenizer_steps.h"
#include "src/files/foreign_files.h"
#include "src/gguf/gguf_special_tokens.h"

namespace hybrid_trainer {

namespace {

namespace json = boost::json;

[[noreturn]] void refuse(const std::string& key, const std::string& value, const std::string& why) {
  throw DataError(concat("model.", key, "=", value, " cannot be stored in a GGUF file: ", why,
                         "; export a Hugging Face folder instead"));
}

std::int64_t head_size(const ModelConfig& model) {
  return model.head_size > 0 ? model.head_size : model.width / model.heads;
}

std::int64_t kv_heads(const ModelConfig& model) {
  return model.kv_heads > 0 ? model.kv_heads : model.heads;
}

void check_scaling(const RotaryScaling& scaling) {
  const RotaryScaling usual;
  if (scaling.type == "dynamic")
    refuse("rope_scaling.type", "dynamic", "llama.cpp does not adapt rotary angles to the length");
  if (scaling.type == "yarn" &&
      (scaling.attention_factor != 0 || scaling.mscale != 0 || scaling.mscale_all_dim != 0 ||
       !scaling.truncate || scaling.beta_fast != 32 || scaling.beta_slow != 1))
    refuse("rope_scaling", "yarn with its own attention_factor, mscale, beta or truncate",
           "llama.cpp computes these itself");
}

void check_gemma(const ModelConfig& model, const GgufLayout::Gemma& gemma) {
  // Source: llama.cpp, src/models/gemma2.cpp and gemma3.cpp: f_attention_scale.
  const bool is_27b = model.layers == gemma.layers_of_27b;
  const double scalar = static_cast<double>(is_27b ? model.width / model.heads : head_size(model));
  if (model.query_scalar != scalar)
    refuse("query_scalar", concat(model.query_scalar),
           "llama.cpp divides scores by the square root of the head size");
  if (model.attention_bias) refuse("attention_bias", "true", "llama.cpp's Gemma has no biases");
  if (!model.tied_head)
    refuse("tied_head", "false", "llama.cpp's Gemma ties the head to the token table");
  if (gemma.always_caps && (model.attention_cap == 0 || model.logit_cap == 0))
    refuse("attention_cap and model.logit_cap", "0", "llama.cpp's Gemma 2 always caps");
  if (!gemma.always_caps && model.attention_cap > 0)
    refuse("attention_cap", concat(model.attention_cap), "llama.cpp's Gemma 3 does not cap scores");
}

void add_rotary_values(const ModelConfig& model, const std::string& name,
                       std::vector<GgufPair>& values) {
  values.push_back(gguf_count(name + ".rope.dimension_count", head_size(model)));
  values.push_back(gguf_number(name + ".rope.freq_base", model.rope_theta));
  if (model.window_rope_theta > 0)
    values.push_back(gguf_number(name + ".rope.freq_base_swa", model.window_rope_theta));
  const RotaryScaling scaling = model.rope_scaling.resolved(model.context);
  if (scaling.type != "linear" && scaling.type != "yarn") return;
  values.push_back(gguf_text(name + ".rope.scaling.type", scaling.type));
  values.push_back(gguf_number(name + ".rope.scaling.factor", scaling.factor));
  if (scaling.type == "yarn")
    values.push_back(
        gguf_count(name + ".rope.scaling.original_context_length", scaling.original_context));
}

void add_gemma_values(const ModelConfig& model, const std::string& name,
                      std::vector<GgufPair>& values) {
  values.push_back(gguf_count(name + ".attention.sliding_window", model.window));
  std::vector<bool> has_window;
  for (std::int64_t i = 0; i < model.layers; ++i)
    has_window.push_back(kind_of_layer(model.window_layers, i) == 'w');
  values.push_back(gguf_flags(name + ".attention.sliding_window_pattern", has_window));
  if (model.attention_cap > 0)
    values.push_back(gguf_number(name + ".attn_logit_softcapping", model.attention_cap));
  if (model.logit_cap > 0)
    values.push_back(gguf_number(name + ".final_logit_softcapping", model.logit_cap));
}

/// Returns llama.cpp's name for the tokenizer's word splitting. Throws DataError if it has none.
std::string pre_tokenizer_of(const BpeDescription& bpe) {
  switch (bpe.words) {
    case BpeWords::kGpt2: return "gpt-2";
    case BpeWords::kLlama3: return bpe.ignores_merges ? "llama-bpe" : "smaug-bpe";
    case BpeWords::kQwen2: return "qwen2";
    case BpeWords::kTekken: return "tekken";
    case BpeWords::kGpt4o: return "gpt-4o";
    case BpeWords::kGpt2Digits: return "smollm";
    case BpeWords::kWholeText: return "default";
    case BpeWords::kQwen35:
    case BpeWords::kOther: break;
  }
  throw DataError(
      concat("llama.cpp has no name for this tokenizer's rule to split words, so a GGUF file "
             "cannot store it; its pre_tokenizer is ",
             bpe.steps.substr(0, 300), "; export a Hugging Face folder instead"));
}

/// Returns ggml's number for a token's use.
std::int64_t use_number(TokenUse use) {
  switch (use) {
    case TokenUse::kText: return 1;
    case TokenUse::kUnknown: return 2;
    case TokenUse::kSpecial: return 3;
    case TokenUse::kAdded: return 4;
    case TokenUse::kByte: return 6;
    case TokenUse::kNone: break;
  }
  return 5;
}

std::string with_blanks(const std::string& text) {
  constexpr std::string_view kBlank = "▁";
  std::string blanks;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t next = std::min(text.find(kBlank, at), text.size());
    blanks.append(text, at, next - at);
    if (next < text.size()) blanks += ' ';
    at = next + kBlank.size();
  }
  return blanks;
}

/// Returns each token's score, minus its first merge's rank: llama.cpp joins the highest score.
std::vector<double> scores_of(const BpeDescription& bpe) {
  std::unordered_map<std::string, std::size_t> ranks;
  for (std::size_t i = 0; i < bpe.merges.size(); ++i)
    ranks.emplace(bpe.merges[i].first + bpe.merges[i].second, i);
  std::vector<double> scores;
  for (const std::string& token : bpe.tokens) {
    const auto found = ranks.find(token);
    scores.push_back(found == ranks.end() ? -1e6 : -static_cast<double>(found->second));
  }
  return scores;
}

/// Returns the JSON object in the text of a file, or an empty object.
json::object object_of(const std::string& text) {
  boost::system::error_code error;
  const json::value value = json::parse(text, error);
  return !error && value.is_object() ? value.get_object() : json::object();
}

std::string file_of(const Tokenizer& tokenizer, const char* name) {
  const auto found = tokenizer.files().find(name);
  return found == tokenizer.files().end() ? "" : found->second;
}

/// Returns a token in tokenizer_config.json, given as a text or as {"content": text}.
std::optional<std::string> named_token(const json::object& settings, const std::string& name) {
  const json::value* value = settings.if_contains(name);
  if (value != nullptr && value->is_object()) value = value->get_object().if_contains("content");
  if (value == nullptr || !value->is_string()) return {};
  return std::string(value->get_string());
}

/// Returns the ids under a key of a configuration: one, or a list.
std::vector<std::int64_t> ids_under(const json::object& config, const std::string& key) {
  const json::value* value = config.if_contains(key);
  std::vector<std::int64_t> ids;
  if (value == nullptr) return ids;
  for (const json::value& id : value->is_array() ? value->get_array() : json::array{*value})
    if (id.is_int64()) ids.push_back(id.get_int64());
  return ids;
}

/// A model's special tokens, from tokenizer_config.json or else the model's configuration.
class WrittenSpecialTokens {
 public:
  WrittenSpecialTokens(const BpeDescription& bpe, const Tokenizer& tokenizer,
                       const std::string& token_ids)
      : bpe_(bpe),
        settings_(object_of(file_of(tokenizer, "tokenizer_config.json"))),
        generation_(object_of(file_of(tokenizer, "generation_config.json"))),
        ids_(object_of(token_ids)) {}

  std::vector<GgufPair> values() {
    add(ids_of("bos"), "bos_token_id");
    add_end_tokens();
    add(ids_of("unk"), "unknown_token_id");
    add(ids_of("pad"), "padding_token_id");
    return std::move(values_);
  }
  /// Returns a warning of end tokens that llama.cpp ignores, or "".
  const std::string& warning() const { return warning_; }

 private:
  bool is_token(std::int64_t id) const {
    return id >= 0 && id < static_cast<std::int64_t>(bpe_.tokens.size());
  }
  /// Returns the ids of a special token such as "eos": first the token that tokenizer_config.json
  /// names, then the other ids in the model's configuration.
  std::vector<std::int64_t> ids_of(const std::string& name) const {
    std::vector<std::int64_t> ids;
    if (const auto token = named_token(settings_, name + "_token")) {
      const auto found = std::ranges::find(bpe_.tokens, *token);
      if (found != bpe_.tokens.end()) ids.push_back(found - bpe_.tokens.begin());
    }
    for (const std::int64_t id : ids_under(ids_, name + "_token_id"))
      if (is_token(id) && std::ranges::count(ids, id) == 0) ids.push_back(id);
    return ids;
  }
  void add(const std::vector<std::int64_t>& ids, const char* key) {
    if (!ids.empty()) values_.push_back(gguf_count(concat(kKeys, key), ids.front()));
  }
  /// Adds the end tokens. llama.cpp has three keys, and finds others by text; Ollama reads a list.
  void add_end_tokens() {
    std::vector<std::int64_t> ends = ids_of("eos"), unknown;
    for (const std::int64_t id : ids_under(generation_, "eos_token_id"))
      if (is_token(id) && std::ranges::count(ends, id) == 0) ends.push_back(id);
    add(ends, "eos_token_id");
    if (ends.size() < 2) return;
    values_.push_back(gguf_integers(concat(kKeys, "eos_token_ids"), ends));
    for (std::size_t i = 1; i < ends.size(); ++i)
      if (!is_end_of_turn_name(bpe_.tokens[static_cast<std::size_t>(ends[i])]))
        unknown.push_back(ends[i]);
    constexpr const char* kOthers[] = {"eot_token_id", "eom_token_id"};
    for (std::size_t i = 0; i < unknown.size(); ++i) {
      if (i < std::size(kOthers)) {
        add({unknown[i]}, kOthers[i]);
      } else {
        warning_ +=
            concat(warning_.empty() ? "" : ", ", bpe_.tokens[static_cast<std::size_t>(unknown[i])]);
      }
    }
    if (!warning_.empty())
      warning_ =
          concat("llama.cpp has keys for fewer end tokens, and will continue after ", warning_);
  }

  static constexpr const char* kKeys = "tokenizer.ggml.";
  const BpeDescription& bpe_;
  const json::object settings_, generation_, ids_;
  std::vector<GgufPair> values_;
  std::string warning_;
};

/// Returns the name in the form that llama.cpp's keys use.
std::string key_name(std::string name) {
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
}

/// Writes templates as gguf-py does: the default, the names of the others, and each by name.
void add_chat_templates(const Tokenizer& tokenizer, std::vector<GgufPair>& values) {
  std::vector<std::string> others;
  for (const NamedTemplate& one : named_templates(tokenizer.files(), "")) {
    const bool is_default = one.name == "default";
    const std::string key = is_default ? "" : "." + key_name(one.name);
    values.push_back(gguf_text("tokenizer.chat_template" + key, one.text));
    if (!is_default) others.push_back(key_name(one.name));
  }
  if (!others.empty()) values.push_back(gguf_texts("tokenizer.chat_templates", std::move(others)));
}

}  // namespace

std::string gguf_architecture(const ModelConfig& model) {
  const ModelFamily& family = find_family(model.family);
  const GgufLayout& layout = family.gguf;
  if (layout.architecture.empty()) {
    std::vector<std::string> known;
    for (const ModelFamily& one : model_families())
      if (!one.gguf.architecture.empty()) known.push_back(one.name);
    throw DataError(concat("models of the family ", model.family,
                           " cannot be written as GGUF; want one of ", join(known),
                           ", or export a Hugging Face folder"));
  }
  if (model.attention_pattern.is_on())
    refuse("attention_pattern", "on", "llama.cpp has no sparse attention");
  if (model.rotary_share != 1)
    refuse("rotary_share", concat(model.rotary_share), "llama.cpp rotates whole heads");
  if (model.attention_bias && !layout.may_have_biases && !layout.gemma)
    refuse("attention_bias", "true", concat("llama.cpp's ", family.title, " has no biases"));
  check_scaling(model.rope_scaling);
  if (layout.gemma) check_gemma(model, *layout.gemma);
  return layout.architecture;
}

std::vector<GgufPair> gguf_model_values(const ModelConfig& model, const std::string& file) {
  const std::string name = gguf_architecture(model);
  const ModelFamily& family = find_family(model.family);
  const bool rotates = family.has("rope_theta");
  std::vector<GgufPair> values{
      gguf_count(name + ".block_count", model.layers),
      gguf_count(name + ".context_length", model.context),
      gguf_count(name + ".embedding_length", model.width),
      gguf_count(name + ".feed_forward_length",
                 model.intermediate_size > 0 ? model.intermediate_size : 4 * model.width),
      gguf_count(name + ".attention.head_count", model.heads),
      gguf_count(name + ".attention.head_count_kv", kv_heads(model)),
      gguf_number(
          name + (rotates ? ".attention.layer_norm_rms_epsilon" : ".attention.layer_norm_epsilon"),
          model.norm_epsilon),
      gguf_count(name + ".vocab_size", model.vocabulary)};
  if (!rotates) return values;
  values.push_back(gguf_count(name + ".attention.key_length", head_size(model)));
  values.push_back(gguf_count(name + ".attention.value_length", head_size(model)));
  add_rotary_values(model, name, values);
  if (family.gguf.gemma) {
    add_gemma_values(model, name, values);
  } else if (model.window > 0 && model.window < model.context) {
    warn(file, concat("llama.cpp does not support a window for this architecture (model.window is ",
                      model.window, "), so attention is not limited to the window there"));
  }
  return values;
}

std::vector<float> rotary_divisors(const ModelConfig& model) {
  const RotaryScaling scaling = model.rope_scaling.resolved(model.context);
  if (scaling.type != "llama3") return {};
  return llama3_divisors(head_size(model), model.rope_theta, scaling);
}

GgufVocabulary gguf_vocabulary(const Tokenizer& tokenizer, const std::string& token_ids,
                               std::int64_t rows) {
  if (tokenizer.kind() != TokenizerKind::kBpe)
    throw DataError(concat("a GGUF file cannot store a tokenizer of ", name_of(tokenizer.kind()),
                           "; prepare the data with a BPE: hybrid prepare --tokenizer bpe"));
  BpeDescription bpe = describe_bpe(tokenizer);
  const std::string pre = pre_tokenizer_of(bpe);
  const bool is_whole = bpe.words == BpeWords::kWholeText;
  if (bpe.adds_prefix_space && !is_whole)
    throw DataError(
        "llama.cpp has no byte-level tokenizer that adds a space before a text (add_prefix_space); "
        "export a Hugging Face folder instead");
  GgufVocabulary vocabulary;
  std::vector<GgufPair>& values = vocabulary.values;
  if (bpe.composes)
    vocabulary.warnings.emplace_back(
        "llama.cpp does not compose characters (NFC) before tokenizing: texts with separate "
        "accents get other tokens there");
  values = {gguf_text("tokenizer.ggml.model", is_whole ? "llama" : "gpt2"),
            gguf_text("tokenizer.ggml.pre", pre)};
  const std::vector<double> scores = is_whole ? scores_of(bpe) : std::vector<double>();
  std::vector<std::int64_t> uses;
  for (const TokenUse use : bpe.uses) uses.push_back(use_number(use));
  for (std::size_t id = 0; id < bpe.tokens.size(); ++id) {
    if (bpe.uses[id] == TokenUse::kNone) bpe.tokens[id] = concat("[PAD", id, "]");
    if (is_whole && bpe.uses[id] == TokenUse::kAdded) bpe.tokens[id] = with_blanks(bpe.tokens[id]);
  }
  WrittenSpecialTokens of_model(bpe, tokenizer, token_ids);
  const std::vector<GgufPair> special = of_model.values();
  if (!of_model.warning().empty()) vocabulary.warnings.push_back(of_model.warning());
  const auto known = static_cast<std::int64_t>(bpe.tokens.size());
  if (known > rows)
    throw DataError(concat("the tokenizer has ", known, " tokens, but the model's token table has ",
                           rows, " rows; give the tokenizer that it was trained with"));
  for (std::int64_t id = known; id < rows; ++id) {
    bpe.tokens.push_back(concat("[PAD", id, "]"));
    uses.push_back(use_number(TokenUse::kNone));
  }
  values.push_back(gguf_texts("tokenizer.ggml.tokens", std::move(bpe.tokens)));
  if (is_whole) {
    std::vector<double> all = scores;
    all.resize(uses.size(), -1e6);
    values.push_back(gguf_numbers("tokenizer.ggml.scores", std::move(all)));
  }
  values.push_back(gguf_integers("tokenizer.ggml.token_type", std::move(uses)));
  if (!is_whole) {
    std::vector<std::string> merges;
    for (const auto& [left, right] : bpe.merges) merges.push_back(left + " " + right);
    values.push_back(gguf_texts("tokenizer.ggml.merges", std::move(merges)));
  }
  values.insert(values.end(), special.begin(), special.end());
  values.push_back(gguf_flag("tokenizer.ggml.add_bos_token", !tokenizer.template_start().empty()));
  values.push_back(gguf_flag("tokenizer.ggml.add_eos_token", !tokenizer.template_end().empty()));
  if (is_whole)
    values.push_back(gguf_flag("tokenizer.ggml.add_space_prefix", bpe.adds_prefix_space));
  add_chat_templates(tokenizer, values);
  return vocabulary;
}

}  // namespace hybrid_trainer
