#include "hybrid_trainer/data/tokenizer.h"
#include "json_file.h"

namespace hybrid_trainer {

namespace {

std::vector<std::string> all_bytes() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  return tokens;
}

class ByteTokenizer : public Tokenizer {
 public:
  ByteTokenizer() : Tokenizer(all_bytes(), {}) {}
  TokenizerKind kind() const override { return TokenizerKind::kBytes; }
  std::int64_t append_tokens(std::string_view text, std::vector<std::int32_t>& ids,
                             TextStart) const override {
    ids.reserve(ids.size() + text.size());
    for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
    return 0;
  }
  void save(const std::filesystem::path& folder) const override {
    write_json({{"type", "bytes"}}, folder / "tokenizer.json");
  }
};

}  // namespace

std::unique_ptr<Tokenizer> make_byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

}  // namespace hybrid_trainer
