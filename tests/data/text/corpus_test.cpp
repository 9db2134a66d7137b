#include "src/data/text/prepare.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hybrid_trainer/core/error.h"
#include "src/data/text/word_splitter.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

std::vector<std::string> names_of(const std::vector<TextPiece>& pieces) {
  std::vector<std::string> names;
  for (const TextPiece& piece : pieces) names.push_back(piece.path->filename().string());
  return names;
}

std::int64_t bytes_of(const std::vector<TextPiece>& pieces) {
  std::int64_t bytes = 0;
  for (const TextPiece& piece : pieces) bytes += piece.bytes();
  return bytes;
}

TEST(Corpus, WalksFoldersInOrderAndSkipsBinaryFiles) {
  const TemporaryFolder folder;
  folder.write("b.txt", "bb");
  folder.write("a/z.txt", "zzz");
  folder.write("a/binary", std::string_view("x\0y", 3));
  folder.write("a/empty", "");
  std::filesystem::create_directory_symlink(folder.path(), folder / "a" / "loop");
  const Corpus corpus = find_corpus({folder.path()});
  EXPECT_EQ(names_of(corpus.documents), (std::vector<std::string>{"z.txt", "b.txt"}));
  EXPECT_EQ(corpus.bytes, 5);
  EXPECT_EQ(corpus.skipped_binary_files, 1);
}

TEST(Corpus, NamedBinaryFileIsIncluded) {
  const TemporaryFolder folder;
  const auto file = folder.write("binary", std::string_view("x\0y", 3));
  EXPECT_EQ(find_corpus({file}).documents.size(), 1u);
}

TEST(Corpus, RepeatedFileCountsOnce) {
  const TemporaryFolder folder;
  const auto a = folder.write("books/a.txt", "aaaa");
  const auto b = folder.write("books/b.txt", "bb");
  const auto link = folder / "books" / "c.txt";
  std::filesystem::create_symlink(a, link);
  std::filesystem::create_hard_link(b, folder / "other.txt");
  std::filesystem::create_directory_symlink(folder / "books", folder / "shelf");
  const Corpus corpus = find_corpus({folder / "books", a, folder / "books/../books/./b.txt", link,
                                     folder / "other.txt", folder / "shelf"});
  EXPECT_EQ(names_of(corpus.documents), (std::vector<std::string>{"a.txt", "b.txt"}));
  EXPECT_EQ(corpus.bytes, 6);
  EXPECT_EQ(corpus.repeated_files, 1 + 4 + 3);
  EXPECT_EQ(find_corpus({folder / "books" / "b.txt", a}).repeated_files, 0);
}

TEST(Corpus, NamedBinaryFileInFolderCountsOnce) {
  const TemporaryFolder folder;
  folder.write("books/a.txt", "aaaa");
  const auto binary = folder.write("books/binary", std::string_view("x\0y", 3));
  for (const auto& inputs :
       {std::vector{folder / "books", binary}, std::vector{binary, folder / "books"}}) {
    const Corpus corpus = find_corpus(inputs);
    EXPECT_EQ(corpus.bytes, 7);
    EXPECT_EQ(corpus.skipped_binary_files, 0);
  }
}

TEST(Corpus, ReportsMissingAndEmptyInputs) {
  const TemporaryFolder folder;
  const auto empty = folder.write("void.txt", "");
  expect_words(message_of<MissingInput>([] { find_corpus({"nowhere.txt"}); }), {"nowhere.txt"});
  expect_words(message_of<DataError>([&] { find_corpus({empty}); }), {"void.txt", "empty"});
  expect_words(message_of<MissingInput>([] { find_corpus({"/dev/null"}); }), {"/dev/null"});
}

