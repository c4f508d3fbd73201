package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"github.com/trimtab/trimtab/internal/record"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/statefile"
)

// The files in paths.state.
const (
	checkpointName = "checkpoint.json"
	podSpecsName   = "podspecs.json"
	grantsName     = "granted.json"
)

// directory returns a directory of state files, whose calls files makes, or the disk where that is nil.
func directory(files func(dir string) statefile.FS, path string) *statefile.Dir {
	if files != nil {
		return statefile.New(files(path), path)
	}
	return statefile.New(statefile.Disk(path), path)
}

// prepareState makes the state directory. One that others can write to is
// reported and used: its files are checked one by one.
func (a *Agent) prepareState() error {
	path := a.opt.Config.Paths.State
	a.state = directory(a.opt.Files, path)
	err := a.state.Prepare(checkpointName, podSpecsName, grantsName, originalsName)
	if errors.Is(err, statefile.ErrUntrusted) {
		a.log.Warn("others can remove what the agent keeps for a restart", logkey.Key, "paths.state", logkey.Err, err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("prepare the state directory %s (paths.state): %w", path, err)
	}
	return nil
}

// loadState reads a file of paths.state. One that cannot be read, or that somebody
// else may have written, is put aside and counts as none: the runtime's records
// and the kubelet say more.
func (a *Agent) loadState(name string) []byte {
	if a.state == nil {
		return nil
	}
	data, err := a.state.Read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = statefile.CheckSeal(a.seal, name, data)
	}
	if err == nil && name == checkpointName {
		err = record.Check(data)
	}
	if err == nil {
		return data
	}
	file, moved := a.state.PutAside(name)
	a.log.Warn("a state file is damaged or not the agent's own, and was put aside; the runtime's records, the kernel and the kubelet are used alone",
		logkey.File, file, logkey.Err, errors.Join(err, moved))
	return nil
}

// saveState returns what writes a file of paths.state in place of the last; nil
// where nothing is kept.
func (a *Agent) saveState(name string) func([]byte) error {
	if a.state == nil {
		return nil
	}
	return func(data []byte) error {
		err := a.state.Write(name, statefile.Seal(a.seal, name, data))
		a.noteUnsaved(name, err)
		return err
	}
}

// noteUnsaved notes whether the last save of a file failed.
func (a *Agent) noteUnsaved(name string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		delete(a.unsaved, name)
		return
	}
	if a.unsaved == nil {
		a.unsaved = map[string]string{}
	}
	a.unsaved[name] = err.Error()
}

// unsavedLocked lists what a restart would not know, with the reason. Agent.mu is
// held.
func (a *Agent) unsavedLocked() []string {
	if a.state == nil {
		return nil
	}
	var out []string
	if err := a.keeper.Originals.Kept(); err != nil {
		out = append(out, fmt.Sprintf("%s: %v", a.state.Path(originalsName), err))
	}
	for _, name := range slices.Sorted(maps.Keys(a.unsaved)) {
		out = append(out, fmt.Sprintf("%s: %s", filepath.Join(a.opt.Config.Paths.State, name), a.unsaved[name]))
	}
	return out
}
