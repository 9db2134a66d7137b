#pragma once

#include <mutex>
#include <ostream>
#include <streambuf>
#include <string>
#include <string_view>

namespace hybrid_trainer {

/// Writes bytes on, with control characters, such as those that begin a terminal's escape sequences,
/// as U+FFFD: all but tabs, line feeds and carriage returns before these.
class PrintableBuffer final : public std::streambuf {
 public:
  explicit PrintableBuffer(std::streambuf& to) : to_(to) {}
  ~PrintableBuffer() override;
  /// Writes as it is what this program itself made for a terminal.
  void write_trusted(std::string_view bytes);

 protected:
  int_type overflow(int_type byte) override;
  std::streamsize xsputn(const char* bytes, std::streamsize count) override;
  int sync() override;

 private:
  void add(char byte, std::string& out);
  void write(const std::string& bytes);
  std::streambuf& to_;
  std::mutex mutex_;  // threads share a stream
  char held_ = 0;     // '\r', or the first byte of U+0080 … U+00BF; 0: none
};

/// While this lives, text that goes to a stream on a terminal is printable; a stream on anything else
/// gets every byte.
class PrintableTerminal {
 public:
  PrintableTerminal(std::ostream& stream, int descriptor);
  ~PrintableTerminal();
  PrintableTerminal(const PrintableTerminal&) = delete;
  PrintableTerminal& operator=(const PrintableTerminal&) = delete;

 private:
  std::ostream& stream_;
  std::streambuf* const before_;
  PrintableBuffer printable_;
};

/// Prints what this program itself made for a terminal: colors, and returns to the line's start.
void print_trusted(std::ostream& stream, std::string_view bytes);

/// The text with control characters as U+FFFD.
std::string printable(std::string_view text);

}  // namespace hybrid_trainer
