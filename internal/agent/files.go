package agent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// The files in paths.state.
const (
	checkpointName = "checkpoint.json"
	podSpecsName   = "podspecs.json"
	grantsName     = "granted.json"
	badSuffix      = ".damaged" // of one that was put aside
)

// loadState reads a file of paths.state. One that cannot be read is none: the
// runtime's records and the kubelet say more.
func (a *Agent) loadState(name string) []byte {
	dir := a.opt.Config.Paths.State
	if dir == "" {
		return nil
	}
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		a.log.Warn("what an earlier agent knew cannot be read", logkey.Err, err)
	}
	return data
}

// loadCheckpoint reads the last checkpoint. One that is damaged is put aside for
// whoever wants to know, in place of an earlier one: what runs is taken over from
// the runtime's records and from the kernel.
func (a *Agent) loadCheckpoint() []byte {
	data := a.loadState(checkpointName)
	err := conductor.CheckCheckpoint(data)
	if err == nil {
		return data
	}
	file := filepath.Join(a.opt.Config.Paths.State, checkpointName)
	if moved := os.Rename(file, file+badSuffix); moved != nil {
		err = errors.Join(err, moved)
	}
	a.log.Warn("the checkpoint is damaged and was put aside; the runtime's records and the kernel are used alone", logkey.File, file+badSuffix, logkey.Err, err)
	return nil
}

// saveState returns what writes a file of paths.state in place of the last; nil
// where nothing is kept.
func (a *Agent) saveState(name string) func([]byte) error {
	dir := a.opt.Config.Paths.State
	if dir == "" {
		return nil
	}
	return func(data []byte) error { return writeFile(filepath.Join(dir, name), data) }
}

// writeFile writes a root-only file so that a crash leaves the old or the new
// one, and makes its directory where it is missing.
func writeFile(file string, data []byte) error {
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "."+filepath.Base(file)+"-") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncDir(dir)
}

// syncDir makes a rename in dir durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
