#include "hybrid_trainer/data/tokenizer.h"
#include "src/data/character_tokenizer.h"
#include "src/data/text_cuts.h"

namespace hybrid_trainer {

namespace {

std::vector<std::string> all_bytes() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  return tokens;
}

class ByteTokenizer : public Tokenizer {
 public:
  ByteTokenizer() : Tokenizer(all_bytes(), {}, own_file({{"type", "bytes"}})) {}
  TokenizerKind kind() const override { return TokenizerKind::kBytes; }
  void append_tokens(std::string_view text, std::vector<std::int32_t>& ids, TextStart,
                     ControlText) const override {
    ids.reserve(ids.size() + text.size());
    for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
  }
  std::size_t last_cut(std::string_view text, std::size_t first) const override {
    return last_character(text, first);
  }
};

}  // namespace

std::unique_ptr<Tokenizer> make_byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

}  // namespace hybrid_trainer
