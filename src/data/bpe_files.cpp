#include "bpe_files.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "byte_symbols.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/input_file.h"
#include "hybrid_trainer/files/output_file.h"
#include "json_file.h"

namespace hybrid_trainer {

namespace {

namespace fs = std::filesystem;
namespace json = boost::json;
constexpr std::int64_t kLargestVocabulary = 10'000'000;
constexpr std::size_t kLargestMergesFile = std::size_t{256} << 20;

/// Collects tokens and merges as spelled in the files and checks that they fit together.
class ModelBuilder {
 public:
  explicit ModelBuilder(const fs::path& file) : file_(file.string()) {}

  void add_vocabulary(const json::object& vocab) {
    for (const auto& [key, id] : vocab) {
      const bool holds = id.is_int64() && id.as_int64() >= 0 && id.as_int64() < kLargestVocabulary;
      if (!holds) fail("token \"", std::string(key), "\" has the id ", json::serialize(id));
      const auto symbols = std::string(key);
      id_of_[symbols] = static_cast<std::int32_t>(id.as_int64());
    }
  }

  void add_special(const std::string& text, std::int64_t id) {
    if (id >= kLargestVocabulary) fail("token \"", text, "\" has the id ", id);
    const auto narrow = static_cast<std::int32_t>(id);
    const auto [found, is_new] = id_of_.emplace(text, narrow);
    if (found->second != narrow)
      fail("token \"", text, "\" has two ids, ", found->second, " and ", id);
    model_.special.push_back(narrow);
    if (text == kEndOfText) model_.end_of_text = narrow;
  }

  void add_merge(const std::string& left, const std::string& right) {
    const auto id = [&](const std::string& symbols) {
      const auto found = id_of_.find(symbols);
      if (found != id_of_.end()) return found->second;
      fail("merge ", model_.merges.size() + 1, " \"", left, " ", right, "\": token \"", symbols,
           "\" is not in the vocabulary");
    };
    model_.merges.push_back({id(left), id(right), id(left + right)});
  }
  void add_merge(const std::string& line) {
    const std::size_t space = line.find(' ');
    if (space == std::string::npos) fail("merge \"", line, "\" is not two tokens");
    add_merge(line.substr(0, space), line.substr(space + 1));
  }

  void set_adds_prefix_space(bool value) { model_.adds_prefix_space = value; }
  bool knows(const std::string& symbols) const { return id_of_.contains(symbols); }
  std::int64_t id(const std::string& symbols) const { return id_of_.at(symbols); }

  std::unique_ptr<Tokenizer> finish() {
    set_tokens();
    const ByteSymbolCoder coder;
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const auto found = id_of_.find(coder.to_symbols(std::string(1, static_cast<char>(byte))));
      if (found == id_of_.end()) fail("byte ", byte, " has no token; want all 256 byte tokens");
      model_.byte_ids[byte] = found->second;
    }
    return make_bpe_tokenizer(std::move(model_));
  }

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw DataError(concat(file_, ": ", parts...));
  }

 private:
  void set_tokens() {
    const ByteSymbolCoder coder;
    std::vector<bool> taken(id_of_.size());
    model_.tokens.resize(id_of_.size());
    std::ranges::sort(model_.special);
    for (const auto& [symbols, id] : id_of_) {
      const auto place = static_cast<std::size_t>(id);
      if (place >= taken.size() || taken[place]) {
        fail("token \"", symbols, "\" has the id ", id, "; want each of 0 … ", taken.size() - 1,
             " once");
      }
      taken[place] = true;
      const bool special = std::ranges::binary_search(model_.special, id);
      const auto bytes = special ? symbols : coder.to_bytes(symbols);
      if (!bytes) fail("token \"", symbols, "\" is not written in GPT-2's byte symbols");
      model_.tokens[place] = *bytes;
    }
  }

  std::string file_;
  BpeModel model_;
  std::unordered_map<std::string, std::int32_t> id_of_;  // by spelling
};

/// Refuses a member that is present and neither null nor neutral: it would change the ids.
void refuse_unless_neutral(const ModelBuilder& builder, const json::object& object, const char* key,
                           const json::value& neutral) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr || value->is_null() || *value == neutral) return;
  builder.fail(key, " ", json::serialize(*value), " is not supported; want ",
               json::serialize(neutral));
}

/// As in transformers, tokenizer_config.json overrides what the tokenizer's own file says.
void read_tokenizer_config(ModelBuilder& builder, const fs::path& folder) {
  const fs::path file = folder / "tokenizer_config.json";
  if (!fs::exists(file)) return;
  const json::object config = read_json_object(file);
  const json::value* add = config.if_contains("add_prefix_space");
  if (add == nullptr || add->is_null()) return;
  if (!add->is_bool()) {
    throw DataError(concat(file.string(), ": key \"add_prefix_space\" is ",
                           json::serialize(*add).substr(0, 40), "; want true or false"));
  }
  builder.set_adds_prefix_space(add->as_bool());
}

