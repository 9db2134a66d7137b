#include "src/data/text/prepare.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "src/data/text/word_splitter.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

TEST(SegmentReader, CutsWholeTextBeforeWhiteSpace) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 2000; ++i) {
    text += "line " + std::to_string(i) +
            (i % 3     ? " \n"
             : i % 500 ? "\n  \n"
                       : std::string(300, ' '));
  }
  const auto one = folder.write("one", text);
  const auto two = folder.write("two", "short");
  SegmentReader reader(find_corpus({one, two}).documents, last_word_cut, 64);
  std::string joined;
  std::size_t starts = 0, segments = 0;
  for (auto batch = reader.next(1000); !batch.empty(); batch = reader.next(1000)) {
    for (const TextSegment& segment : batch) {
      ++segments;
      starts += segment.starts_document ? 1 : 0;
      if (!segment.starts_document) {
        EXPECT_TRUE(segment.text[0] == '\n' || segment.text[0] == ' ');
        EXPECT_GT(joined.back(), ' ');
      }
      joined += segment.text;
    }
  }
  EXPECT_EQ(joined, text + "short");
  EXPECT_EQ(starts, 2u);
  EXPECT_GT(segments, 100u);
}

TEST(SegmentReader, CutsAtLineBreaksAfterAnyCharacter) {
  for (const char* line : {"a line\r\n", "一行文字。\n", "一行文字\r\n", "строка\n\n", "line \n"}) {
    const TemporaryFolder folder;
    std::string text;
    while (text.size() < 3'000'000) text += line;
    const auto file = folder.write("text", text);
    SegmentReader reader(find_corpus({file}).documents, last_word_cut);
    const auto segments = reader.next(static_cast<std::int64_t>(text.size()));
    EXPECT_GT(segments.size(), 10u) << line;
    for (const TextSegment& segment : segments) EXPECT_LT(segment.text.size(), 600'000u) << line;
  }
}

TEST(SegmentReader, TextWithoutCutIsOneSegment) {
  const TemporaryFolder folder;
  const auto file = folder.write("text", std::string(1000, 'x'));
  SegmentReader reader(find_corpus({file}).documents, last_word_cut, 64);
  const auto segments = reader.next(1);
  ASSERT_EQ(segments.size(), 1u);
  EXPECT_EQ(segments[0].text.size(), 1000u);
  EXPECT_TRUE(reader.next(1).empty());
}

TEST(SegmentReader, ShrunkFileThrowsIoError) {
  const TemporaryFolder folder;
  const auto file = folder.write("text", std::string(1000, 'x'));
  const Corpus corpus = find_corpus({file});
  folder.write("text", "x");
  SegmentReader reader(corpus.documents, last_word_cut);
  expect_words(message_of<IoError>([&] { reader.next(1); }), {"text", "changed"});
}

}  // namespace
}  // namespace hybrid_trainer
