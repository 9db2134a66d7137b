#include "hybrid_trainer/data/tokenizer.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/fields.h"
#include "src/core/messages.h"
#include "src/data/text/character_tokenizer.h"
#include "src/data/text/json_place.h"
#include "src/data/text/tokenizer_files.h"
#include "src/files/output_file.h"
#include "src/gguf/gguf_file.h"

namespace hybrid_trainer {

const char* name_of(TokenizerKind kind) {
  switch (kind) {
    case TokenizerKind::kBytes:
      return "bytes";
    case TokenizerKind::kCharacters:
      return "characters";
    case TokenizerKind::kBpe:
      return "bpe";
  }
  return "";
}

const std::vector<std::string>& control_text_names() {
  static const std::vector<std::string> names{"tokens", "text"};
  return names;
}

ControlText control_text_of(const std::string& name) {
  if (name == "tokens") return ControlText::kAsTokens;
  if (name == "text") return ControlText::kAsText;
  throw UsageError(choice_problem("--control-tokens", name, control_text_names()));
}

std::string_view Tokenizer::token_bytes(std::int32_t id) const {
  if (id < 0 || id >= vocabulary_size()) {
    throw DataError(concat("token ", id, " is outside the tokenizer's vocabulary of ",
                           vocabulary_size(), " tokens"));
  }
  return tokens_[static_cast<std::size_t>(id)];
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, ControlText control) const {
  std::vector<std::int32_t> ids;
  append_tokens(text, ids, TextStart::kDocument, control);
  return ids;
}

std::vector<std::int32_t> Tokenizer::encode_document(std::string_view text,
                                                     ControlText control) const {
  std::vector<std::int32_t> ids = encode(text, control);
  const std::vector<std::int32_t> start = template_start();
  const bool is_spelt =
      ids.size() >= start.size() && std::equal(start.begin(), start.end(), ids.begin());
  if (!is_spelt) ids.insert(ids.begin(), start.begin(), start.end());
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const std::int32_t id : ids) text += token_bytes(id);
  return text;
}

void Tokenizer::save(const std::filesystem::path& folder) const {
  write_tokenizer_files(files_, folder);
}

namespace {

/// Tokenizers' files of other libraries.
constexpr std::pair<const char*, const char*> kForeignFiles[] = {
    {"tokenizer.model", "a SentencePiece model"},
    {"spiece.model", "a SentencePiece model"},
    {"sentencepiece.bpe.model", "a SentencePiece model"},
    {"tekken.json", "a tokenizer of mistral-common"},
    {"vocab.txt", "a vocabulary of WordPiece"}};

bool is_foreign(const std::string& name) {
  return std::ranges::find(kForeignFiles, name, [](const auto& file) { return file.first; }) !=
         std::end(kForeignFiles);
}

}  // namespace

std::string absent_tokenizer(const std::filesystem::path& folder) {
  const std::string in = folder.empty() ? "." : folder.string();
  for (const auto& [name, what] : kForeignFiles) {
    if (!std::filesystem::exists(folder / name)) continue;
    return concat(
        in, ": holds ", name, ", ", what, ", and no tokenizer.json, which is what is read; ",
        "transformers makes one of it: python3 -c \"import sys; from transformers import ",
        "AutoTokenizer as T; f = sys.argv[1]; T.from_pretrained(f).save_pretrained(f)\" ",
        shell_path(in));
  }
  return concat(in, ": holds no tokenizer; want tokenizer.json, or vocab.json and merges.txt");
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  if (!fs::exists(path)) {
    throw MissingInput(concat("there is no tokenizer at ", path.string()));
  }
  if (GgufFile::is_one(path)) return load_gguf_tokenizer(path);
  const bool is_folder = fs::is_directory(path);
  const fs::path folder = is_folder ? path : path.parent_path();
  const bool is_gpt2 = is_folder
                           ? !fs::exists(folder / "tokenizer.json")
                           : path.filename() == "vocab.json" || path.filename() == "merges.txt";
  if (is_gpt2) {
    if (!fs::exists(folder / "vocab.json") || !fs::exists(folder / "merges.txt")) {
      throw MissingInput(absent_tokenizer(folder));
    }
    return load_gpt2_files(folder / "vocab.json", folder / "merges.txt");
  }
  const fs::path file = is_folder ? path / "tokenizer.json" : path;
  if (is_foreign(file.filename().string())) throw MissingInput(absent_tokenizer(folder));
  const boost::json::value root = read_json_object(file);
  const JsonPlace place(root, file.string());
  if (!place.object().contains("type")) return load_hugging_face_file(place.object(), file);
  const std::string type = place.at("type").text();
  if (type == "bytes") return make_byte_tokenizer();
  if (type == "characters") return load_character_tokenizer(place);
  throw DataError(concat(file.string(), ": tokenizer type \"", type,
                         "\" is not supported; want bytes, characters, or a file of Hugging Face"));
}

TokenizerFiles read_tokenizer_files(const std::filesystem::path& folder) {
  if (GgufFile::is_one(folder)) return load_gguf_tokenizer(folder)->files();
  return read_companions(folder);
}

void write_tokenizer_files(const TokenizerFiles& files, const std::filesystem::path& folder) {
  for (const auto& [name, content] : files) {
    std::filesystem::create_directories((folder / name).parent_path());
    replace_file((folder / name).string(), content);
  }
}

bool holds_tokenizer(const std::filesystem::path& folder) {
  return GgufFile::is_one(folder) || std::filesystem::exists(folder / "tokenizer.json") ||
         std::filesystem::exists(folder / "vocab.json");
}

}  // namespace hybrid_trainer
