#pragma once

#include <map>
#include <mutex>
#include <ostream>
#include <streambuf>
#include <string>
#include <string_view>

namespace hybrid_trainer {

/// Forwards bytes. Control characters, which begin terminal escape sequences, become U+FFFD, except
/// tabs, line feeds, and carriage returns before line feeds. So do bytes that are not UTF-8.
class PrintableBuffer final : public std::streambuf {
 public:
  explicit PrintableBuffer(std::streambuf& to) : to_(to) {}
  ~PrintableBuffer() override;
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
  std::string held_;  // a "\r", or the first bytes of an incomplete character
};

/// Replaces unprintable text on terminals during its lifetime. Other streams receive every byte.
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

/// Prints this program's own terminal output, such as colors and carriage returns, unchanged.
void print_trusted(std::ostream& stream, std::string_view bytes);

/// Returns whether a descriptor is a terminal that supports carriage returns and escape sequences.
/// Returns false for an editor's terminal (TERM=dumb) and if TERM is not set.
bool is_drawing_terminal(int descriptor);
/// Returns whether a descriptor is such a terminal and NO_COLOR is not set.
bool is_color_terminal(int descriptor);

std::string printable(std::string_view text);

/// Escapes text for an HTML element or a quoted attribute. Bytes that are not UTF-8 become U+FFFD.
std::string html_escaped(std::string_view text);

/// Returns `page` with every {{name}} replaced by its part, in one pass.
std::string filled_page(std::string_view page, const std::map<std::string, std::string>& parts);

/// Returns the Content-Security-Policy of a page whose only script element contains `script`, or
/// that has no script if `script` is empty. Event handlers in HTML do not run.
std::string content_policy(std::string_view script);

}  // namespace hybrid_trainer
