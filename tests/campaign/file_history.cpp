#include "tests/campaign/file_history.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <stdexcept>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

namespace fs = std::filesystem;

FolderContents read_folder(const fs::path& folder) {
  FolderContents contents;
  if (!fs::exists(folder)) return contents;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string path = entry.path().lexically_relative(folder).string();
    if (entry.is_directory()) {
      contents[path + "/"];
      continue;
    }
    std::ifstream file(entry.path(), std::ios::binary);
    contents[path] = {std::istreambuf_iterator<char>(file), {}};
  }
  return contents;
}

void write_folder(const FolderContents& contents, const fs::path& folder) {
  fs::remove_all(folder);
  fs::create_directories(folder);
  for (const auto& [path, bytes] : contents) {
    const std::string whole = (folder / path).string();
    if (path.ends_with('/')) {
      fs::create_directory(whole);
      continue;
    }
    const int file = ::open(whole.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const bool written =
        file >= 0 && ::write(file, bytes.data(), bytes.size()) == std::ssize(bytes);
    if (file >= 0) ::close(file);
    if (!written) throw std::runtime_error("cannot write " + whole);
  }
}

std::string difference(const FolderContents& got, const FolderContents& want) {
  for (const auto& [path, bytes] : want) {
    const auto found = got.find(path);
    if (found == got.end()) return path + " is missing";
    if (found->second == bytes) continue;
    const auto at = std::ranges::mismatch(found->second, bytes).in2 - bytes.begin();
    return concat(path, " has ", found->second.size(), " bytes, want ", bytes.size(),
                  "; the first difference is at byte ", at);
  }
  for (const auto& [path, bytes] : got)
    if (!want.contains(path)) return path + " is unexpected";
  return "";
}

FileHistory FileHistory::record(const fs::path& folder,
                                const std::function<void(FileHistory&)>& action) {
  FileHistory history;
  history.root_ = fs::canonical(folder).string();
  history.new_node(true);
  history.load(history.root_, 0);
  history.initial_ = history.now_;
  {
    const FileObserver observer([&](const FileChange& change) { history.add(change); });
    action(history);
  }
  if (const std::string missed =
          difference(history.contents(history.size()), read_folder(history.root_));
      !missed.empty())
    throw std::runtime_error("the recorded calls do not explain the folder: " + missed);
  history.find_syncs();
  return history;
}

void FileHistory::load(const fs::path& folder, int node) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    const int child = new_node(entry.is_directory());
    now_.nodes[static_cast<std::size_t>(node)].names[entry.path().filename().string()] = child;
    if (entry.is_directory()) {
      load(entry.path(), child);
      continue;
    }
    std::ifstream file(entry.path(), std::ios::binary);
    now_.nodes[static_cast<std::size_t>(child)].bytes = {std::istreambuf_iterator<char>(file), {}};
  }
}

int FileHistory::new_node(bool is_folder) {
  now_.nodes.push_back({.is_folder = is_folder, .names = {}, .bytes = {}});
  initial_.nodes.push_back({.is_folder = is_folder, .names = {}, .bytes = {}});
  return static_cast<int>(now_.nodes.size()) - 1;
}

/// Returns the folder of a path and the name in it.
std::pair<int, std::string> FileHistory::place(const std::string& path) {
  const fs::path whole = path;
  return {find(whole.parent_path().string(), false), whole.filename().string()};
}

/// Returns the node of a path, or kNone. The C library creates some files without an observed call.
int FileHistory::find(const std::string& path, bool create) {
  int node = 0;
  for (const fs::path& part : fs::path(path).lexically_relative(root_)) {
    if (part == ".") continue;
    const Node& folder = now_.nodes.at(static_cast<std::size_t>(node));
    const auto found = folder.names.find(part.string());
    if (found != folder.names.end()) {
      node = found->second;
      continue;
    }
    if (!create) return kNone;
    const int made = new_node(false);
    take({.names = {{node, part.string(), made}}, .text = "create " + path});
    return made;
  }
  return node;
}

void FileHistory::take(Change change) {
  now_.apply(change);
  changes_.push_back(std::move(change));
}

void FileHistory::add_names(const FileChange& change) {
  using Kind = FileChange::Kind;
  const auto [folder, name] = place(change.path);
  if (change.kind == Kind::kCreate || change.kind == Kind::kMakeFolder) {
    const int made = new_node(change.kind == Kind::kMakeFolder);
    return take({.names = {{folder, name, made}}, .text = "create " + change.path});
  }
  if (change.kind == Kind::kRemove)
    return take({.names = {{folder, name, kNone}}, .text = "remove " + change.path});
  const int node = find(change.path, false);
  const auto [to_folder, to_name] = place(change.to);
  Change result{.names = {{to_folder, to_name, node}},
                .text = concat("rename ", change.path, " to ", change.to)};
  if (change.kind == Kind::kRename) result.names.push_back({folder, name, kNone});
  if (change.kind == Kind::kExchange)
    result.names.push_back({folder, name, find(change.to, false)});
  take(result);
}

