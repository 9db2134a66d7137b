#include "src/data/table_texts.h"

#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/tables/row_files.h"
#include "hybrid_trainer/tables/table_reader.h"

namespace hybrid_trainer {

namespace json = boost::json;

namespace {

constexpr std::size_t kBuffer = std::size_t{4} << 20;

/// Whether a file of this name may be something else than a table.
bool may_be_text(const std::filesystem::path& path) {
  return path.extension() == ".json" || path.extension() == ".csv" || path.extension() == ".tsv";
}

}  // namespace

bool TableTexts::add(const std::filesystem::path& path, std::vector<TextPiece>& documents) {
  if (!has_name_of_rows(path)) return false;
  const auto table = std::make_shared<const std::filesystem::path>(path);
  const std::size_t before = documents.size();
  LeftOut left_out = left_out_;
  const auto leave_out = [&](std::int64_t row, const std::string& why) {
    if (left_out.rows++ == 0)
      left_out.first = concat("row ", row, " of ", path.string(), ": ", why);
  };
  const TableVisitor visitor{
      [&](std::int64_t row, const json::object& values, const WideIntegers&) {
        const json::value* const text = values.if_contains("text");
        if (text == nullptr || !text->is_string())
          return leave_out(row, concat("\"", settings_.column, "\" is no text"));
        const json::string& held = text->get_string();
        if (held.empty()) return leave_out(row, concat("\"", settings_.column, "\" is empty"));
        TextPiece piece;
        piece.table = table;
        piece.row = row;
        add_text({held.data(), held.size()}, std::move(piece), documents);
      },
      leave_out};
  try {
    visit_rows(path,
               {ColumnNames(std::vector{ColumnNames::Name{"text", settings_.column}}), {"text"}},
               visitor);
  } catch (const MissingColumn& error) {
    if (!settings_.is_asked && may_be_text(path)) return false;
    throw DataError(concat(error.what(), "; --column NAME says which has the text"));
  } catch (const DataError&) {
    if (settings_.is_asked || !may_be_text(path) || documents.size() > before) throw;
    return false;
  }
  const bool has_texts = documents.size() > before;
  if (!has_texts && !settings_.is_asked && may_be_text(path)) return false;
  left_out_ = left_out;
  return true;
}

void TableTexts::add_text(std::string_view text, TextPiece piece,
                          std::vector<TextPiece>& documents) {
  if (!file_) {
    place_ = std::make_shared<const std::filesystem::path>(settings_.place());
    file_.emplace(*place_);
  }
  piece.path = place_;
  piece.begin = piece.document_begin = bytes_;
  bytes_ += static_cast<std::int64_t>(text.size());
  piece.end = bytes_;
  documents.push_back(std::move(piece));
  buffer_ += text;
  if (buffer_.size() < kBuffer) return;
  file_->write(buffer_);
  buffer_.clear();
}

void TableTexts::finish() {
  if (!file_) return;
  file_->write(buffer_);
  file_->close();
}

void TableTexts::remove() {
  if (file_) std::filesystem::remove(*place_);
}

}  // namespace hybrid_trainer
