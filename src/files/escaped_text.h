#pragma once

#include <map>
#include <mutex>
#include <ostream>
#include <streambuf>
#include <string>
#include <string_view>

namespace hybrid_trainer {

/// Forwards bytes, replacing control characters, such as those that begin terminal escape
/// sequences, by U+FFFD: all except tabs, line feeds and carriage returns before line feeds. Also
/// replaces bytes that are not UTF-8.
class PrintableBuffer final : public std::streambuf {
 public:
  explicit PrintableBuffer(std::streambuf& to) : to_(to) {}
  ~PrintableBuffer() override;
  /// Writes this program's own terminal output unchanged.
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
  std::string held_;  // "\r", or the first bytes of a character
};

/// During its lifetime, text on a terminal is made printable; other streams get every byte.
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

/// Prints this program's own terminal output: colors, and returns to the start of the line.
void print_trusted(std::ostream& stream, std::string_view bytes);

/// Returns whether a descriptor is a terminal that supports carriage returns and escape sequences;
/// false for an editor's (TERM=dumb) or without TERM.
bool is_drawing_terminal(int descriptor);
/// Returns whether that terminal may show colors (NO_COLOR).
bool is_color_terminal(int descriptor);

/// Returns the text with control characters replaced by U+FFFD.
std::string printable(std::string_view text);

/// Escapes text for an HTML element or a quoted attribute. Bytes that are not UTF-8 become U+FFFD.
std::string html_escaped(std::string_view text);

/// Returns `page` with every {{name}} replaced by its part, in one pass.
std::string filled_page(std::string_view page, const std::map<std::string, std::string>& parts);

/// Returns the Content-Security-Policy of a page whose only script is the content of its one script
/// element, or of a page without scripts (""). Event handlers in HTML do not run.
std::string content_policy(std::string_view script);

}  // namespace hybrid_trainer
