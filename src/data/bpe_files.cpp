#include "src/data/bpe_files.h"

#include <algorithm>
#include <utility>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/input_file.h"
#include "hybrid_trainer/files/named_templates.h"
#include "hybrid_trainer/files/text_file.h"
#include "src/data/byte_symbols.h"
#include "src/data/json_file.h"
#include "src/data/tokenizer_json.h"

namespace hybrid_trainer {

namespace {

namespace fs = std::filesystem;
namespace json = boost::json;
constexpr std::size_t kLargestFile = std::size_t{256} << 20;

/// tokenizer.json of a byte-level BPE within GPT-2's words. An `end_of_text` is a special token.
json::object gpt2_pipeline(json::object vocab, json::array merges,
                           std::optional<std::int64_t> end_of_text, bool adds_prefix_space) {
  const json::object byte_level{{"type", "ByteLevel"},
                                {"add_prefix_space", adds_prefix_space},
                                {"trim_offsets", true},
                                {"use_regex", true}};
  json::array added;
  if (end_of_text) {
    added.push_back({{"id", *end_of_text},
                     {"content", kEndOfText},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  return {{"version", "1.0"},
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
            {"vocab", std::move(vocab)},
            {"merges", std::move(merges)}}}};
}

std::string file_text(const json::value& value) { return json::serialize(value) + "\n"; }

json::array merges_of_lines(const std::string& text) {
  json::array merges;
  bool first = true;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    if (line.ends_with('\r')) line.pop_back();
    const bool is_version = std::exchange(first, false) && line.starts_with("#version");
    if (!line.empty() && !is_version) merges.emplace_back(line);
    begin = end + 1;
  }
  return merges;
}

}  // namespace

TokenizerFiles read_companions(const fs::path& folder) {
  TokenizerFiles files;
  for (const char* name : kTokenizerFiles) {
    if (fs::exists(folder / name)) files[name] = read_file(folder / name, kLargestFile);
  }
  for (const std::string& name : additional_template_files(folder.string()))
    files[name] = read_file(folder / name, kLargestFile);
  return files;
}

std::unique_ptr<Tokenizer> make_bpe_tokenizer(const BpeModel& model) {
  const ByteSymbolCoder coder;
  std::vector<std::string> spelling;
  for (const std::string& token : model.tokens) spelling.push_back(coder.to_symbols(token));
  spelling.back() = model.tokens.back();
  json::object vocab;
  for (std::size_t id = 0; id < spelling.size(); ++id)
    vocab.emplace(spelling[id], static_cast<std::int64_t>(id));
  json::array merges;
  std::string lines = "#version: 0.2\n";
  for (const BpeMerge& merge : model.merges) {
    const std::string line = concat(spelling[static_cast<std::size_t>(merge.left)], ' ',
                                    spelling[static_cast<std::size_t>(merge.right)]);
    merges.emplace_back(line);
    lines += line + "\n";
  }
  TokenizerFiles files{{"vocab.json", file_text(vocab)}, {"merges.txt", lines}};
  const json::value root = gpt2_pipeline(std::move(vocab), std::move(merges),
                                         static_cast<std::int64_t>(model.tokens.size()) - 1, false);
  files["tokenizer.json"] = file_text(root);
  return tokenizer_of_json(root, "the trained tokenizer", {}, std::move(files));
}

std::unique_ptr<Tokenizer> load_gpt2_files(const fs::path& vocab, const fs::path& merges) {
  const fs::path folder = vocab.parent_path();
  const TokenizerSettings settings = read_tokenizer_settings(folder);
  json::object tokens = read_json_object(vocab);
  std::optional<std::int64_t> end_of_text;
  if (const json::value* id = tokens.if_contains(kEndOfText); id != nullptr && id->is_int64())
    end_of_text = id->get_int64();
  const json::value root =
      gpt2_pipeline(std::move(tokens), merges_of_lines(read_text(merges, kLargestFile)),
                    end_of_text, settings.adds_prefix_space.value_or(false));
  TokenizerFiles files = read_companions(folder);
  files["tokenizer.json"] = file_text(root);
  return tokenizer_of_json(root, concat(vocab.string(), " and ", merges.filename().string()),
                           settings, std::move(files));
}

std::unique_ptr<Tokenizer> load_hugging_face_file(const json::object& object,
                                                  const fs::path& file) {
  const fs::path folder = file.parent_path();
  TokenizerFiles files = read_companions(folder);
  files["tokenizer.json"] = read_file(file, kLargestFile);
  return tokenizer_of_json(object, file.string(), read_tokenizer_settings(folder),
                           std::move(files));
}

}  // namespace hybrid_trainer