void read_pre_tokenizer(ModelBuilder& builder, const json::object& root, const fs::path& file) {
  const json::object& object = object_member(root, "pre_tokenizer", file);
  const std::string type = string_member(object, "type", file);
  if (type != "ByteLevel") {
    builder.fail("pre_tokenizer \"", type, "\" is not supported; want ByteLevel");
  }
  refuse_unless_neutral(builder, object, "use_regex", true);
  const json::value* add = object.if_contains("add_prefix_space");
  builder.set_adds_prefix_space(add == nullptr || *add != json::value(false));
}

void read_added_tokens(ModelBuilder& builder, const json::object& root, const fs::path& file) {
  if (!root.contains("added_tokens")) return;
  for (const auto& value : array_member(root, "added_tokens", file)) {
    if (!value.is_object()) builder.fail("added_tokens holds ", json::serialize(value));
    const json::object& token = value.as_object();
    const std::string content = string_member(token, "content", file);
    if (!token.contains("special") || token.at("special") != json::value(true)) {
      builder.fail("added token \"", content, "\" is not special: such tokens are not supported");
    }
    builder.add_special(content, count_member(token, "id", file));
  }
}

void read_merges(ModelBuilder& builder, const json::object& model, const fs::path& file) {
  for (const auto& value : array_member(model, "merges", file)) {
    if (value.is_string()) {
      builder.add_merge(std::string(value.as_string()));
    } else if (value.is_array() && value.as_array().size() == 2 && value.at(0).is_string() &&
               value.at(1).is_string()) {
      builder.add_merge(std::string(value.at(0).as_string()), std::string(value.at(1).as_string()));
    } else {
      builder.fail("merge ", json::serialize(value), " is not two tokens");
    }
  }
}

}  // namespace

std::unique_ptr<Tokenizer> load_gpt2_files(const fs::path& vocab, const fs::path& merges) {
  ModelBuilder builder(vocab);
  builder.add_vocabulary(read_json_object(vocab));
  const std::string end_of_text(kEndOfText);
  if (builder.knows(end_of_text)) builder.add_special(end_of_text, builder.id(end_of_text));
  read_tokenizer_config(builder, vocab.parent_path());
  const std::string text = read_file(merges, kLargestMergesFile);
  bool first = true;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    if (line.ends_with('\r')) line.pop_back();
    const bool is_version = std::exchange(first, false) && line.starts_with("#version");
    if (!line.empty() && !is_version) builder.add_merge(line);
    begin = end + 1;
  }
  return builder.finish();
}

std::unique_ptr<Tokenizer> load_hugging_face_file(const json::object& root, const fs::path& file) {
  ModelBuilder builder(file);
  refuse_unless_neutral(builder, root, "normalizer", nullptr);
  const json::object& model = object_member(root, "model", file);
  const json::value* type = model.if_contains("type");
  if (type != nullptr && *type != json::value("BPE")) {
    builder.fail("model type ", json::serialize(*type), " is not supported; want \"BPE\"");
  }
  read_pre_tokenizer(builder, root, file);
  read_tokenizer_config(builder, file.parent_path());
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    refuse_unless_neutral(builder, model, key, "");
  }
  for (const char* key : {"byte_fallback", "ignore_merges"}) {
    refuse_unless_neutral(builder, model, key, false);
  }
  refuse_unless_neutral(builder, model, "dropout", 0.0);
  builder.add_vocabulary(object_member(model, "vocab", file));
  read_added_tokens(builder, root, file);
  read_merges(builder, model, file);
  return builder.finish();
}

void save_bpe_files(const BpeModel& model, const std::vector<std::string>& tokens,
                    const fs::path& folder) {
  const ByteSymbolCoder coder;
  std::vector<std::string> spelling;
  for (const std::string& token : tokens) spelling.push_back(coder.to_symbols(token));
  json::array added;
  for (const std::int32_t id : model.special) {
    const auto place = static_cast<std::size_t>(id);
    spelling[place] = tokens[place];
    added.push_back({{"id", id},
                     {"content", tokens[place]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  json::object vocab;
  for (std::size_t id = 0; id < spelling.size(); ++id) vocab[spelling[id]] = id;
  json::array merges;
  std::string lines = "#version: 0.2\n";
  for (const BpeMerge& merge : model.merges) {
    const std::string line = spelling[static_cast<std::size_t>(merge.left)] + " " +
                             spelling[static_cast<std::size_t>(merge.right)];
    merges.emplace_back(line);
    lines += line + "\n";
  }
  const json::object byte_level{{"type", "ByteLevel"},
                                {"add_prefix_space", model.adds_prefix_space},
                                {"trim_offsets", true},
                                {"use_regex", true}};
  write_json(vocab, folder / "vocab.json");
  write_file(folder / "merges.txt", lines);
  write_json({{"version", "1.0"},
              {"truncation", nullptr},
              {"padding", nullptr},
              {"added_tokens", added},
              {"normalizer", nullptr},
              {"pre_tokenizer", byte_level},
              {"post_processor", nullptr},
              {"decoder", byte_level},
              {"model",
               {{"type", "BPE"},
                {"dropout", nullptr},
                {"unk_token", nullptr},
                {"continuing_subword_prefix", ""},
                {"end_of_word_suffix", ""},
                {"fuse_unk", false},
                {"byte_fallback", false},
                {"vocab", vocab},
                {"merges", merges}}}},
             folder / "tokenizer.json");
}

}  // namespace hybrid_trainer
