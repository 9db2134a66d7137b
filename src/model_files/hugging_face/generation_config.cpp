#include "src/model_files/hugging_face/generation_config.h"

#include <algorithm>
#include <cmath>

#include "src/core/narrow.h"
#include "src/files/foreign_files.h"
#include "src/files/output_file.h"
#include "src/gguf/gguf_special_tokens.h"
#include "src/model_files/gguf/gguf_model.h"
#include "src/model_files/hugging_face/config_files.h"

namespace hybrid_trainer {

namespace {

constexpr const char* kEnd = "eos_token_id";
constexpr const char *kModelConfig = "config.json", *kGenerationConfig = "generation_config.json";

std::vector<std::int32_t> end_tokens_of(const json::object& object, const std::string& name) {
  const json::value* ids = object.if_contains(kEnd);
  if (ids == nullptr || ids->is_null()) return {};
  std::vector<std::int32_t> tokens;
  const json::array one{*ids}, &all = ids->is_array() ? ids->get_array() : one;
  if (all.size() > kMaxEndTokens)
    throw DataError(
        concat(name, ": ", kEnd, ": has ", all.size(), " tokens, want at most ", kMaxEndTokens));
  for (const json::value& id : all) {
    if (!id.is_int64() || id.get_int64() < 0)
      throw DataError(concat(name, ": ", kEnd, ": want a whole number or a list"));
    tokens.push_back(narrow<std::int32_t>(id.get_int64(), concat(name, ": ", kEnd)));
  }
  return tokens;
}

std::vector<std::int32_t> end_tokens_of(const FolderFiles& folder, const char* name) {
  return end_tokens_of(python_object_in(folder, name), (folder.path() / name).string());
}

constexpr std::int64_t kMaxBeams = 64;

/// Reads a file in a folder. Null, and all values of a missing file, count as absent.
class KeyReader {
 public:
  KeyReader(const ModelFolder* folder, const char* name) {
    if (folder == nullptr) return;
    name_ = (folder->path() / name).string();
    object_ = python_object_in(folder->files(), name);
  }
  const std::string& name() const { return name_; }
  const json::object& object() const { return object_; }

  const json::value* find(const char* key) const {
    const json::value* value = object_.if_contains(key);
    return value != nullptr && value->is_null() ? nullptr : value;
  }
  std::int64_t count(const char* key, std::int64_t missing, std::int64_t most = INT32_MAX) const {
    const json::value* value = find(key);
    if (value == nullptr) return missing;
    if (!value->is_int64() || value->get_int64() < 0 || value->get_int64() > most)
      fail(key, *value, concat("a whole number from 0 to ", most));
    return value->get_int64();
  }
  std::optional<double> number(const char* key) const {
    const json::value* value = find(key);
    if (value == nullptr) return {};
    if (!value->is_number()) fail(key, *value, "a number");
    return value->to_number<double>();
  }
  std::optional<bool> flag(const char* key) const {
    const json::value* value = find(key);
    if (value == nullptr) return {};
    if (!value->is_bool()) fail(key, *value, "true or false");
    return value->get_bool();
  }
  std::string text(const char* key) const {
    const json::value* value = find(key);
    if (value == nullptr) return "";
    if (!value->is_string()) fail(key, *value, "a string");
    return std::string(value->get_string());
  }
  std::int32_t token(const char* key, const json::value& value) const {
    if (!value.is_int64() || value.get_int64() < 0) fail(key, value, "a token id");
    return narrow<std::int32_t>(value.get_int64(), concat(name_, ": ", key));
  }
  std::optional<std::int32_t> token(const char* key) const {
    const json::value* value = find(key);
    if (value != nullptr && value->is_array() && value->get_array().size() == 1)
      value = &value->get_array().front();
    return value == nullptr ? std::nullopt : std::optional(token(key, *value));
  }
  std::vector<std::int32_t> tokens(const char* key, std::size_t most = SIZE_MAX) const {
    const json::value* value = find(key);
    std::vector<std::int32_t> ids;
    if (value == nullptr) return ids;
    if (value->is_array() && value->get_array().size() > most)
      throw DataError(concat(name_, ": ", key, ": has ", value->get_array().size(),
                             " tokens, want at most ", most));
    for (const json::value& id : value->is_array() ? value->get_array() : json::array{*value})
      if (!id.is_int64() || id.get_int64() >= 0) ids.push_back(token(key, id));  // -1: none
    return ids;
  }
  [[noreturn]] void fail(const char* key, const json::value& value,
                         const std::string& wanted) const {
    throw DataError(
        concat(name_, ": ", key, ": got ", json_line(value).substr(0, 60), ", want ", wanted));
  }

