#include "src/data/text/token_texts.h"

#include <algorithm>
#include <charconv>
#include <numeric>

#include "src/data/text/text_pipeline.h"
#include "src/files/text.h"

namespace hybrid_trainer {

std::array<char32_t, 256> byte_symbols() {
  std::array<char32_t, 256> symbols{};
  char32_t next = 256;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    symbols[byte] = printable ? byte : next++;
  }
  return symbols;
}

std::array<std::uint8_t, 256> bytes_by_symbol() {
  const auto symbols = byte_symbols();
  std::array<std::uint8_t, 256> bytes{};
  std::iota(bytes.begin(), bytes.end(), std::uint8_t{0});
  std::ranges::sort(bytes, {}, [&](std::uint8_t byte) { return symbols[byte]; });
  return bytes;
}

ByteSymbolCoder::ByteSymbolCoder() : symbols_(byte_symbols()) {
  bytes_.fill(-1);
  for (int byte = 0; byte < 256; ++byte) bytes_[symbols_[static_cast<std::size_t>(byte)]] = byte;
}

std::string ByteSymbolCoder::to_symbols(std::string_view bytes) const {
  std::string text;
  for (const char byte : bytes) append_utf8(symbols_[static_cast<unsigned char>(byte)], text);
  return text;
}

std::optional<std::string> ByteSymbolCoder::to_bytes(std::string_view symbols) const {
  std::string bytes;
  for (std::size_t i = 0; i < symbols.size();) {
    const CodePoint symbol = decode_utf8(symbols, i);
    if (symbol.bytes == 0 || symbol.value >= kEnd || bytes_[symbol.value] < 0) return {};
    bytes.push_back(static_cast<char>(bytes_[symbol.value]));
    i += symbol.bytes;
  }
  return bytes;
}

namespace {

using DecoderKind = DecoderStep::Kind;

std::string bytes_of_symbols(const std::string& token) {
  static const ByteSymbolCoder coder;
  return coder.to_bytes(token).value_or(token);
}

/// Parses "<0x00>" …, in upper or lower case; a sign may replace the first digit.
std::optional<char> byte_of(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return {};
  const std::string_view digits = token.substr(token[3] == '+' ? 4 : 3, token[3] == '+' ? 1 : 2);
  unsigned char byte = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
  if (error != std::errc() || end != digits.data() + digits.size()) return {};
  return static_cast<char>(byte);
}

/// Joins each run of byte tokens to text, or to one U+FFFD per byte if the run is not UTF-8.
std::vector<std::string> with_bytes_joined(const std::vector<std::string>& parts) {
  std::vector<std::string> result;
  std::string run;
  const auto finish_run = [&] {
    if (run.empty()) return;
    if (valid_utf8_bytes(run, 0) == run.size()) {
      result.push_back(run);
    } else {
      for (std::size_t i = 0; i < run.size(); ++i) result.emplace_back("\uFFFD");
    }
    run.clear();
  };
  for (const std::string& part : parts) {
    if (const auto byte = byte_of(part)) {
      run.push_back(*byte);
    } else {
      finish_run();
      result.push_back(part);
    }
  }
  finish_run();
  return result;
}

std::string stripped(std::string_view part, const DecoderStep& step) {
  for (std::size_t i = 0; i < step.start && part.starts_with(step.pattern); ++i)
    part.remove_prefix(step.pattern.size());
  for (std::size_t i = 0; i < step.stop && part.ends_with(step.pattern); ++i)
    part.remove_suffix(step.pattern.size());
  return std::string(part);
}

/// Joins punctuation and contractions to the previous word, as Hugging Face's tokenizers does.
std::string cleaned_up(std::string text) {
  constexpr std::pair<const char*, const char*> kReplacements[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kReplacements) text = replace_all(text, from, to);
  return text;
}

/// Returns a WordPiece token's text, at the beginning of a text if `is_first`.
std::string word_piece(std::string part, const DecoderStep& step, bool is_first) {
  if (!is_first) {
    const bool continues = part.starts_with(step.pattern);
    continues ? part.erase(0, step.pattern.size()) : part.insert(0, " ");
  }
  return step.cleans_up ? cleaned_up(std::move(part)) : part;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += part;
  return text;
}

}  // namespace

std::string decoded(std::vector<std::string> parts, const std::vector<DecoderStep>& steps) {
  for (const DecoderStep& step : steps) {
    if (step.kind == DecoderKind::kFuse) parts = {joined(parts)};
    if (step.kind == DecoderKind::kByteFallback) parts = with_bytes_joined(parts);
    bool is_first = true;
    for (std::string& part : parts) {
      if (step.kind == DecoderKind::kByteLevel) part = bytes_of_symbols(part);
      if (step.kind == DecoderKind::kReplace) part = replace_all(part, step.pattern, step.content);
      if (step.kind == DecoderKind::kStrip) part = stripped(part, step);
      if (step.kind == DecoderKind::kMetaspace)
        part = replace_all(part, step.pattern, is_first && step.strips_first ? "" : " ");
      if (step.kind == DecoderKind::kWordPiece) part = word_piece(std::move(part), step, is_first);
      if (step.kind == DecoderKind::kBlanks && !is_first) part.insert(part.begin(), ' ');
      is_first = false;
    }
  }
  return joined(parts);
}

std::string decoded_within(const std::string& token, const std::vector<DecoderStep>& steps) {
  std::string text = token;
  for (const DecoderStep& step : steps) {
    if (step.kind == DecoderKind::kByteLevel) text = bytes_of_symbols(text);
    if (step.kind == DecoderKind::kReplace) text = replace_all(text, step.pattern, step.content);
    if (step.kind == DecoderKind::kMetaspace) text = replace_all(text, step.pattern, " ");
    if (step.kind == DecoderKind::kWordPiece) text = word_piece(std::move(text), step, false);
    if (step.kind == DecoderKind::kBlanks) text.insert(text.begin(), ' ');
    if (step.kind != DecoderKind::kByteFallback) continue;
    if (const auto byte = byte_of(text)) text = *byte;
  }
  return text;
}

}  // namespace hybrid_trainer
