package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/internal/report/logkey"
)

// originalsName is the file in paths.state that says what was in cgroup files
// before us. Its first line names the boot it is of: cgroups do not outlive one.
const originalsName = "originals.jsonl"

// errInUse is why the originals cannot be given back beside a running agent.
var errInUse = errors.New("an agent is running on this state directory")

// originals is the keeper's journal in a file.
type originals struct {
	path, boot string
	log        *slog.Logger

	mu   sync.Mutex
	file *os.File
	bad  bool // the last line may not be whole, or the file has failed
}

// openOriginals opens the journal in a state directory, and returns what an
// earlier agent of this boot left there, nil where there was none at all. locked says that nobody else has it.
func openOriginals(dir string, log *slog.Logger) (o *originals, earlier []byte, locked bool, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, false, err
	}
	o = &originals{path: filepath.Join(dir, originalsName), boot: bootID(), log: log}
	if o.file, err = os.OpenFile(o.path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		return nil, nil, false, err
	}
	locked = lock(o.file)
	all, err := io.ReadAll(o.file)
	if err != nil {
		return nil, nil, false, errors.Join(err, o.file.Close())
	}
	head, rest, _ := bytes.Cut(all, []byte("\n"))
	if string(head) == o.boot {
		// A line an agent died over is not whole.
		o.bad = len(all) > 0 && all[len(all)-1] != '\n'
		return o, append([]byte{}, rest...), locked, nil
	}
	if len(all) > 0 {
		earlier = []byte{} // of another boot, whose cgroups are gone
	}
	if locked {
		err = o.Replace(nil)
	}
	return o, earlier, locked, err
}

// lock takes a file's lock, which ends with the process.
func lock(f *os.File) bool { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil }

// Append adds lines.
func (o *originals) Append(lines []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.bad {
		lines = append([]byte("\n"), lines...)
	}
	_, err := o.file.Write(lines)
	o.tell(err)
	return err
}

// Replace writes the file anew, beside the old one.
func (o *originals) Replace(lines []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	err := o.replace(lines)
	o.tell(err)
	return err
}

func (o *originals) replace(lines []byte) error {
	f, err := os.CreateTemp(filepath.Dir(o.path), "."+originalsName+"-") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(append([]byte(o.boot+"\n"), lines...))
	lock(f)
	if err == nil {
		err = os.Rename(f.Name(), o.path)
	}
	if err != nil {
		return errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	old := o.file
	o.file = f
	return old.Close()
}

// tell logs the first of many failures, and their end.
func (o *originals) tell(err error) {
	switch failed := err != nil; {
	case failed && !o.bad:
		o.log.Error("what was in the kernel before is not kept; a restart would not know it", logkey.File, o.path, logkey.Err, err)
		fallthrough
	default:
		o.bad = failed
	}
}

// Close ends the journal; what is in it stays.
func (o *originals) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.file.Close()
}

// bootID names this boot of the machine, "" where nobody tells.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return fmt.Sprintf("{\"boot\":%q}", strings.TrimSpace(string(id)))
}
