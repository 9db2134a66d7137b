#pragma once

#include <string>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

inline constexpr int kLetters = 5;

/// BART's special tokens and five letters.
inline std::string letter_tokenizer() {
  std::string vocabulary = R"("<s>":0,"<pad>":1,"</s>":2)", added;
  for (int letter = 0; letter < kLetters; ++letter)
    vocabulary += concat(",\"", static_cast<char>('a' + letter), "\":", letter + 3);
  int id = 0;
  for (const char* token : {"<s>", "<pad>", "</s>"})
    added += concat(added.empty() ? "" : ",", R"({"id":)", id++, R"(,"content":")", token,
                    R"(","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,)",
                    R"("special":true})");
  return concat(
      R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[)", added,
      R"(],"normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,)",
      R"("trim_offsets":true,"use_regex":true},"post_processor":{"type":"RobertaProcessing",)",
      R"("sep":["</s>",2],"cls":["<s>",0],"trim_offsets":true,"add_prefix_space":false},)",
      R"("decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,)",
      R"("use_regex":true},"model":{"type":"BPE","dropout":null,"unk_token":null,)",
      R"("continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,)",
      R"("byte_fallback":false,"vocab":{)", vocabulary, R"(},"merges":[]}})");
}

}  // namespace hybrid_trainer
