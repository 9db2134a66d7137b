#include "src/data/text/tokenizer_files.h"
#include "tests/fuzz/fuzz_target.h"

void hybrid_trainer::read_input(std::string_view input) {
  const auto parts = parts_of(input, 4);  // vocab.txt, a text, and two files with settings
  input_file("vocab.txt", parts[0]);
  input_file("tokenizer_config.json", parts[2].empty() ? "{}" : parts[2]);
  input_file("special_tokens_map.json", parts[3].empty() ? "{}" : parts[3]);
  const auto tokenizer = load_tokenizer(FolderFiles(input_folder()));
  const auto ids = tokenizer->encode(parts[1], ControlText::kAsTokens);
  tokenizer->decode(ids);
  word_continuations(*tokenizer);
  special_token_ids_of(*tokenizer);
}
