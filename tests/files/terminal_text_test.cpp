#include "src/files/escaped_text.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>

namespace hybrid_trainer {
namespace {

const std::string kMark = "\xEF\xBF\xBD";

TEST(Printable, ReplacesControlCharactersAndInvalidUtf8) {
  EXPECT_EQ(printable("a\tb\nc\r\n"), "a\tb\nc\r\n");
  EXPECT_EQ(printable("\x1b[31mred\x1b[0m"), kMark + "[31mred" + kMark + "[0m");
  EXPECT_EQ(printable("\x1b]0;title\x07"), kMark + "]0;title" + kMark);
  EXPECT_EQ(printable("over\rwritten\b\x7f"), "over" + kMark + "written" + kMark + kMark);
  EXPECT_EQ(printable("\xC2\x9B"
                      "31m"),
            kMark + "31m")
      << "U+009B also begins a sequence";
  EXPECT_EQ(printable("caf\xC3\xA9 \xC2\xA0 \xE2\x82\xAC"), "caf\xC3\xA9 \xC2\xA0 \xE2\x82\xAC");
  EXPECT_EQ(printable(std::string("\0", 1)), kMark);
  EXPECT_EQ(printable("end\r"), "end" + kMark);
  EXPECT_EQ(printable("a\xFF\xC3"
                      "b\x9B[2J\xE2\x82"),
            "a" + kMark + kMark + "b" + kMark + "[2J" + kMark)
      << "invalid UTF-8";
}

TEST(Printable, HandlesCharactersSplitAcrossWrites) {
  std::stringbuf out;
  PrintableBuffer buffer(out);
  std::ostream stream(&buffer);
  stream << "a\r"
         << "\nb\xC2" << std::flush << "\x9B"
         << "\xC2"
         << "\xA9";
  print_trusted(stream, "\x1b[0m\r");
  EXPECT_EQ(out.str(), "a\r\nb" + kMark + "\xC2\xA9" + "\x1b[0m\r");
}

TEST(DrawingTerminal, DependsOnTermAndNoColor) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY), file = open("/dev/null", O_WRONLY);
  struct Case {
    const char *term, *no_color;
    bool draws, has_colors;
  };
  for (const Case& one : {Case{"xterm", nullptr, true, true}, Case{"xterm", "1", true, false},
                          Case{"xterm", "", true, true}, Case{"dumb", nullptr, false, false},
                          Case{"", nullptr, false, false}, Case{nullptr, nullptr, false, false}}) {
    one.term == nullptr ? unsetenv("TERM") : setenv("TERM", one.term, 1);
    one.no_color == nullptr ? unsetenv("NO_COLOR") : setenv("NO_COLOR", one.no_color, 1);
    EXPECT_EQ(is_drawing_terminal(terminal), one.draws);
    EXPECT_EQ(is_color_terminal(terminal), one.has_colors);
    EXPECT_FALSE(is_drawing_terminal(file) || is_color_terminal(file));
  }
  unsetenv("NO_COLOR");
  for (const int descriptor : {terminal, file}) close(descriptor);
}

/// A stream that writes to `text`.
struct Written {
  std::stringbuf buffer;
  std::ostream stream{&buffer};
};

TEST(PrintableTerminal, FiltersOnlyTerminalOutput) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_GE(terminal, 0);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  Written shown, piped;
  {
    const PrintableTerminal of_terminal(shown.stream, terminal), of_pipe(piped.stream, ends[1]);
    shown.stream << "\x1b[2J";
    piped.stream << "\x1b[2J";
  }
  shown.stream << "\x1b";
  EXPECT_EQ(shown.buffer.str(), kMark + "[2J\x1b") << "only while it lives";
  EXPECT_EQ(piped.buffer.str(), "\x1b[2J");
  for (const int descriptor : {terminal, ends[0], ends[1]}) close(descriptor);
}

}  // namespace
}  // namespace hybrid_trainer
