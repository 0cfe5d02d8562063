// Files: reading a source, and an output folder whose files are written beside and renamed, so that nobody ever sees half of one.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>
#include "mirage/support/result.h"

namespace mirage {

/// The whole file; "-" is standard input. Errors: kFileMissing (with the system's reason), kLimit if it is larger than max_bytes.
Result<std::string> read_file(const std::string& path, int64_t max_bytes = int64_t{1} << 30);

/// Writes one file beside and renames it over `path`. A path that is no regular file (/dev/stdout, a pipe) is written directly. Errors:
/// kFileUnwritable.
Diagnostics write_file(const std::string& path, const std::string& bytes, bool executable = false);

/// Holds the lock of a folder (that OutputFolder::commit takes, too) as long as it lives: what is read, changed and written there in
/// between is not mixed with what other processes do. Where there is no such folder, or the file system has no locks, there is nothing to
/// hold.
class FolderLock {
 public:
  /// Waits half a minute at most, or `wait_ms`.
  explicit FolderLock(const std::string& folder, int wait_ms = 30'000);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  bool is_refused() const { return refused_; }   ///< somebody else has held it all the time

 private:
  int fd_ = -1;
  bool refused_ = false;
};

/// A folder that receives a set of files. They are first written completely into a staging folder inside it, then renamed one by one; other
/// files in the folder are left alone. If anything fails, or commit() is never called, the folder is as it was. What a killed process left
/// in its staging folder is removed by the next one that opens the folder.
class OutputFolder {
 public:
  /// Makes `path` (with parents) and a staging folder in it. Errors: kFileUnwritable.
  static Result<OutputFolder> open(const std::string& path);
  OutputFolder(OutputFolder&&) noexcept;
  OutputFolder& operator=(OutputFolder&&) = delete;
  ~OutputFolder();

  const std::string& path() const { return path_; }
  const std::string& staging() const { return staging_; }          ///< tools may write here; what keep() names goes along on commit
  /// name: may lie in a folder of its own; errors: kFileUnwritable (disk full, no permission)
  Diagnostics write(const std::string& name, const std::string& bytes);
  void keep(const std::string& name) { files_[name] = true; }      ///< a file that a tool wrote into staging()
  /// an own file of an earlier run that no longer fits
  void remove_on_commit(const std::string& name) { files_.try_emplace(name, false); }
  /// Names of what commit() puts in place.
  std::vector<std::string> written() const;
  /// From here to commit() no other process commits into the folder: for decisions about what lies there. Errors: kFileUnwritable if
  /// another holds the lock for half a minute.
  Diagnostics lock();
  /// Renames everything into place, in name order, removals first, `last` behind all others: where it is new, the rest is. Two processes'
  /// commits do not mix. Errors: kFileUnwritable.
  Diagnostics commit(const std::string& last = "");

 private:
  OutputFolder(std::string path, std::string staging, int guard) : path_(std::move(path)), staging_(std::move(staging)), guard_(guard) {}
  void close();
  std::string path_, staging_;
  std::map<std::string, bool> files_;   ///< name -> written (false: to be removed)
  int guard_ = -1, lock_ = -1;          ///< open folders whose locks are held: staging, the folder itself
};

}  // namespace mirage
