#include "hybrid_trainer/hugging_face/token_ids.h"

#include <algorithm>
#include <boost/json.hpp>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/pretty_json.h"
#include "hybrid_trainer/files/strict_json.h"
#include "hybrid_trainer/files/text_file.h"
#include "hybrid_trainer/gguf/gguf_file.h"
#include "hybrid_trainer/gguf/gguf_special_tokens.h"
#include "src/hugging_face/gguf_config.h"
#include "src/hugging_face/hugging_face_files.h"

namespace hybrid_trainer {

namespace json = boost::json;
namespace fs = std::filesystem;

namespace {

constexpr const char* kEnd = "eos_token_id";

/// The object in a file, with what only its text_config says; an empty one where there is no file.
json::object object_in(const fs::path& file) {
  if (!fs::exists(file)) return {};
  json::object object = parse_python_object(read_text(file, JsonLimits{}.max_bytes), file.string());
  const json::value* inner = object.if_contains("text_config");  // of a model of texts and images
  if (inner == nullptr || !inner->is_object()) return object;
  const json::object of_texts = inner->get_object();
  for (const auto& [key, value] : of_texts)
    if (!object.contains(key)) object[key] = value;
  return object;
}

std::vector<std::int32_t> end_tokens_of(const json::object& object, const std::string& name) {
  const json::value* ids = object.if_contains(kEnd);
  if (ids == nullptr || ids->is_null()) return {};
  std::vector<std::int32_t> tokens;
  for (const json::value& id : ids->is_array() ? ids->get_array() : json::array{*ids}) {
    if (!id.is_int64() || id.get_int64() < 0 || id.get_int64() > INT32_MAX)
      throw DataError(concat(name, ": ", kEnd, ": want a whole number or a list"));
    tokens.push_back(static_cast<std::int32_t>(id.get_int64()));
  }
  return tokens;
}

std::vector<std::int32_t> end_tokens_of(const fs::path& file) {
  return end_tokens_of(object_in(file), file.string());
}

}  // namespace

std::string token_ids_in(const fs::path& folder) {
  const bool is_gguf = GgufFile::is_one(folder);
  const fs::path file = folder / "config.json";
  if (!is_gguf && !fs::exists(file)) return "";
  const json::object config = is_gguf ? gguf_config(GgufFile(folder)) : object_in(file);
  json::object ids;
  for (const char* key : {"bos_token_id", kEnd, "pad_token_id", "decoder_start_token_id",
                          "forced_bos_token_id", "forced_eos_token_id"})
    if (const json::value* value = config.if_contains(key)) ids[key] = *value;
  if (is_gguf || fs::exists(folder / "generation_config.json")) return json::serialize(ids);
  const json::value* const has_encoder = config.if_contains("is_encoder_decoder");
  if (has_encoder == nullptr || *has_encoder != json::value(true)) return json::serialize(ids);
  for (const char* key : {"num_beams", "length_penalty", "early_stopping", "no_repeat_ngram_size",
                          "min_length", "max_length"})
    if (const json::value* value = config.if_contains(key)) ids[key] = *value;
  return json::serialize(ids);
}

std::vector<std::int32_t> end_token_ids_in(const fs::path& folder) {
  if (GgufFile::is_one(folder)) return generation_end_tokens_in(folder);
  std::set<std::int32_t> all;
  for (const char* name : {"generation_config.json", "config.json"})
    for (const std::int32_t id : end_tokens_of(folder / name)) all.insert(id);
  return {all.begin(), all.end()};
}

std::vector<std::int32_t> generation_end_tokens_in(const fs::path& folder) {
  if (GgufFile::is_one(folder)) {
    const std::vector<std::int64_t> ends = read_gguf_special_tokens(GgufFile(folder)).ends;
    return {ends.begin(), ends.end()};
  }
  std::vector<std::int32_t> tokens = end_tokens_of(folder / "generation_config.json");
  return tokens.empty() ? end_tokens_of(folder / "config.json") : tokens;
}

namespace {

class WritingReader {
 public:
  explicit WritingReader(const fs::path& file) : name_(file.string()), object_(object_in(file)) {}

  std::int64_t count(const char* key, std::int64_t missing) const {
    const json::value* value = find(key);
    if (value == nullptr) return missing;
    if (!value->is_int64() || value->get_int64() < 0) fail(key, *value, "a whole number from 0 on");
    return value->get_int64();
  }
  std::optional<std::int32_t> token(const char* key) const {
    const json::value* value = find(key);
    if (value != nullptr && value->is_array() && value->get_array().size() == 1)
      value = &value->get_array().front();
    if (value == nullptr) return {};
    if (!value->is_int64() || value->get_int64() < 0 || value->get_int64() > INT32_MAX)
      fail(key, *value, "a token's id");
    return static_cast<std::int32_t>(value->get_int64());
  }
  double number(const char* key, double missing) const {
    const json::value* value = find(key);
    if (value == nullptr) return missing;
    if (!value->is_number()) fail(key, *value, "a number");
    return value->to_number<double>();
  }
  const json::value* find(const char* key) const {
    const json::value* value = object_.if_contains(key);
    return value != nullptr && value->is_null() ? nullptr : value;
  }
  [[noreturn]] void fail(const char* key, const json::value& value, const char* wanted) const {
    throw DataError(concat(name_, ": ", key, ": got ", json::serialize(value).substr(0, 60),
                           ", want ", wanted));
  }

 private:
  std::string name_;
  json::object object_;
};

}  // namespace

WritingKeys writing_keys_in(const fs::path& folder) {
  const WritingReader of_model(folder / "config.json");
  const bool is_apart = fs::exists(folder / "generation_config.json");
  const WritingReader reader(folder / (is_apart ? "generation_config.json" : "config.json"));
  WritingKeys keys{.start = reader.token("decoder_start_token_id"),
                   .first = reader.token("forced_bos_token_id"),
                   .last = reader.token("forced_eos_token_id"),
                   .beams = std::max<std::int64_t>(1, reader.count("num_beams", 1)),
                   .length_penalty = reader.number("length_penalty", 1),
                   .unrepeated = reader.count("no_repeat_ngram_size", 0),
                   .least = reader.count("min_length", 0),
                   .most = reader.count("max_length", 0)};
  if (const json::value* early = reader.find("early_stopping")) {
    keys.never_guesses = *early == json::value("never");
    if (!early->is_bool() && !keys.never_guesses)
      reader.fail("early_stopping", *early, "true, false or \"never\"");
    keys.stops_early = early->is_bool() && early->get_bool();
  }
  if (!keys.start) keys.start = of_model.token("decoder_start_token_id");
  return keys;
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

}  // namespace hybrid_trainer
