#include "hybrid_trainer/files/terminal_text.h"

#include <unistd.h>

#include <utility>

namespace hybrid_trainer {
namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";  // U+FFFD
constexpr char kFirstOfC1 = '\xC2';                   // in UTF-8, of U+0080 … U+00BF

bool is_control(char byte) {
  const auto code = static_cast<unsigned char>(byte);
  return (code < 0x20 && byte != '\n' && byte != '\t') || code == 0x7F;
}

}  // namespace

PrintableBuffer::~PrintableBuffer() {
  if (held_ != 0) write(kReplacement);
}

void PrintableBuffer::add(char byte, std::string& out) {
  const char before = std::exchange(held_, 0);
  if (before == kFirstOfC1) {
    const auto code = static_cast<unsigned char>(byte);
    if (code >= 0x80 && code < 0xA0) return void(out += kReplacement);
    out += before;
  } else if (before == '\r') {
    out += byte == '\n' ? "\r" : kReplacement;
  }
  if (byte == '\r' || byte == kFirstOfC1) {
    held_ = byte;
  } else if (is_control(byte)) {
    out += kReplacement;
  } else {
    out += byte;
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

std::string printable(std::string_view text) {
  std::stringbuf out;
  {
    PrintableBuffer buffer(out);
    buffer.sputn(text.data(), static_cast<std::streamsize>(text.size()));
  }
  return out.str();
}

}  // namespace hybrid_trainer
