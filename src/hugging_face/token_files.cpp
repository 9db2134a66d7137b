#include "src/hugging_face/token_files.h"

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/output_file.h"
#include "src/hugging_face/hugging_face_files.h"

namespace hybrid_trainer {
namespace {

void write_tokenizer(const Tokenizer& tokenizer, const ModelConfig& model,
                     const std::string& folder) {
  const auto id = tokenizer.end_of_text();
  const std::string end_of_text(id ? tokenizer.token_bytes(*id) : "");
  tokenizer.save(folder);
  const TokenizerFiles& files = tokenizer.files();
  if (files.contains("tokenizer_config.json") || !files.contains("merges.txt")) return;
  replace_file(
      folder + "/tokenizer_config.json",
      hugging_face_tokenizer_config_text(model, end_of_text, tokenizer.adds_prefix_space()));
  replace_file(folder + "/special_tokens_map.json", hugging_face_special_tokens_text(end_of_text));
}

}  // namespace

void check_tokenizer_fits(const Tokenizer* tokenizer, const ModelConfig& model) {
  if (tokenizer == nullptr || tokenizer->least_table() <= model.vocabulary) return;
  throw DataError(concat("the tokenizer has ", tokenizer->vocabulary_size(),
                         " tokens and the model ", model.vocabulary,
                         "; give the tokenizer that the model was trained with"));
}

void write_token_files(const Tokenizer* tokenizer, const ModelConfig& model,
                       const std::string& token_ids, const std::string& folder) {
  const auto end_of_text = tokenizer == nullptr ? std::nullopt : tokenizer->end_of_text();
  replace_file(folder + "/generation_config.json",
               hugging_face_generation_text(end_of_text, token_ids));
  if (tokenizer != nullptr && tokenizer->kind() == TokenizerKind::kBpe)
    write_tokenizer(*tokenizer, model, folder);
}

}  // namespace hybrid_trainer
