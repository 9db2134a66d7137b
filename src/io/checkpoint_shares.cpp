#include "src/io/checkpoint_shares.h"

#include <sstream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/narrow.h"
#include "hybrid_trainer/files/output_file.h"
#include "src/io/checkpoint_files.h"
#include "src/io/safetensors_header.h"

namespace hybrid_trainer {
namespace {

constexpr char kFileLine = 'f', kTensorLine = 't';

/// "t DTYPE ELEMENTS RANK SIZE... NAME", after the "t".
void add_stored_range(CheckpointInfo& checkpoint, std::istream& line, const std::string& file) {
  int dtype = 0, rank = 0;
  std::int64_t elements = 0;
  line >> dtype >> elements >> rank;
  Shape shape;
  for (std::int64_t size = 0; rank > 0; --rank) shape.append(line >> size ? size : 0);
  std::string name;
  std::getline(line.ignore(), name);
  StoredTensor& tensor = checkpoint.tensors[name];
  const std::int64_t first = tensor.ranges.empty() ? 0 : tensor.ranges.back().last;
  if (first == 0) tensor.dtype = static_cast<DType>(dtype);
  require(tensor.dtype == static_cast<DType>(dtype), "ranges of a tensor have one dtype");
  if (tensor.shape.rank() == 0) tensor.shape = shape;
  tensor.ranges.push_back({file, first, first + elements});
}

void add_share(CheckpointInfo& checkpoint, const std::string& text) {
  std::istringstream lines(text);
  std::string file;
  for (std::string one; std::getline(lines, one);) {
    std::istringstream line(one);
    if (line.get() == kFileLine) {
      FileDigest digest;
      line >> file >> digest.bytes >> digest.checksum;
      checkpoint.files[file] = digest;
    } else {
      add_stored_range(checkpoint, line, file);
    }
  }
}

std::map<std::string, std::vector<NamedTensor>> tensors_by_file(const State& state) {
  std::map<std::string, std::vector<NamedTensor>> files;
  for (const auto& [name, tensor] : state.tensors) {
    const char* file = name.starts_with("model.")       ? kModelName
                       : name.starts_with("optimizer.") ? kOptimizerName
                                                        : kTrainerName;
    files[file].push_back({name, tensor});
  }
  return files;
}

FileDigest write_tensors(const std::string& path, std::vector<NamedTensor> tensors) {
  OutputFile file(path);
  const FileDigest digest = append_safetensors(file, tensors, {{"format", "pt"}});
  file.sync_and_close();
  return digest;
}

/// What one of several ranks writes: its ranges, in one file.
CheckpointInfo write_ranges(const std::string& folder, const CheckpointShare& share, int rank) {
  const std::string file = rank_file_name(rank);
  CheckpointInfo written;
  std::vector<NamedTensor> ranges;
  for (const auto& [name, tensor] : share.state.tensors) {
    ranges.push_back({name, tensor.view({tensor.elements()})});
    const auto shape = share.shapes.find(name);
    written.tensors[name] = {tensor.dtype(),
                             shape == share.shapes.end() ? Shape() : shape->second,
                             {{file, 0, tensor.elements()}}};
  }
  written.files[file] = write_tensors(folder + "/" + file, std::move(ranges));
  return written;
}

}  // namespace

CheckpointInfo write_share(const std::string& folder, const CheckpointShare& share,
                           const CheckpointRanks& ranks) {
  if (ranks.are_several()) return write_ranges(folder, share, ranks.rank());
  CheckpointInfo written;
  for (auto& [name, tensors] : tensors_by_file(share.state))
    written.files[name] = write_tensors(folder + "/" + name, std::move(tensors));
  return written;
}

std::string share_text(const CheckpointInfo& written) {
  std::ostringstream text;
  for (const auto& [name, file] : written.files)
    text << kFileLine << ' ' << name << ' ' << file.bytes << ' ' << file.checksum << '\n';
  for (const auto& [name, tensor] : written.tensors) {
    require(name.find('\n') == name.npos, "the name of a tensor is one line");
    text << kTensorLine << ' ' << narrow<int>(tensor.dtype) << ' ' << tensor.ranges.front().last
         << ' ' << tensor.shape.rank();
    for (int i = 0; i < tensor.shape.rank(); ++i) text << ' ' << tensor.shape[i];
    text << ' ' << name << '\n';
  }
  return text.str();
}

void add_shares(CheckpointInfo& checkpoint, const std::vector<std::string>& texts) {
  for (const std::string& text : texts) add_share(checkpoint, text);
  for (auto& [name, tensor] : checkpoint.tensors) {
    const std::int64_t elements = tensor.ranges.back().last;
    if (tensor.shape.rank() == 0) tensor.shape = {elements};
    if (tensor.shape.elements() == elements) continue;
    throw IoError(concat("the ranks' parts of ", name, " are ", elements, " elements, want ",
                         tensor.shape.text(), ": they do not have the same state"));
  }
}

}  // namespace hybrid_trainer