/// Runs `holds` in a child process as an unprivileged user and returns its result.
template <class F>
bool holds_without_rights(const F& holds) {
  const pid_t child = ::fork();
  if (child == 0) {
    constexpr unsigned kNobody = 65534;
    const bool is_restricted =
        ::geteuid() != 0 || (::setgid(kNobody) == 0 && ::setuid(kNobody) == 0);
    ::_exit(is_restricted && holds() ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(Corpus, ReportsUnreadableFolder) {
  const TemporaryFolder folder;
  folder.write("books/a.txt", "aaaa");
  folder.write("books/closed/b.txt", "bb");
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0755));
  EXPECT_TRUE(holds_without_rights([&] { return find_corpus({folder / "books"}).bytes == 6; }));
  std::filesystem::permissions(folder / "books/closed", std::filesystem::perms::none);
  folder.write("shelf/c.txt", "c");
  std::filesystem::create_directory_symlink(folder / "books/closed", folder / "shelf" / "link");
  EXPECT_TRUE(holds_without_rights([&] { return find_corpus({folder / "shelf"}).bytes == 1; }))
      << "the link's target is not read";
  EXPECT_TRUE(holds_without_rights([&] {
    try {
      find_corpus({folder / "books"});
    } catch (const MissingInput& error) {
      return std::string(error.what()).find("books/closed: Permission") != std::string::npos;
    }
    return false;
  }));
  std::filesystem::permissions(folder / "books/closed", std::filesystem::perms(0755));
}

TEST(Corpus, SingleFileIsSplitAtValidationShare) {
  const TemporaryFolder folder;
  const auto file = folder.write("text", std::string(1115, 'x'));
  const CorpusSplit split = split_corpus(find_corpus({file}), 0.1);
  ASSERT_EQ(split.train.size(), 1u);
  ASSERT_EQ(split.validation.size(), 1u);
  EXPECT_EQ(split.train[0].end, 1003);  // floor(0.9 n)
  EXPECT_EQ(split.validation[0].begin, 1003);
  EXPECT_EQ(split.validation[0].end, 1115);
}

TEST(Corpus, SplitDoesNotDivideCharacters) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 50; ++i) text += "漢";
  for (int extra = 0; extra < 6; ++extra) {
    const auto file =
        folder.write("text", std::string(static_cast<std::size_t>(extra), 'x') + text);
    const CorpusSplit split = split_corpus(find_corpus({file}), 0.3);
    EXPECT_EQ((split.train[0].end - extra) % 3, 0) << extra;
  }
}

TEST(Corpus, SplitKeepsDocumentsWhole) {
  const TemporaryFolder folder;
  std::vector<std::filesystem::path> files;
  for (int i = 0; i < 60; ++i) {
    files.push_back(folder.write(std::to_string(i), std::string(100 + 37 * (i * i % 11), 'x')));
  }
  const Corpus corpus = find_corpus(files);
  const CorpusSplit split = split_corpus(corpus, 0.1);
  for (const auto& piece : split.train) EXPECT_EQ(piece.begin, 0);
  EXPECT_EQ(split.train.size() + split.validation.size(), 60u);
  EXPECT_EQ(bytes_of(split.train) + bytes_of(split.validation), corpus.bytes);
  EXPECT_NEAR(static_cast<double>(bytes_of(split.validation)) / static_cast<double>(corpus.bytes),
              0.1, 0.02);
}

TEST(Corpus, DocumentMidpointDecidesSplit) {
  const TemporaryFolder folder;
  std::vector<std::filesystem::path> files;
  for (const char* name : {"a", "b", "c", "d"}) files.push_back(folder.write(name, "0123456789"));
  const CorpusSplit split = split_corpus(find_corpus(files), 0.5);
  ASSERT_EQ(split.validation.size(), 2u);  // the first: 0 + 5 <= 0.5·10, and the third
  EXPECT_EQ(split.validation[0].path->filename(), "a");
  EXPECT_EQ(split.validation[1].path->filename(), "c");
}

TEST(Corpus, CutsDocumentWhenNoneFitsValidation) {
  const TemporaryFolder folder;
  const auto first = folder.write("first", std::string(500, 'x'));
  const auto second = folder.write("second", std::string(500, 'y'));
  const CorpusSplit split = split_corpus(find_corpus({first, second}), 0.1);
  EXPECT_EQ(bytes_of(split.train), 900);
  ASSERT_EQ(split.validation.size(), 1u);
  EXPECT_EQ(split.validation[0].begin, 400);
}

TEST(Corpus, SkipsByteOrderMarks) {
  const TemporaryFolder folder;
  folder.write("only", "\xEF\xBB\xBF");
  EXPECT_THROW(find_corpus({folder / "only"}), DataError);
  const auto file = folder.write("text", "\xEF\xBB\xBF" + std::string(90, 'a') + "0123456789");
  const Corpus corpus = find_corpus({file});
  EXPECT_EQ(corpus.bytes, 100);
  const CorpusSplit split = split_corpus(corpus, 0.1);
  const auto first = [](const std::vector<TextPiece>& pieces) {
    return SegmentReader(pieces, last_word_cut).next(1000).front();
  };
  EXPECT_EQ(first(split.train).text, std::string(90, 'a'));
  EXPECT_TRUE(first(split.train).starts_document);
  EXPECT_EQ(first(split.validation).text, "0123456789");
  EXPECT_FALSE(first(split.validation).starts_document);
}

TEST(Corpus, RejectsNamedNonTextFiles) {
  const TemporaryFolder folder;
  const auto problem = [&](const std::string& bytes) {
    folder.write("file", bytes);
    return message_of<DataError>([&] { find_corpus({folder / "file"}); });
  };
  EXPECT_NE(problem(std::string("\xFF\xFEh\0i\0", 6)).find("iconv -f UTF-16"), std::string::npos);
  EXPECT_NE(problem("\x1F\x8B\x08").find("gunzip"), std::string::npos);
  EXPECT_NE(problem("PAR1").find("Parquet"), std::string::npos);
}

}  // namespace
}  // namespace hybrid_trainer