void FileHistory::add(const FileChange& change) {
  const auto is_below = [&](const std::string& path) {
    return path == root_ || path.starts_with(root_ + "/");
  };
  if (!is_below(change.path) || change.path.ends_with(" (deleted)")) return;
  switch (change.kind) {
    case FileChange::Kind::kWrite:
      return take({.kind = Change::Kind::kWrite,
                   .node = find(change.path, true),
                   .offset = change.offset,
                   .bytes = change.bytes,
                   .text = concat("write ", change.bytes.size(), " bytes to ", change.path)});
    case FileChange::Kind::kTruncate:
      return take({.kind = Change::Kind::kTruncate,
                   .node = find(change.path, true),
                   .offset = change.offset,
                   .text = "truncate " + change.path});
    case FileChange::Kind::kSync:
      return take({.kind = Change::Kind::kSync,
                   .node = find(change.path, true),
                   .text = "fsync " + change.path});
    default: add_names(change);
  }
}

void FileHistory::Disk::apply(const Change& change) {
  Node& node = nodes.at(static_cast<std::size_t>(change.node));
  switch (change.kind) {
    case Change::Kind::kNames:
      for (const NameChange& entry : change.names) {
        auto& names = nodes.at(static_cast<std::size_t>(entry.folder)).names;
        if (entry.node == kNone) {
          names.erase(entry.name);
        } else {
          names[entry.name] = entry.node;
        }
      }
      break;
    case Change::Kind::kWrite:
      node.bytes.resize(std::max(node.bytes.size(), change.offset + change.bytes.size()), '\0');
      node.bytes.replace(change.offset, change.bytes.size(), change.bytes);
      break;
    case Change::Kind::kTruncate: node.bytes.resize(change.offset, '\0'); break;
    case Change::Kind::kSync: break;
  }
}

void FileHistory::Disk::add(int folder, const std::string& path, FolderContents& contents) const {
  for (const auto& [name, node] : nodes.at(static_cast<std::size_t>(folder)).names) {
    const Node& entry = nodes.at(static_cast<std::size_t>(node));
    if (entry.is_folder) {
      contents[path + name + "/"];
      add(node, path + name + "/", contents);
    } else {
      contents[path + name] = entry.bytes;
    }
  }
}

void FileHistory::mark() { marks_.push_back(changes_.size()); }

std::size_t FileHistory::marks_before(std::size_t position) const {
  return static_cast<std::size_t>(
      std::ranges::count_if(marks_, [&](std::size_t mark) { return mark <= position; }));
}

FolderContents FileHistory::contents(std::size_t position) const {
  return contents(Crash{.position = position, .kept = std::vector<bool>(position, true)});
}

FolderContents FileHistory::contents(const Crash& crash) const {
  Disk disk = initial_;
  for (std::size_t i = 0; i < crash.position; ++i) {
    Change change = changes_[i];
    if (!crash.kept[i]) {
      if (!crash.zeros || change.kind != Change::Kind::kWrite) continue;
      const std::size_t end = change.offset + change.bytes.size();
      std::string& bytes = disk.nodes.at(static_cast<std::size_t>(change.node)).bytes;
      bytes.resize(std::max(bytes.size(), end), '\0');
      continue;
    }
    if (i == crash.torn && crash.torn_at > 0)
      change.bytes.resize(std::min(change.bytes.size(), crash.torn_at));
    disk.apply(change);
  }
  FolderContents contents;
  disk.add(0, "", contents);
  return contents;
}

/// Finds for each change the sync that makes it safe.
void FileHistory::find_syncs() {
  synced_by_.assign(size(), size() + 1);
  for (std::size_t i = 0; i < size(); ++i) {
    const Change& change = changes_[i];
    std::set<int> open;  // nodes still to be synced
    if (change.kind == Change::Kind::kNames) {
      for (const NameChange& entry : change.names) open.insert(entry.folder);
    } else if (change.kind != Change::Kind::kSync) {
      open.insert(change.node);
    }
    std::size_t at = i + 1;
    for (; at < size() && !open.empty(); ++at)
      if (changes_[at].kind == Change::Kind::kSync) open.erase(changes_[at].node);
    if (open.empty()) synced_by_[i] = at;
  }
}

