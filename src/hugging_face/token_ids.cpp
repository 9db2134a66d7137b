#include "hybrid_trainer/hugging_face/token_ids.h"

#include <algorithm>
#include <boost/json.hpp>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/narrow.h"
#include "hybrid_trainer/files/foreign_keys.h"
#include "hybrid_trainer/files/pretty_json.h"
#include "hybrid_trainer/files/strict_json.h"
#include "hybrid_trainer/gguf/gguf_file.h"
#include "hybrid_trainer/gguf/gguf_special_tokens.h"
#include "src/hugging_face/gguf_config.h"
#include "src/hugging_face/hugging_face_files.h"

namespace hybrid_trainer {

namespace json = boost::json;
namespace fs = std::filesystem;

namespace {

constexpr const char* kEnd = "eos_token_id";

std::vector<std::int32_t> end_tokens_of(const json::object& object, const std::string& name) {
  const json::value* ids = object.if_contains(kEnd);
  if (ids == nullptr || ids->is_null()) return {};
  std::vector<std::int32_t> tokens;
  const json::array one{*ids}, &all = ids->is_array() ? ids->get_array() : one;
  if (all.size() > kMostEndTokens)
    throw DataError(
        concat(name, ": ", kEnd, ": has ", all.size(), " tokens, want at most ", kMostEndTokens));
  for (const json::value& id : all) {
    if (!id.is_int64() || id.get_int64() < 0)
      throw DataError(concat(name, ": ", kEnd, ": want a whole number or a list"));
    tokens.push_back(narrow<std::int32_t>(id.get_int64(), concat(name, ": ", kEnd)));
  }
  return tokens;
}

std::vector<std::int32_t> end_tokens_of(const fs::path& file) {
  return end_tokens_of(python_object_in(file), file.string());
}

}  // namespace

std::string token_ids_in(const fs::path& folder) {
  const bool is_gguf = GgufFile::is_one(folder);
  const fs::path file = folder / "config.json";
  if (!is_gguf && !fs::exists(file)) return "";
  const json::object config = is_gguf ? gguf_config(GgufFile(folder)) : python_object_in(file);
  json::object ids;
  for (const char* key : {"bos_token_id", kEnd, "pad_token_id", "decoder_start_token_id",
                          "forced_bos_token_id", "forced_eos_token_id"})
    if (const json::value* value = config.if_contains(key)) ids[key] = *value;
  if (is_gguf || fs::exists(folder / "generation_config.json")) return json::serialize(ids);
  for (const auto& [key, value] : config)
    if (changes_writing(std::string(key)) && !value.is_null()) ids[key] = value;
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
    std::vector<std::int32_t> ends;
    for (const std::int64_t id : read_gguf_special_tokens(GgufFile(folder)).ends)
      ends.push_back(narrow<std::int32_t>(id, "a token's id"));
    return ends;
  }
  std::vector<std::int32_t> tokens = end_tokens_of(folder / "generation_config.json");
  return tokens.empty() ? end_tokens_of(folder / "config.json") : tokens;
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
