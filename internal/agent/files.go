package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/record"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/statefile"
)

// The names of files in paths.state.
const (
	checkpointFile = "checkpoint.json"
	podSpecsFile   = "podspecs.json"
	grantsFile     = "granted.json"
	namespacesFile = "namespaces.json"
)

// stateDirectory returns the directory of state files at a path. The function makeFS makes the file system of the
// directory; nil means the disk.
func stateDirectory(makeFS func(dir string) statefile.FS, path string) *statefile.Dir {
	if makeFS != nil {
		return statefile.New(makeFS(path), path)
	}
	return statefile.New(statefile.Disk(path), path)
}

// stateFiles are the files in paths.state, and the key that signs them.
type stateFiles struct {
	log           *slog.Logger
	paths         config.Paths
	makeFS        func(dir string) statefile.FS // makes the file system of a directory in tests; nil for the disk
	dir           *statefile.Dir                // paths.state; nil if the agent keeps no state files
	key           []byte                        // the key that signs container records; nil before recordKey
	signingKey    []byte                        // the key that signs state files; nil without paths.key
	hasEarlierKey bool                          // the key existed at the start, so an agent has run before

	mu         sync.Mutex
	saveErrors map[string]string // why the last save of a file failed, by the name of the file
}

// prepare makes the state directory. If other users can write to the directory, prepare logs a warning and returns no
// error, because the agent checks each file.
func (s *stateFiles) prepare() error {
	path := s.paths.State
	s.dir = stateDirectory(s.makeFS, path)
	err := s.dir.Prepare(checkpointFile, podSpecsFile, grantsFile, namespacesFile, pluginsFile, originalsFile, clusterConfigFile, adoptFile, cpuClassesFile)
	if errors.Is(err, statefile.ErrUntrusted) {
		s.log.Warn("other users can remove the agent's state files", logkey.Key, "paths.state", logkey.Err, err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("prepare the state directory %s (paths.state): %w", path, err)
	}
	return nil
}

// load returns the content of a file of paths.state. It returns nil if the file does not exist. If the file is damaged
// or not trusted, load renames it and returns nil. The agent then restores its state from other sources: the signed
// annotations that it added to containers, the kernel and the kubelet.
func (s *stateFiles) load(name string) []byte {
	if s.dir == nil {
		return nil
	}
	data, err := s.dir.Read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = statefile.VerifySignature(s.signingKey, name, data)
	}
	if err == nil && name == checkpointFile {
		err = record.CheckDecodable(data)
	}
	if err == nil {
		return data
	}
	file, moved := s.dir.RenameDamaged(name)
	s.log.Warn("a state file is damaged or not trusted, and was renamed; the agent uses the containers' records, the kernel and the kubelet instead",
		logkey.File, file, logkey.Err, errors.Join(err, moved))
	return nil
}

// save returns a function that replaces a file of paths.state; nil if the agent keeps no state files.
func (s *stateFiles) save(name string) func([]byte) error {
	if s.dir == nil {
		return nil
	}
	return func(data []byte) error {
		err := s.dir.Write(name, statefile.Sign(s.signingKey, name, data))
		s.storeSaveResult(name, err)
		return err
	}
}

// storeSaveResult stores the result of the last save of a file.
func (s *stateFiles) storeSaveResult(name string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		delete(s.saveErrors, name)
		return
	}
	if s.saveErrors == nil {
		s.saveErrors = map[string]string{}
	}
	s.saveErrors[name] = err.Error()
}

// unsavedFiles lists the state files that could not be written, with the errors. The parameter originals is the error
// of the last write to originalsFile, the file with the kernel values from before the agent's first change. originals
// is nil if there was no error.
func (s *stateFiles) unsavedFiles(originals error) []string {
	if s.dir == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	if originals != nil {
		out = append(out, fmt.Sprintf("%s: %v", s.dir.Path(originalsFile), originals))
	}
	for _, name := range slices.Sorted(maps.Keys(s.saveErrors)) {
		out = append(out, fmt.Sprintf("%s: %s", filepath.Join(s.paths.State, name), s.saveErrors[name]))
	}
	return out
}
