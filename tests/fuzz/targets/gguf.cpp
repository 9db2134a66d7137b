#include "src/gguf/gguf_file.h"

#include <boost/json.hpp>

#include "src/data/chat/chat_template.h"
#include "src/data/text/tokenizer_files.h"
#include "src/model_files/gguf/gguf_model.h"
#include "tests/fuzz/fuzz_target.h"

void hybrid_trainer::read_input(std::string_view input) {
  const GgufFile file(input_file("model.gguf", input));
  for (const GgufTensor& tensor : file.tensors()) unless_rejected([&] { file.values_of(tensor); });
  unless_rejected([&] { gguf_config(file); });
  unless_rejected([&] { gguf_pooling(file); });
  unless_rejected([&] { read_chat_files(file); });
  unless_rejected(
      [&] { load_tokenizer(file)->encode("The quick brown fox, isn't it? 12 é漢\xFF"); });
}
