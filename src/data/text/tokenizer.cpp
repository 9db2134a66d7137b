#include "hybrid_trainer/data/tokenizer.h"

#include <algorithm>
#include <boost/algorithm/string/predicate.hpp>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/fields.h"
#include "src/core/messages.h"
#include "src/data/text/tokenizer_files.h"
#include "src/files/output_file.h"
#include "src/gguf/gguf_file.h"

namespace hybrid_trainer {

const char* name_of(TokenizerKind kind) {
  switch (kind) {
    case TokenizerKind::kBytes: return "bytes";
    case TokenizerKind::kCharacters: return "characters";
    case TokenizerKind::kBpe: return "bpe";
    case TokenizerKind::kWordPiece: return "wordpiece";
    case TokenizerKind::kUnigram: return "unigram";
  }
  return "";
}

bool is_hugging_face(TokenizerKind kind) {
  return kind != TokenizerKind::kBytes && kind != TokenizerKind::kCharacters;
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
  if (!boost::algorithm::starts_with(ids, start))
    ids.insert(ids.begin(), start.begin(), start.end());
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

constexpr std::pair<const char*, const char*> kForeignFiles[] = {
    {"tokenizer.model", "a SentencePiece model"},
    {"spiece.model", "a SentencePiece model"},
    {"sentencepiece.bpe.model", "a SentencePiece model"},
    {"tekken.json", "a tokenizer of mistral-common"}};

bool is_foreign(const std::string& name) {
  return std::ranges::find(kForeignFiles, name, [](const auto& file) { return file.first; }) !=
         std::end(kForeignFiles);
}

}  // namespace

std::string missing_tokenizer_message(const std::filesystem::path& folder) {
  const std::string in = folder.empty() ? "." : folder.string();
  for (const auto& [name, what] : kForeignFiles) {
    if (!std::filesystem::exists(folder / name)) continue;
    return concat(
        in, ": has ", name, ", ", what, ", but no tokenizer.json; ",
        "convert it with transformers: python3 -c \"import sys; from transformers import ",
        "AutoTokenizer as T; f = sys.argv[1]; T.from_pretrained(f).save_pretrained(f)\" ",
        shell_path(in));
  }
  return concat(in, ": has no tokenizer; want tokenizer.json, vocab.txt, or vocab.json and ",
                "merges.txt");
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path))
    throw MissingInput(path.string() + ": does not exist; want a tokenizer file or folder");
  if (GgufFile::is_one(path)) return load_tokenizer(GgufFile(path));
  if (std::filesystem::is_directory(path)) return load_tokenizer(FolderFiles(path));
  const std::string name = path.filename().string();
  if (is_foreign(name)) throw MissingInput(missing_tokenizer_message(path.parent_path()));
  return load_tokenizer(FolderFiles(path.parent_path()), name);
}

void write_tokenizer_files(const TokenizerFiles& files, const std::filesystem::path& folder) {
  for (const auto& [name, content] : files) {
    std::filesystem::create_directories((folder / name).parent_path());
    replace_file((folder / name).string(), content);
  }
}

bool contains_tokenizer(const std::filesystem::path& folder) {
  return GgufFile::is_one(folder) || std::filesystem::exists(folder / "tokenizer.json") ||
         std::filesystem::exists(folder / "vocab.json") ||
         std::filesystem::exists(folder / "vocab.txt");
}

}  // namespace hybrid_trainer
