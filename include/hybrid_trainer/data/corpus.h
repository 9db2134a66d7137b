#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace hybrid_trainer {

/// Bytes [begin, end) of a file: one document, or part of one.
struct TextPiece {
  std::shared_ptr<const std::filesystem::path> path;  // as many pieces may have
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t document_begin = 0;  // behind a byte-order mark
  /// Of a row of a table, whose text is kept in `path`: the table, and the row's number.
  std::shared_ptr<const std::filesystem::path> table{};
  std::int64_t row = 0;
  std::int64_t bytes() const { return end - begin; }
};

class TableTexts;

/// Text files, one document each; and the rows of tables.
struct Corpus {
  std::vector<TextPiece> documents;  // none is empty
  std::int64_t bytes = 0;
  std::int64_t skipped_binary_files = 0;  // in folders: a NUL in the first 8 KB
  std::int64_t repeated_files = 0;        // files found again, each time; they count once
  /// Its name in messages: the first input, and how many more there are.
  std::string name;
};

/// The files named, and all files below the folders named, sorted within each folder. A named file
/// is always taken, a file in a folder is skipped if it is binary. A file found again, also by
/// another spelling or a link, counts once, so that it is in one split only. Links to folders
/// inside a folder are not followed. Throws MissingInput, which names an input that does not exist,
/// or DataError if there is no text at all, or a file that was named is no plain text by its first bytes
/// (compressed, UTF-16, …). With `tables`, files of rows whose texts it takes are as many documents.
Corpus find_corpus(const std::vector<std::filesystem::path>& inputs, TableTexts* tables = nullptr);

struct CorpusSplit {
  std::vector<TextPiece> train;
  std::vector<TextPiece> validation;
};

/// Makes about `validation` of the bytes, 0 < validation < 1, validation text. Of several documents
/// each goes whole to one split, spread evenly over the corpus, if the share so reached is within
/// half to one and a half of what was asked for. Otherwise, and always with one document, the last
/// `validation` of the corpus's characters is cut off.
CorpusSplit split_corpus(const Corpus& corpus, double validation);

}  // namespace hybrid_trainer
