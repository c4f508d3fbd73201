package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"

	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/statefile"
)

// originalsFile is the file in paths.state with the contents that cgroup files had before the agent's first write. Its
// first line has the id of the boot, because cgroups do not survive a reboot.
const originalsFile = "originals.jsonl"

// errInUse is the error of ReleaseAlone if an agent runs.
var errInUse = errors.New("an agent is using this state directory")

// originals stores the keeper's journal of original values in a file. If several writes fail in a row, it logs only the
// first failure. It also logs when writes succeed again.
type originals struct {
	*statefile.Lines
	path string // the path of the journal, for messages
	log  *slog.Logger

	mu             sync.Mutex // guards lastSaveFailed
	lastSaveFailed bool
}

// openOriginals opens the journal of original values in a state directory. The result named earlier has the entries
// that an earlier agent wrote since the last boot. earlier is nil if there is no readable journal, and empty if the
// journal was written before the last boot. The result locked reports whether this process holds the lock of the
// journal. If openOriginals returns an error, the caller can still use the journal, because the keeper retries its
// writes.
func openOriginals(dir *statefile.Dir, log *slog.Logger) (o *originals, earlier []byte, locked bool, err error) {
	o = &originals{path: dir.Path(originalsFile), log: log}
	o.Lines, earlier, locked, err = statefile.OpenLines(dir, originalsFile, bootID())
	return o, earlier, locked, err
}

// keepOriginals makes the keeper store original values in a journal, so that they survive a restart of the agent. It
// returns a function for the end of the agent. That function saves unsaved values, calls the function rest and closes
// the journal. Without a state directory the keeper stores the values only in memory, and keepOriginals returns rest.
func (s *stateFiles) keepOriginals(k *keeper.Keeper, rest func() error) func() error {
	if s.dir == nil {
		return rest
	}
	journal, earlier, locked, err := openOriginals(s.dir, s.log)
	if err != nil {
		s.log.Error("the agent cannot open the file of original kernel values; it tries again", logkey.Err, err)
	}
	if !locked {
		s.log.Warn("another agent has locked the file of original kernel values", logkey.File, s.dir.Path(originalsFile))
	}
	if err != nil {
		k.Originals.LoadFailed(err)
	}
	if err := k.Originals.Load(journal, earlier); err != nil {
		s.log.Warn("the agent cannot read the original kernel values of an earlier agent", logkey.Err, err)
	}
	return func() error {
		k.Originals.SaveNow() // retries a write that failed before, for example because the disk was full
		return errors.Join(rest(), journal.Close())
	}
}

// Append adds lines to the journal. It does not log an error, because after an error the keeper calls Replace, which
// logs its own error.
func (o *originals) Append(lines []byte) error {
	err := o.Lines.Append(lines)
	if err == nil {
		o.report(nil)
	}
	return err
}

// Replace replaces all lines of the journal.
func (o *originals) Replace(lines []byte) error {
	err := o.Lines.Replace(lines)
	o.report(err)
	return err
}

// report logs the result err of a write. It logs only the first of several failures in a row, and the success after
// them.
func (o *originals) report(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch failed := err != nil; {
	case failed && !o.lastSaveFailed:
		o.log.Error("the agent cannot save the original kernel values; if it restarts now, they are lost", logkey.File, o.path, logkey.Err, err)
	case !failed && o.lastSaveFailed:
		o.log.Info("the agent can save the original kernel values again", logkey.File, o.path)
	}
	o.lastSaveFailed = err != nil
}

// bootID returns the id of the current boot as a JSON object; "" if it is unknown.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return fmt.Sprintf("{\"boot\":%q}", strings.TrimSpace(string(id)))
}
