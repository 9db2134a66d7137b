#include "src/data/tables/row_reader.h"

#include <boost/json.hpp>
#include <set>

#include "src/core/messages.h"

namespace hybrid_trainer {

namespace {

class RowFilesReader {
 public:
  RowFilesReader(const RowSource& source, const RowSchema& schema, ReadRows& read)
      : source_(source), schema_(schema), read_(read) {}

  void read(const std::filesystem::path& path) {
    read_.files.push_back({path, {}});
    const std::string called = source_.called.empty() ? path.string() : source_.called;
    const std::size_t file = read_.files.size() - 1;
    const auto refuse = [&](std::int64_t line, const std::string& reason) {
      read_.refused.push_back({line, reason, file});
      check_is_data(called);
    };
    const auto use = [&](std::int64_t line, const json::object& row, const WideIntegers& wide) {
      try {
        record_keys(row);
        schema_.use({row, wide, called, file, line});
        ++used_;
      } catch (const DataError& error) {
        refuse(line, error.what());
      } catch (const MissingInput& error) {
        refuse(line, error.what());
      }
    };
    const TableForm form = visit_rows(path,
                                      {.columns = source_.columns,
                                       .wanted = schema_.keys,
                                       .called = source_.called,
                                       .allows_bytes = schema_.allows_bytes,
                                       .renaming = schema_.renaming},
                                      {use, refuse});
    for (const std::string& name : form.unread) unread_.insert(concat('"', name, '"'));
    read_.files.back().form = form;
  }

  void finish() const {
    const std::string path = source_.path.string();
    if (used_ == 0 && read_.refused.empty())
      throw DataError(
          concat(source_.called.empty() ? path : source_.called, ": contains no ", schema_.rows));
    if (schema_.is_closed && !unread_.empty())
      warn(source_.called.empty() ? read_.files.front().path.string() : source_.called,
           concat("these keys of ", schema_.rows,
                  " have no effect here: ", join({unread_.begin(), unread_.end()})));
  }

 private:
  void record_keys(const json::object& row) {
    if (!schema_.is_closed) return;
    for (const auto& member : row)
      if (std::ranges::find(schema_.keys, std::string_view(member.key())) == schema_.keys.end())
        unread_.insert(concat('"', std::string_view(member.key()), '"'));
  }

  void check_is_data(const std::string& called) const {
    const std::size_t refused = read_.refused.size();
    if (refused < schema_.max_rejected ||
        static_cast<double>(used_) > schema_.used_share * static_cast<double>(refused))
      return;
    throw DataError(concat(called, ": ", refused, " of its first ", used_ + refused,
                           " lines are refused; ", read_.place(0, read_.refused[0].line, false),
                           ": ", read_.refused[0].reason));
  }

  const RowSource& source_;
  const RowSchema& schema_;
  ReadRows& read_;
  std::size_t used_ = 0;
  std::set<std::string> unread_;
};

}  // namespace

std::string ReadRows::place(std::size_t file, std::int64_t line, bool names_file) const {
  const RowFile& of = files.at(file);
  const bool is_named = names_file || files.size() > 1;
  return concat(of.form.unit(), " ", line, is_named ? " of " + of.path.string() : "");
}

void read_rows(const RowSource& source, const RowSchema& schema, ReadRows& read) {
  RowFilesReader reader(source, schema, read);
  for (const std::filesystem::path& file : row_files(source.path, source.split)) reader.read(file);
  reader.finish();
}

FilePart file_in_row(FilesInRows& files, const GivenRow& row, std::string_view name,
                     const RowFileWords& words, const ReadRows& read) {
  return files.file(row.object, name, words, folder_of_rows(read.files[row.file].path),
                    concat("row ", row.line, " of ", row.called));
}

}  // namespace hybrid_trainer