std::vector<FileHistory::Crash> FileHistory::crashes(std::size_t position, std::size_t exhaustive,
                                                     std::size_t random,
                                                     std::mt19937_64& generator) const {
  std::vector<bool> safe(position);
  std::vector<std::size_t> loose;
  for (std::size_t i = 0; i < position; ++i) {
    safe[i] = synced_by_[i] <= position;
    if (!safe[i]) loose.push_back(i);
  }
  std::vector<Crash> found;
  const auto add = [&](const auto& is_kept) {
    Crash crash{.position = position, .kept = safe};
    bool loses_write = false;
    for (std::size_t n = 0; n < loose.size(); ++n) {
      crash.kept[loose[n]] = is_kept(n);
      loses_write = loses_write || (!is_kept(n) && changes_[loose[n]].kind == Change::Kind::kWrite);
    }
    found.push_back(crash);
    if (loses_write) {
      found.push_back(crash);
      found.back().zeros = true;
    }
    for (std::size_t n = loose.size(); n-- > 0;) {
      const Change& last = changes_[loose[n]];
      if (!crash.kept[loose[n]] || last.kind != Change::Kind::kWrite) continue;
      for (const std::size_t sector : {std::size_t{512}, std::size_t{4096}}) {
        if (last.bytes.size() <= sector) continue;
        const std::size_t sectors = (last.bytes.size() - 1) / sector;
        found.push_back(crash);
        found.back().torn = loose[n];
        found.back().torn_at = sector * (1 + generator() % sectors);
      }
      break;
    }
  };
  const std::size_t count = loose.size();
  if (count <= exhaustive) {
    for (std::size_t set = 0; set < std::size_t{1} << count; ++set)
      add([&](std::size_t n) { return (set >> n & 1) != 0; });
    return found;
  }
  add([](std::size_t) { return true; });
  add([](std::size_t) { return false; });
  for (std::size_t one = 0; one < count; ++one) {
    add([&](std::size_t n) { return n != one; });
    add([&](std::size_t n) { return n == one; });
    add([&](std::size_t n) { return n < one; });
  }
  for (std::size_t i = 0; i < random; ++i) {
    std::vector<bool> kept(count);
    for (std::size_t n = 0; n < count; ++n) kept[n] = generator() % 2 == 0;
    add([&](std::size_t n) { return bool{kept[n]}; });
  }
  return found;
}

std::string FileHistory::text(const Crash& crash) const {
  std::string text = concat("crash after ", crash.position, " of ", size(), " changes");
  if (crash.position > 0) text += concat(" (", changes_[crash.position - 1].text, ")");
  if (crash.torn_at > 0)
    text += concat(", ", changes_[crash.torn].text, " torn at byte ", crash.torn_at);
  for (std::size_t i = 0; i < crash.position; ++i)
    if (!crash.kept[i])
      text += concat("\n    ", crash.zeros ? "lost or zeros: " : "lost: ", changes_[i].text);
  return text;
}

FileHistory FileHistory::with(Planted fault) const {
  FileHistory changed = *this;
  auto& list = changed.changes_;
  const auto is_folder = [&](const Change& change) {
    return now_.nodes.at(static_cast<std::size_t>(change.node)).is_folder;
  };
  const auto is_sync = [](const Change& change) { return change.kind == Change::Kind::kSync; };
  const auto drop = [&](const auto& is_dropped) {
    for (Change& change : list)  // stays as a call without effect, so that marks keep their places
      if (is_sync(change) && is_dropped(change)) change = {.text = "planted: no " + change.text};
  };
  switch (fault) {
    case Planted::kNothing: break;
    case Planted::kNoFileSync: drop([&](const Change& one) { return !is_folder(one); }); break;
    case Planted::kNoFolderSync: drop(is_folder); break;
    case Planted::kNoLastFolderSync: {
      int last = kNone;
      std::string text;
      for (const Change& one : list)
        if (is_sync(one) && is_folder(one)) last = one.node;
      drop([&](const Change& one) { return one.node == last; });
      break;
    }
    case Planted::kNoSyncOfOneFile: {
      int largest = kNone;
      std::size_t most = 0;
      for (const Change& one : list) {
        const std::size_t bytes = now_.nodes.at(static_cast<std::size_t>(one.node)).bytes.size();
        if (is_sync(one) && !is_folder(one) && bytes > most) {
          most = bytes;
          largest = one.node;
        }
      }
      drop([&](const Change& one) { return one.node == largest; });
      break;
    }
    case Planted::kRenameBeforeSync:
      for (std::size_t i = 1; i < list.size(); ++i) {
        const bool renames = list[i].kind == Change::Kind::kNames && list[i].names.size() > 1;
        for (std::size_t j = i; renames && j > 0 && is_sync(list[j - 1]); --j)
          std::swap(list[j - 1], list[j]);
      }
      break;
    case Planted::kLastWriteUnsynced:
      for (std::size_t i = 0; i + 1 < list.size(); ++i)
        if (list[i].kind == Change::Kind::kWrite && is_sync(list[i + 1]) &&
            list[i].node == list[i + 1].node)
          std::swap(list[i], list[i + 1]);
      break;
    case Planted::kWriteInPlace:
      for (std::size_t i = 0; i < list.size(); ++i) {
        if (list[i].kind != Change::Kind::kNames || list[i].names.size() != 2) continue;
        const int node = list[i].names.front().node;
        for (std::size_t j = 0; j < i; ++j) {
          const bool creates = list[j].kind == Change::Kind::kNames && list[j].names.size() == 1 &&
                               list[j].names.front().node == node;
          if (creates) list[j].names = {list[i].names.front()};
        }
      }
      break;
  }
  changed.find_syncs();
  return changed;
}

}  // namespace hybrid_trainer