 private:
  std::string name_;
  json::object object_;
};

EarlyStopping search_end_in(const KeyReader& reader) {
  const json::value* early = reader.find("early_stopping");
  if (early == nullptr || *early == json::value(false)) return EarlyStopping::kGuess;
  if (*early == json::value("never")) return EarlyStopping::kCertain;
  if (!early->is_bool()) reader.fail("early_stopping", *early, "true, false or \"never\"");
  return EarlyStopping::kEnough;
}

/// Reads [[1, 50259], [2, null]]: positions in the text, consecutive from 1, and tokens.
std::vector<std::optional<std::int32_t>> forced_in(const KeyReader& reader) {
  constexpr const char* kKey = "forced_decoder_ids";
  std::vector<std::optional<std::int32_t>> forced;
  const json::value* value = reader.find(kKey);
  if (value == nullptr) return forced;
  const json::array* const list = value->if_array();
  if (list == nullptr) reader.fail(kKey, *value, "a list of positions and tokens");
  for (const json::value& item : *list) {
    const json::array* const pair = item.if_array();
    const bool is_next =
        pair != nullptr && pair->size() == 2 && (*pair)[0] == json::value(std::ssize(forced) + 1);
    if (!is_next) reader.fail(kKey, *value, "positions of at least 1, each with its token");
    forced.push_back((*pair)[1].is_null() ? std::nullopt
                                          : std::optional(reader.token(kKey, (*pair)[1])));
  }
  return forced;
}

GenerationKeys::Speech speech_in(const KeyReader& reader) {
  GenerationKeys::Speech speech{.is_multilingual = reader.flag("is_multilingual"),
                                .language = reader.text("language"),
                                .task = reader.text("task"),
                                .timestamps = reader.flag("return_timestamps").value_or(false),
                                .latest_first_time = reader.token("max_initial_timestamp_index"),
                                .forced = forced_in(reader)};
  if (const json::value* known = reader.find("lang_to_id")) {
    if (!known->is_object()) reader.fail("lang_to_id", *known, "language tokens with their ids");
    for (const auto& [token, id] : known->get_object())
      speech.languages.emplace_back(token, reader.token("lang_to_id", id));
    std::ranges::sort(speech.languages, {}, &std::pair<std::string, std::int32_t>::second);
  }
  return speech;
}

const ModelFolder* first_with(const std::vector<ModelFolder>& folders, const char* name) {
  const auto found = std::ranges::find_if(folders, [&](const ModelFolder& folder) {
    return !folder.empty() && fs::is_regular_file(folder.path() / name);
  });
  return found == folders.end() ? nullptr : &*found;
}

/// Reads the sampling settings of the first GGUF file among these.
GenerationKeys keys_of_gguf(const std::vector<ModelFolder>& models) {
  GenerationKeys keys;
  const auto model = std::ranges::find_if(models, &ModelFolder::is_gguf);
  if (model == models.end()) return keys;
  const GgufFile& file = model->gguf();
  const auto number = [&](const char* name) -> std::optional<double> {
    const auto held = file.number(concat("general.sampling.", name));  // stored as f32
    return held ? std::optional(std::round(*held * 1e6) / 1e6) : std::nullopt;
  };
  keys.temperature = number("temp");
  keys.top_k = file.count("general.sampling.top_k");
  keys.top_p = number("top_p");
  keys.min_p = number("min_p");
  keys.rules.repetition_penalty = number("penalty_repeat").value_or(1);
  if (keys.temperature || keys.top_k || keys.top_p || keys.min_p) keys.draws = true;
  if (keys.draws || keys.rules.repetition_penalty != 1) keys.file = model->path();
  return keys;
}

void write_tokenizer(const Tokenizer& tokenizer, const ModelConfig& model,
                     const std::string& folder) {
  const auto id = tokenizer.end_of_text();
  const std::string end_of_text(id ? tokenizer.token_bytes(*id) : "");
  tokenizer.save(folder);
  const TokenizerFiles& files = tokenizer.files();
  if (files.contains("tokenizer_config.json") || !files.contains("merges.txt")) return;
  json::object special;
  if (!end_of_text.empty())
    for (const char* role : {"bos_token", "eos_token", "unk_token"}) special[role] = end_of_text;
  json::object config{
      {"add_prefix_space", tokenizer.adds_prefix_space()},
      {"clean_up_tokenization_spaces", false},
      {"model_max_length", model.context},
      {"tokenizer_class", end_of_text.empty() ? "PreTrainedTokenizerFast" : "GPT2Tokenizer"}};
  for (const auto& [role, token] : special) config[role] = token;
  replace_file(folder + "/tokenizer_config.json", pretty_json(config));
  replace_file(folder + "/special_tokens_map.json", pretty_json(special));
}

}  // namespace

std::string token_ids_in(const ModelFolder& folder) {
  const FolderFiles& files = folder.files();
  if (!folder.is_gguf() && !files.contains(kModelConfig)) return "";
  const json::object config =
      folder.is_gguf() ? gguf_config(folder.gguf()) : python_object_in(files, kModelConfig);
  json::object ids;
  for (const char* key :
       {"bos_token_id", kEnd, "pad_token_id", "decoder_start_token_id", "forced_bos_token_id",
        "forced_eos_token_id", "cls_token_id", "sep_token_id"})
    if (const json::value* value = config.if_contains(key)) ids[key] = *value;
  if (folder.is_gguf() || files.contains(kGenerationConfig)) return json::serialize(ids);
  for (const auto& [key, value] : config)
    if (affects_generation(std::string(key)) && !value.is_null()) ids[key] = value;
  return json::serialize(ids);
}

std::vector<std::int32_t> end_token_ids_in(const ModelFolder& folder) {
  if (folder.is_gguf()) return generation_end_tokens_in(folder);
  std::set<std::int32_t> all;
  for (const char* name : {kGenerationConfig, kModelConfig})
    for (const std::int32_t id : end_tokens_of(folder.files(), name)) all.insert(id);
  return {all.begin(), all.end()};
}

std::vector<std::int32_t> generation_end_tokens_in(const ModelFolder& folder) {
  if (folder.is_gguf()) {
    std::vector<std::int32_t> ends;
    for (const std::int64_t id : read_gguf_special_tokens(folder.gguf()).ends)
      ends.push_back(narrow<std::int32_t>(id, "a token's id"));
    return ends;
  }
  std::vector<std::int32_t> tokens = end_tokens_of(folder.files(), kGenerationConfig);
  return tokens.empty() ? end_tokens_of(folder.files(), kModelConfig) : tokens;
}

std::string with_end_tokens(const std::string& text, std::span<const std::int32_t> more) {
  const json::value value = parse_json_text(text, "generation_config.json");
  if (!value.is_object()) throw DataError("generation_config.json: want a JSON object");
  json::object object = value.get_object();
  std::vector<std::int32_t> tokens = end_tokens_of(object, "generation_config.json");
  const std::size_t before = tokens.size();
  for (const std::int32_t id : more)
    if (std::ranges::find(tokens, id) == tokens.end()) tokens.push_back(id);
  if (tokens.size() == before) return text;
  if (tokens.size() == 1) {
    object[kEnd] = tokens.front();
  } else {
    object[kEnd] = json::array(tokens.begin(), tokens.end());
  }
  return pretty_json(object);
}

std::int64_t GenerationKeys::longest(std::int64_t begun, std::int64_t context) const {
  if (max_new_tokens > 0) return std::min(begun + std::min(max_new_tokens, context), context);
  return most > 0 ? std::min(most, context) : context;
}

void GenerationKeys::require_honored() const {
  std::string all;
  for (const std::string& problem : problems) all += "\n" + problem;
  if (!all.empty())
    throw DataError(
        concat(file.string(), ": has settings that text generation does not support:", all));
}

GenerationKeys read_generation_keys(const std::vector<ModelFolder>& folders) {
  const ModelFolder* const config = first_with(folders, kModelConfig);
  const ModelFolder* const separate = first_with(folders, kGenerationConfig);
  if (separate == nullptr && config == nullptr) return keys_of_gguf(folders);
  const KeyReader of_model(config, kModelConfig);
  const KeyReader reader = separate == nullptr ? of_model : KeyReader(separate, kGenerationConfig);
  // The type must be named. Without it, GCC 12 destroys `rules` twice if a later value throws.
  GenerationKeys keys{
      .file = reader.name(),
      .start = reader.token("decoder_start_token_id"),
      .end_tokens = reader.tokens("eos_token_id", kMaxEndTokens),
      .beams = std::max<std::int64_t>(1, reader.count("num_beams", 1, kMaxBeams)),
      .length_penalty = reader.number("length_penalty").value_or(1),
      .search_end = search_end_in(reader),
      .rules =
          TokenConstraints{.first = reader.token("forced_bos_token_id"),
                           .last = reader.token("forced_eos_token_id"),
                           .suppressed = reader.tokens("suppress_tokens"),
                           .suppressed_first = reader.tokens("begin_suppress_tokens"),
                           .repetition_penalty = reader.number("repetition_penalty").value_or(1),
                           .least = reader.count("min_length", 0),
                           .min_new_tokens = reader.count("min_new_tokens", 0),
                           .no_repeat_ngram = reader.count("no_repeat_ngram_size", 0)},
      .most = reader.count("max_length", 0),
      .max_new_tokens = reader.count("max_new_tokens", 0),
      .draws = reader.flag("do_sample"),
      .temperature = reader.number("temperature"),
      .top_p = reader.number("top_p"),
      .min_p = reader.number("min_p"),
      .speech = speech_in(reader)};
  if (reader.find("top_k") != nullptr) keys.top_k = reader.count("top_k", 0);
  if (!keys.start) keys.start = of_model.token("decoder_start_token_id");
  if (keys.end_tokens.empty()) keys.end_tokens = of_model.tokens("eos_token_id", kMaxEndTokens);
  GenerationKeys::Speech& speech = keys.speech;
  if (speech.language.empty() && speech.task.empty() && speech.forced.empty())
    speech.forced = forced_in(of_model);
  if (!(keys.rules.repetition_penalty > 0))
    reader.fail("repetition_penalty", *reader.find("repetition_penalty"), "a number above 0");
  std::set<std::string> unused;  // keys that affect only sampling
  if (!keys.draws.value_or(false)) unused = {"epsilon_cutoff", "eta_cutoff", "top_h", "typical_p"};
  keys.problems =
      sort_unread_keys(reader.object(), ForeignFile::kGenerationConfig, unused).problems;
  return keys;
}

void check_tokenizer_fits(const Tokenizer* tokenizer, const ModelConfig& model) {
  if (tokenizer == nullptr || tokenizer->min_table_rows() <= model.vocabulary) return;
  throw DataError(concat("the tokenizer has ", tokenizer->vocabulary_size(),
                         " tokens, but the model has ", model.vocabulary,
                         "; give the tokenizer that the model was trained with"));
}

void write_token_files(const Tokenizer* tokenizer, const ModelConfig& model,
                       const std::string& token_ids, const std::string& folder) {
  const auto end_of_text = tokenizer == nullptr ? std::nullopt : tokenizer->end_of_text();
  json::object config{{"_from_model_config", true}};
  add_token_ids(config, end_of_text, token_ids);
  replace_file(folder + "/generation_config.json", pretty_json(config));
  if (tokenizer != nullptr && is_hugging_face(tokenizer->kind()))
    write_tokenizer(*tokenizer, model, folder);
}

}  // namespace hybrid_trainer
