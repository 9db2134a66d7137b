#pragma once

#include <map>
#include <mutex>
#include <ostream>
#include <streambuf>
#include <string>
#include <string_view>

namespace hybrid_trainer {

/// Writes bytes on, with control characters, such as those that begin a terminal's escape sequences,
/// as U+FFFD: all but tabs, line feeds and carriage returns before these. So are bytes that are not
/// UTF-8.
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
  std::string held_;  // "\r", or the first bytes of a character
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

/// Whether a descriptor is a terminal that returns to a line's start and takes escape sequences: one
/// of an editor (TERM=dumb), or without TERM, shows them as text.
bool is_drawing_terminal(int descriptor);
/// Whether that terminal's user wants colors (NO_COLOR).
bool is_color_terminal(int descriptor);

/// The text with control characters as U+FFFD.
std::string printable(std::string_view text);

/// Text for the inside of an HTML element or a quoted attribute. Bytes that are not UTF-8 become
/// U+FFFD.
std::string html_escaped(std::string_view text);

/// `page` with every {{name}} replaced by its part, in one pass: parts are not searched again.
std::string filled_page(std::string_view page, const std::map<std::string, std::string>& parts);

/// Content-Security-Policy of a page whose only script is the content of its one script element, or
/// of a page without scripts (""). Event handlers in HTML do not run.
std::string content_policy(std::string_view script);

}  // namespace hybrid_trainer
