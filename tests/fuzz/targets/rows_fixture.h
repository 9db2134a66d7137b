#pragma once

#include "hybrid_trainer/data/tokenizer.h"
#include "src/data/chat/chat_template.h"
#include "src/files/folder_files.h"
#include "tests/fuzz/fuzz_target.h"

namespace hybrid_trainer {

/// A small tokenizer and chat template.
struct RowsFixture {
  std::unique_ptr<Tokenizer> tokenizer = make_byte_tokenizer();
  ChatFiles chat = [] {
    std::filesystem::create_directories(input_folder() / "model");
    input_file("model/chat_template.jinja",
               "{{ bos_token }}{% for t in tools or [] %}{{ t | tojson }}{% endfor %}"
               "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
               "{% for c in m.tool_calls or [] %}{{ c | tojson }}{% endfor %}\n{% endfor %}"
               "{% if add_generation_prompt %}<assistant>{% endif %}");
    return read_chat_files(FolderFiles(input_folder() / "model"));
  }();
};

}  // namespace hybrid_trainer
