#include <boost/json.hpp>

#include "src/data/text/tokenizer_files.h"
#include "tests/fuzz/fuzz_target.h"

void hybrid_trainer::read_input(std::string_view input) {
  // tokenizer.json, a text, tokenizer_config.json, special_tokens_map.json
  const auto parts = parts_of(input, 4);
  input_file("tokenizer.json", parts[0]);
  input_file("tokenizer_config.json", parts[2].empty() ? "{}" : parts[2]);
  input_file("special_tokens_map.json", parts[3].empty() ? "{}" : parts[3]);
  const auto tokenizer = load_tokenizer(FolderFiles(input_folder()));
  for (const std::string_view text : {parts[1], std::string_view("The cat's  12 é漢\xFF <s>\n")}) {
    unless_rejected([&] {
      const auto ids = tokenizer->encode_document(text, ControlText::kAsTokens);
      for (const std::int32_t id : ids) tokenizer->token_bytes(id);
      tokenizer->decode(ids);
      tokenizer->last_split_point(text, 0);
    });
    unless_rejected([&] { tokenizer->encode_texts(text, text, {.ids = 8}); });
  }
}
