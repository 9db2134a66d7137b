#include "src/files/escaped_text.h"

#include <unistd.h>
#include <cstdlib>

#include "hybrid_trainer/core/error.h"
#include "src/core/sha256.h"
#include "src/files/text.h"

namespace hybrid_trainer {

namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";  // U+FFFD
bool is_control(char32_t code) {
  return (code < 0x20 && code != '\n' && code != '\t') || (code >= 0x7F && code < 0xA0);
}

}  // namespace

PrintableBuffer::~PrintableBuffer() {
  if (!held_.empty()) write(kReplacement);
}

void PrintableBuffer::add(char byte, std::string& out) {
  held_ += byte;
  while (!held_.empty()) {
    const Utf8Prefix begin = utf8_prefix(held_, 0);
    const bool may_continue =
        held_ == "\r" || (begin.bytes < begin.length && begin.bytes == held_.size());
    if (may_continue) return;
    const bool is_whole = begin.bytes == begin.length;
    const bool is_shown =
        is_whole && (held_.starts_with("\r\n") || !is_control(decode_utf8(held_, 0).value));
    const std::size_t taken = is_whole ? begin.bytes : 1;
    out += is_shown ? held_.substr(0, taken) : kReplacement;
    held_.erase(0, taken);
  }
}

void PrintableBuffer::write(const std::string& bytes) {
  to_.sputn(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

void PrintableBuffer::write_trusted(std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  write(std::string(bytes));
}

PrintableBuffer::int_type PrintableBuffer::overflow(int_type byte) {
  if (traits_type::eq_int_type(byte, traits_type::eof())) return traits_type::not_eof(byte);
  const char one = traits_type::to_char_type(byte);
  return xsputn(&one, 1) == 1 ? byte : traits_type::eof();
}

std::streamsize PrintableBuffer::xsputn(const char* bytes, std::streamsize count) {
  const std::lock_guard lock(mutex_);
  std::string out;
  for (std::streamsize i = 0; i < count; ++i) add(bytes[i], out);
  const auto size = static_cast<std::streamsize>(out.size());
  return to_.sputn(out.data(), size) == size ? count : 0;
}

int PrintableBuffer::sync() { return to_.pubsync(); }

PrintableTerminal::PrintableTerminal(std::ostream& stream, int descriptor)
    : stream_(stream), before_(stream.rdbuf()), printable_(*before_) {
  if (isatty(descriptor) == 1) stream_.rdbuf(&printable_);
}

PrintableTerminal::~PrintableTerminal() {
  stream_.flush();
  stream_.rdbuf(before_);
}

void print_trusted(std::ostream& stream, std::string_view bytes) {
  if (auto* const printable = dynamic_cast<PrintableBuffer*>(stream.rdbuf())) {
    printable->write_trusted(bytes);
  } else {
    stream << bytes;
  }
}

bool is_drawing_terminal(int descriptor) {
  const char* const kind = std::getenv("TERM");
  return isatty(descriptor) == 1 && kind != nullptr && *kind != '\0' &&
         std::string_view(kind) != "dumb";
}

bool is_color_terminal(int descriptor) {
  const char* const no_color = std::getenv("NO_COLOR");
  return is_drawing_terminal(descriptor) && (no_color == nullptr || *no_color == '\0');
}

std::string printable(std::string_view text) {
  std::stringbuf out;
  {
    PrintableBuffer buffer(out);
    buffer.sputn(text.data(), static_cast<std::streamsize>(text.size()));
  }
  return out.str();
}

std::string html_escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char character : well_formed_utf8(text)) {
    switch (character) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += character;
    }
  }
  return out;
}

std::string filled_page(std::string_view page, const std::map<std::string, std::string>& parts) {
  std::string out;
  for (std::size_t open = 0; (open = page.find("{{")) != std::string_view::npos;) {
    const std::size_t close = page.find("}}", open);
    require(close != std::string_view::npos, "page: {{ without }}");
    const auto part = parts.find(std::string(page.substr(open + 2, close - open - 2)));
    require(part != parts.end(), "page: a {{name}} without a part");
    out.append(page.substr(0, open)).append(part->second);
    page.remove_prefix(close + 2);
  }
  return out.append(page);
}

std::string content_policy(std::string_view script) {
  const std::string scripts =
      script.empty() ? "'none'" : concat("'sha256-", base64_of(sha256(script)), "'");
  return concat("default-src 'none'; style-src 'unsafe-inline'; script-src ", scripts,
                "; connect-src 'self'; base-uri 'none'; form-action 'none'");
}

}  // namespace hybrid_trainer
